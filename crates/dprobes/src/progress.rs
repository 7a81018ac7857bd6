//! What is being done, on a terminal, while it takes long and before there is anything to show.
//!
//! ```text
//! dprobes: putting the probes in, 12 s
//! ```
//!
//! The line appears after half a second and is removed when the work is done, or before a message.
//! Nothing is shown where standard error is no terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long work may take silently.
const SILENT: Duration = Duration::from_millis(500);
/// The line is renewed this often.
const EVERY: Duration = Duration::from_millis(250);
/// Removes a line, with the cursor at its beginning after that.
const REMOVE: &str = "\r\x1b[K";

/// The line, which any thread may have to remove.
static LINE: Mutex<Line> = Mutex::new(Line { work: None, shown: None });

/// The state of the line.
struct Line {
    /// What is being done, and since when.
    work: Option<(&'static str, Instant)>,
    /// When the line was last written, if it is there.
    shown: Option<Instant>,
}

impl Line {
    /// What is to be written at a time, if anything.
    fn at(&mut self, now: Instant) -> Option<String> {
        let (what, since) = self.work?;
        let passed = now.saturating_duration_since(since);
        let is_fresh = self.shown.is_some_and(|shown| now.saturating_duration_since(shown) < EVERY);
        if passed < SILENT || is_fresh {
            return None;
        }
        self.shown = Some(now);
        Some(format!("{REMOVE}dprobes: {what}, {} s", passed.as_secs()))
    }

    /// What removes the line, if it is there.
    fn removal(&mut self) -> &'static str {
        if self.shown.take().is_some() { REMOVE } else { "" }
    }
}

/// Begins work that may take long. Without a terminal this has no effect.
pub(crate) fn begin(what: &'static str) {
    if io::stderr().is_terminal() {
        with(|line| line.work = Some((what, Instant::now())));
    }
}

/// Shows how long the work has taken. Called now and then.
pub(crate) fn tick() {
    with(|line| line.at(Instant::now()).iter().for_each(|text| write(text)));
}

/// The work is done.
pub(crate) fn end() {
    with(|line| {
        line.work = None;
        write(line.removal());
    });
}

/// Does work that may take long, with the line renewed by a thread that ends before this returns.
pub(crate) fn during<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    begin(what);
    let (working, waits) = mpsc::channel::<()>();
    let result = thread::scope(move |scope| {
        let renew = move || {
            while waits.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        };
        // Without the thread, nothing is shown.
        let _ = thread::Builder::new().name("progress".to_owned()).spawn_scoped(scope, renew);
        let result = work();
        drop(working);
        result
    });
    end();
    result
}

/// Makes room for a message; the line comes back later.
pub(crate) fn make_room() {
    with(|line| write(line.removal()));
}

fn with(change: impl FnOnce(&mut Line)) {
    // A process that was forked meanwhile does not wait for a thread that it does not have.
    if let Ok(mut line) = LINE.try_lock() {
        change(&mut line);
    }
}

fn write(text: &str) {
    if !text.is_empty() {
        // A failure cannot be reported anywhere.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_comes_after_half_a_second_and_goes_when_it_was_there() {
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        let mut line = Line { work: Some(("thinking", begun)), shown: None };
        assert_eq!(line.at(after(499)), None);
        assert_eq!(line.removal(), "");
        assert_eq!(line.at(after(500)).as_deref(), Some("\r\x1b[Kdprobes: thinking, 0 s"));
        assert_eq!(line.at(after(600)), None, "not so often");
        assert_eq!(line.at(after(12_400)).as_deref(), Some("\r\x1b[Kdprobes: thinking, 12 s"));
        assert_eq!(line.removal(), REMOVE);
        assert_eq!(line.removal(), "");
        line.work = None;
        assert_eq!(line.at(after(99_000)), None);
    }
}
