//! `dprobes show`: the records of a trace store as text, and what is known of it.

mod info;

use std::collections::HashMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use process::Pattern;
use trace::Text;
use trace::store::{Filter, Info, Item, Reader};

use crate::Failure;
use crate::arguments::Show;
use crate::output::tell;

/// Shows a store.
pub(crate) fn show(arguments: &Show) -> Result<ExitCode, Failure> {
    let path = arguments.file.display();
    let failed = |error: trace::store::Error| Failure::new(format!("{path}: {error}"));
    let mut reader = Reader::open(&arguments.file).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    if arguments.info {
        let size = std::fs::metadata(&arguments.file).map_or(0, |metadata| metadata.len());
        let shown = out.write_all(info::text(&path.to_string(), size, reader.info()).as_bytes());
        return shown.and_then(|()| out.flush()).map_or_else(ended, |()| Ok(ExitCode::SUCCESS));
    }
    let filter = filter(arguments, reader.info())?;
    let mut texts: HashMap<u32, Text> = HashMap::new();
    let programs = &reader.info().programs;
    for program in programs {
        // What a program's records do not have would be shown as zeros.
        let items = arguments.shown.items().and(program.items);
        texts.insert(program.number, Text::new(items, arguments.shown.form()));
    }
    let mut rest = Text::new(arguments.shown.items(), arguments.shown.form());
    reader.select(filter).map_err(failed)?;
    let mut damaged = false;
    while let Some(item) = reader.next().map_err(failed)? {
        match item {
            Item::Record(entry) => {
                let text = texts.get_mut(&entry.program).unwrap_or(&mut rest);
                if let Err(error) = text.write(entry.record, &mut out) {
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
    match out.flush() {
        Ok(()) if damaged => Ok(ExitCode::FAILURE),
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => ended(error),
    }
}

/// What ends the command where its output cannot be written. A reader that has seen enough is no error.
fn ended(error: io::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        _ => Err(Failure::new(format!("standard output: {error}"))),
    }
}

/// The records that are asked for.
fn filter(arguments: &Show, info: &Info) -> Result<Filter, Failure> {
    let start = info.about.start;
    let mut filter = Filter {
        from: arguments.from.map(|moment| moment.time(start)),
        to: arguments.to.map(|moment| moment.time(start)),
        pids: arguments.pid.clone(),
        tids: arguments.tid.clone(),
        ..Filter::default()
    };
    for wanted in &arguments.probe {
        match codes(wanted) {
            Some(codes) => filter.codes.push(codes),
            None => filter.probes.extend(named(wanted, info)?),
        }
    }
    if !filter.codes.is_empty() && !filter.probes.is_empty() {
        return Err(Failure::new("--probe takes probepoints, or codes as MAJOR,MINOR, but not some of both"));
    }
    Ok(filter)
}

/// Reads `MAJOR,MINOR`.
fn codes(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(',')?;
    Some((major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

/// The probes that a name or a pattern means: that of a probepoint, or of a module and a probepoint.
fn named(text: &str, info: &Info) -> Result<Vec<(u32, u32)>, Failure> {
    let pattern = Pattern::new(text).ok().filter(|_| Pattern::is_one(text));
    let is_it = |name: &str| name == text || pattern.as_ref().is_some_and(|pattern| pattern.matches(name));
    let meant = info.probes.iter().filter(|probe| {
        let module = info.program(probe.program).map_or("", |program| program.module.as_str());
        is_it(&probe.point) || is_it(&format!("{module}:{}", probe.point))
    });
    let meant: Vec<(u32, u32)> = meant.map(|probe| (probe.program, probe.number)).collect();
    match meant.is_empty() {
        true => Err(Failure::new(format!("no probe `{text}` is in it; --info shows those that are"))),
        false => Ok(meant),
    }
}
