//! `dprobes count`, `latency` and `stacks`.
//!
//! Counts are those of `--at`, the cheapest there are: a counter for each function. The others are
//! scripts, which `--show-script` shows: a beginning for one's own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rpn::FunctionPoint;

use crate::arguments::{
    Arguments, ByArgument, Command, Count, CountFormat, Functions, Latency, ShortcutOutput, Stacks, of_script,
};
use crate::points::At;
use crate::{Failure, kernel_engine, messages, scripts, session, stdout, usage};

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
    let option = |name: &str, value: &Path| [name.into(), value.as_os_str().to_owned()];
    match (arguments.format, &arguments.output) {
        (CountFormat::Json, _) if arguments.stats.is_some() => {
            return Err(Failure::new("--stats is `-f json -o FILE`: give one of them"));
        }
        (CountFormat::Json, file) => {
            let file = file.as_deref().unwrap_or(Path::new("/dev/stdout"));
            words.extend(option("--stats", file).into_iter().chain(["--quiet".into()]));
        }
        (CountFormat::Text, Some(file)) => words.extend(option("--summary", file)),
        (CountFormat::Text, None) if arguments.quiet => words.push("--summary=-".into()),
        (CountFormat::Text, None) => {}
    }
    words.extend(arguments.stats.iter().flat_map(|file| option("--stats", file)));
    words.extend(arguments.cost.words().map(OsString::from));
    words.extend(arguments.dont_verify_opcodes.then(|| "--dont-verify-opcodes".into()));
    words.extend(arguments.verbose.verbose.then(|| "--verbose".into()));
    words.extend((arguments.quiet && arguments.format == CountFormat::Text).then(|| "--quiet".into()));
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
    let Latency { of, by, shown } = arguments;
    let by = by.as_ref().map(|by| key(of, by));
    run(of, shown, latency_script(&of.functions, by.as_deref(), shown.every)?)
}

/// How a script says what an argument is.
fn key(of: &Functions, by: &ByArgument) -> String {
    let name = &by.name;
    if by.is_text {
        return if by.is_named() { format!("str(args.{name})") } else { format!("str({name})") };
    }
    let text = scripts::text_argument(&points("uprobe", &of.functions), name, &of.traced);
    match (by.is_named(), text) {
        (true, Some(_)) => format!("str(args.{name})"),
        (true, None) => format!("args.{name}"),
        (false, Some(called)) => {
            let called = printable::text(&called);
            messages::tell(&format!(
                "note: {name} points to text: `--by {called}`, or `--by 'str({name})'`, shows it"
            ));
            name.clone()
        }
        (false, None) => name.clone(),
    }
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
    let names_programs = has_several_programs(&of.traced.processes.ids());
    run(of, shown, stacks_script(&of.functions, *depth, *top, shown.every, names_programs))
}

/// The script of `latency`. A call is known by its process and by where its return address is,
/// which is the same at the entry and at each return: so calls within calls are told apart, in any
/// number of threads. `by`: what is kept of the entry, to tell calls apart.
fn latency_script(functions: &[At], by: Option<&str>, every: Option<Duration>) -> Result<String, Failure> {
    if let Some(at) = functions.iter().find(|at| at.points != [FunctionPoint::Entry]) {
        let function = &at.function;
        return Err(Failure::new(format!("`{function}`: whole functions are measured: give no point of it")));
    }
    let points = |provider| points(provider, functions);
    let most = if by.is_some() { ", 20" } else { "" };
    let print = format!("print(@call_ns{most}); print(@ns{most});");
    let output = output(&print, "clear(@call_ns); clear(@ns);", every);
    let [keep, drop, key] = match by {
        Some(by) => [
            format!("    @by[pid, reg(\"sp\")] = {by};\n"),
            "    delete(@by, (pid, reg(\"sp\")));\n".to_owned(),
            "func, @by[pid, reg(\"sp\")]".to_owned(),
        ],
        None => [String::new(), String::new(), "func".to_owned()],
    };
    Ok(format!(
        "\
config = {{ max_strlen = 64; print_maps_on_exit = false; }}

{entries}
{{
    @begun[pid, reg(\"sp\")] = nsecs;
{keep}}}

{returns}
/@begun[pid, reg(\"sp\")]/
{{
    $ns = nsecs - @begun[pid, reg(\"sp\")];
    delete(@begun, (pid, reg(\"sp\")));
    @call_ns[{key}] = stats($ns);
    @ns[{key}] = hist($ns);
{drop}}}

{output}",
        entries = points("uprobe"),
        returns = points("uretprobe"),
    ))
}

/// Whether processes run several programs. Their stacks would not say whose they are.
fn has_several_programs(pids: &[i32]) -> bool {
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let names: BTreeSet<String> = pids.iter().filter_map(name).collect();
    names.len() > 1
}

fn stacks_script(
    functions: &[At],
    depth: u8,
    top: u32,
    every: Option<Duration>,
    names_programs: bool,
) -> String {
    let program = if names_programs { "comm, " } else { "" };
    let output = output(&format!("print(@calls, {top});"), "clear(@calls);", every);
    format!(
        "config = {{ print_maps_on_exit = false; show_debug_info = true; }}\n\n{}\n{{\n    @calls[{program}ustack({depth})] = count();\n}}\n\n{output}",
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
            let latencies = [None, Some("arg1"), Some("str(arg0)")]
                .map(|by| latency_script(&functions, by, every).expect("whole functions"));
            let mut offset = functions.clone();
            offset.push(parse("libc:malloc:4").expect("a point"));
            let stacks = [false, true].map(|several| stacks_script(&offset, 5, 3, every, several));
            for script in stacks.into_iter().chain(latencies) {
                let checked = script::check_with(&rpn::DiskFiles, "shortcut".as_ref(), &script, &[]);
                assert!(!checked.has_errors(), "{script}\n{}", checked.render(false));
            }
            assert!(latency_script(&offset, None, every).is_err());
        }
    }
}
