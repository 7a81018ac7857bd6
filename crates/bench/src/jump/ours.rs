//! `dprobes attach`, with a probe program for each task.

use super::records;
use super::tracer::{Attached, Process, Seen, TracedFunction, Tracer};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::Command;

/// What to do at each hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Increment a variable.
    Count,
    /// Compare an argument with a number that it never equals, and log if it does.
    Condition,
    /// Log two arguments.
    Log,
    /// Log the string that the first argument points to.
    LogString,
}

impl Task {
    /// The handler.
    fn handler(self) -> &'static str {
        match self {
            Task::Count => "inc lv, 0\nabort\n",
            Task::Condition => {
                "push r, rdi\npush 0x20000000\nsub\njz equal\nabort\nequal:\npush r, rdi\nlog 1\nexit\n"
            }
            Task::Log => "push r, rsi\npush r, rdi\nlog 2\nexit\n",
            Task::LogString => "push 64\npush r, rdi\nlog str\nexit\n",
        }
    }

    fn logs(self) -> bool {
        matches!(self, Task::Log | Task::LogString)
    }
}

/// dprobes as a tracer.
#[derive(Clone, Debug)]
pub(super) struct Dprobes {
    /// The command.
    pub(super) command: PathBuf,
    /// The engine to use.
    pub(super) engine: String,
    /// What the probe does.
    pub(super) task: Task,
}

struct Running {
    process: Process,
    task: Task,
    stats: PathBuf,
    output: PathBuf,
}

impl Tracer for Dprobes {
    fn is_ours(&self) -> bool {
        true
    }

    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        let program = place.directory.join("jump.rpn");
        let stats = place.directory.join("jump.stats");
        let output = if self.task.logs() { place.directory.join("jump.records") } else { "/dev/null".into() };
        std::fs::write(
            &program,
            format!(
                "name = \"{}\"\nmodtype = user\nvars = 1\nmajor = 7\nmaxhits = 0xffffffffffffffff\noffset = {}\nminor = 5\n{}",
                place.program.display(),
                place.function,
                self.task.handler()
            ),
        )?;
        // Only the bench's own files: without records the output is /dev/null.
        for old in [&stats, &output].into_iter().filter(|old| old.starts_with(&place.directory)) {
            match std::fs::remove_file(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut command = Command::new(&self.command);
        command.args(["attach", "--log", "PID,TSC", "-p", &place.pid.to_string(), "--stats"]).arg(&stats);
        command.args(["--log-format", "klog"]).arg("-o").arg(&output);
        command.args(["--engine", &self.engine]);
        let process = Process::start(command.arg(&program))?;
        Ok(Box::new(Running { process, task: self.task, stats, output }))
    }
}

impl Attached for Running {
    fn check(&mut self) -> io::Result<()> {
        self.process.check()
    }

    fn stop(self: Box<Self>) -> io::Result<Seen> {
        self.process.interrupt()?;
        let stats: Value = serde_json::from_reader(BufReader::new(File::open(&self.stats)?))?;
        let probe = &stats["probes"][0];
        let number = |name: &str| probe[name].as_u64().unwrap_or(0);
        let (hits, runs, ignored, missed) =
            (number("hits"), number("runs"), number("ignored"), number("missed"));
        let mut seen = Seen { hits: runs, lost: number("dropped") + missed, ..Seen::default() };
        let tactic = probe["tactic"].as_str().map(|tactic| format!(" {tactic}")).unwrap_or_default();
        let why = probe["why_trapped"].as_str().map(|why| format!(" because {why}")).unwrap_or_default();
        seen.how = probe["engine"].as_str().map(|engine| format!("{engine}{tactic}{why}"));
        if hits != runs + ignored + missed {
            seen.wrong =
                Some(format!("hits {hits} are not runs {runs} + ignored {ignored} + missed {missed}"));
        }
        if self.task == Task::Count && stats["locals"][0].as_u64() != Some(runs) {
            seen.wrong = Some(format!("lv[0] is {} after {runs} runs", stats["locals"][0]));
        }
        if self.task.logs() {
            let found = records::read(BufReader::with_capacity(1 << 20, File::open(&self.output)?))?;
            seen.records = Some(found.records);
            if number("logged") != found.records {
                seen.wrong =
                    Some(format!("{} records logged, {} in the file", number("logged"), found.records));
            }
            if self.task == Task::LogString && found.sixteen != found.records {
                seen.wrong = Some(format!("of {} records {} hold the string", found.records, found.sixteen));
            }
            // One thread calls with 0, 1, 2 ...: only a new round may break the sequence.
            let breaks = found.breaks;
            if self.task == Task::Log && breaks > seen.lost {
                seen.wrong = Some(format!("{breaks} records are out of order"));
            }
            std::fs::remove_file(&self.output)?;
        }
        Ok(seen)
    }
}
