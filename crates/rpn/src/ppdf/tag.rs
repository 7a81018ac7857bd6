//! Tags: the names of sections and fields.

use std::fmt;

/// The name of a section or a field: four letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tag(pub(super) [u8; 4]);

impl Tag {
    /// Whether a reader that does not know the tag must refuse the file. Only a small first letter
    /// makes it optional; a tag that begins with no letter is damaged, and refused too.
    pub(super) fn is_required(self) -> bool {
        !self.0[0].is_ascii_lowercase()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_ascii())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! tags {
    ($($(#[$doc:meta])* $name:ident = $letters:literal,)*) => {
        $($(#[$doc])* pub(in crate::ppdf) const $name: Tag = Tag(*$letters);)*
        #[cfg(test)]
        pub(in crate::ppdf) const ALL: &[Tag] = &[$($name,)*];
    };
}

/// The sections, in the order in which they are written.
pub(super) mod section {
    use super::Tag;
    tags! {
        /// The statements of the file header, as fields.
        HEAD = b"HEAD",
        /// The file in which the sites were resolved: path, build-id, size.
        FILE = b"FILE",
        /// The names of the groups.
        GROUPS = b"GRPS",
        /// The names of the types.
        TYPES = b"TYPS",
        /// The probes, as records of fields.
        PROBES = b"PROB",
        /// The procedures: entry, end, name.
        PROCEDURES = b"PROC",
        /// Words of the code that hold the address of a kernel symbol: offset, addend, name.
        SYMBOLS = b"SYMB",
        /// The names of fields of tracepoints' records, unless there are none.
        FIELDS = b"FLDS",
        /// The instructions.
        CODE = b"CODE",
        /// The source files: where each was included, and its name.
        SOURCES = b"srcs",
        /// The source span of each instruction: its offset, the source, start and end there.
        LINES = b"line",
        /// The lines and columns of places in the sources.
        POSITIONS = b"posn",
    }
}

/// The fields of section `HEAD`.
pub(super) mod head {
    use super::Tag;
    tags! {
        NAME = b"Name",
        MODTYPE = b"Modt",
        VARS = b"Vars",
        GVARS = b"Gvar",
        MAJOR = b"Majr",
        ID = b"Prid",
        LOGMAX = b"Logm",
        JMPMAX = b"Jmpm",
        /// Instructions that one run may execute, unless it is the default.
        INSMAX = b"Insm",
        EXCPT_LOG = b"Exlg",
        AUTOSTACKTRACE = b"Astk",
        HEAPMAX = b"Heap",
    }
}

/// The fields of a probe.
pub(super) mod probe {
    use super::Tag;
    tags! {
        POINT = b"Pont",
        /// A probe has exactly one of these six fields for its location.
        OFFSET = b"Offs",
        SYMBOL = b"Symb",
        ADDRESS = b"Addr",
        ADDRESS_SYMBOL = b"Asym",
        POINTS = b"Func",
        TRACEPOINT = b"Trcp",
        WATCH = b"Wtch",
        OPCODE = b"Opcd",
        MINOR = b"Minr",
        GROUP = b"Grup",
        TYPE = b"Type",
        IGNORE = b"Igno",
        MAXHITS = b"Maxh",
        LOGONFAULT = b"Lgft",
        MASK = b"Mask",
        HEAP = b"Hpmx",
        HANDLER = b"Hndl",
        SITE = b"Site",
        /// The sites of a probe with `Func`.
        SITES = b"Sits",
        /// The span of the statement with its location in the source.
        SPAN = b"span",
    }
}
