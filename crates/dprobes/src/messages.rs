//! What is said on standard error, and how.

use std::io::{self, Write};

/// What a note begins with that somebody should look at.
pub(crate) const WARNING: &str = "warning: ";

/// What is said of a trace without an end.
pub(crate) const CUT_SHORT: &str =
    "the trace was cut short, or is still being written: the last second, counts and variables are not there";

/// Tells a message.
pub(crate) fn tell(text: &str) {
    say(format_args!("dprobes: {}", printable::lines(text)));
}

/// Writes a line to standard error. One that nobody reads any more is no reason to stop.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// `1 probe`, `2 probes`; `1 loss`, `2 losses`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}
