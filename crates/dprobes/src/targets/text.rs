//! Text, in files and on standard error.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use trace::Record;
use trace::sink::{Live, Promise, Sink, View};

use crate::spool::Spool;

/// The texts of the programs, by their numbers.
#[derive(Debug, Default)]
struct Texts(HashMap<u32, Live>);

impl Texts {
    fn of(&mut self, program: u32) -> &mut Live {
        self.0.entry(program).or_insert_with(|| Live::new(View::default()))
    }
}

/// A file, which a thread of its own writes.
#[derive(Debug)]
pub(super) struct TextFile {
    name: String,
    spool: Spool,
    texts: Texts,
    lost: u64,
}

impl TextFile {
    pub(super) fn new(name: String, file: File) -> TextFile {
        TextFile { name, spool: Spool::new(file), texts: Texts::default(), lost: 0 }
    }
}

impl Sink for TextFile {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn promise(&self) -> &'static Promise {
        &Promise::FILE
    }

    fn show(&mut self, program: u32, view: &View) {
        self.texts.0.insert(program, Live::new(view.clone()));
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.texts.0.remove(&program);
        self.spool.flush()
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        let place = self.spool.place().inspect_err(|_| self.lost += 1)?;
        self.texts.of(program).append(record, place);
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        self.spool.is_ready()
    }

    fn idle(&mut self) -> io::Result<()> {
        self.spool.idle()
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.0.values_mut().for_each(|live| live.refresh(tell));
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spool.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.spool.flush()
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Standard error, where each record is written at once.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    texts: Texts,
    lost: u64,
}

impl Sink for Terminal {
    fn name(&self) -> String {
        "standard error".to_owned()
    }

    fn promise(&self) -> &'static Promise {
        &Promise::TERMINAL
    }

    fn show(&mut self, program: u32, view: &View) {
        self.texts.0.insert(program, Live::new(view.clone()));
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.texts.of(program).write(record, &mut io::stderr()).inspect_err(|_| self.lost += 1)
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.0.values_mut().for_each(|live| live.refresh(tell));
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
