//! What is likely if a probe was not hit: a function of the same name in another module is called.
//!
//! A program may have its own `malloc`, or one of a library such as jemalloc; a function may have
//! been compiled into its callers and be called by its name from elsewhere only.

use std::path::PathBuf;

use engine::Report;
use process::{ImageCache, Module};

use crate::points::At;

/// The most modules that are named.
const MOST: usize = 3;

/// Where else the functions of points without a hit are: a line for each. Processes that have ended
/// tell nothing.
pub(crate) fn elsewhere(ats: &[At], report: &Report, pids: &[i32]) -> Vec<String> {
    let is_silent = |at: &&At| {
        let hit = |text: String| {
            let mut probes = report.probes.iter().filter(|probe| probe.counts.hits > 0);
            probes.any(|probe| text.ends_with(&format!("{}:{}", probe.module, probe.point)))
        };
        !image::Pattern::is_one(&at.function) && !at.each().any(hit)
    };
    let silent: Vec<&At> = ats.iter().filter(is_silent).collect();
    if silent.is_empty() {
        return Vec::new();
    }
    let mut cache = ImageCache::new();
    let modules = pids.iter().filter_map(|&pid| Some((pid, process::modules(pid, &mut cache).ok()?)));
    let modules: Vec<(i32, Vec<Module>)> = modules.collect();
    silent.into_iter().filter_map(|at| line(at, &modules)).collect()
}

fn line(at: &At, processes: &[(i32, Vec<Module>)]) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for (pid, modules) in processes {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let others = modules.iter().filter(|module| !module.is_named(&at.module, &root));
        for module in others.filter(|module| !module.image.lookup(&at.function).matches.is_empty()) {
            let name = printable::path(module.path.file_name()?.as_ref()).to_string();
            if !names.contains(&name) && names.len() < MOST {
                names.push(name);
            }
        }
    }
    let function = printable::text(&at.function);
    let first = names.first()?;
    Some(format!(
        "`{function}` was not hit in {}; a function of this name is in {} too: `--at {first}:{function}`",
        printable::text(&at.module),
        names.join(", ")
    ))
}
