//! The table of all statements of the file header and the probe headers (manual, "Probe program
//! file header" and "Probe-point definition").

/// The header in which a statement may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderKind {
    /// In the file header.
    File,
    /// In a probe's header.
    Probe,
    /// In both: the file header's value applies to probes without their own.
    Both,
}

/// The kind of value of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A name, or a string in quotes.
    Name,
    /// One or more names.
    Names,
    /// A number.
    Number,
    /// A number, a symbol, a symbol and a number, or points of a function.
    Point,
    /// One number or symbol, or two separated by a colon.
    Range,
    /// `SYSTEM:NAME`.
    Tracepoint,
    /// One of these words.
    Word(&'static [&'static str]),
}

macro_rules! keys {
    ($($key:ident $name:literal $header:expr, $takes:expr, $what:literal;)*) => {
        /// A statement's key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Key { $($key,)* }

        impl Key {
            /// Every key.
            pub(crate) const ALL: &[Key] = &[$(Key::$key,)*];

            /// Its source form.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Key::$key => $name,)* }
            }

            /// The header in which it may appear.
            pub(crate) fn header(self) -> HeaderKind {
                match self { $(Key::$key => $header,)* }
            }

            /// The kind of its value.
            pub(crate) fn takes(self) -> ValueKind {
                match self { $(Key::$key => $takes,)* }
            }

            /// Its value, in words, for messages.
            pub(crate) fn what(self) -> &'static str {
                match self { $(Key::$key => $what,)* }
            }
        }
    };
}

keys! {
    Name "name" HeaderKind::File, ValueKind::Name, "a module's name";
    Modtype "modtype" HeaderKind::File, ValueKind::Word(&["user", "kernel", "kmod"]), "`user`, `kernel` or `kmod`";
    Vars "vars" HeaderKind::File, ValueKind::Number, "a number of local variables";
    Gvars "gvars" HeaderKind::File, ValueKind::Number, "a number of global variables";
    Groupdef "groupdef" HeaderKind::File, ValueKind::Names, "the names of groups";
    Typedef "typedef" HeaderKind::File, ValueKind::Names, "the names of types";
    Major "major" HeaderKind::File, ValueKind::Number, "a major code";
    Id "id" HeaderKind::File, ValueKind::Number, "a number";
    Logmax "logmax" HeaderKind::File, ValueKind::Number, "a number of bytes";
    Jmpmax "jmpmax" HeaderKind::File, ValueKind::Number, "a number of jumps";
    Insmax "insmax" HeaderKind::File, ValueKind::Number, "a number of instructions";
    ExcptLog "excpt_log" HeaderKind::File, ValueKind::Number, "a number of bytes";
    Autostacktrace "autostacktrace" HeaderKind::File, ValueKind::Word(&["yes", "no"]), "`yes` or `no`";
    Heapmax "heapmax" HeaderKind::File, ValueKind::Number, "a number of bytes";
    Logonfault "logonfault" HeaderKind::Both, ValueKind::Word(&["yes", "no"]), "`yes` or `no`";
    Ignore "ignore" HeaderKind::Both, ValueKind::Number, "a number of hits";
    Maxhits "maxhits" HeaderKind::Both, ValueKind::Number, "a number of hits";
    Offset "offset" HeaderKind::Probe, ValueKind::Point, "a number, a symbol, a symbol and a number, or `FUNCTION:POINT`";
    Address "address" HeaderKind::Probe, ValueKind::Range, "an address";
    Tracepoint "tracepoint" HeaderKind::Probe, ValueKind::Tracepoint, "a tracepoint, `SYSTEM:NAME`";
    Watchpoint "watchpoint" HeaderKind::Probe, ValueKind::Word(&["x", "w", "rw", "io"]), "`x`, `w`, `rw` or `io`";
    Opcode "opcode" HeaderKind::Probe, ValueKind::Number, "the first bytes of the probed instruction";
    Group "group" HeaderKind::Probe, ValueKind::Name, "the name of a group";
    Type "type" HeaderKind::Probe, ValueKind::Name, "the name of a type";
    Minor "minor" HeaderKind::Probe, ValueKind::Number, "a minor code";
    ExcptMask "excpt_mask" HeaderKind::Probe, ValueKind::Number, "the mask of exceptions";
    Heap "heap" HeaderKind::Probe, ValueKind::Number, "a number of bytes";
}

impl Key {
    /// The key with this name, ignoring case.
    pub(crate) fn from_name(name: &str) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.name().eq_ignore_ascii_case(name))
    }

    /// Whether it may appear in the file header.
    pub(crate) fn in_file(self) -> bool {
        matches!(self.header(), HeaderKind::File | HeaderKind::Both)
    }

    /// Whether it may appear in a probe's header.
    pub(crate) fn in_probe(self) -> bool {
        matches!(self.header(), HeaderKind::Probe | HeaderKind::Both)
    }

    /// Whether it is the first statement of a probe.
    pub(crate) fn begins_probe(self) -> bool {
        matches!(self, Key::Offset | Key::Address | Key::Tracepoint)
    }
}
