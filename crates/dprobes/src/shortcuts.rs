//! `dprobes count`, `latency` and `stacks`.
//!
//! Counts are those of `--at`, the cheapest there are: a counter for each function. The others are
//! scripts, which `--show-script` shows: a beginning for one's own.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rpn::FunctionPoint;

use crate::arguments::{Arguments, Command, Count, Functions, Latency, ShortcutOutput, Stacks, of_script};
use crate::points::At;
use crate::{Failure, kernel_engine, scripts, session, stdout, usage};

/// Counts the calls of functions.
pub(crate) fn count(arguments: &Count) -> Result<ExitCode, Failure> {
    let of = &arguments.of;
    let starts = !of.traced.command.is_empty();
    let mut words: Vec<OsString> = vec!["dprobes".into(), if starts { "run" } else { "attach" }.into()];
    for at in &of.functions {
        words.extend(at.each().map(|point| format!("--at={point}").into()));
    }
    if starts && of.traced.duration.is_some() {
        return Err(Failure::new("a command is counted until it ends: `--for` is for running processes"));
    }
    words.extend(of.traced.duration.map(|time| format!("--for={}ms", time.as_millis()).into()));
    words.extend(of.traced.processes.ids().into_iter().map(|pid| format!("--pid={pid}").into()));
    words.push(format!("--engine={}", arguments.engine.name()).into());
    if let Some(file) = &arguments.stats {
        words.extend(["--stats".into(), file.into()]);
    }
    if starts {
        words.push("--".into());
        words.extend(of.traced.command.iter().cloned());
    }
    // What these take and this does not, such as `--engine kernel` for a command, they refuse.
    match Arguments::try_parse_from(words).unwrap_or_else(|error| usage::end(&error)).command {
        Command::Run(run) => session::run(&run),
        Command::Attach(attach) => match attach.by_tracer() {
            Some((pids, engine)) => session::attach(&attach, &pids, engine),
            None => kernel_engine::attach(&attach),
        },
        // One of these two was asked for.
        _ => Ok(ExitCode::FAILURE),
    }
}

/// Shows how long functions take.
pub(crate) fn latency(arguments: &Latency) -> Result<ExitCode, Failure> {
    run(&arguments.of, &arguments.shown, latency_script(&arguments.of.functions, arguments.shown.every)?)
}

/// Shows from where functions are called.
pub(crate) fn stacks(arguments: &Stacks) -> Result<ExitCode, Failure> {
    let Stacks { of, depth, top, shown } = arguments;
    if let Some(at) = of.functions.iter().find(|at| at.points.contains(&FunctionPoint::Each)) {
        let function = &at.function;
        return Err(Failure::new(format!(
            "`{function}`: stacks of every instruction are not counted: give its entry, return or an offset"
        )));
    }
    run(of, shown, stacks_script(&of.functions, *depth, *top, shown.every))
}

/// The script of `latency`. A call is known by its process and by where its return address is,
/// which is the same at the entry and at each return: so calls within calls are told apart, in any
/// number of threads.
fn latency_script(functions: &[At], every: Option<Duration>) -> Result<String, Failure> {
    if let Some(at) = functions.iter().find(|at| at.points != [FunctionPoint::Entry]) {
        let function = &at.function;
        return Err(Failure::new(format!("`{function}`: whole functions are measured: give no point of it")));
    }
    let points = |provider| points(provider, functions);
    let output = output("print(@calls); print(@ns);", "clear(@calls); clear(@ns);", every);
    Ok(format!(
        "\
config = {{ max_strlen = 64; print_maps_on_exit = false; }}

{entries}
{{
    @begun[pid, reg(\"sp\")] = nsecs;
}}

{returns}
/@begun[pid, reg(\"sp\")]/
{{
    $ns = nsecs - @begun[pid, reg(\"sp\")];
    delete(@begun, (pid, reg(\"sp\")));
    @calls[func] = stats($ns);
    @ns[func] = hist($ns);
}}

{output}",
        entries = points("uprobe"),
        returns = points("uretprobe"),
    ))
}

fn stacks_script(functions: &[At], depth: u8, top: u32, every: Option<Duration>) -> String {
    let output = output(&format!("print(@calls, {top});"), "clear(@calls);", every);
    format!(
        "config = {{ print_maps_on_exit = false; }}\n\n{}\n{{\n    @calls[ustack({depth})] = count();\n}}\n\n{output}",
        points("uprobe", functions)
    )
}

/// When maps are printed.
fn output(print: &str, clear: &str, every: Option<Duration>) -> String {
    let end = format!("end {{ {print} }}\n");
    match every {
        None => end,
        Some(time) => {
            let time = time.as_micros();
            format!("interval:us:{time} {{ time(\"%H:%M:%S\\n\"); {print} {clear} }}\n\n{end}")
        }
    }
}

/// The attach points of functions.
fn points(provider: &str, functions: &[At]) -> String {
    let points = functions.iter().flat_map(|at| at.points.iter().map(move |&point| (at, point)));
    let points = points.map(|(at, point)| {
        let place = format!("{}:{}", field(&at.module), field(&at.function));
        match point {
            FunctionPoint::Entry => format!("{provider}:{place}"),
            FunctionPoint::Offset(offset) => format!("{provider}:{place}+{offset:#x}"),
            other => format!("{provider}:{place}:{other}"),
        }
    });
    points.collect::<Vec<_>>().join(",\n")
}

/// A field of an attach point; in quotes if it has what would end it.
fn field(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_./-*?[]!@$".contains(letter);
    if text.chars().all(plain) { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\\\"")) }
}

fn run(of: &Functions, shown: &ShortcutOutput, script: String) -> Result<ExitCode, Failure> {
    if shown.show_script {
        return stdout::show(&script).map(|()| ExitCode::SUCCESS);
    }
    if of.traced.command.is_empty() && of.traced.processes.ids().is_empty() {
        let everywhere = |at: &&At| ["*", "a.out"].contains(&at.module.as_str());
        if let Some(at) = of.functions.iter().find(everywhere) {
            let function = &at.function;
            return Err(Failure::new(format!(
                "in all processes, the program or library must be named, as in `libc:{function}`; or give a process with -p"
            )));
        }
    }
    scripts::trace(&of_script(script, &[], &of.traced, &shown.printed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::parse;

    #[test]
    fn the_scripts_are_right_whatever_is_asked() {
        let functions: Vec<At> = ["libc:malloc", "a.out:ns::f(int, char)", "::mem*", "./a b.so:g"]
            .into_iter()
            .map(|text| parse(text).expect("points"))
            .collect();
        for every in [None, Some(Duration::from_millis(1500))] {
            let latency = latency_script(&functions, every).expect("whole functions");
            let mut offset = functions.clone();
            offset.push(parse("libc:malloc:4").expect("a point"));
            for script in [latency, stacks_script(&offset, 5, 3, every)] {
                let checked = script::check_with(&rpn::DiskFiles, "shortcut".as_ref(), &script, &[]);
                assert!(!checked.has_errors(), "{script}\n{}", checked.render(false));
            }
            assert!(latency_script(&offset, every).is_err());
        }
    }
}
