//! `dprobes list --tactics`: shows which jumps probes would get, and why other probes would not be
//! jumps.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use engine::{Coverage, Surroundings};
use image::Image;
use process::ImageCache;
use rpn::FunctionPoint;
use serde::Serialize;

use super::Wanted;
use crate::{Failure, progress};

/// What is done while it takes long.
const WORK: &str = "planning jumps";

/// Skipped indirect jumps shown per reason; JSON has all of them.
const SHOWN: usize = 6;

/// The result for one module.
struct Found {
    module: String,
    points: String,
    ground: String,
    /// Points left out before planning: how many, with an example.
    left_out: Vec<(usize, String)>,
    coverage: Coverage,
}

/// Reports on a file; returns the number of sites.
pub(super) fn of_file(
    image: &Image,
    path: &Path,
    wanted: &Wanted,
    point: Option<FunctionPoint>,
    json: bool,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let found = progress::during(WORK, || one(image, path, wanted, point, &Surroundings::likely(image)))?;
    tell(&[found], json, out)
}

/// Reports on the modules of a process; returns the number of sites.
pub(super) fn of_process(
    pid: i32,
    pattern: Option<&str>,
    point: Option<FunctionPoint>,
    json: bool,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let survey = process::survey(pid, &mut ImageCache::new()).map_err(Failure::new)?;
    let wanted = Wanted::parse_in(pattern.unwrap_or("*"), pid, &survey.modules)?;
    let named = survey.modules.iter().filter(|module| wanted.matches(pid, module));
    let found = named.map(|module| {
        let ground = Surroundings::of_process(pid, module.bias).map_err(Failure::new)?;
        one(&module.image, &module.path, &wanted, point, &ground)
    });
    let (found, failed): (Vec<_>, Vec<_>) = progress::during(WORK, || found.partition(Result::is_ok));
    let found: Vec<Found> = found.into_iter().flatten().collect();
    // A failure in one of many modules is no error.
    match failed.into_iter().next() {
        Some(Err(failure)) if found.is_empty() => Err(failure),
        _ => tell(&found, json, out),
    }
}

/// Plans the points of one module.
fn one(
    image: &Image,
    path: &Path,
    wanted: &Wanted,
    point: Option<FunctionPoint>,
    ground: &Surroundings,
) -> Result<Found, Failure> {
    let module = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let point = point.unwrap_or(FunctionPoint::Entry);
    let points = format!("{}:{point}", wanted.name());
    let failed = |reason: &dyn std::fmt::Display| Failure::new(format!("{module}:{points}: {reason}"));
    let survey =
        engine::survey(wanted.name(), point, None, image, image, true).map_err(|reason| failed(&reason))?;
    let mut vaddrs: Vec<u64> = survey.sites.iter().map(|site| site.vaddr).collect();
    vaddrs.sort_unstable();
    vaddrs.dedup();
    let coverage = engine::coverage(image, ground, &vaddrs).map_err(|reason| failed(&reason))?;
    let ground = ground.description().to_owned();
    Ok(Found { module, points, ground, left_out: survey.reasons, coverage })
}

fn tell(found: &[Found], json: bool, out: &mut dyn Write) -> Result<usize, Failure> {
    let text = match json {
        true => {
            let modules: Vec<Module<'_>> = found.iter().map(Module::of).collect();
            let text = serde_json::to_string_pretty(&Report { modules });
            crate::stats::plain(&text.map_err(|error| Failure::new(error.to_string()))?) + "\n"
        }
        false => printable::lines(&found.iter().map(text).collect::<Vec<_>>().join("\n")).into_owned(),
    };
    // Fails when the reader has closed the pipe.
    let _ = out.write_all(text.as_bytes());
    Ok(found.iter().map(|found| found.coverage.sites).sum())
}

/// The result as a table.
fn text(found: &Found) -> String {
    let coverage = &found.coverage;
    let share = |number: usize| number as f64 * 100.0 / coverage.sites.max(1) as f64;
    let mut text = format!("{}:{}, {}\n", printable::text(&found.module), found.points, found.ground);
    let mut line = |number: usize, what: &str| {
        text += &format!("{number:>10} {:>8.3} %  {what}\n", share(number));
    };
    line(coverage.sites, "sites");
    line(coverage.jumped(), "by jump");
    by_number(&coverage.jumps).into_iter().for_each(|(name, number)| line(number, &format!("  {name}")));
    for (name, reasons) in [("trapped", &coverage.traps), ("refused", &coverage.refused)] {
        let all: usize = reasons.values().sum();
        if all > 0 {
            line(all, name);
        }
        by_number(reasons).into_iter().for_each(|(reason, number)| line(number, &format!("  {reason}")));
    }
    for (number, example) in &found.left_out {
        text += &format!("{number:>10}             left out: {example}\n");
    }
    let flow = &coverage.flow;
    text += &format!(
        "{:>10}             {} of the program moved for them\n{:>10}             {} for landing pads\n",
        coverage.neighbours,
        if coverage.neighbours == 1 { "other instruction" } else { "other instructions" },
        coverage.mappings,
        if coverage.mappings == 1 { "mapping" } else { "mappings" },
    );
    if let Some(problem) = &flow.problem {
        return text + &format!("no control flow is proven: {problem}\n");
    }
    text += &format!(
        "{:>10}             instructions that control is proven to come to\n{:>10}             {} read\n",
        flow.proven,
        flow.tables,
        if flow.tables == 1 { "jump table" } else { "jump tables" },
    );
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (vaddr, function, why) in &flow.skipped {
        let place = match function.is_empty() {
            true => format!("{vaddr:#x}"),
            false => format!("{} ({vaddr:#x})", printable::text(function)),
        };
        reasons.entry(why.to_string()).or_default().push(place);
    }
    for (why, places) in reasons {
        let more = match places.len() > SHOWN {
            true => format!(" and {} more", places.len() - SHOWN),
            false => String::new(),
        };
        let shown = places.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        text += &format!(
            "{:>10}             {} skipped, {why}: {shown}{more}\n",
            places.len(),
            if places.len() == 1 { "indirect jump" } else { "indirect jumps" }
        );
    }
    text
}

/// Names and numbers, in descending order of the numbers.
fn by_number<Name: AsRef<str>>(counts: &BTreeMap<Name, usize>) -> Vec<(&str, usize)> {
    let mut counts: Vec<(&str, usize)> =
        counts.iter().map(|(name, number)| (name.as_ref(), *number)).collect();
    counts.sort_by_key(|&(_, number)| std::cmp::Reverse(number));
    counts
}

#[derive(Serialize)]
struct Report<'a> {
    modules: Vec<Module<'a>>,
}

#[derive(Serialize)]
struct Module<'a> {
    module: &'a str,
    points: &'a str,
    ground: &'a str,
    sites: usize,
    jump: &'a BTreeMap<&'static str, usize>,
    trap: &'a BTreeMap<String, usize>,
    refused: &'a BTreeMap<String, usize>,
    left_out: Vec<LeftOut<'a>>,
    neighbours: usize,
    mappings: usize,
    control_flow: ControlFlow<'a>,
}

#[derive(Serialize)]
struct LeftOut<'a> {
    count: usize,
    example: &'a str,
}

#[derive(Serialize)]
struct ControlFlow<'a> {
    proven: usize,
    tables: usize,
    skipped: Vec<Skipped<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

#[derive(Serialize)]
struct Skipped<'a> {
    address: String,
    function: &'a str,
    why: String,
}

impl<'a> Module<'a> {
    fn of(found: &'a Found) -> Module<'a> {
        let (coverage, flow) = (&found.coverage, &found.coverage.flow);
        let skipped = flow.skipped.iter().map(|(vaddr, function, why)| Skipped {
            address: format!("{vaddr:#x}"),
            function,
            why: why.to_string(),
        });
        let left_out = found.left_out.iter().map(|(count, example)| LeftOut { count: *count, example });
        Module {
            module: &found.module,
            points: &found.points,
            ground: &found.ground,
            sites: coverage.sites,
            jump: &coverage.jumps,
            trap: &coverage.traps,
            refused: &coverage.refused,
            left_out: left_out.collect(),
            neighbours: coverage.neighbours,
            mappings: coverage.mappings,
            control_flow: ControlFlow {
                proven: flow.proven,
                tables: flow.tables,
                skipped: skipped.collect(),
                problem: flow.problem.as_deref(),
            },
        }
    }
}
