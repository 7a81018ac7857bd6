//! Messages on standard error.

use std::io::{self, Write};

/// Prefix of messages that the user should look at.
pub(crate) const WARNING: &str = "warning: ";

/// The message for a trace without an end.
pub(crate) const CUT_SHORT: &str =
    "the trace was cut short, or is still being written: the last second, counts and variables are not there";

/// Prints a message.
pub(crate) fn tell(text: &str) {
    say(format_args!("dprobes: {}", printable::lines(text)));
}

/// Writes a line to standard error. Errors are ignored: a closed standard error is no reason to
/// stop.
pub(crate) fn say(line: impl std::fmt::Display) {
    crate::progress::make_room();
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
