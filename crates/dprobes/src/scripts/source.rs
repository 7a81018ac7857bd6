//! A script's text, and what the command line gives to it.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::rc::Rc;

use script::{Checked, Compiled, Parameters, Surroundings};

use super::programs::Programs;
use super::scope::Scope;
use super::{static_probes, surroundings};
use crate::Failure;
use crate::arguments::Trace;
use crate::kernel_engine::KernelSymbols;
use crate::messages::{say, tell};

/// The name of a text of the command line in messages.
const NAME: &str = "script";

/// Reads and compiles the script of a command line.
///
/// # Errors
/// It has mistakes, or needs what this engine does not have.
pub(super) fn compile(arguments: &Trace, scope: &Scope<'_>) -> Result<(Checked, Compiled), Failure> {
    compile_text(arguments, None, scope)
}

/// The same with a text in the place of the command line's.
///
/// # Errors
/// As [`compile`].
pub(super) fn compile_text(
    arguments: &Trace,
    text: Option<&str>,
    scope: &Scope<'_>,
) -> Result<(Checked, Compiled), Failure> {
    let around = Surroundings {
        files: &rpn::DiskFiles,
        directories: &arguments.include,
        programs: Rc::new(Programs::new(scope)),
    };
    let (checked, positional) = match text {
        Some(text) => (script::check_text_in(&around, Path::new(NAME), text), Vec::new()),
        None => read(arguments, &around)?,
    };
    let colour = io::stderr().is_terminal();
    let said = checked.render(colour);
    if checked.has_errors() {
        return Err(Failure::complete(said));
    }
    if !said.is_empty() && !arguments.printed.quiet {
        say(said);
    }
    if !arguments.printed.quiet {
        tell_unused(&checked, &positional);
    }
    let parameters = Parameters {
        positional,
        processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        allow_unsafe: arguments.allow_unsafe,
        settings: settings(),
        sites: static_probes::find(&checked, scope),
        kernel_symbols: kernel_symbols(&checked, scope.kernel),
        starts: arguments.cmd.is_some() || !arguments.command.is_empty(),
        nodes: surroundings::nodes(),
        cgroups: surroundings::cgroups(&checked),
        ..Parameters::default()
    };
    let compiled = script::compile(&checked, &parameters).map_err(|messages| {
        let messages = messages.iter().map(|message| message.render(&checked.sources, colour));
        Failure::complete(messages.collect::<Vec<_>>().join("\n\n"))
    })?;
    Ok((checked, compiled))
}

/// The addresses of the kernel's symbols that a script names.
fn kernel_symbols(checked: &Checked, symbols: KernelSymbols<'_>) -> BTreeMap<String, Result<u64, String>> {
    let wanted = checked.kernel_symbols();
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let names = symbols.names();
    let address = |name: &String| names.as_ref().map_err(String::clone).and_then(|names| names.address(name));
    wanted.into_iter().map(|name| (name.clone(), address(&name))).collect()
}

/// Reads the script; returns its parameters too.
fn read(arguments: &Trace, around: &Surroundings<'_>) -> Result<(Checked, Vec<String>), Failure> {
    let (first, rest) = match (&arguments.text, &*arguments.script) {
        (Some(text), positional) => {
            let checked = script::check_text_in(around, Path::new(NAME), text);
            return Ok((checked, positional.to_vec()));
        }
        (None, [first, rest @ ..]) => (first, rest.to_vec()),
        (None, []) => {
            return Err(Failure::new(
                "a script is missing: its text, or the name of a file (dprobes trace --help)",
            ));
        }
    };
    let path = Path::new(first);
    // A text that is no name of a file at all may be too long for one.
    let is_file = path.is_file();
    let names_file = path.extension().is_some_and(|extension| extension == "bt") && !first.contains('{');
    let checked = match is_file || names_file {
        true => script::check_in(around, path),
        false => script::check_text_in(around, Path::new(NAME), first),
    };
    Ok((checked, rest))
}

/// Says of words that are parameters of a script which names none of them: the command's, perhaps.
fn tell_unused(checked: &Checked, positional: &[String]) {
    let names = |text: &str| checked.sources.all().iter().any(|source| source.text.contains(text));
    let unused = (1..).zip(positional).find(|(number, _)| !names("$#") && !names(&format!("${number}")));
    if let Some((number, word)) = unused {
        let word = source::quote(word);
        tell(&format!(
            "note: {word} is ${number}, which the script does not use; a command stands behind `--`"
        ));
    }
}

/// Settings from the environment, as bpftrace has them: `BPFTRACE_MAX_STRLEN=200`.
fn settings() -> Vec<(String, String)> {
    let setting = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let name = name.to_str()?.strip_prefix("BPFTRACE_")?.to_ascii_lowercase();
        Some((name, value.to_str()?.to_owned()))
    };
    std::env::vars_os().filter_map(setting).collect()
}
