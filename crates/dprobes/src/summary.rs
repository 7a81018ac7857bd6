//! The summary at the end of a session, as text.

mod processes;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use engine::{OfUser, PlaceReport, Report, SiteCounts};
use image::Pattern;

use crate::messages::count;
use crate::targets::TargetCounts;

/// With more probepoints than this, only those with hits are shown.
const LONG: usize = 50;
/// The most probepoints that are said to have no hit.
const SILENT: usize = 10;

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
/// variables that are not zero. If `verbose`, also the codes of probes, the tactics of jumps, and
/// why sites are trapped.
pub(crate) fn text(report: &Report, targets: &[TargetCounts], verbose: bool) -> String {
    let mut text = String::new();
    let point = |probe: &engine::ProbeReport| {
        printable::text(&format!("{}:{}", probe.module, probe.point)).into_owned()
    };
    let all = report.probes.len() <= LONG;
    let shown = report.probes.iter().filter(|probe| all || probe.counts.hits > 0);
    let mut rows = vec![Row::heading()];
    rows.extend(shown.map(|probe| Row::of(probe, point(probe), verbose)));
    text.push_str(&table(&rows, verbose));
    text.push_str(&reasons(report, verbose));
    for target in targets.iter().filter(|target| target.written + target.lost > 0) {
        text.push_str(&self::target(target));
    }
    if report.nonsense > 0 {
        let times = count(report.nonsense, "time");
        let _ = writeln!(text, "{times} a process had written into its buffer what no handler writes: lost");
    }
    let silent: Vec<String> =
        report.probes.iter().filter(|probe| !all && probe.counts.hits == 0).map(point).collect();
    let names = if verbose { Names::Shown } else { Names::Offered };
    if !silent.is_empty() {
        let more = count(silent.len() as u64, "more probepoint");
        let _ = writeln!(text, "{more} without a hit{}", names.hint());
        text.push_str(&named(silent, names));
    }
    for probe in &report.probes {
        let places = probe.places.as_deref().unwrap_or_default();
        text.push_str(&functions(&point(probe), places, names));
    }
    // What is waited for is told elsewhere.
    let exact = report.probes.iter().filter(|probe| probe.address.is_some());
    let exact = exact.filter(|probe| !Pattern::is_one(&probe.point) && !Pattern::is_one(&probe.module));
    let exact = exact.filter(|probe| probe.counts.hits == 0);
    text.push_str(&without_a_hit(exact.map(point)));
    text.push_str(&variables("lv", &report.locals));
    text.push_str(&variables("gv", &report.globals));
    let points: Vec<String> = report.probes.iter().map(point).collect();
    text.push_str(&users(&report.users, &points));
    let processes = report.processes.as_ref();
    text.push_str(&processes.map_or_else(String::new, |of| processes::text(of, &points, verbose)));
    text
}

/// That each of these has no hit, a line each.
pub(crate) fn without_a_hit(points: impl Iterator<Item = String>) -> String {
    let points: Vec<String> = points.collect();
    let mut text: String = points.iter().take(SILENT).map(|point| format!("{point}: no hit\n")).collect();
    if points.len() > SILENT {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} more have no hit", points.len() - SILENT);
    }
    text
}

/// Whether what was not hit is named.
#[derive(Clone, Copy)]
enum Names {
    Shown,
    /// An option shows them.
    Offered,
    Hidden,
}

impl Names {
    fn hint(self) -> &'static str {
        if matches!(self, Names::Offered) { "; -v names them" } else { "" }
    }
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

/// A row of the table: the cells of a probe.
struct Row {
    point: String,
    codes: String,
    counts: [String; 6],
    state: &'static str,
    engine: String,
}

impl Row {
    fn heading() -> Row {
        Row {
            point: "probepoint".to_owned(),
            codes: "codes".to_owned(),
            counts: ["hits", "runs", "ignored", "missed", "logged", "dropped"].map(str::to_owned),
            state: "state",
            engine: "engine".to_owned(),
        }
    }

    fn of(probe: &engine::ProbeReport, point: String, verbose: bool) -> Row {
        let counts = &probe.counts;
        Row {
            point,
            codes: format!("{},{}", probe.major, probe.minor),
            counts: [counts.hits, counts.runs, counts.ignored, counts.missed, counts.logged, counts.dropped]
                .map(|count| count.to_string()),
            state: probe.state.name(),
            engine: how(&probe.sites, verbose),
        }
    }
}

/// The rows in columns that are as wide as what is in them.
fn table(rows: &[Row], verbose: bool) -> String {
    let widest = |of: &dyn Fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let point = widest(&|row| row.point.chars().count());
    let codes = widest(&|row| row.codes.len());
    let counts: [usize; 6] = std::array::from_fn(|column| widest(&|row| row.counts[column].len()));
    let state = widest(&|row| row.state.len());
    let mut text = String::new();
    for row in rows {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:point$} ", row.point);
        if verbose {
            let _ = write!(text, " {:>codes$}", row.codes);
        }
        for (count, width) in row.counts.iter().zip(counts) {
            let _ = write!(text, " {count:>width$}");
        }
        let _ = write!(text, "  {:state$}  {}", row.state, row.engine);
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// How the sites of a probe fire: `jump`, or `jump 42, trap 1`; with tactics `jump (plain)`, or
/// `jump (plain 40, punned 2), trap 1`, or `kernel (uprobe)`; empty if the probe was placed
/// nowhere.
fn how(sites: &SiteCounts, verbose: bool) -> String {
    let traps: usize = sites.traps.values().sum();
    let several =
        [&sites.jumps, &sites.kernel].map(|kinds| kinds.values().sum::<usize>()).iter().sum::<usize>()
            + traps
            > 1;
    let number = |how: &str, all: usize| match several {
        true => format!("{how} {all}"),
        false => how.to_owned(),
    };
    let kinds = |how: &str, kinds: &BTreeMap<&'static str, usize>| {
        let all: usize = kinds.values().sum();
        let kind = |(name, count): (&&str, &usize)| match all {
            1 => (*name).to_owned(),
            _ => format!("{name} {count}"),
        };
        let tactics = || kinds.iter().map(kind).collect::<Vec<_>>().join(", ");
        (all > 0).then(|| if verbose { format!("{how} ({})", tactics()) } else { number(how, all) })
    };
    let (jump, kernel) = (kinds("jump", &sites.jumps), kinds("kernel", &sites.kernel));
    let trap = (traps > 0).then(|| number("trap", traps));
    jump.into_iter().chain(trap).chain(kernel).collect::<Vec<_>>().join(", ")
}

/// Why sites are trapped, for all probes together: a line per reason, most frequent first. Unless
/// `verbose`, only how many are.
fn reasons(report: &Report, verbose: bool) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in report.probes.iter().flat_map(|probe| &probe.sites.traps) {
        *reasons.entry(reason).or_insert(0) += count;
    }
    // Traps that were asked for need no explanation.
    reasons.retain(|reason, _| *reason != "as asked");
    if !verbose {
        let all: usize = reasons.values().sum();
        let told = || format!("{} trapped, where no jump fits; -v says why\n", count(all as u64, "site"));
        return if all > 0 { told() } else { String::new() };
    }
    let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|&(reason, number)| (Reverse(number), reason));
    let line = |(reason, number)| format!("{} trapped: {reason}\n", count(number as u64, "site"));
    reasons.into_iter().map(line).collect()
}

/// The hits of a probe with points in several functions: a heading, and a line per function, most
/// hits first; the names of those without a hit if they are shown.
fn functions(point: &str, places: &[PlaceReport], names: Names) -> String {
    if places.len() < 2 {
        return String::new();
    }
    let total: u64 = places.iter().map(|place| place.hits).fold(0, u64::saturating_add);
    // That one function has no hit is said in one line.
    if total == 0 && !Pattern::is_one(point) {
        return String::new();
    }
    let several = places.iter().any(|place| place.module != places[0].module);
    let mut text = format!("\n{:>12} {:>7}  {point}\n", "hits", "%");
    let name = |place: &PlaceReport| {
        let module = if several { format!("{}:", printable::text(&place.module)) } else { String::new() };
        format!("{module}{}", printable::text(&place.function))
    };
    for place in places.iter().filter(|place| place.hits > 0) {
        let share = place.hits as f64 * 100.0 / total as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:>12} {share:>7.2}  {}", place.hits, name(place));
    }
    let sites: usize = places.iter().map(|place| place.sites).sum();
    let _ = writeln!(text, "{total:>12}          total, at {}", count(sites as u64, "site"));
    let silent: Vec<String> = places.iter().filter(|place| place.hits == 0).map(name).collect();
    if !silent.is_empty() {
        let _ = writeln!(text, "{:>12}          more without a hit{}", silent.len(), names.hint());
        text.push_str(&named(silent, names));
    }
    text
}

/// The names of what was not hit, if they are shown: a line each, sorted.
fn named(mut silent: Vec<String>, names: Names) -> String {
    silent.sort_unstable();
    let shown = silent.iter().filter(|_| matches!(names, Names::Shown));
    shown.map(|name| format!("{:>12} {:>7}  {name}\n", 0, "")).collect()
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
        text.push_str(&functions(
            &printable::text(&definition.point),
            places.as_deref().unwrap_or_default(),
            Names::Hidden,
        ));
    }
    text
}
