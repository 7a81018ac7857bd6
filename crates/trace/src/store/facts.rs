//! The facts of a store: what is needed besides the records to understand them after the program
//! has ended.
//!
//! A block of facts is a list of entries: tag, length, body. Tag and length are numbers. The body
//! has the fields of the fact in the order in which this file declares them. A reader skips entries
//! with an unknown tag, and bytes after the known fields: later versions may add both.

use super::bytes::{Cursor, DecodeError, fold, push_bytes, push_number};
use crate::Items;

/// A field of a fact.
trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Self, DecodeError>;
    /// The heap memory that it uses, in bytes.
    fn heap(&self) -> usize {
        0
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, u64::from(*self));
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<u32, DecodeError> {
        from.half(what)
    }
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, *self);
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<u64, DecodeError> {
        from.number(what)
    }
}

impl Field for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, fold(*self));
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<i64, DecodeError> {
        from.difference(what)
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        push_bytes(out, self.as_bytes());
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<String, DecodeError> {
        from.text(what).map(str::to_owned)
    }
    fn heap(&self) -> usize {
        self.capacity()
    }
}

impl Field for Items {
    fn put(&self, out: &mut Vec<u8>) {
        self.flags().put(out);
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Items, DecodeError> {
        let start = *from;
        let flags = from.half(what)?;
        Items::from_flags(flags).ok_or_else(|| start.wrong(format!("{what}: unknown flags in {flags:#x}")))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, self.is_some().into());
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Option<T>, DecodeError> {
        let start = *from;
        if from.left() == 0 {
            // Later versions add fields at the end of a fact; those of an earlier version lack
            // them.
            return Ok(None);
        }
        match from.number(what)? {
            0 => Ok(None),
            1 => T::get(from, what).map(Some),
            other => Err(start.wrong(format!("{what}: presence byte {other}, not 0 or 1"))),
        }
    }
    fn heap(&self) -> usize {
        self.as_ref().map_or(0, Field::heap)
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, self.len() as u64);
        self.iter().for_each(|value| value.put(out));
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Vec<T>, DecodeError> {
        let count = from.number(what)?;
        // Each value takes at least a byte.
        if count > from.left() as u64 {
            return Err(from.wrong(format!("{what}: {count} values do not fit in {} bytes", from.left())));
        }
        (0..count).map(|_| T::get(from, what)).collect()
    }
    fn heap(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(Field::heap).sum::<usize>()
    }
}

/// Defines the fact types from a table: tag, name, fields.
macro_rules! facts {
    ($($(#[$about:meta])* $tag:literal $name:ident { $($(#[$detail:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $($(#[$detail])* pub $field: $type,)*
            }

            impl From<$name> for Fact {
                fn from(fact: $name) -> Fact {
                    Fact::$name(fact)
                }
            }
        )*

        /// A fact of a store.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Fact {
            $(#[doc = concat!("[`", stringify!($name), "`].")] $name($name),)*
        }

        impl Fact {
            /// Appends its fields. Returns its tag.
            fn put(&self, out: &mut Vec<u8>) -> u32 {
                match self {
                    $(Fact::$name(fact) => {
                        $(fact.$field.put(out);)*
                        $tag
                    })*
                }
            }

            /// Parses the fields of a fact; none if the tag is unknown.
            fn get(tag: u32, from: &mut Cursor<'_>) -> Result<Option<Fact>, DecodeError> {
                Ok(Some(match tag {
                    $($tag => Fact::$name($name {
                        $($field: Field::get(from, concat!(stringify!($name), ", ", stringify!($field)))?,)*
                    }),)*
                    _ => return Ok(None),
                }))
            }

            /// The approximate memory that it uses, in bytes.
            pub(super) fn memory(&self) -> usize {
                size_of::<Fact>() + match self {
                    $(Fact::$name(fact) => 0 $(+ fact.$field.heap())*,)*
                }
            }
        }
    };
}

impl About {
    /// The command line as a shell takes it: words with other characters than those of names and
    /// numbers are quoted.
    pub fn command_line(&self) -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@+%^".contains(&byte);
        let quoted = |word: &String| match !word.is_empty() && word.bytes().all(is_plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        };
        self.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

facts! {
    /// Where and how the trace was made. The first fact of a store.
    1 About {
        /// The version of dprobes that wrote it.
        version: String,
        /// The host name.
        host: String,
        /// The kernel: name and release, `Linux 6.12.0`.
        kernel: String,
        /// The architecture, `x86_64`. The logged data has its byte order, little-endian.
        machine: String,
        /// How many processors the machine may have; records have lower numbers.
        processors: u32,
        /// When the trace began, in nanoseconds since 1970.
        start: u64,
        /// The difference between CLOCK_MONOTONIC and the times of records when the trace began, in
        /// nanoseconds: to be added to the former.
        monotonic: i64,
        /// The process that wrote it.
        pid: u32,
        /// The command line.
        command: Vec<String>,
    }

    /// A probe program.
    2 Program {
        /// Its number, by which records refer to it.
        number: u32,
        /// The file of its source, or how it was given.
        name: String,
        /// The module's name, as written in the program.
        module: String,
        /// Its major code.
        major: u32,
        /// Its id, as written in the program (`id =`).
        id: u32,
        /// The size of a word on the machine that it was compiled for first: 4 or 8 bytes. Each
        /// record has its own.
        word: u32,
        /// The header items of its records. All other items are zero or empty in its records.
        items: Items,
    }

    /// A probepoint of a program.
    3 Probe {
        /// The program's number.
        program: u32,
        /// Its number in the program, from 0 on, by which records refer to it.
        number: u32,
        /// Its location, as written in the program.
        point: String,
        /// Its minor code.
        minor: u32,
        /// Its group.
        group: Option<String>,
        /// Its type.
        kind: Option<String>,
        /// What its handler logs, as [`crate::line::LoggedForms`] writes it; none in stores of
        /// earlier versions.
        logged: Option<String>,
    }

    /// A file that probes were placed in.
    4 Module {
        /// Its number, by which sites refer to it.
        number: u32,
        /// Its path.
        path: String,
        /// Its build-id, in hexadecimal; empty if it has none.
        build_id: String,
    }

    /// A probed instruction, in one process and in those that were forked from it.
    5 Site {
        /// When it was armed, in nanoseconds since 1970.
        time: u64,
        /// The program's number.
        program: u32,
        /// The probe's number in the program.
        probe: u32,
        /// The process id.
        pid: u32,
        /// The module's number.
        module: u32,
        /// Its address in the process; `eip` of the records.
        address: u64,
        /// Its offset in the module's file.
        offset: u64,
        /// The function and the offset in it, as `main+0x4`; empty if unknown.
        symbol: String,
        /// How the site is armed: `jump` or `trap`.
        engine: String,
        /// The tactic that made the jump fit; empty if there is no jump.
        tactic: String,
    }

    /// A thread that logged a record, or whose name has changed.
    6 Thread {
        /// The time of the first such record, in nanoseconds since 1970.
        time: u64,
        /// The process id.
        pid: u32,
        /// The thread id.
        tid: u32,
        /// The user id.
        uid: u32,
        /// Its name; empty if the program's items have no names.
        name: String,
    }

    /// A number of records of a probe that were dropped.
    7 Loss {
        /// When the loss was noticed, in nanoseconds since 1970. The records were dropped between
        /// the probe's previous loss and this time.
        time: u64,
        /// The program's number.
        program: u32,
        /// The probe's number in the program.
        probe: u32,
        /// How many.
        dropped: u64,
    }

    /// The final counts of a probepoint, written at the end. `hits = runs + ignored + missed`.
    8 Counts {
        /// The program's number.
        program: u32,
        /// The probe's number in the program.
        probe: u32,
        /// How often the probepoint was reached.
        hits: u64,
        /// How often the handler ran.
        runs: u64,
        /// Hits that `ignore` skipped.
        ignored: u64,
        /// Hits at which the handler could not run.
        missed: u64,
        /// Records that were delivered.
        logged: u64,
        /// Records that were dropped in all.
        dropped: u64,
        /// The final state: `armed`, `waiting`, `disabled`, `removed` or `refused`.
        state: String,
    }

    /// The final values of variables, written at the end.
    9 Variables {
        /// The program whose local variables these are; none for the global variables.
        program: Option<u32>,
        /// The values, from the first variable on.
        values: Vec<u64>,
    }

    /// A message to the user.
    10 Note {
        /// When it was shown, in nanoseconds since 1970.
        time: u64,
        /// The message.
        text: String,
    }

    /// The template for records with these codes (the paper, section 6).
    11 Template {
        /// The major code.
        major: u32,
        /// The minor code.
        minor: u32,
        /// A description of the event.
        description: String,
        /// All `fmt` texts of the template, concatenated; none if it has none.
        format: Option<String>,
        /// The number of the program to whose records it applies. None: it applies to all programs
        /// without a template of their own for these codes, as all templates do in version 1 of the
        /// format.
        program: Option<u32>,
    }

    /// The source line of a probed instruction, written at the end if it is known.
    12 Source {
        /// The module's number.
        module: u32,
        /// The instruction's offset in the module's file.
        offset: u64,
        /// The path of the source file.
        file: String,
        /// The line, from 1 on.
        line: u32,
    }

    /// A time span in which records were lost, because there was no room or because they could not
    /// be written. [`Loss`] says to which probes they belonged.
    13 Gap {
        /// The earliest time at which one may have been lost, in nanoseconds since 1970. 0:
        /// unknown.
        from: u64,
        /// The latest time at which one may have been lost.
        to: u64,
        /// The process that had no room for them. 0: they were lost later, or belong to several
        /// processes.
        pid: u32,
        /// How many.
        dropped: u64,
    }
}

impl Fact {
    /// Appends the fact as an entry. `body` is scratch memory.
    pub(super) fn encode(&self, out: &mut Vec<u8>, body: &mut Vec<u8>) {
        body.clear();
        let tag = self.put(body);
        push_number(out, tag.into());
        push_bytes(out, body);
    }

    /// Parses the next entry; none if its tag is unknown.
    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Option<Fact>, DecodeError> {
        let tag = from.half("the tag of a fact")?;
        let before = from.at();
        let body = from.counted("a fact")?;
        let start = from.at() - body.len();
        debug_assert!(start > before);
        let mut fields = Cursor::new(body, 0);
        Fact::get(tag, &mut fields).map_err(|wrong| DecodeError { at: start + wrong.at, ..wrong })
    }
}
