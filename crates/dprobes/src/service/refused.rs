//! Processes that map a probed module but are not probed, since the program is not for their
//! machine.

use std::collections::{BTreeMap, HashMap};

use engine::Versions;
use image::Machine;
use process::Status;

/// A process's machine, and why the program does not suit it.
pub(crate) type Refusal = (Machine, String);

/// The refused processes, by program number.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    processes: HashMap<usize, BTreeMap<i32, Refusal>>,
}

/// Why a process cannot get a program: the program has no version for its machine.
pub(crate) fn reason(program: &Versions, pid: i32) -> Option<Refusal> {
    let machine = process::machine_of_process(pid)?;
    let reason = program.of(machine).err()?;
    Some((machine, reason.to_string()))
}

impl Refused {
    /// Records that a process was refused.
    pub(crate) fn note(&mut self, program: usize, pid: i32, reason: Refusal) {
        self.processes.entry(program).or_default().insert(pid, reason);
    }

    /// Forgets a removed program.
    pub(crate) fn forget(&mut self, program: usize) {
        self.processes.remove(&program);
    }

    /// The processes that are refused now, without those that have ended: a line per machine and
    /// reason.
    pub(crate) fn lines(&self, program: usize) -> Vec<String> {
        let mut lines: Vec<((Machine, &str), Vec<String>)> = Vec::new();
        for (pid, (machine, reason)) in self.processes.get(&program).into_iter().flatten() {
            let lives = Status::read(*pid).is_ok_and(|status| !status.has_ended());
            // The process may now execute another machine's program; the scanner looks at it again.
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
