//! Processes that map a probed module and are not probed, as the program is not for their machine.

use std::collections::{BTreeMap, HashMap};

use engine::Versions;
use image::Machine;
use process::Status;

/// A process's machine, and why the program is not for it.
pub(crate) type Refusal = (Machine, String);

/// Which processes were refused, by the program's number.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    processes: HashMap<usize, BTreeMap<i32, Refusal>>,
}

/// Why a process cannot have a program: it is of a machine that the program is not for.
pub(crate) fn reason(program: &Versions, pid: i32) -> Option<Refusal> {
    let machine = process::machine_of_process(pid)?;
    let reason = program.of(machine).err()?;
    Some((machine, reason.to_owned()))
}

impl Refused {
    /// Notes that a process was refused to a program.
    pub(crate) fn note(&mut self, program: usize, pid: i32, reason: Refusal) {
        self.processes.entry(program).or_default().insert(pid, reason);
    }

    /// Forgets a program that is taken out.
    pub(crate) fn forget(&mut self, program: usize) {
        self.processes.remove(&program);
    }

    /// What is refused to a program now, a line for each machine and reason: without the processes that have ended.
    pub(crate) fn lines(&self, program: usize) -> Vec<String> {
        let mut lines: Vec<((Machine, &str), Vec<String>)> = Vec::new();
        for (pid, (machine, reason)) in self.processes.get(&program).into_iter().flatten() {
            let lives = Status::read(*pid).is_ok_and(|status| !status.has_ended());
            // One that executes another machine's program is looked at again.
            if !lives || process::machine_of_process(*pid) != Some(*machine) {
                continue;
            }
            match lines.iter_mut().find(|(of, _)| *of == (*machine, reason)) {
                Some((_, processes)) => processes.push(pid.to_string()),
                None => lines.push(((*machine, reason), vec![pid.to_string()])),
            }
        }
        let line = |((machine, reason), processes): ((Machine, &str), Vec<String>)| {
            let many = if processes.len() == 1 { "" } else { "es" };
            format!("not probed in {machine} process{many} {}: {reason}", processes.join(", "))
        };
        lines.into_iter().map(line).collect()
    }
}
