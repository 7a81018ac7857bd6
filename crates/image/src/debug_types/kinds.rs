//! What questions and answers consist of, and how far a search goes.

/// The longest chain of type names and qualifiers, and the deepest nesting of types in each other.
pub(super) const DEPTH: usize = 64;
/// The most that is read of a module in all: entries, rows of tables, ranges. Some ten seconds of
/// work; a large program has some ten million.
pub(super) const WORK: u64 = 400_000_000;
/// The most units of a module.
pub(super) const UNITS: usize = 1 << 20;

/// A type in a module's debug information: the place of its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(super) usize);

/// The kinds of types that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeName {
    /// `struct name`; also a class.
    Struct,
    /// `union name`.
    Union,
    /// `enum name`.
    Enum,
    /// A name without a keyword: of a `typedef`, of a base type, or, as in C++, of any type.
    Plain,
}

/// Why debug information does not tell something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTypes {
    /// There is none.
    #[error(
        "it has no debug information (compile with -g, install its debug package, or set DEBUGINFOD_URLS)"
    )]
    Missing,
    /// It is in files that are not read.
    #[error("its debug information is in `.dwo` files, which are not read (compile without -gsplit-dwarf)")]
    Split,
    /// The program is not for this machine.
    #[error("it is not a program for x86-64")]
    OtherMachine,
    /// The function has none.
    #[error("its debug information does not have this function")]
    NoFunction,
    /// A type is only declared: what it consists of is told nowhere.
    #[error("it is only declared there, and not defined")]
    Declared,
    /// The search would take too long.
    #[error("its debug information is too large to be searched for this")]
    TooLong,
    /// It is damaged or in a form that is not read.
    #[error("its debug information cannot be read: {0}")]
    Damaged(String),
}

impl From<gimli::Error> for NoTypes {
    fn from(error: gimli::Error) -> NoTypes {
        NoTypes::Damaged(error.to_string())
    }
}
