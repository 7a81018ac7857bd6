//! Lines that wait until those before them are complete.

use std::collections::VecDeque;
use std::io::{self, Write};

use super::column;
use crate::map::Map;

/// Most lines that wait. If there are more, the first is taken for that of a call with others in
/// it.
const MAX_WAITING: usize = 1 << 15;

/// A line.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The duration of a call that is complete, in nanoseconds.
    pub(super) duration: Option<u64>,
    /// What is before the text: the thread, and blanks.
    pub(super) head: String,
    /// The call.
    pub(super) text: String,
}

/// Lines in order of time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Each line, and whether its end is not known yet.
    lines: VecDeque<(Line, Option<(u32, u32)>)>,
    /// The number of the first one.
    first: u64,
    /// The number of each thread's line whose end is not known yet, and the depth of its call.
    waiting: Map<(u32, u32), (u64, usize)>,
}

impl Queue {
    /// Appends a line.
    pub(super) fn push(&mut self, line: Line) {
        self.lines.push_back((line, None));
    }

    /// Appends the line of a call that has begun. A thread has one such line at most.
    pub(super) fn wait(&mut self, thread: (u32, u32), depth: usize, line: Line) {
        self.waiting.insert(thread, (self.first + self.lines.len() as u64, depth));
        self.lines.push_back((line, Some(thread)));
    }

    /// Completes the line of a thread that waits, as that of a call with others in it.
    pub(super) fn decide(&mut self, thread: (u32, u32), ending: &str) {
        if let Some(line) = self.take(thread) {
            line.text.push_str(ending);
        }
    }

    /// Completes all lines that wait.
    pub(super) fn decide_all(&mut self, ending: &str) {
        for thread in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.decide(thread, ending);
        }
    }

    /// Completes the line of a thread that waits, with the duration of its call, if the call is at
    /// this depth. Whether it is.
    pub(super) fn end(&mut self, thread: (u32, u32), depth: usize, duration: u64, ending: &str) -> bool {
        let is_it = self.waiting.get(&thread).is_some_and(|&(_, waiting)| waiting == depth);
        if !is_it {
            return false;
        }
        if let Some(line) = self.take(thread) {
            line.duration = Some(duration);
            line.text.push_str(ending);
        }
        true
    }

    /// The line of a thread that waits; it does so no more.
    fn take(&mut self, thread: (u32, u32)) -> Option<&mut Line> {
        let (number, _) = self.waiting.remove(&thread)?;
        let (line, waits) = self.lines.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)?;
        *waits = None;
        Some(line)
    }

    /// Writes the lines before the first one that waits; with `all`, all.
    ///
    /// # Errors
    /// Writing fails.
    pub(super) fn write(&mut self, out: &mut impl Write, all: bool) -> io::Result<()> {
        while let Some((_, waits)) = self.lines.front() {
            if let &Some(thread) = waits {
                if !all && self.lines.len() < MAX_WAITING {
                    return Ok(());
                }
                self.decide(thread, " {");
            }
            if let Some((Line { duration, head, text }, _)) = self.lines.pop_front() {
                self.first += 1;
                writeln!(out, "{}  {head}{text}", column(duration))?;
            }
        }
        Ok(())
    }
}
