//! The counts and variables of a session, as the other engines report them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use engine::{Counts, OfProcess, OfProcesses, ProbeReport, Report};
use vm::Word;

use super::attaching::Program;

/// The most processes, at each probe and function, of which one program counts hits apart.
pub(super) const PROCESSES: u32 = 16384;

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
    report.processes = by_process(programs, &report);
    report
}

/// The hits of each process, if they were counted so. `report` has the probes.
fn by_process(programs: &[Program], report: &Report) -> Option<OfProcesses> {
    programs.first().filter(|program| program.handlers.by_process)?;
    let mut of = OfProcesses { processes: Vec::new(), unassigned: vec![0; report.probes.len()] };
    let mut by_pid: BTreeMap<u32, OfProcess> = BTreeMap::new();
    let mut before = 0;
    for program in programs {
        let own = before..before + program.probes.len();
        before = own.end;
        let Ok(found) = program.maps.by_process() else {
            // Whose the hits are is not known.
            own.for_each(|probe| of.unassigned[probe] = report.probes[probe].counts.hits);
            continue;
        };
        let counted = program.maps.counts();
        for (number, counts) in counted.iter().enumerate() {
            if let Some(probe) = program.numbers.probe(number as u32) {
                of.unassigned[own.start + probe] += counts.unassigned;
            }
        }
        for kernel::ProcessHits { probe, pid, name, hits } in found {
            let Some(probe) = program.numbers.probe(probe) else { continue };
            let process = by_pid.entry(pid).or_insert_with(|| OfProcess {
                pid,
                name: String::from_utf8_lossy(&name).into_owned(),
                hits: vec![0; report.probes.len()],
            });
            process.hits[own.start + probe] += hits;
        }
    }
    of.processes = by_pid.into_values().collect();
    let total = |process: &OfProcess| process.hits.iter().fold(0, |all: u64, hits| all.saturating_add(*hits));
    of.processes.sort_by_key(|process| Reverse(total(process)));
    Some(of)
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
