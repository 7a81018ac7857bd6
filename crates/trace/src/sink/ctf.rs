//! A target that writes a trace in the Common Trace Format.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::view::RefreshTimer;
use super::{Sink, View};
use crate::ctf::Writer;
use crate::store::{About, Fact, Loss, point_name};
use crate::template::Templates;
use crate::{Items, Record};

/// A CTF trace that is being written.
#[derive(Debug)]
pub struct CtfSink {
    writer: Writer,
    /// The module and the header items of each program.
    programs: HashMap<u32, (String, Items)>,
    /// The templates of each program.
    templates: HashMap<u32, (Templates, RefreshTimer)>,
}

impl CtfSink {
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of [`Writer::create`].
    pub fn create(directory: &Path, about: &About) -> io::Result<CtfSink> {
        Ok(CtfSink {
            writer: Writer::create(directory, about)?,
            programs: HashMap::new(),
            templates: HashMap::new(),
        })
    }
}

impl Sink for CtfSink {
    fn show(&mut self, program: u32, view: &View) {
        let templates = view.templates.iter().flat_map(Templates::templates);
        self.writer.templates_of(program, templates.map(|(_, template)| template.clone()));
        match &view.templates {
            Some(templates) => self.templates.insert(program, (templates.clone(), RefreshTimer::new())),
            None => self.templates.remove(&program),
        };
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        for (program, (templates, looks)) in &mut self.templates {
            if looks.refresh(templates, tell) {
                let templates = templates.templates().map(|(_, template)| template.clone());
                self.writer.templates_of(*program, templates);
            }
        }
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.programs.remove(&program);
        self.templates.remove(&program);
        Ok(())
    }

    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        match fact {
            Fact::Program(program) => {
                self.programs.insert(program.number, (program.module.clone(), program.items));
            }
            Fact::Probe(probe) => {
                let unknown = (String::new(), Items::ALL);
                let (module, items) = self.programs.get(&probe.program).unwrap_or(&unknown);
                let name = point_name(module, &probe.point);
                self.writer.probe(probe.program, probe.number, &name, *items);
            }
            _ => {}
        }
        Ok(())
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.writer.record(program, record)
    }

    fn loss(&mut self, loss: &Loss, refused: u64) -> io::Result<()> {
        // The writer already counts the records that it refused itself.
        self.writer.discarded(loss.dropped.saturating_sub(refused));
        Ok(())
    }

    fn waits(&self) -> bool {
        self.writer.waits()
    }

    fn kept(&self) -> Option<u64> {
        Some(self.writer.kept())
    }

    fn idle(&mut self) -> io::Result<()> {
        self.writer.idle()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.writer.end().map(|_| ())
    }

    fn lost(&self) -> u64 {
        self.writer.lost()
    }
}
