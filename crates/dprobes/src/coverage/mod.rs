//! `dprobes coverage`: which source lines and branches of an unmodified program are reached.
//!
//! In: modules with debug information. Out: a summary, and a tracefile in lcov's format.
//!
//! ```text
//! line tables, basic blocks --plan--> sites --program--> probes that fire once
//!        hits --measured--> lines, functions, branches --lcov, summary--> what the user sees
//! ```
//!
//! Each site is a trap with `maxhits = 1`: the first thread that comes there stops, the tracer
//! notes the hit and restores the byte. So no hit is lost, and a site that was hit costs nothing
//! any more. A jump to a counter would cost less at the first hit, but must be taken out later
//! while all threads are held, and needs tens of thousands of trampolines that are used once.
//!
//! | file | what it is |
//! |---|---|
//! | `plan`, `branches` | the sites; conditional jumps, and what they are decided by |
//! | `program` | the probes of a plan |
//! | `run` | a command, or running processes, with these probes |
//! | `hit`, `measured` | what became of a site; what was reached |
//! | `lcov`, `summary`, `missing` | the tracefile; the summary; the lines that were not reached |

mod branches;
mod hit;
mod lcov;
mod measured;
mod missing;
mod plan;
mod program;
mod run;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use engine::Report;
use image::Image;
use process::ImageCache;

use self::measured::Measured;
use self::plan::{Plan, Wanted};
use crate::arguments::Coverage;
use crate::messages::tell;
use crate::started_command::{self, FAILED};
use crate::{Failure, debuginfod, outfile, progress, scripts};

/// The program itself.
const PROGRAM: &str = "a.out";
/// The most source files that a message names.
const NAMED: usize = 5;

/// A module that is measured.
struct Module {
    /// Its path, as the engine knows it.
    path: String,
    image: Arc<Image>,
    plan: Plan,
}

/// Measures a command, or running processes.
pub(crate) fn coverage(arguments: &Coverage) -> Result<ExitCode, Failure> {
    let pids = arguments.traced.processes.ids();
    match (&arguments.traced.command[..], &pids[..]) {
        ([], []) => Err(Failure::new(
            "nothing to measure: give a command, as in `dprobes coverage -- ./app`, or a process with -p",
        )),
        ([], pids) => run::processes(arguments, pids),
        (_, _) if arguments.traced.duration.is_some() => {
            Err(Failure::new("a command is measured until it ends: `--for` is for running processes")
                .with_status(FAILED))
        }
        (command, _) => run::command(arguments, command),
    }
}

/// Plans the modules that are asked for.
fn modules(arguments: &Coverage, pids: &[i32]) -> Result<Vec<Module>, Failure> {
    if let Some(path) = &arguments.output {
        outfile::probe(path).map_err(|error| Failure::new(format!("{}: {error}", printable::path(path))))?;
    }
    let words = &arguments.traced.command;
    let command = words.first().and_then(|word| scripts::program_named(word)).filter(|path| path.is_file());
    if let Some(word) = words.first().filter(|_| command.is_none()) {
        let word = printable::path(Path::new(word)).to_string();
        return Err(started_command::not_found(&format!("{word}: no such program"), words));
    }
    let found = progress::during("reading line tables", || read(arguments, pids, command.as_deref()))?;
    match found.iter().all(|module| module.plan.sites.is_empty()) {
        false => Ok(found),
        true => Err(no_lines(arguments, &found)),
    }
}

/// Reads and plans the modules.
fn read(arguments: &Coverage, pids: &[i32], command: Option<&Path>) -> Result<Vec<Module>, Failure> {
    let mut found: Vec<Module> = Vec::new();
    let default = [PROGRAM.to_owned()];
    let names = if arguments.module.is_empty() { &default[..] } else { &arguments.module[..] };
    let mut cache = ImageCache::default();
    for name in names {
        let files = files(name, pids, command, &mut cache)?;
        for (path, image) in files {
            if found.iter().all(|module| module.path != path) {
                let plan = planned(arguments, &path, &image)?;
                found.push(Module { path, image, plan });
            }
        }
    }
    Ok(found)
}

/// The files that a name means, with their paths as the engine knows them.
fn files(
    name: &str,
    pids: &[i32],
    command: Option<&Path>,
    cache: &mut ImageCache,
) -> Result<Vec<(String, Arc<Image>)>, Failure> {
    let mut found = match (name, pids) {
        // A process has its own name for its program.
        (PROGRAM, [_, ..]) => pids.iter().flat_map(|pid| program_of(*pid, cache)).collect(),
        _ => scripts::files_named(pids, command, name, cache),
    };
    found.dedup_by(|one, other| one.0 == other.0);
    if found.is_empty() {
        return Err(missing(name, command));
    }
    let named = |(path, image): (PathBuf, Arc<Image>)| {
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let text = path.to_str().map(str::to_owned);
        let text =
            text.ok_or_else(|| Failure::new(format!("{}: its name is not text", printable::path(&path))))?;
        Ok((text, image))
    };
    found.into_iter().map(named).collect()
}

/// The failure if a name means no program or library.
fn missing(name: &str, command: Option<&Path>) -> Failure {
    let path = if name == PROGRAM { command } else { Some(Path::new(name)) };
    match path.filter(|path| path.is_file()).map(Image::open) {
        Some(Err(error)) => Failure::new(format!(
            "{error}; name the program that is to be measured with --module, as in `--module ./app`"
        )),
        _ => {
            let name = printable::text(name);
            Failure::new(format!(
                "{name}: there is no such program or library; give its path, as in `--module ./plugin.so`"
            ))
        }
    }
}

/// The program that a process runs.
fn program_of(pid: i32, cache: &mut ImageCache) -> Option<(PathBuf, Arc<Image>)> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let modules = process::modules(pid, cache).ok()?;
    let module = modules.into_iter().find(|module| module.path == path)?;
    Some((module.path, module.image))
}

/// Plans one module.
fn planned(arguments: &Coverage, path: &str, image: &Image) -> Result<Plan, Failure> {
    let failed = |reason: image::NoTypes| {
        let path = printable::text(path);
        Failure::new(format!("{path}: its lines cannot be measured: {reason}"))
    };
    let table = debuginfod::types(image).and_then(|types| types.line_table()).map_err(failed)?;
    if table.rows.is_empty() {
        return Err(failed(image::NoTypes::Missing));
    }
    let is_source = |path: &str| arguments.source.is_empty() || is_named(&arguments.source, path);
    Ok(plan::plan(image, &table, &Wanted { is_source: &is_source, branches: arguments.branches }))
}

/// Whether a path matches a pattern, whole or from a `/` on.
fn is_named(patterns: &[image::Pattern], path: &str) -> bool {
    let ends = path.match_indices('/').map(|(place, _)| &path[place + 1..]);
    let mut ends = std::iter::once(path).chain(ends);
    ends.any(|end| patterns.iter().any(|pattern| pattern.matches(end)))
}

/// The failure if no source line is to be measured.
fn no_lines(arguments: &Coverage, modules: &[Module]) -> Failure {
    let tables = modules.iter().filter_map(|module| debuginfod::types(&module.image).ok()?.line_table().ok());
    let mut files: Vec<String> = tables.flat_map(|table| table.files).collect();
    files.sort();
    files.dedup();
    let named: Vec<String> = files.iter().take(NAMED).map(|file| source::quote(file)).collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if arguments.source.is_empty() {
        "no source file has code"
    } else {
        "no source file with code matches --source"
    };
    Failure::new(format!("{what}: the source files are {}{more}", named.join(", ")))
}

/// Shows what was reached, and writes the tracefile.
fn end(arguments: &Coverage, modules: &[Module], report: &Report) -> Result<(), Failure> {
    let mut measured = Measured::default();
    let mut probes = report.probes.iter();
    for module in modules {
        let hits: Vec<hit::Hit> = probes.by_ref().take(module.plan.sites.len()).map(program::hit).collect();
        measured.add(&module.plan, &hits);
        let is_waiting = |hit: &hit::Hit| *hit == hit::Hit::Missed;
        let never = hits.iter().all(is_waiting) && program::is_waiting(report, &module.path);
        if never {
            let path = printable::text(&module.path);
            tell(&format!("note: {path} was never loaded: none of its lines is reached"));
        }
    }
    if let Some(path) = &arguments.output {
        let failed = |error| Failure::new(format!("{}: {error}", printable::path(path)));
        outfile::write_whole(path, lcov::tracefile(&measured).as_bytes()).map_err(failed)?;
    }
    if !arguments.quiet {
        let here = std::env::current_dir().ok();
        tell("coverage");
        let mut text = summary::text(&measured, arguments.branches, here.as_deref());
        if arguments.missing {
            text += &missing::text(&measured, here.as_deref());
        }
        crate::messages::say(text.trim_end());
    }
    Ok(())
}
