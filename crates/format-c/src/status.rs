//! What calls return, and the message of the last call that failed.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

/// What a call returns. The numbers and texts are those of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    End = 1,
    Short = 2,
    Argument = 3,
    Templates = 4,
    NoTemplate = 5,
    Record = 6,
    Store = 7,
    Damage = 8,
    Bug = 9,
}

/// All of them, by their numbers, with what they mean.
const TEXTS: [(Status, &CStr); 10] = [
    (Status::Ok, c"the call has done what was asked"),
    (Status::End, c"the store has no more records"),
    (Status::Short, c"the buffer is too small for the text"),
    (Status::Argument, c"an argument is not what the function takes"),
    (Status::Templates, c"the templates cannot be read"),
    (Status::NoTemplate, c"no template has these codes"),
    (Status::Record, c"these bytes are no record"),
    (Status::Store, c"the store cannot be read"),
    (Status::Damage, c"a part of the store cannot be read; the next call goes on behind it"),
    (Status::Bug, c"a mistake in this library; the handle may only be closed"),
];

/// What a status means.
pub(crate) fn text(status: i32) -> &'static CStr {
    let known = usize::try_from(status).ok().and_then(|status| TEXTS.get(status));
    known.map_or(c"no status of this library", |(_, text)| text)
}

/// Why a call has not done what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }
}

thread_local! {
    /// The message of this thread's last call that failed.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Keeps a message for the calling thread.
pub(crate) fn keep(message: &str) {
    // A message with foreign text was made printable: it has no NUL. If one has, it ends there.
    let end = message.find('\0').unwrap_or(message.len());
    let message = CString::new(&message[..end]).unwrap_or_default();
    MESSAGE.with(|kept| *kept.borrow_mut() = message);
}

/// Calls `use_it` with the message of the calling thread.
pub(crate) fn with_message<T>(use_it: impl FnOnce(&CStr) -> T) -> T {
    MESSAGE.with(|kept| use_it(&kept.borrow()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_text_at_its_number() {
        for (number, (status, text)) in (0..).zip(TEXTS) {
            assert_eq!(status as i32, number);
            assert_eq!(super::text(number), text);
        }
        for unknown in [-1, 10, i32::MAX] {
            assert_eq!(text(unknown), c"no status of this library");
        }
    }

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../include/dprobes_format.h");
        let names = [
            "OK",
            "END",
            "SHORT",
            "ARGUMENT",
            "TEMPLATES",
            "NO_TEMPLATE",
            "RECORD",
            "STORE",
            "DAMAGE",
            "BUG",
        ];
        for (number, name) in names.iter().enumerate() {
            assert!(header.contains(&format!("DPFMT_{name} = {number},")), "{name}");
        }
        assert_eq!(names.len(), TEXTS.len());
    }
}
