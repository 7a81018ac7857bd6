//! What a store says beside its records: all that is needed to understand them when the program is gone.
//!
//! A block of facts is a list of entries: tag, length, body. Tag and length are numbers. The body has the fields of the fact in the
//! order in which they stand here. A reader passes over entries whose tag it does not know, and over what follows the fields that it
//! knows: later versions may add both.

use super::bytes::{Cursor, Wrong, fold, push_bytes, push_number};
use crate::Items;

/// A field of a fact.
trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Self, Wrong>;
    /// Bytes of memory beside its own.
    fn heap(&self) -> usize {
        0
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, u64::from(*self));
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<u32, Wrong> {
        from.half(what)
    }
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, *self);
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<u64, Wrong> {
        from.number(what)
    }
}

impl Field for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, fold(*self));
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<i64, Wrong> {
        from.difference(what)
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        push_bytes(out, self.as_bytes());
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<String, Wrong> {
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
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Items, Wrong> {
        let start = *from;
        let flags = from.half(what)?;
        Items::from_flags(flags).ok_or_else(|| start.wrong(format!("{what}: {flags:#x}, not all known")))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        push_number(out, self.is_some().into());
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Option<T>, Wrong> {
        let start = *from;
        if from.left() == 0 {
            // An earlier version did not have it. What is added to a fact stands at its end, and may be missing.
            return Ok(None);
        }
        match from.number(what)? {
            0 => Ok(None),
            1 => T::get(from, what).map(Some),
            other => Err(start.wrong(format!("{what}: {other}, and 0 or 1 says whether it is there"))),
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
    fn get(from: &mut Cursor<'_>, what: &str) -> Result<Vec<T>, Wrong> {
        let count = from.number(what)?;
        // Each takes a byte at least.
        if count > from.left() as u64 {
            return Err(from.wrong(format!("{what}: {count} of them in {} bytes", from.left())));
        }
        (0..count).map(|_| T::get(from, what)).collect()
    }
    fn heap(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(Field::heap).sum::<usize>()
    }
}

/// Makes the types of facts, from one table: tag, name, fields.
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

        /// One of the things that a store says beside its records.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Fact {
            $(#[doc = concat!("[`", stringify!($name), "`].")] $name($name),)*
        }

        impl Fact {
            /// Appends its tag and its fields.
            fn put(&self, out: &mut Vec<u8>) -> u32 {
                match self {
                    $(Fact::$name(fact) => {
                        $(fact.$field.put(out);)*
                        $tag
                    })*
                }
            }

            /// Understands the fields of a fact; none if its tag is not known.
            fn get(tag: u32, from: &mut Cursor<'_>) -> Result<Option<Fact>, Wrong> {
                Ok(Some(match tag {
                    $($tag => Fact::$name($name {
                        $($field: Field::get(from, concat!(stringify!($name), ", ", stringify!($field)))?,)*
                    }),)*
                    _ => return Ok(None),
                }))
            }

            /// About how many bytes of memory it takes.
            pub(super) fn memory(&self) -> usize {
                size_of::<Fact>() + match self {
                    $(Fact::$name(fact) => 0 $(+ fact.$field.heap())*,)*
                }
            }
        }
    };
}

facts! {
    /// Where and how the trace was made. The first fact of a store.
    1 About {
        /// The version of dprobes that wrote it.
        version: String,
        /// The name of the machine.
        host: String,
        /// The kernel: name and release, `Linux 6.12.0`.
        kernel: String,
        /// The kind of machine, `x86_64`; its byte order, little-endian, is that of the logged data.
        machine: String,
        /// Processors that the machine may have; those of records are below.
        processors: u32,
        /// When it began: nanoseconds since 1970.
        start: u64,
        /// What has to be added to CLOCK_MONOTONIC to get the times of records, as it was when the trace began: nanoseconds.
        monotonic: i64,
        /// The process that wrote it.
        pid: u32,
        /// The command line.
        command: Vec<String>,
    }

    /// A probe program.
    2 Program {
        /// Its number; records name it.
        number: u32,
        /// Where its text came from, or how it was given.
        name: String,
        /// The module's name, as the program gives it.
        module: String,
        /// Its major code.
        major: u32,
        /// Its own number (`id =`).
        id: u32,
        /// Bytes of a word of the machine that it was compiled for first, 4 or 8. Each record says its own.
        word: u32,
        /// The header items of its records. Those that are not among them are zero or empty in all its records.
        items: Items,
    }

    /// A probepoint of a program.
    3 Probe {
        /// The program's number.
        program: u32,
        /// Its own number in the program, from 0 on; records name it.
        number: u32,
        /// Where it is, as the program writes it.
        point: String,
        /// Its minor code.
        minor: u32,
        /// Its group.
        group: Option<String>,
        /// Its type.
        kind: Option<String>,
    }

    /// A file that probes were placed in.
    4 Module {
        /// Its number; sites name it.
        number: u32,
        /// Its path.
        path: String,
        /// Its build-id, in hexadecimal; empty if it has none.
        build_id: String,
    }

    /// One instruction at which a probe was placed, in one process and those that were copied from it.
    5 Site {
        /// The time at which it was armed: nanoseconds since 1970.
        time: u64,
        /// The program's number.
        program: u32,
        /// The probe's number in it.
        probe: u32,
        /// The process.
        pid: u32,
        /// The module's number.
        module: u32,
        /// Its address in the process, which the records' `eip` shows.
        address: u64,
        /// Its offset in the module's file.
        offset: u64,
        /// The function that it is in, and how far, as `main+0x4`; empty if that is not known.
        symbol: String,
        /// What makes it fire: `jump` or `trap`.
        engine: String,
        /// How the jump was made to fit; empty if it is none.
        tactic: String,
    }

    /// A thread that has logged, or has another name now.
    6 Thread {
        /// The time of the record that showed it: nanoseconds since 1970.
        time: u64,
        /// The process id.
        pid: u32,
        /// The thread id.
        tid: u32,
        /// The user id.
        uid: u32,
        /// Its name; empty where names were not asked for.
        name: String,
    }

    /// Records that were dropped.
    7 Loss {
        /// When it was known: nanoseconds since 1970. They were dropped before, and after the loss of the same probe that was told
        /// before.
        time: u64,
        /// The program's number.
        program: u32,
        /// The probe's number in it.
        probe: u32,
        /// How many.
        dropped: u64,
    }

    /// What was counted at a probepoint, told at the end. `hits = runs + ignored + missed`.
    8 Counts {
        /// The program's number.
        program: u32,
        /// The probe's number in it.
        probe: u32,
        /// Times it was reached.
        hits: u64,
        /// Times its handler ran.
        runs: u64,
        /// Hits passed over by `ignore`.
        ignored: u64,
        /// Hits at which the handler could not run.
        missed: u64,
        /// Records handed out.
        logged: u64,
        /// Records dropped, all in all.
        dropped: u64,
        /// What has become of it: `armed`, `waiting`, `disabled`, `removed` or `refused`.
        state: String,
    }

    /// The values of variables, told at the end.
    9 Variables {
        /// The program whose local variables they are; none: they are the global ones.
        program: Option<u32>,
        /// The values, from the first on.
        values: Vec<u64>,
    }

    /// A message to the user.
    10 Note {
        /// When it was told: nanoseconds since 1970.
        time: u64,
        /// The message.
        text: String,
    }

    /// How records of a program with these codes are shown (the paper, section 6).
    11 Template {
        /// The major code.
        major: u32,
        /// The minor code.
        minor: u32,
        /// What the event is.
        description: String,
        /// All `fmt` of the template, one after the other; none where it has none.
        format: Option<String>,
        /// The number of the program whose records are meant. None: those of all programs that have no template of their own with
        /// these codes. That is how version 1 of the format has all templates.
        program: Option<u32>,
    }

    /// Which line of which source an instruction is of; told at the end, for the sites of which it is known.
    12 Source {
        /// The module's number.
        module: u32,
        /// The instruction's offset in the module's file.
        offset: u64,
        /// The path of the source.
        file: String,
        /// The line, from 1 on.
        line: u32,
    }

    /// Between which two moments records were lost, for want of room or since they could not be written. Of which probes they were, [`Loss`] says.
    13 Gap {
        /// None of them is of before this time: nanoseconds since 1970. 0: nothing is known of that.
        from: u64,
        /// None of them is of after this time.
        to: u64,
        /// The process that had no room for them; 0: it had, and they were lost later, or they are of several.
        pid: u32,
        /// How many.
        dropped: u64,
    }
}

impl Fact {
    /// Appends the fact as an entry. `body` is memory to be used meanwhile.
    pub(super) fn encode(&self, out: &mut Vec<u8>, body: &mut Vec<u8>) {
        body.clear();
        let tag = self.put(body);
        push_number(out, tag.into());
        push_bytes(out, body);
    }

    /// Understands the next entry; nothing if it is of a kind that is not known.
    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Option<Fact>, Wrong> {
        let tag = from.half("the tag of a fact")?;
        let before = from.at();
        let body = from.counted("a fact")?;
        let start = from.at() - body.len();
        debug_assert!(start > before);
        let mut fields = Cursor::new(body, 0);
        Fact::get(tag, &mut fields).map_err(|wrong| Wrong { at: start + wrong.at, ..wrong })
    }
}
