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
    let modules = of_processes(pids);
    let line = |at: &At| why(&at.module, &at.function, &modules, |place| format!("--at {place}"));
    silent.into_iter().filter_map(line).collect()
}

/// Processes, and the modules that each has.
pub(crate) type Modules = [(i32, Vec<Module>)];

/// The modules of processes that have not ended.
pub(crate) fn of_processes(pids: &[i32]) -> Vec<(i32, Vec<Module>)> {
    let mut cache = ImageCache::new();
    pids.iter().filter_map(|&pid| Some((pid, process::modules(pid, &mut cache).ok()?))).collect()
}

/// What is likely if a function of a module was not hit. `probe` says how a place such as
/// `libc:malloc` is probed.
pub(crate) fn why(
    module_name: &str,
    function: &str,
    processes: &Modules,
    probe: impl Fn(&str) -> String,
) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    let mut is_inlined = false;
    for (pid, modules) in processes {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let mut own = modules.iter().filter(|module| module.is_named(module_name, &root));
        is_inlined |= own.any(|module| module.image.is_inlined(function));
        let others = modules.iter().filter(|module| !module.is_named(module_name, &root));
        for module in others.filter(|module| !module.image.lookup(function).matches.is_empty()) {
            let name = printable::path(module.path.file_name()?.as_ref()).to_string();
            if !names.contains(&name) && names.len() < MOST {
                names.push(name);
            }
        }
    }
    let is_main = function == "main";
    let function = printable::text(function);
    Some(match names.first() {
        Some(first) => format!(
            "`{function}` was not hit in {}; a function of this name is in {} too: `{}`",
            printable::text(module_name),
            names.join(", "),
            probe(&format!("{first}:{function}"))
        ),
        None if is_inlined => format!(
            "`{function}` was not hit; the compiler has put it into callers, which do not reach it: a script can \
             probe its lines, `uprobe:BINARY:FILE.c:LINE`"
        ),
        None if is_main => {
            "`main` was not hit: it is called once, when a program starts; `dprobes run` is there before it"
                .to_owned()
        }
        None => return None,
    })
}
