//! The five experiments of *A Universal Dynamic Trace for Linux and other Operating Systems*
//! (FREENIX 2001), section 4: what an iteration of a loop of three instructions takes without a
//! probe, and with one whose handler does next to nothing or logs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Figures, build, other};

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// What is measured.
    pub name: &'static str,
    /// The probepoint and the handler; none without a probe.
    probe: Option<(&'static str, &'static str)>,
    /// Nanoseconds of an iteration in the paper, on a Pentium of 90 MHz.
    pub paper: f64,
}

/// All of them, as the paper numbers them.
pub const EXPERIMENTS: [Experiment; 5] = [
    Experiment { name: "the loop alone", probe: None, paper: 30.0 },
    Experiment { name: "`abort`, at `dec`", probe: Some(("paper_dec", "abort")), paper: 16_000.0 },
    Experiment { name: "`abort`, at `nop`", probe: Some(("paper_nop", "abort")), paper: 8_000.0 },
    Experiment {
        name: "`push r, rax`, `abort`, at `dec`",
        probe: Some(("paper_dec", "push r, rax\nabort")),
        paper: 16_000.0,
    },
    Experiment {
        name: "`exit`: an empty record, at `dec`",
        probe: Some(("paper_dec", "exit")),
        paper: 200_000.0,
    },
];

/// How probes fire.
pub const ENGINES: [(&str, u64); 2] = [("jump", 100_000), ("trap", 20_000)];

/// The figures of an experiment with each engine.
#[derive(Debug, Default)]
pub struct Row {
    /// By engine: nanoseconds of an iteration.
    pub engines: [Figures; ENGINES.len()],
    /// Hits that were not counted, and records that are neither written nor counted as dropped.
    pub wrong: u64,
}

/// The subject, built.
///
/// # Errors
/// There is no gcc.
pub fn subject(directory: &Path) -> io::Result<PathBuf> {
    let program = directory.join("paper");
    let source = build::repository().join("crates/bench/subject/paper.c");
    build::c_program(&[source.canonicalize()?], &["-no-pie"], &[], &program)?;
    Ok(program)
}

impl Experiment {
    /// Measures once, with each engine.
    ///
    /// # Errors
    /// The command fails, or says nothing.
    pub fn measure(&self, dprobes: &Path, subject: &Path, directory: &Path, row: &mut Row) -> io::Result<()> {
        for (place, (engine, iterations)) in ENGINES.iter().enumerate() {
            let words = [iterations.to_string()];
            let Some((point, handler)) = self.probe else {
                // So short that only many iterations can be timed.
                let said = Command::new(subject).arg("100000000").output()?;
                row.engines[place].add(nanoseconds(&said.stdout)?);
                continue;
            };
            let program = directory.join("paper.rpn");
            let stats = directory.join("stats.json");
            let text = format!("name = \"{}\"\noffset = {point}\n{handler}\n", subject.display());
            std::fs::write(&program, text)?;
            let mut command = Command::new(dprobes);
            command.args(["run", "--buffer", "64M", "--engine", engine, "-o"]).arg(directory.join("records"));
            command.arg("--stats").arg(&stats).arg(&program).arg("--").arg(subject).args(&words);
            let said = command.output()?;
            if !said.status.success() {
                return Err(other(format!("dprobes: {}", String::from_utf8_lossy(&said.stderr))));
            }
            row.engines[place].add(nanoseconds(&said.stdout)?);
            let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats)?)?;
            let count = |name: &str| stats["probes"][0][name].as_u64().unwrap_or(0);
            row.wrong += count("hits").abs_diff(*iterations);
            if handler == "exit" {
                row.wrong += (count("logged") + count("dropped")).abs_diff(*iterations);
            }
        }
        Ok(())
    }
}

/// What the subject printed.
fn nanoseconds(said: &[u8]) -> io::Result<f64> {
    let said = String::from_utf8_lossy(said);
    said.trim().parse().map_err(|_| other(format!("the subject prints no number: {said}")))
}

/// A time with its unit, as the paper writes it.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        large if large >= 10_000.0 => format!("{:.0} µs", large / 1000.0),
        large if large >= 1000.0 => format!("{:.1} µs", large / 1000.0),
        large if large >= 100.0 => format!("{large:.0} ns"),
        small => format!("{small:.1} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_shows_them() {
        let shown = [0.31, 30.0, 187.4, 8_000.0, 16_400.0, 200_000.0].map(time);
        assert_eq!(shown, ["0.3 ns", "30.0 ns", "187 ns", "8.0 µs", "16 µs", "200 µs"]);
    }
}
