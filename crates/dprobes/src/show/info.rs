//! Information about a trace store, as text.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use printable::text as clean;
use trace::store::{Counts, Gap, Info, Lookup, Probe};

use crate::{messages, summary};

/// Most sites, threads and messages shown.
const MAX_SHOWN: usize = 100;

/// A store's information, in lines. A store may hold any text: control characters are escaped.
pub(super) fn text(path: &str, size: u64, info: &Info) -> String {
    let mut text = String::new();
    head(&mut text, path, size, info);
    let lookup = Lookup::new(info);
    probes(&mut text, info, &lookup);
    sites(&mut text, info, &lookup);
    losses(&mut text, info, &lookup);
    threads(&mut text, info);
    for variables in &info.variables {
        match variables.program {
            None => text.push_str(&summary::variables("gv", &variables.values)),
            Some(program) => {
                let values = summary::variables("lv", &variables.values);
                if !values.is_empty() {
                    text.push_str(&format!("{}:\n{values}", clean(lookup.module_of(program))));
                }
            }
        }
    }
    some(&mut text, "message", &info.notes, |note| {
        format!("{}  {}", since(info, note.time), clean(&note.text))
    });
    text
}

/// Where and how the store was made.
fn head(text: &mut String, path: &str, size: u64, info: &Info) {
    let about = &info.about;
    let records = messages::count(info.records, "record");
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:12}{value}");
    };
    line("file", format!("{path}, {}, {records}", messages::count(size, "byte")));
    if about.version.is_empty() {
        line("made", "not known: the first block is lost".to_owned());
    } else {
        let processors = messages::count(about.processors.into(), "processor");
        line("made by", format!("dprobes {}, process {}", clean(&about.version), about.pid));
        let on = format!("{}, {}, {}, {processors}", about.host, about.kernel, about.machine);
        line("on", clean(&on).into_owned());
        line("command", clean(&about.command_line()).into_owned());
        line("began", date(about.start));
    }
    if let Some((least, greatest)) = info.times {
        line("records", format!("from {} to {}", since(info, least), since(info, greatest)));
    }
    let order = match info.disorder {
        0 => "of time".to_owned(),
        nanoseconds => {
            format!("as handed out; up to {:.3} ms older than one before", nanoseconds as f64 / 1e6)
        }
    };
    line("order", order);
    let end = match info.complete {
        true => "clean",
        false => "cut short: counts, variables and lines of sources are not there",
    };
    line("end", end.to_owned());
    if info.omitted > 0 {
        line(
            "left out",
            format!("{}, which are more than can be kept", messages::count(info.omitted, "fact")),
        );
    }
}

/// The probepoints and their counts.
fn probes(text: &mut String, info: &Info, lookup: &Lookup<'_>) {
    let name = |probe: &Probe| clean(&lookup.probe_name(probe)).into_owned();
    let width = info.probes.iter().map(|probe| name(probe).chars().count()).max().unwrap_or(0).max(10);
    let mut line = |cells: [String; 8]| {
        let [point, codes, hits, runs, missed, logged, dropped, state] = cells;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{point:width$}  {codes:>11}  {hits:>10} {runs:>10} {missed:>7} {logged:>10} {dropped:>8}  {state}"
        );
    };
    line(
        ["probepoint", "major,minor", "hits", "runs", "missed", "logged", "dropped", "state"]
            .map(str::to_owned),
    );
    for probe in &info.probes {
        let program = lookup.program(probe.program);
        let major = program.map_or_else(|| "?".to_owned(), |program| program.major.to_string());
        let counts = lookup.counts(probe.program, probe.number);
        let told = |count: fn(&Counts) -> u64| {
            counts.map_or_else(|| "?".to_owned(), |counts| count(counts).to_string())
        };
        line([
            name(probe),
            format!("{major},{}", probe.minor),
            told(|counts| counts.hits),
            told(|counts| counts.runs),
            told(|counts| counts.missed),
            told(|counts| counts.logged),
            told(|counts| counts.dropped),
            counts.map_or_else(String::new, |counts| clean(&counts.state).into_owned()),
        ]);
    }
}

/// The sites of the probes.
fn sites(text: &mut String, info: &Info, lookup: &Lookup<'_>) {
    for module in &info.modules {
        let build_id = if module.build_id.is_empty() { "none" } else { &module.build_id };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "module {} (build-id {})", clean(&module.path), clean(build_id));
    }
    some(text, "site", &info.sites, |site| {
        let source = lookup.source(site.module, site.offset);
        let source = source.map(|source| format!(" ({}:{})", source.file, source.line)).unwrap_or_default();
        let module = lookup.module(site.module).map_or("?", |module| module.path.as_str());
        let module = module.rsplit('/').next().unwrap_or(module);
        let engine = match site.tactic.as_str() {
            "" => site.engine.clone(),
            tactic => format!("{}, {tactic}", site.engine),
        };
        let line = format!(
            "{:#018x}  process {}  {module}+{:#x}  {}{source}  {engine}",
            site.address, site.pid, site.offset, site.symbol
        );
        clean(&line).into_owned()
    });
}

/// The losses and their times.
fn losses(text: &mut String, info: &Info, lookup: &Lookup<'_>) {
    let dropped = info.dropped();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} dropped while it was made", messages::count(dropped, "record"));
    some(text, "loss", &info.losses, |loss| {
        let point = lookup.probe(loss.program, loss.probe).map_or("?", |probe| probe.point.as_str());
        format!("{}  {} at {}", since(info, loss.time), messages::count(loss.dropped, "record"), clean(point))
    });
    some(text, "gap", &info.gaps_told, |gap| {
        let process = if gap.pid == 0 { String::new() } else { format!(" of process {}", gap.pid) };
        format!("{}  {}{process}", between(info, gap), messages::count(gap.dropped, "record"))
    });
}

/// The time range in which something was lost.
pub(super) fn between(info: &Info, gap: &Gap) -> String {
    match gap.from {
        0 => format!("before {}", since(info, gap.to)),
        from => format!("between {} and {}", since(info, from), since(info, gap.to)),
    }
}

/// The threads that logged records.
fn threads(text: &mut String, info: &Info) {
    some(text, "thread", &info.threads, |thread| {
        format!("pid {} tid {} uid {}  {}", thread.pid, thread.tid, thread.uid, clean(&thread.name))
    });
}

/// A heading, and a line per element; at most [`MAX_SHOWN`] lines.
fn some<T>(text: &mut String, noun: &str, all: &[T], line: impl Fn(&T) -> String) {
    if all.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}:", messages::count(all.len() as u64, noun));
    for one in all.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "  {}", line(one));
    }
    if all.len() > MAX_SHOWN {
        let _ = writeln!(text, "  and {} more", all.len() - MAX_SHOWN);
    }
}

/// A time relative to the start of the trace, in seconds.
fn since(info: &Info, time: u64) -> String {
    let passed = i128::from(time) - i128::from(info.about.start);
    let sign = if passed < 0 { "-" } else { "+" };
    let passed = passed.unsigned_abs();
    format!("{sign}{}.{:09} s", passed / 1_000_000_000, passed % 1_000_000_000)
}

/// A date and time, in UTC.
fn date(time: u64) -> String {
    // The formatter fails only after year 9999, which 64 bits of nanoseconds do not reach.
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(time)).to_string()
}
