//! The summary at the end of a session, as text.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use engine::{OfUser, PlaceReport, Report, SiteCounts};

use crate::messages::count;
use crate::targets::TargetCounts;

/// With more probepoints than this, only those with hits are shown.
const LONG: usize = 50;

/// What was lost, if anything: hits whose handler did not run, records that no target took, and
/// records that targets took and lost.
pub(crate) fn losses(report: &Report, targets: &[TargetCounts]) -> Option<String> {
    let sum = |of: fn(&engine::Counts) -> u64| {
        report.probes.iter().map(|probe| of(&probe.counts)).fold(0, u64::saturating_add)
    };
    let (missed, dropped) = (sum(|counts| counts.missed), sum(|counts| counts.dropped));
    let lost = targets.iter().filter(|target| target.lost > 0);
    let parts = [
        (missed > 0).then(|| format!("{} missed", count(missed, "hit"))),
        (dropped > 0).then(|| format!("{} dropped", count(dropped, "record"))),
    ];
    let lost = lost.map(|target| format!("{} lost by {}", count(target.lost, "record"), target.name));
    let parts: Vec<String> = parts.into_iter().flatten().chain(lost).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The summary: a line per probepoint, what became of the records of each target, then the
/// variables that are not zero.
pub(crate) fn text(report: &Report, targets: &[TargetCounts]) -> String {
    let mut text = String::new();
    let point = |probe: &engine::ProbeReport| {
        printable::text(&format!("{}:{}", probe.module, probe.point)).into_owned()
    };
    let width = report.probes.iter().map(|probe| point(probe).chars().count()).max().unwrap_or(0).max(10);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:width$}  {:>11}  {:>10} {:>10} {:>8} {:>7} {:>10} {:>8}  {:8}  engine",
        "probepoint", "major,minor", "hits", "runs", "ignored", "missed", "logged", "dropped", "state"
    );
    let all = report.probes.len() <= LONG;
    for probe in report.probes.iter().filter(|probe| all || probe.counts.hits > 0) {
        let counts = &probe.counts;
        let _ = writeln!(
            text,
            "{:width$}  {:>11}  {:>10} {:>10} {:>8} {:>7} {:>10} {:>8}  {:8}  {}",
            point(probe),
            format!("{},{}", probe.major, probe.minor),
            counts.hits,
            counts.runs,
            counts.ignored,
            counts.missed,
            counts.logged,
            counts.dropped,
            probe.state.name(),
            how(&probe.sites)
        );
    }
    text.push_str(&reasons(report));
    for target in targets.iter().filter(|target| target.written + target.lost > 0) {
        text.push_str(&self::target(target));
    }
    if report.nonsense > 0 {
        let times = count(report.nonsense, "time");
        let _ = writeln!(text, "{times} a process had written into its buffer what no handler writes: lost");
    }
    let silent = report.probes.iter().filter(|probe| probe.counts.hits == 0).count();
    if !all && silent > 0 {
        let _ = writeln!(text, "{} without a hit", count(silent as u64, "more probepoint"));
    }
    for probe in &report.probes {
        let places = probe.places.as_deref().unwrap_or_default();
        text.push_str(&functions(&point(probe), places));
    }
    text.push_str(&variables("lv", &report.locals));
    text.push_str(&variables("gv", &report.globals));
    let points: Vec<String> = report.probes.iter().map(point).collect();
    text.push_str(&users(&report.users, &points));
    text
}

/// What the processes of each of several users have counted; `points` are the names of the
/// probepoints.
pub(crate) fn users(users: &[OfUser], points: &[String]) -> String {
    let mut text = String::new();
    for user in users {
        text.push_str(&format!("of {}:\n", printable::text(&user.name)));
        for (point, hits) in points.iter().zip(&user.hits).filter(|(_, hits)| **hits > 0) {
            text.push_str(&format!("  {point}: {} by jumps\n", count(*hits, "hit")));
        }
        let variables = variables("lv", &user.locals) + &variables("gv", &user.globals);
        variables.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}

/// What became of a target's records, in a line.
pub(crate) fn target(target: &TargetCounts) -> String {
    let TargetCounts { name, written, lost } = target;
    format!("{}: {} written, {lost} lost\n", printable::text(name), count(*written, "record"))
}

/// How the sites of a probe fire: `jump (plain)`, or `jump (plain 40, punned 2), trap 1`, or
/// `kernel (uprobe)`; empty if the probe was placed nowhere.
fn how(sites: &SiteCounts) -> String {
    let traps: usize = sites.traps.values().sum();
    let kinds = |how: &str, kinds: &BTreeMap<&'static str, usize>| {
        let all: usize = kinds.values().sum();
        let kind = |(name, count): (&&str, &usize)| match all {
            1 => (*name).to_owned(),
            _ => format!("{name} {count}"),
        };
        (all > 0).then(|| format!("{how} ({})", kinds.iter().map(kind).collect::<Vec<_>>().join(", ")))
    };
    let (jump, kernel) = (kinds("jump", &sites.jumps), kinds("kernel", &sites.kernel));
    let jumps: usize = sites.jumps.values().sum();
    let trap = match (jumps, traps) {
        (_, 0) => None,
        (0, 1) => Some("trap".to_owned()),
        (_, traps) => Some(format!("trap {traps}")),
    };
    jump.into_iter().chain(trap).chain(kernel).collect::<Vec<_>>().join(", ")
}

/// Why sites are trapped, for all probes together: a line per reason, most frequent first.
fn reasons(report: &Report) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in report.probes.iter().flat_map(|probe| &probe.sites.traps) {
        *reasons.entry(reason).or_insert(0) += count;
    }
    // Traps that were asked for need no explanation.
    reasons.retain(|reason, _| *reason != "as asked");
    let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|&(reason, number)| (Reverse(number), reason));
    let line = |(reason, number)| format!("{} trapped: {reason}\n", count(number as u64, "site"));
    reasons.into_iter().map(line).collect()
}

/// The hits of a probe with points in several functions: a heading, and a line per function, most
/// hits first.
fn functions(point: &str, places: &[PlaceReport]) -> String {
    if places.len() < 2 {
        return String::new();
    }
    let total: u64 = places.iter().map(|place| place.hits).fold(0, u64::saturating_add);
    let several = places.iter().any(|place| place.module != places[0].module);
    let mut text = format!("\n{:>12} {:>7}  {point}\n", "hits", "%");
    for place in places.iter().filter(|place| place.hits > 0) {
        let module = if several { format!("{}:", printable::text(&place.module)) } else { String::new() };
        let share = place.hits as f64 * 100.0 / total as f64;
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "{:>12} {share:>7.2}  {module}{}", place.hits, printable::text(&place.function));
    }
    let sites: usize = places.iter().map(|place| place.sites).sum();
    let _ = writeln!(text, "{total:>12}          total, at {}", count(sites as u64, "site"));
    let silent = places.iter().filter(|place| place.hits == 0).count();
    if silent > 0 {
        let _ = writeln!(text, "{silent:>12}          more without a hit");
    }
    text
}

/// The variables that are not zero, a line each.
pub(crate) fn variables(name: &str, values: &[u64]) -> String {
    let values: Vec<(usize, u64)> =
        values.iter().copied().enumerate().filter(|(_, value)| *value != 0).collect();
    indexed(name, &values)
}

/// Variables with their indices, a line each.
pub(crate) fn indexed(name: &str, values: &[(usize, u64)]) -> String {
    values.iter().map(|(index, value)| format!("{name}[{index}] = {value} ({value:#x})\n")).collect()
}

/// An inserted program: a line for the program and one per probepoint.
pub(crate) fn program(program: &engine::Inserted<'_>) -> String {
    let object = program.object;
    let mut text = format!(
        "{}: major {}, id {}, {}, {}\n",
        printable::text(&object.module),
        object.major,
        object.id,
        count(u64::from(object.vars), "variable"),
        count(object.probes.len() as u64, "probe")
    );
    let probes = object.probes.iter().zip(&program.probes).zip(&program.places);
    for ((definition, (address, state, counts)), places) in probes {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {:24} minor {:<5} {:18} {:8} hits {} runs {} ignored {} missed {} logged {} dropped {}",
            printable::text(&definition.point),
            definition.minor,
            address.map_or_else(|| "-".to_owned(), |address| format!("{address:#x}")),
            state.name(),
            counts.hits,
            counts.runs,
            counts.ignored,
            counts.missed,
            counts.logged,
            counts.dropped
        );
        text.push_str(&functions(&printable::text(&definition.point), places.as_deref().unwrap_or_default()));
    }
    text
}
