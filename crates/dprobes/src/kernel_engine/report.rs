//! The counts and variables of a session, as the other engines report them.

use engine::{Counts, ProbeReport, Report};
use vm::Word;

use super::attaching::Program;

/// The report of all programs. `globals` are the global variables.
pub(super) fn report(programs: &[Program], globals: Vec<u64>) -> Report {
    let mut report = Report { globals, ..Report::default() };
    for program in programs {
        let object = program.versions.main();
        let counted = program.maps.counts();
        for (number, definition) in object.probes.iter().enumerate() {
            let probe = &program.probes[number];
            report.probes.push(ProbeReport {
                module: object.module.clone(),
                point: definition.point.clone(),
                address: probe.address,
                major: object.major,
                minor: definition.minor,
                engine: "kernel",
                tactic: None,
                why_trapped: None,
                sites: probe.sites.clone(),
                counts: counts(program, &counted, number),
                state: probe.state(),
                places: program
                    .numbers
                    .places(number, |number| counted.get(number as usize).map_or(0, |counts| counts.hits)),
            });
        }
        let word = program.versions.widest_word();
        report.locals.extend(program.maps.locals().iter().map(|value| value_of(value, word)));
    }
    report
}

/// The value of a variable.
pub(super) fn value_of(value: &std::sync::atomic::AtomicU64, word: Word) -> u64 {
    word.truncate(value.load(std::sync::atomic::Ordering::Relaxed))
}

/// The counts of a probe: the sums of its numbers.
fn counts(program: &Program, counted: &[kernel::Counts], probe: usize) -> Counts {
    let state = &program.probes[probe];
    let mut counts = Counts { logged: state.logged, dropped: state.untaken, ..Counts::default() };
    for own in program.numbers.all_of(probe).filter_map(|number| counted.get(number as usize)) {
        counts.hits += own.hits;
        counts.ignored += own.ignored;
        counts.missed += own.missed;
        counts.runs += own.runs;
        counts.dropped += own.dropped;
    }
    counts
}

/// The records of a probe that were lost so far, and how many of them no target took.
pub(super) fn dropped(program: &Program, counted: &[kernel::Counts], probe: usize) -> (u64, u64) {
    (counts(program, counted, probe).dropped, program.probes[probe].untaken)
}
