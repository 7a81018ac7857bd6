//! `dprobes show`: the records of a trace store as text, and what is known of it.

mod info;

use std::collections::HashMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use trace::store::{Filter, Gap, Info, Item, Reader};
use trace::template::{Kept, Problem, Template};
use trace::{Form, Items, Text};

use crate::arguments::{Show, Shown};
use crate::messages::{CUT_SHORT, tell};
use crate::{Failure, templates};

/// Shows a store.
pub(crate) fn show(arguments: &Show) -> Result<ExitCode, Failure> {
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
    // What a program's records do not have would be shown as zeros.
    let programs = reader.info().programs.iter();
    let items: HashMap<u32, Items> =
        programs.map(|program| (program.number, wanted.and(program.items))).collect();
    let (mut text, kept) = text(&arguments.shown, reader.info())?;
    reader.select(filter).map_err(failed)?;
    let mut damaged = false;
    let mut lost = Lost::new(&path, reader.info(), &arguments.selection.filter(reader.info())?);
    while let Some(item) = reader.next().map_err(failed)? {
        match item {
            Item::Record(entry) => {
                text.set_items(items.get(&entry.program).copied().unwrap_or(wanted));
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
                // After the records that stand before it.
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

/// Losses that are told, at most, each where it was.
const MOST_LOSSES: usize = 100;

/// What was lost, to be told where it was.
struct Lost {
    /// When each was over, and what is said of it: the latest first.
    left: Vec<(u64, String)>,
    /// More, of which nothing is said but how many they are.
    more: usize,
}

impl Lost {
    /// Those of a store in the times that are wanted.
    fn new(path: &impl std::fmt::Display, info: &Info, wanted: &Filter) -> Lost {
        let mut gaps = info.gaps();
        gaps.retain(|gap| {
            gap.dropped > 0
                && wanted.from.is_none_or(|from| gap.to >= from)
                && wanted.to.is_none_or(|to| gap.from <= to)
        });
        let more = gaps.len().saturating_sub(MOST_LOSSES);
        gaps.truncate(MOST_LOSSES);
        let text = |gap: &Gap| {
            let count = crate::messages::count(gap.dropped, "record");
            let process = if gap.pid == 0 { String::new() } else { format!(" of process {}", gap.pid) };
            format!("warning: {path}: {count}{process} lost, {}", info::between(info, gap))
        };
        Lost { left: gaps.iter().rev().map(|gap| (gap.to, text(gap))).collect(), more }
    }

    /// Tells those that were over at a time, behind the records that were written.
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

/// What writes the records: by the templates that are asked for, else by those that the store has, unless the bytes are asked for.
fn text(shown: &Shown, info: &Info) -> Result<(Text, Option<Kept>), Failure> {
    let text = Text::new(shown.items(), shown.form());
    if let Some(templates) = templates::open(shown)? {
        return Ok((text.with_templates(templates), None));
    }
    if info.templates.is_empty() || shown.form() == Form::Unformatted {
        return Ok((text, None));
    }
    let compiled = info.templates.iter().map(|stored| {
        let format = stored.format.as_deref().map(plain);
        let description = plain(&stored.description);
        let template = Template::compile(stored.major, stored.minor, &description, format.as_deref())?;
        Ok((stored.program, template))
    });
    let (right, wrong): (Vec<Result<_, Vec<Problem>>>, Vec<_>) = compiled.partition(Result::is_ok);
    if let Some(Err(problems)) = wrong.first() {
        let count = crate::messages::count(wrong.len() as u64, "template");
        let first: Vec<String> = problems.iter().take(1).map(ToString::to_string).collect();
        tell(&format!(
            "warning: {count} in the store with a mistake; records show as dumps\n{}",
            first.join("")
        ));
    }
    Ok((text, Some(Kept::of(right.into_iter().flatten()))))
}

/// A text of the store without what a terminal might obey.
fn plain(text: &str) -> String {
    text.replace(|each: char| !printable::is_plain(each) && !matches!(each, '\n' | '\t'), ".")
}

/// What ends the command where its output cannot be written. A reader that has seen enough is no error.
fn ended(error: io::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        _ => Err(Failure::new(format!("standard output: {error}"))),
    }
}
