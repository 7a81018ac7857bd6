//! Writes the Common Trace Format, with [`trace::ctf`].

use std::io;
use std::path::Path;

use trace::ctf::Writer;
use trace::store::{Info, Lookup};

use crate::event::{Event, Form};
use crate::plural::counted;
use crate::template_set::TemplateSet;

/// Writes records as a directory in the Common Trace Format.
#[derive(Debug)]
pub struct Ctf {
    writer: Writer,
    /// Losses not reported yet, the latest first: end time and number of records.
    losses: Vec<(u64, u64)>,
}

impl Ctf {
    /// Writes to a directory, which must be new or empty.
    ///
    /// # Errors
    /// It cannot be made, or is not empty.
    pub fn new(directory: &Path, info: &Info, sheet: &TemplateSet) -> io::Result<Ctf> {
        let mut writer = Writer::create(directory, &info.about)?;
        sheet.common().for_each(|template| writer.template(template.clone()));
        for (program, own) in sheet.of_programs() {
            writer.templates_of(program, own.cloned());
        }
        let lookup = Lookup::new(info);
        for probe in &info.probes {
            let items = lookup.program(probe.program).map(|program| program.items).unwrap_or_default();
            writer.probe(probe.program, probe.number, &lookup.probe_name(probe), items);
        }
        let mut losses: Vec<(u64, u64)> = info.gaps().iter().map(|gap| (gap.to, gap.dropped)).collect();
        losses.sort_unstable_by(|one, other| other.cmp(one));
        Ok(Ctf { writer, losses })
    }

    /// Reports the losses up to a time.
    fn tell_losses(&mut self, until: u64) {
        while let Some((_, dropped)) = self.losses.pop_if(|(time, _)| *time <= until) {
            self.writer.discarded(dropped);
        }
    }
}

impl Form for Ctf {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.tell_losses(event.record.time);
        match self.writer.record(event.place.program, event.record) {
            // Only this record cannot be written, and the writer has counted it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.tell_losses(u64::MAX);
        self.writer.end()?;
        let lost = self.writer.lost();
        let remark = || counted(lost, "record could not be written", "records could not be written");
        Ok(if lost > 0 { vec![remark()] } else { Vec::new() })
    }
}
