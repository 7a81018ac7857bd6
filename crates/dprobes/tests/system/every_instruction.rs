//! Probes on every instruction of a program with one of each class, in turn and all at once: the
//! program's results do not change, and every execution is counted.

use crate::oracle::{Instruction, count_by_stepping, disassemble};
use crate::support::{Run, counting, need, run, target};
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const SECTIONS: [&str; 4] = [".probed", ".probed_bmi", ".probed_avx", ".probed_avx512"];

pub(crate) struct Subject {
    program: PathBuf,
    /// In the order of the file, each with its offset in the file.
    instructions: Vec<(Instruction, u64)>,
    /// How often each is executed, by address.
    begins: HashMap<u64, u64>,
    stdout: String,
}

fn subject() -> Option<Subject> {
    Subject::of(target("every")?, &SECTIONS, 700)
}

impl Subject {
    /// The program, with the instructions of these sections, at least `least` of them.
    pub(crate) fn of(program: PathBuf, sections: &[&str], least: usize) -> Option<Subject> {
        let bytes = std::fs::read(&program).expect("the program can be read");
        let file = object::File::parse(&*bytes).expect("the program is ELF");
        let mut instructions = Vec::new();
        for &name in sections {
            let section = file.section_by_name(name).expect("the program has the section");
            let (offset, _) = section.file_range().expect("the section is in the file");
            let found = disassemble(&program, name)?;
            instructions.extend(found.into_iter().map(|each| {
                let at = each.address - section.address() + offset;
                (each, at)
            }));
        }
        let listed: Vec<Instruction> = instructions
            .iter()
            .map(|(each, _)| Instruction { address: each.address, text: each.text.clone() })
            .collect();
        let begins = count_by_stepping(&program, &listed);
        let (status, stdout, _) = run(&mut Command::new(&program));
        assert_eq!(status.code(), Some(42), "the unprobed program ends well");
        assert!(instructions.len() > least, "objdump finds the instructions");
        Some(Subject { program, instructions, begins, stdout })
    }

    /// Runs with probes on these instructions and returns the differences from the unprobed run.
    fn differences(&self, of: &[usize]) -> Vec<String> {
        let points = of.iter().map(|&index| format!("{:#x}", self.instructions[index].1));
        let outcome = Run::new(&counting(&self.program, points)).on([&self.program]);
        let mut differences = Vec::new();
        let name = |index: usize| {
            let (each, _) = &self.instructions[index];
            format!("{:#x} {}", each.address, each.text)
        };
        let whole = if of.len() == 1 { name(of[0]) } else { format!("all {} at once", of.len()) };
        if outcome.status.code() != Some(42) {
            let said: Vec<&str> = outcome.stderr.lines().take(3).collect();
            differences.push(format!("{whole}: {}, {said:?}", outcome.status));
        } else if outcome.stdout != self.stdout {
            let lines = self.stdout.lines().zip(outcome.stdout.lines());
            let first = lines.enumerate().find(|(_, (before, now))| before != now);
            differences.push(format!("{whole}: computes otherwise: {first:?}"));
        }
        for (place, &index) in of.iter().enumerate() {
            let expected = self.begins.get(&self.instructions[index].0.address).copied().unwrap_or(0);
            let minor = place as u32 + 1;
            let rows = outcome.stats.probes.iter().filter(|probe| probe.minor == minor);
            let (hits, runs) = rows.fold((0, 0), |sum, probe| (sum.0 + probe.hits, sum.1 + probe.runs));
            if (hits, runs) != (expected, expected) {
                differences.push(format!("{}: {hits} hits, {runs} runs, not {expected}", name(index)));
            }
        }
        differences
    }
}

#[test]
fn each_in_turn() {
    let subject = need!("every_instruction", subject(), "gcc and objdump");
    probe_each_in_turn(&subject);
}

/// A probe on one instruction, then on the next.
pub(crate) fn probe_each_in_turn(subject: &Subject) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut differences = Vec::new();
        loop {
            let index = next.fetch_add(testing::rounds(3, 1), Ordering::Relaxed);
            if index >= subject.instructions.len() {
                return differences;
            }
            differences.extend(subject.differences(&[index]));
        }
    };
    let differences: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let count = differences.len();
    assert_eq!(count, 0, "of {} instructions:\n{}", subject.instructions.len(), differences.join("\n"));
}

#[test]
fn all_at_once() {
    let subject = need!("every_instruction", subject(), "gcc and objdump");
    probe_all_at_once(&subject);
}

/// A probe on every instruction.
pub(crate) fn probe_all_at_once(subject: &Subject) {
    let all: Vec<usize> = (0..subject.instructions.len()).collect();
    let differences = subject.differences(&all);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_program_runs_what_it_holds() {
    let subject = need!("every_instruction", subject(), "gcc and objdump");
    runs_what_it_holds(&subject, 600);
}

/// More than `least` of the instructions before `probed_end` are executed; taken jumps skip the
/// others.
pub(crate) fn runs_what_it_holds(subject: &Subject, least: usize) {
    let base = subject.instructions.iter().take_while(|(each, _)| each.address < subject.end_of_base());
    let (ran, skipped): (Vec<_>, Vec<_>) =
        base.partition(|(each, _)| subject.begins.contains_key(&each.address));
    assert!(ran.len() > least, "{} instructions ran", ran.len());
    // Only instructions behind a taken jump never run.
    for (each, _) in skipped {
        assert!(
            each.text.starts_with("inc %r")
                || each.text.starts_with("inc %e")
                || each.text.starts_with("btc"),
            "{:#x} {}",
            each.address,
            each.text
        );
    }
}

impl Subject {
    fn end_of_base(&self) -> u64 {
        crate::support::symbol_address(&self.program, "probed_end").expect("the program has the symbol")
    }
}
