//! dprobes in a virtual machine with a kernel of its own: Linux 6.1, as in Debian 12. What acts on
//! the whole system, or may crash it, is tested here.
//!
//! Each trial is a command and a check of its output. Two machines run every second trial each, at
//! the same time, in one boot, since a boot is slow; only if one crashes the kernel, those after it
//! run in another.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod basics;
mod calls;
mod command;
mod examples;
mod inserted;
mod kernel_engine;
mod kernel_probes;
mod modules;
mod one_liners;
mod oracle;
mod scripts;
mod trial;
mod typed;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use testing::Trials;
use testing::machine::{Command, Kernel, Machine};
use trial::Trial;

/// The programs of `tests/targets` that are in the machine.
const TARGETS: [&str; 6] = ["leaf", "calls", "watched", "breakpoints", "tight", "scripted"];

/// The modules of the kernel that are in the machine, not loaded.
const MODULES: [&str; 2] = ["ifb", "brd"];

/// How many machines there are. One uses little more than one of the host's processors.
const MACHINES: usize = 2;

/// A machine with the command under test.
fn machine(kernel: &Kernel) -> Machine {
    let mut machine = Machine::new(kernel);
    machine.program(Path::new(env!("CARGO_BIN_EXE_dprobes")));
    for name in TARGETS {
        machine.program(&testing::target(name).expect("gcc is there: it has built the first process"));
    }
    for name in MODULES {
        machine.module(name);
    }
    for (name, text) in examples::files() {
        machine.file(&format!("/examples/{name}"), text);
    }
    for (name, text) in scripts::files() {
        machine.file(&name, text);
    }
    machine
}

fn main() -> ExitCode {
    let list = [
        basics::trials(),
        command::trials(),
        modules::trials(),
        one_liners::trials(),
        calls::trials(),
        examples::trials(),
        inserted::trials(),
        kernel_engine::trials(),
        kernel_probes::trials(),
        typed::trials(),
        scripts::trials(),
    ];
    let list: Vec<Trial> = list.into_iter().flatten().filter(|trial| Trials::chooses(trial.name)).collect();
    let mut trials = Trials::new();
    let kernel = match Kernel::available() {
        Ok(kernel) => kernel,
        Err(missing) => {
            testing::skipped("machine", &missing.to_string());
            list.iter().for_each(|trial| trials.ignore(trial.name));
            return trials.run();
        }
    };
    let kernel = Arc::new(kernel);
    let outputs = |first: usize| {
        let own = list.iter().skip(first).step_by(MACHINES);
        let commands: Vec<Command> = own.map(|trial| trial.command.clone()).collect();
        let kernel = kernel.clone();
        Arc::new(LazyLock::new(move || machine(&kernel).run(&commands)))
    };
    let machines: Vec<_> = (0..MACHINES).map(outputs).collect();
    for (number, Trial { name, check, .. }) in list.into_iter().enumerate() {
        let outputs = machines[number % MACHINES].clone();
        trials.add(name, move || check(&outputs[number / MACHINES]));
    }
    trials.run()
}
