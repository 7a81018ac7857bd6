//! Instruction names of the manual that are not in the instruction table: older names, names
//! removed in 3.4.0, and reserved ones that never had a meaning. They are listed so that no message
//! calls them unknown.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What is known about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObsoleteName {
    /// Renamed to this; parsing continues with the operand.
    Renamed(&'static str),
    /// Removed in 3.4.0; what to use instead.
    Removed(&'static str),
    /// The original reserved an opcode for it but never implemented it; what it was for.
    Absent(&'static str),
}
use ObsoleteName::{Absent, Removed, Renamed};

/// `push arg, N`: an argument of the probed function. Written like an instruction, it becomes
/// several.
pub(crate) const ARGUMENT: &str = "arg";
/// How the first argument is pushed, in messages.
pub(crate) const FIRST_ARGUMENT: &str = "push arg, 0";
/// `push retval`: the return value of the probed function.
pub(crate) const RESULT: &str = "retval";

const FLAT: &str = "flat addresses: `push mem, u8`, `u16`, `u32` or `u64`";
const FLAT_POP: &str = "flat addresses: `pop mem, u8`, `u16`, `u32` or `u64`";

/// The names, as words and signs.
pub(crate) const SPELLINGS: &[(&str, ObsoleteName)] = &[
    ("push b,", Renamed("push")),
    ("push w,", Renamed("push")),
    ("push d,", Renamed("push")),
    ("push bif", Renamed("push mem, u8")),
    ("push wif", Renamed("push mem, u16")),
    ("push dif", Renamed("push mem, u32")),
    ("push qif", Renamed("push mem, u64")),
    ("pop bif", Renamed("pop mem, u8")),
    ("pop wif", Renamed("pop mem, u16")),
    ("pop dif", Renamed("pop mem, u32")),
    ("pop qif", Renamed("pop mem, u64")),
    ("log arf", Renamed("log str")),
    ("vfa", Renamed("vfyr")),
    ("cnvrt sxf", Renamed("seg2lin")),
    ("push bis", Removed(FLAT)),
    ("push wis", Removed(FLAT)),
    ("push dis", Removed(FLAT)),
    ("push qis", Removed(FLAT)),
    ("pop bis", Removed(FLAT_POP)),
    ("pop wis", Removed(FLAT_POP)),
    ("pop dis", Removed(FLAT_POP)),
    ("pop qis", Removed(FLAT_POP)),
    ("log ars", Removed("a flat address: `log str`")),
    ("log mrs", Removed("a flat address: `log mrf`")),
    ("vsa", Removed("a flat address: `vfyr`")),
    ("cnvrt sxd", Removed("flat addresses")),
    ("alloc gv", Absent("the allocation of global variables")),
    ("free gv", Absent("the allocation of global variables")),
    ("suspend", Absent("suspending a process")),
    ("resume", Absent("suspending a process")),
];

/// The words and signs of an instruction's name: `push mem, u8` has four.
pub(crate) fn pieces(name: &'static str) -> impl Iterator<Item = &'static str> {
    name.split_whitespace()
        .flat_map(|word| match word.strip_suffix(',') {
            Some(word) => [Some(word), Some(",")],
            None => [Some(word), None],
        })
        .flatten()
}

/// An instruction name that may appear in the source.
#[derive(Debug)]
pub(crate) struct Form {
    /// Its words and signs.
    pub(crate) pieces: Vec<&'static str>,
    /// The name of its row in the instruction table, or what is known about it.
    pub(crate) meaning: Result<&'static str, ObsoleteName>,
}

/// The names that start with a word, ignoring case; empty if there are none.
pub(crate) fn forms(word: &str) -> &'static [Form] {
    all_forms().get(word.to_ascii_lowercase().as_str()).map_or(&[], Vec::as_slice)
}

/// All names, by first word.
fn all_forms() -> &'static BTreeMap<&'static str, Vec<Form>> {
    static FORMS: LazyLock<BTreeMap<&'static str, Vec<Form>>> = LazyLock::new(|| {
        let rows = vm::TABLE.iter().map(|row| (row.name, Ok(row.name)));
        let known = SPELLINGS.iter().map(|(name, known)| (*name, Err(*known)));
        let mut forms: BTreeMap<&'static str, Vec<Form>> = BTreeMap::new();
        for (name, meaning) in rows.chain(known) {
            let pieces: Vec<&'static str> = pieces(name).collect();
            let same = forms.entry(pieces[0]).or_default();
            if same.iter().all(|form| form.pieces != pieces) {
                same.push(Form { pieces, meaning });
            }
        }
        forms
    });
    &FORMS
}

/// Whether the manual's appendix A lists an Intel register of this name as reserved.
pub(crate) fn is_reserved(name: &str) -> bool {
    const RESERVED: &[&str] =
        &["cr1", "cr5", "cr6", "cr7", "dr4", "dr5", "tr0", "tr1", "tr2", "tr3", "tr4", "tr5", "tr6", "tr7"];
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_is_there_twice_and_none_hides_an_instruction() {
        for (at, (name, _)) in SPELLINGS.iter().enumerate() {
            assert!(SPELLINGS[at + 1..].iter().all(|(other, _)| other != name), "{name}");
            assert!(vm::TABLE.iter().all(|row| row.name != *name), "{name} is an instruction now");
        }
    }

    #[test]
    fn a_new_name_is_an_instruction() {
        for (name, known) in SPELLINGS {
            if let ObsoleteName::Renamed(new) = known {
                assert!(vm::TABLE.iter().any(|row| row.name == *new), "{name}: {new}");
            }
        }
    }

    #[test]
    fn names_fall_into_words_and_signs() {
        assert_eq!(pieces("push mem, u8").collect::<Vec<_>>(), ["push", "mem", ",", "u8"]);
        assert_eq!(pieces("push b,").collect::<Vec<_>>(), ["push", "b", ","]);
    }

    #[test]
    fn a_reserved_register_is_never_one_of_the_table() {
        assert!(is_reserved("CR5") && is_reserved("tr3") && !is_reserved("cr0"));
        assert!(vm::Register::ALL.iter().all(|register| !is_reserved(register.name())));
    }
}
