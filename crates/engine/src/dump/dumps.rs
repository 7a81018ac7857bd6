//! The core dumps of a session: which exits write one, and the one that is being written.
//!
//! A copy costs the memory of all pages that the program writes meanwhile, so there is one at a
//! time. Exits that come meanwhile are counted and write none.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process::{Copied, Registers};

use super::moment::Written;
use crate::change::Change;
use crate::messages::Messages;
use crate::observer::Note;
use crate::reason::{NotDumped, NotForked};

/// An exit to a core dump that its thread's handlers have asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Whom messages are of.
    pub(crate) head: String,
    /// The program's number and the probe's index.
    pub(crate) probe: (usize, usize),
    /// The registers as the handler left them, at the probed instruction.
    pub(crate) registers: Registers,
    /// When the thread was stopped.
    pub(crate) begun: Instant,
    /// Changes to the process that are not shown, other than those of the sites.
    pub(crate) changes: Vec<Change>,
}

/// Why no dump is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The probe has written as many as it may.
    Limit(u32),
    /// Another one is being written.
    Busy,
}

/// A dump that is being written from a copy.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) head: String,
    pub(super) pid: i32,
    /// When the first thread was stopped.
    pub(super) begun: Instant,
    /// How long the threads were stopped, once they are not any more.
    pub(super) pause: Option<Duration>,
    pub(super) copied: Arc<Copied>,
    /// Whether the copy has ended.
    pub(super) ended: bool,
    pub(super) writer: JoinHandle<Result<Written, NotDumped>>,
    /// Makes the writer give up.
    pub(super) stop: Arc<AtomicBool>,
    /// Exits that came meanwhile.
    pub(super) refused: u32,
}

/// How many dumps each probe was allowed so far.
#[derive(Debug, Default)]
struct Counts(HashMap<(usize, usize), u32>);

impl Counts {
    fn of(&self, probe: (usize, usize)) -> u32 {
        self.0.get(&probe).copied().unwrap_or(0)
    }

    fn add(&mut self, probe: (usize, usize)) {
        *self.0.entry(probe).or_default() += 1;
    }

    fn take_back(&mut self, probe: (usize, usize)) {
        self.0.entry(probe).and_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The dumps of a session.
#[derive(Debug, Default)]
pub(crate) struct Dumps {
    /// What the handlers of the current hit have asked for.
    wanted: Option<Wanted>,
    counts: Counts,
    /// Those that are being written from copies, and those whose copies are about to end.
    pub(super) active: Vec<Active>,
}

impl Dumps {
    /// Notes that a handler has asked for a dump; `most` is how many its probe may write.
    ///
    /// # Errors
    /// There will be none.
    pub(crate) fn want(&mut self, wanted: Wanted, most: u32) -> Result<(), Refusal> {
        if self.counts.of(wanted.probe) >= most {
            return Err(Refusal::Limit(most));
        }
        if let Some(active) = self.active.iter_mut().find(|active| !active.writer.is_finished()) {
            active.refused = active.refused.saturating_add(1);
            return Err(Refusal::Busy);
        }
        if self.wanted.is_some() {
            return Err(Refusal::Busy);
        }
        self.counts.add(wanted.probe);
        self.wanted = Some(wanted);
        Ok(())
    }

    /// Takes what the handlers of the current hit have asked for.
    pub(crate) fn take_wanted(&mut self) -> Option<Wanted> {
        self.wanted.take()
    }

    /// A probe may try again: nothing was done to the process.
    pub(super) fn give_back(&mut self, probe: (usize, usize)) {
        self.counts.take_back(probe);
    }

    /// Whether a dump is being written.
    pub(crate) fn is_writing(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether a thread is that of a copy.
    pub(crate) fn is_copy(&self, tid: i32) -> bool {
        self.active.iter().any(|active| active.copied.pid() == tid)
    }

    /// The process that is dumped goes on.
    pub(crate) fn released(&mut self) {
        for active in &mut self.active {
            active.pause.get_or_insert_with(|| active.begun.elapsed());
        }
    }

    /// A process has ended. Returns whether it was a copy.
    pub(crate) fn ended(&mut self, pid: i32) -> bool {
        let Some(active) = self.active.iter_mut().find(|active| active.copied.pid() == pid) else {
            return false;
        };
        active.ended = true;
        true
    }

    /// Reports the dumps that are complete and whose copies are gone.
    pub(crate) fn tell_finished(&mut self, messages: &mut Messages<'_>) {
        for active in self.active.extract_if(.., |active| active.ended && active.writer.is_finished()) {
            messages.observer.note(&Note::Exit(active.told()));
        }
    }

    /// Makes the writers give up.
    pub(crate) fn stop(&self) {
        self.active.iter().for_each(|active| active.stop.store(true, Ordering::Relaxed));
    }

    /// Gives up dumps whose writers do not end.
    pub(crate) fn abandon(&mut self, messages: &mut Messages<'_>) {
        for Active { head, pid, .. } in self.active.drain(..) {
            messages.observer.note(&Note::Exit(format!(
                "{head} core dump of process {pid} failed: its file could not be written in time, and is incomplete"
            )));
        }
    }
}

impl Active {
    /// What is told of it when its writer has finished.
    fn told(self) -> String {
        let pause = self.pause.unwrap_or_else(|| self.begun.elapsed());
        let result = self.writer.join().unwrap_or(Err(NotDumped::Panicked));
        let mut text = text(&self.head, self.pid, &result, pause, None);
        if self.refused > 0 {
            let _ = write!(
                text,
                "; exits to a core dump that came meanwhile: {}, which wrote none: one is written at a time",
                self.refused
            );
        }
        text
    }
}

/// What is told of a dump. `held`: why the process was held while it was written.
pub(super) fn text(
    head: &str,
    pid: i32,
    result: &Result<Written, NotDumped>,
    pause: Duration,
    held: Option<&NotForked>,
) -> String {
    let written = match result {
        Ok(written) => written,
        Err(reason) => return format!("{head} core dump of process {pid} failed: {reason}"),
    };
    let path = printable::path(&written.path);
    let pause = milliseconds(pause);
    let mut text = format!("{head} core dump of process {pid} written to {path} (paused for {pause} ms");
    if let Some(reason) = held {
        let _ = write!(text, ", while it was written: {reason}");
    }
    text.push(')');
    if !written.left_out.is_empty() {
        let left_out: Vec<String> = written.left_out.iter().map(i32::to_string).collect();
        let _ = write!(text, "; without thread {}, which could not be stopped", left_out.join(", "));
    }
    if written.not_inherited > 0 {
        let kibibytes = written.not_inherited.div_ceil(1024);
        let _ = write!(text, "; without {kibibytes} KiB that its children do not inherit (madvise)");
    }
    text
}

/// A time in milliseconds, with a digit after the point if it is short.
fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1000.0;
    if milliseconds < 10.0 { format!("{milliseconds:.1}") } else { format!("{milliseconds:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_probe_has_its_own_count() {
        let mut counts = Counts::default();
        counts.add((0, 0));
        counts.add((0, 0));
        counts.add((0, 1));
        assert_eq!([(0, 0), (0, 1), (1, 0)].map(|probe| counts.of(probe)), [2, 1, 0]);
        counts.take_back((0, 0));
        counts.take_back((1, 0));
        assert_eq!([(0, 0), (0, 1), (1, 0)].map(|probe| counts.of(probe)), [1, 1, 0]);
    }

    #[test]
    fn the_message_names_the_file_and_the_pause() {
        let written = |left_out: &[i32], not_inherited| {
            Ok(Written { path: "core.7".into(), left_out: left_out.to_vec(), not_inherited })
        };
        let told = |result, pause, held| text("D(1,2)", 7, &result, Duration::from_micros(pause), held);
        let begin = "D(1,2) core dump of process 7 ";
        assert_eq!(
            told(written(&[], 0), 12_345, None),
            format!("{begin}written to core.7 (paused for 12 ms)")
        );
        assert_eq!(
            told(written(&[8, 9], 4096), 1_234, Some(&NotForked::Narrow)),
            format!(
                "{begin}written to core.7 (paused for 1.2 ms, while it was written: it runs 32-bit code); without \
                 thread 8, 9, which could not be stopped; without 4 KiB that its children do not inherit (madvise)"
            )
        );
        assert_eq!(
            told(Err(NotDumped::Killed), 1, None),
            format!("{begin}failed: the process was killed meanwhile")
        );
    }
}
