//! Keys: the names of programs' types, which no script can write.

use std::rc::Rc;

/// The mark between the name of a program's type and its number.
const MARK: char = '\0';

/// The key of a type of a program: its name, and a number that tells it from others of the name.
pub fn key(name: &str, number: usize) -> Rc<str> {
    format!("{name}{MARK}{number}").into()
}

/// Whether a name is the key of a type of a program.
pub(crate) fn is_key(name: &str) -> bool {
    name.contains(MARK)
}

/// The name in a key, or the name that it is.
pub(crate) fn shown(name: &str) -> &str {
    name.split(MARK).next().unwrap_or(name)
}
