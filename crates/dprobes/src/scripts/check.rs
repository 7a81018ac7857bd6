//! `dprobes check` of a script: a text in the language of bpftrace.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::rc::Rc;

use script::{Checked, Item, Parameters, Surroundings};

use super::programs::Programs;
use super::scope::Scope;
use super::{static_probes, surroundings};
use crate::Failure;
use crate::arguments::{Check, Emit};
use crate::messages::{count, say};
use crate::stdout;

/// Whether a script is to be checked, and no program.
pub(crate) fn is_script(arguments: &Check) -> bool {
    let extension = arguments.program.file.extension();
    arguments.script.is_some() || extension.is_some_and(|extension| extension == "bt")
}

/// Checks a script and describes it.
pub(crate) fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    let program = &arguments.program;
    if !program.preprocessor.define.is_empty() {
        return Err(Failure::new("-D is for programs; in a script, write #define"));
    }
    if arguments.arch != rpn::Arch::X86_64 {
        return Err(Failure::new("scripts are for x86-64; --arch is for programs"));
    }
    // No process is there: files are those on disk.
    let scope = Scope::default();
    let around = Surroundings {
        files: &rpn::DiskFiles,
        directories: &program.preprocessor.include,
        programs: Rc::new(Programs::new(&scope)),
    };
    let checked = match &arguments.script {
        Some(text) => script::check_text_in(&around, &program.file, text),
        None => script::check_in(&around, &program.file),
    };
    let said = checked.render(io::stderr().is_terminal());
    if checked.has_errors() {
        return Err(Failure::complete(said));
    }
    if !said.is_empty() {
        say(said);
    }
    let text = match arguments.emit {
        Some(Emit::Asm) => {
            let sites = static_probes::find(&checked, &scope);
            let cgroups = surroundings::cgroups(&checked);
            let parameters = Parameters { sites, cgroups, ..Parameters::default() };
            let compiled = script::compile(&checked, &parameters).map_err(|messages| {
                let colour = io::stderr().is_terminal();
                let messages = messages.iter().map(|message| message.render(&checked.sources, colour));
                Failure::complete(messages.collect::<Vec<_>>().join("\n\n"))
            })?;
            script::listing(&compiled)
        }
        Some(Emit::Ast) => checked.typed(),
        Some(Emit::Bpf) => {
            return Err(Failure::new(
                "--emit bpf is for programs: what a script becomes in the kernel depends on what its probes find there; --emit asm shows its bytecode",
            ));
        }
        None => format!("{}: {}\n", printable::path(&program.file), described(&checked)),
    };
    stdout::show(&printable::lines(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn described(checked: &Checked) -> String {
    let probes = checked.script.items.iter().filter(|item| matches!(item, Item::Probe(_))).count();
    let maps = checked.facts.maps.len();
    format!("{}, {}", count(probes as u64, "probe"), count(maps as u64, "map"))
}
