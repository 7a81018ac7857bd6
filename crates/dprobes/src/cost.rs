//! What probing has cost: estimated processor time, and its part of what the processes used.

use std::time::Duration;

use engine::Report;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// What a hit by a jump costs, and a record that it makes: medians of docs/benchmarks.md.
const JUMP: Duration = Duration::from_nanos(3);
const RECORD: Duration = Duration::from_nanos(20);

/// The processor time of running processes since they were first looked at.
pub(crate) struct Work(Vec<(i32, Option<Duration>)>);

impl Work {
    /// Looks at processes for the first time.
    pub(crate) fn of(pids: &[i32]) -> Work {
        Work(pids.iter().map(|&pid| (pid, used(pid))).collect())
    }

    /// What they have used since; `None` if one has ended.
    pub(crate) fn since(&self) -> Option<Duration> {
        self.0.iter().map(|&(pid, before)| Some(used(pid)?.saturating_sub(before?))).sum()
    }
}

/// The processor time of a process.
fn used(pid: i32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).ok()?;
    let time = clock_gettime(clock).ok()?;
    Some(Duration::from_nanos(time.num_nanoseconds().unsigned_abs()))
}

/// The processor time of the commands that this process has started and that have ended.
pub(crate) fn of_ended() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let all = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(Duration::from_micros(all.unsigned_abs()))
}

/// What the hits of a session have cost, in a line; empty if there were none. `work` is what the
/// processes have used, if that is known.
pub(crate) fn text(report: &Report, work: Option<Duration>) -> String {
    let by_jump = report.probes.iter().filter(|probe| !probe.sites.jumps.is_empty());
    let nanos = |each: Duration, count: u64| each.as_nanos() as f64 * count as f64;
    let jumps: f64 =
        by_jump.map(|probe| nanos(JUMP, probe.counts.hits) + nanos(RECORD, probe.counts.logged)).sum();
    let cost = report.trap_time + Duration::from_nanos(jumps as u64);
    if report.probes.iter().all(|probe| probe.counts.hits == 0) {
        return String::new();
    }
    let compared = work.filter(|work| !work.is_zero()).map(|work| {
        let percent = cost.as_secs_f64() * 100.0 / work.as_secs_f64();
        format!("; {} the {} that the processes used", part(percent), length(work))
    });
    format!("hits took about {} of processor time{}\n", length(cost), compared.unwrap_or_default())
}

/// A time with two or three digits.
fn length(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        ..1e3 => (nanos, "ns"),
        ..1e6 => (nanos / 1e3, "us"),
        ..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A part of a whole. It may be more than that: what the tracer does for a trap is not in the
/// processes' time.
fn part(percent: f64) -> String {
    match percent {
        ..0.1 => "less than 0.1% of".to_owned(),
        ..10.0 => format!("{percent:.1}% of"),
        ..100.0 => format!("{percent:.0}% of"),
        _ => format!("{:.1} times", percent / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Counts, ProbeReport, SiteCounts, State};

    fn report(hits: u64, jumps: bool, trap_time: Duration) -> Report {
        let sites = SiteCounts {
            jumps: jumps.then_some(("plain", 1)).into_iter().collect(),
            ..SiteCounts::default()
        };
        let probe = ProbeReport {
            module: "app".to_owned(),
            point: "f".to_owned(),
            address: None,
            major: 0,
            minor: 0,
            engine: "jump",
            tactic: None,
            why_trapped: None,
            sites,
            counts: Counts { hits, ..Counts::default() },
            state: State::Armed,
            places: None,
        };
        Report { probes: vec![probe], trap_time, ..Report::default() }
    }

    #[test]
    fn jumps_are_cheap_and_traps_are_not() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(
            text(&report(1_000_000, true, Duration::ZERO), second),
            "hits took about 3.0 ms of processor time; 0.3% of the 1.0 s that the processes used\n"
        );
        assert_eq!(
            text(&report(50_000, false, Duration::from_millis(700)), second),
            "hits took about 700 ms of processor time; 70% of the 1.0 s that the processes used\n"
        );
        assert_eq!(
            text(&report(50_000, false, Duration::from_millis(2500)), second),
            "hits took about 2.5 s of processor time; 2.5 times the 1.0 s that the processes used\n"
        );
        assert_eq!(
            text(&report(10, true, Duration::ZERO), None),
            "hits took about 30 ns of processor time\n"
        );
        assert_eq!(text(&report(0, true, Duration::ZERO), second), "");
    }

    #[test]
    fn what_a_process_uses_is_known_as_long_as_it_runs() {
        let work = Work::of(&[std::process::id() as i32]);
        assert!(work.since().is_some());
        // Behind the largest number that a process can have.
        assert!(Work::of(&[(1 << 22) + 1]).since().is_none());
    }
}
