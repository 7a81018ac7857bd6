//! One repetition of one row.

use super::rows::{Row, Setting};
use super::subject::{Round, Shape, Subject};
use super::tracer::{Attached, TracedFunction};
use crate::machine::processor_time;
use std::io;
use std::time::{Duration, Instant};

/// Calls of the unprobed function, per thread.
const UNPROBED: u64 = 10_000_000;
/// The first calls per thread, which estimate the cost of a hit.
const TRIAL: u64 = 50;

/// The results of one repetition.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Wall clock time per hit beyond the unprobed call, in nanoseconds.
    pub wall: f64,
    /// Processor time per hit beyond the unprobed call, in nanoseconds, without the tracer's own.
    pub cpu: f64,
    /// Hits per second.
    pub rate: f64,
    /// Calls made while the tracer was attached.
    pub calls: u64,
    /// Calls that were counted, or whose record has arrived.
    pub seen: u64,
    /// What is wrong, if anything.
    pub wrong: Option<String>,
    /// How the tracer worked, if it reports that.
    pub how: Option<String>,
    /// The tracer's own processor time, if it started the program.
    pub reader: Option<Duration>,
    /// The size of its files in bytes, if requested.
    pub bytes: u64,
}

/// Measures a row once.
///
/// # Errors
/// If it cannot be measured; the message says why.
pub fn measure(row: &Row, setting: &Setting) -> io::Result<Sample> {
    let threads = row.shape.threads;
    let mut subject = setting.program.start()?;
    let plain = if row.tracer.is_some() { row.function } else { "work" };
    let unprobed = subject.round(plain, UNPROBED / u64::from(threads), Shape::flat(threads))?;
    let over = |round: &Round, sample: &mut Sample| {
        sample.wall = round.wall_per_call(threads) - unprobed.wall_per_call(threads);
        sample.cpu = round.cpu_per_call() - unprobed.cpu_per_call();
        sample.rate = round.calls as f64 * 1e9 / round.wall.max(1) as f64;
    };
    let mut sample = Sample::default();
    let Some(tracer) = &row.tracer else {
        let round = subject.round(row.function, row.calls, row.shape)?;
        over(&round, &mut sample);
        sample.calls = round.calls;
        sample.seen = if row.function == "floor_none" { round.calls } else { round.counted };
        return Ok(sample);
    };
    let own = tracer.launch()?;
    let launched = own.is_some();
    let mut subject = own.unwrap_or(subject);
    let used = processor_time() + tracer.daemon_time();
    let before = subject.bytes(row.function)?;
    let (_, offset) = subject.program().function(row.function)?;
    let place = TracedFunction {
        pid: subject.pid(),
        program: subject.program().path().to_path_buf(),
        function: row.function,
        address: subject.address(row.function)?,
        offset,
        directory: setting.directory.clone(),
    };
    let mut attached = tracer.attach(&place)?;
    if tracer.changes_code() {
        wait_for(&subject, row, before, &mut *attached)?;
    }
    let (trial, round) = rounds(&mut subject, row)?;
    over(&round, &mut sample);
    sample.calls = trial.calls + round.calls;
    let mut left = None;
    if launched {
        subject.end()?;
        // Includes some milliseconds that the program used outside of the rounds.
        let used = (processor_time() + tracer.daemon_time()).saturating_sub(used);
        sample.reader = Some(used.saturating_sub(Duration::from_nanos(trial.cpu + round.cpu)));
    } else {
        left = Some(subject);
    }
    let seen = attached.stop()?;
    sample.seen = if row.counts { seen.hits } else { seen.records.unwrap_or(seen.hits) };
    sample.how = seen.how;
    sample.wrong = seen.wrong;
    sample.bytes = seen.bytes;
    if seen.lost + sample.seen < sample.calls {
        let silent = sample.calls - seen.lost - sample.seen;
        sample.wrong.get_or_insert(format!("{silent} lost silently"));
    }
    if sample.seen > sample.calls {
        sample.wrong.get_or_insert(format!("{} counted too many", sample.seen - sample.calls));
    }
    if let Some(subject) = left {
        if subject.bytes(row.function)? != before {
            sample.wrong.get_or_insert("the code was not restored".to_owned());
        }
        subject.end()?;
    }
    Ok(sample)
}

/// Waits until the tracer is in place.
fn wait_for(subject: &Subject, row: &Row, before: [u8; 16], attached: &mut dyn Attached) -> io::Result<()> {
    let began = Instant::now();
    while subject.bytes(row.function)? == before {
        attached.check()?;
        if began.elapsed() > Duration::from_secs(60) {
            return Err(io::Error::other("does not attach"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Short rounds to estimate the cost of a hit, and one whose calls take about the time allowed for
/// the row.
fn rounds(subject: &mut Subject, row: &Row) -> io::Result<(Round, Round)> {
    let flat = Shape::flat(row.shape.threads);
    let mut trial = Round::default();
    let mut calls = TRIAL;
    loop {
        let round = subject.round(row.function, calls, flat)?;
        trial.calls += round.calls;
        let each = (round.wall as f64 / calls as f64).max(row.shape.gap as f64).max(1.0);
        let enough = (row.seconds * 1e9 / each).min(row.calls as f64) as u64;
        // The first calls may set up things on first use, so they say little.
        if calls >= 64 * TRIAL || round.wall > 20_000_000 {
            return Ok((trial, subject.round(row.function, enough.max(TRIAL), row.shape)?));
        }
        calls *= 4;
    }
}
