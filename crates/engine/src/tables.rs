//! The maps and constants of scripts: memory that all probed processes share with the tracer.
//!
//! In: the maps and constants of a compiled script (`TablesPlan`). Out: `Tables`: their place in
//! processes, and the same memory in the tracer.
//!
//! A script's programs, one for each module, use the same maps. All processes are in one trust
//! domain then: a map has one value for all of them, and each of them can falsify it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use layout::{CLOCK_WORDS, Clock, ClockWords};
use maps::{MapInfo, Maps};
use nix::time::{ClockId, clock_gettime};
use vm::Constants;

use crate::jump::{Cells, Domain, Shared, Words, counter};

/// What a script's programs use, before there is memory for it.
#[derive(Clone, Debug, Default)]
pub struct TablesPlan {
    /// Its maps, placed in `words` words.
    pub infos: Vec<MapInfo>,
    /// The words of its maps.
    pub words: usize,
    /// Its constants, as [`vm::Constants`] reads them.
    pub constants: Vec<u8>,
    /// The map of threads, if handlers ask for names or users: the key is a thread's id as it sees
    /// it, the value its name of 16 bytes, its user, its group and its process's parent, padded.
    /// The engine fills it.
    pub threads: Option<usize>,
}

/// Bytes of a value of the map of threads.
pub const THREAD_BYTES: u32 = 32;

/// The maps and constants of a script, and the memory of the maps.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(crate) infos: Rc<[MapInfo]>,
    pub(crate) constants: Rc<[u8]>,
    /// The place of its memory, which begins with a [`Clock`], in processes.
    pub(crate) words: Words,
    /// The index of the map of threads.
    pub(crate) threads: Option<usize>,
    /// The same memory in the tracer.
    memory: Rc<Shared>,
    pace: Rc<ClockPace>,
}

/// When the clock was set.
#[derive(Debug)]
struct ClockPace {
    /// The counter and the time when the tables were made.
    first: (u64, u64),
    set: Cell<Instant>,
    /// When the names of all threads were read.
    named: Cell<Instant>,
}

/// How often the clock is set.
const EVERY: Duration = Duration::from_millis(500);

/// The least words of the memory: more than a piece of cells can have left from others.
const LEAST_WORDS: usize = 4096;

/// How often the names of all threads are read.
const RENAMED: Duration = Duration::from_millis(100);

/// The shortest time over which the counter's rate is measured.
const LEAST: Duration = Duration::from_millis(10);

impl Tables {
    /// Makes the memory; none if there is not enough.
    pub(crate) fn new(plan: TablesPlan, cells: &mut Cells, domain: Domain) -> Option<Tables> {
        // So many that they begin at a page.
        let count = CLOCK_WORDS.checked_add(plan.words)?.max(LEAST_WORDS);
        let words = cells.words(count)?;
        let memory = words.memory(domain)?;
        let first = both();
        std::thread::sleep(LEAST);
        let now = both();
        let pace = ClockPace { first, set: Instant::now().into(), named: Instant::now().into() };
        let tables = Tables {
            infos: plan.infos.into(),
            constants: plan.constants.into(),
            words,
            threads: plan.threads,
            memory,
            pace: Rc::new(pace),
        };
        let clock = tables.clock();
        let monotonic = now.1;
        let set = |place: usize, value: u64| {
            if let Some(word) = clock.get(place) {
                word.store(value, Ordering::Relaxed);
            }
        };
        set(1, now.0);
        set(2, monotonic);
        set(3, rate(first, now));
        set(4, monotonic);
        set(5, nanoseconds(ClockId::CLOCK_BOOTTIME).wrapping_sub(monotonic));
        set(6, nanoseconds(ClockId::CLOCK_REALTIME).wrapping_sub(monotonic));
        Some(tables)
    }

    fn all(&self) -> &[AtomicU64] {
        self.words.of(&self.memory)
    }

    fn clock(&self) -> &[AtomicU64] {
        let all = self.all();
        &all[..CLOCK_WORDS.min(all.len())]
    }

    /// The maps.
    pub fn maps(&self) -> Maps<'_> {
        Maps { infos: &self.infos, words: self.all().get(CLOCK_WORDS..).unwrap_or(&[]) }
    }

    /// The constants.
    pub fn constants(&self) -> Constants<'_> {
        Constants(&self.constants)
    }

    /// A time as handlers in processes compute it.
    pub fn time(&self, clock: vm::Clock) -> u64 {
        ClockWords(self.clock()).time(counter(), clock)
    }

    /// Whether the names of all threads must be read again: they may have changed.
    pub(crate) fn must_name_again(&self) -> bool {
        let is_due = self.threads.is_some() && self.pace.named.get().elapsed() >= RENAMED;
        if is_due {
            self.pace.named.set(Instant::now());
        }
        is_due
    }

    /// Puts the name and the user of a thread into the map of threads.
    pub(crate) fn name_thread(&self, tid: i32) {
        let Some(map) = self.threads else { return };
        let (Ok(status), Some(name)) = (process::Status::read(tid), name_of(tid)) else { return };
        let mut value = [0; THREAD_BYTES as usize];
        value[..16].copy_from_slice(&name);
        value[16..20].copy_from_slice(&status.uid.to_le_bytes());
        value[20..24].copy_from_slice(&status.gid.to_le_bytes());
        value[24..28].copy_from_slice(&status.parent.to_le_bytes());
        self.maps().store(map, &(status.inner_id as u64).to_le_bytes(), &value);
    }

    /// Removes a thread that has ended.
    pub(crate) fn forget_thread(&self, tid: i32) {
        if let Some(map) = self.threads {
            self.maps().erase(map, &(tid as u64).to_le_bytes());
        }
    }

    /// Sets the clock, if it is due, so that in the time until it is set again it comes to the
    /// kernel's time. It makes no step: times never go back.
    pub(crate) fn set_clock(&self) {
        if self.pace.set.get().elapsed() < EVERY {
            return;
        }
        self.pace.set.set(Instant::now());
        let (count, now) = both();
        let shown = ClockWords(self.clock()).monotonic(count);
        let rate = rate(self.pace.first, (count, now));
        let counts = (u128::from(EVERY.as_nanos() as u64) << 32) / u128::from(rate.max(1));
        // At most a thousandth faster or slower.
        let most = EVERY.as_nanos() as i64 / 1000;
        let ahead = (now.wrapping_sub(shown) as i64).clamp(-most, most);
        let length = (EVERY.as_nanos() as i64 + ahead) as u128;
        let [version, from, base, each] = match self.clock() {
            [version, from, base, each, ..] => [version, from, base, each],
            _ => return,
        };
        let next = ((length << 32) / counts.max(1)) as u64;
        version.fetch_add(1, Ordering::AcqRel);
        from.store(count, Ordering::Relaxed);
        base.store(shown, Ordering::Relaxed);
        each.store(next, Ordering::Relaxed);
        version.fetch_add(1, Ordering::Release);
    }
}

/// The name of a thread, padded with zeros.
pub(crate) fn name_of(tid: i32) -> Option<[u8; 16]> {
    let text = std::fs::read(format!("/proc/{tid}/comm")).ok()?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let mut name = [0; 16];
    let length = text.len().min(15);
    name[..length].copy_from_slice(&text[..length]);
    Some(name)
}

/// The counter and the monotonic time, at the same moment.
fn both() -> (u64, u64) {
    let pair = || {
        let before = counter();
        let time = nanoseconds(ClockId::CLOCK_MONOTONIC);
        let after = counter();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), time)
    };
    let best = [pair(), pair(), pair(), pair()].into_iter().min_by_key(|(width, ..)| *width);
    best.map_or((0, 0), |(_, count, time)| (count, time))
}

/// Nanoseconds for each count, times 2^32.
fn rate(first: (u64, u64), last: (u64, u64)) -> u64 {
    let counts = u128::from(last.0.saturating_sub(first.0).max(1));
    ((u128::from(last.1.saturating_sub(first.1)) << 32) / counts) as u64
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
    time.as_nanos() as u64
}

const _: () = assert!(size_of::<Clock>() == CLOCK_WORDS * 8);

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::jump::Trust;

    fn tables() -> Tables {
        let mut cells = Cells::new().expect("memory");
        let domain = cells.domain(&Rc::new(Trust::default())).expect("there is none yet");
        let plan = TablesPlan { words: 64, ..TablesPlan::default() };
        Tables::new(plan, &mut cells, domain).expect("it is small")
    }

    #[test]
    fn times_are_the_kernels_and_never_go_back_when_the_clock_is_set() {
        const NEAR: u64 = 1_000_000;
        let tables = tables();
        let mut last = 0;
        for _ in 0..200 {
            let before = nanoseconds(ClockId::CLOCK_MONOTONIC);
            let time = tables.time(vm::Clock::Monotonic);
            let after = nanoseconds(ClockId::CLOCK_MONOTONIC);
            assert!((before - NEAR..=after + NEAR).contains(&time), "{before} {time} {after}");
            assert!(time >= last, "{last} {time}");
            last = time;
            // As if it was due.
            tables.pace.set.set(Instant::now() - EVERY);
            tables.set_clock();
        }
        assert!(tables.time(vm::Clock::Elapsed) < tables.time(vm::Clock::Monotonic));
    }

    #[test]
    fn a_clock_that_a_process_has_overwritten_is_only_wrong() {
        let tables = tables();
        for value in [0, 1, u64::MAX, 1 << 63] {
            tables.clock().iter().for_each(|word| word.store(value, Ordering::Relaxed));
            tables.time(vm::Clock::Real);
            tables.pace.set.set(Instant::now() - EVERY);
            tables.set_clock();
        }
    }
}
