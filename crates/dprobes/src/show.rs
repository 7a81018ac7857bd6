//! `dprobes show`: prints the records of a trace store, or of a stream of raw events, as text, or
//! information about the store.

mod info;
mod lines;
mod stream;
mod writers;

use std::collections::HashMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use trace::store::{Filter, Gap, Info, Item, Reader};
use trace::stored::StoredLines;
use trace::template::StoredTemplates;
use trace::{Form, Items, Text};

use crate::arguments::{Show, Shown};
use crate::messages::{CUT_SHORT, tell};
use crate::{Failure, templates};

/// Shows a store.
pub(crate) fn show(arguments: &Show) -> Result<ExitCode, Failure> {
    if let Some(file) = stream::open(arguments)? {
        return stream::show(arguments, file);
    }
    let path = printable::path(&arguments.file);
    let failed = |error: trace::store::Error| Failure::new(format!("{path}: {error}"));
    let mut reader = Reader::open(&arguments.file).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    if arguments.info {
        let size = std::fs::metadata(&arguments.file).map_or(0, |metadata| metadata.len());
        let shown = out.write_all(info::text(&path.to_string(), size, reader.info()).as_bytes());
        return shown.and_then(|()| out.flush()).map_or_else(ended, |()| Ok(ExitCode::SUCCESS));
    }
    let filter = arguments.selection.filter(reader.info())?;
    let wanted = arguments.shown.items();
    // Items that a program's records lack would be shown as zeros.
    let programs = reader.info().programs.iter();
    let items: HashMap<u32, Items> =
        programs.map(|program| (program.number, wanted.and(program.items))).collect();
    let in_lines = StoredLines::new(reader.info(), arguments.shown.line_items());
    let (mut text, kept) = text(&arguments.shown, reader.info())?;
    reader.select(filter).map_err(failed)?;
    let mut damaged = false;
    let mut lost = Lost::new(&path, reader.info(), &arguments.selection.filter(reader.info())?);
    while let Some(item) = reader.next().map_err(failed)? {
        match item {
            Item::Record(entry) => {
                text.set_items(items.get(&entry.program).copied().unwrap_or(wanted));
                in_lines.show(entry.program, &mut text);
                let record = entry.record;
                if let Err(error) = lost.tell(record.time, &mut out) {
                    return ended(error);
                }
                let written = match &kept {
                    Some(kept) => {
                        let template = kept.get(entry.program, record.major, record.minor);
                        text.write_by(template, record, &mut out)
                    }
                    None => text.write(record, &mut out),
                };
                if let Err(error) = written {
                    return ended(error);
                }
            }
            Item::Damage(damage) => {
                damaged = true;
                // The warning must follow the records before the damage.
                if let Err(error) = out.flush() {
                    return ended(error);
                }
                tell(&format!("warning: {path}: {damage}"));
            }
            Item::Fact(_) => {}
        }
    }
    if let Err(error) = lost.tell(u64::MAX, &mut out) {
        return ended(error);
    }
    if !reader.info().complete {
        if let Err(error) = out.flush() {
            return ended(error);
        }
        damaged = true;
        tell(&format!("warning: {path}: {CUT_SHORT}"));
    }
    match out.flush() {
        Ok(()) if damaged => Ok(ExitCode::FAILURE),
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => ended(error),
    }
}

/// Most losses reported individually, each at its position among the records.
const MAX_LOSSES: usize = 100;

/// Losses of a store, reported between the records where they happened.
struct Lost {
    /// The end time of each loss and its message, the latest first.
    left: Vec<(u64, String)>,
    /// Number of losses beyond [`MAX_LOSSES`].
    more: usize,
}

impl Lost {
    /// The losses of a store within the wanted time range.
    fn new(path: &impl std::fmt::Display, info: &Info, wanted: &Filter) -> Lost {
        let mut gaps = info.gaps();
        gaps.retain(|gap| {
            gap.dropped > 0
                && wanted.from.is_none_or(|from| gap.to >= from)
                && wanted.to.is_none_or(|to| gap.from <= to)
        });
        let more = gaps.len().saturating_sub(MAX_LOSSES);
        gaps.truncate(MAX_LOSSES);
        let text = |gap: &Gap| {
            let count = crate::messages::count(gap.dropped, "record");
            let process = if gap.pid == 0 { String::new() } else { format!(" of process {}", gap.pid) };
            format!("warning: {path}: {count}{process} lost, {}", info::between(info, gap))
        };
        Lost { left: gaps.iter().rev().map(|gap| (gap.to, text(gap))).collect(), more }
    }

    /// Reports the losses that ended by this time, after the records written so far.
    fn tell(&mut self, until: u64, out: &mut impl Write) -> io::Result<()> {
        while let Some((_, text)) = self.left.pop_if(|(time, _)| *time <= until) {
            out.flush()?;
            tell(&text);
            if self.left.is_empty() && self.more > 0 {
                let more = crate::messages::count(self.more as u64, "more loss");
                tell(&format!("warning: and {more}: `dprobes show --info` has their sums"));
            }
        }
        Ok(())
    }
}

/// The writer of records: with the templates that the user gives, else with those of the store,
/// unless bytes are asked for.
fn text(shown: &Shown, info: &Info) -> Result<(Text, Option<StoredTemplates>), Failure> {
    let text = Text::new(shown.items(), shown.form());
    if let Some(templates) = templates::open(shown)? {
        return Ok((text.with_templates(templates), None));
    }
    if info.templates.is_empty() || shown.form() == Form::Unformatted || shown.log_format.is_some() {
        return Ok((lines::with_lines(text, shown, info), None));
    }
    let (right, wrong) = trace::stored::templates(info);
    if let Some(problems) = wrong.first() {
        let count = crate::messages::count(wrong.len() as u64, "template");
        let first: Vec<String> = problems.iter().take(1).map(ToString::to_string).collect();
        tell(&format!(
            "warning: {count} in the store with a mistake; records show as dumps\n{}",
            first.join("")
        ));
    }
    Ok((text, Some(right)))
}

/// The result if the output cannot be written. A reader that closes the pipe early is no error.
fn ended(error: io::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        _ => Err(Failure::new(format!("standard output: {error}"))),
    }
}
