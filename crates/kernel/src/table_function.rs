//! The functions that programs have for maps of scripts.

/// A function on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Function {
    /// Copies the key and hashes it.
    Key,
    /// Whether an entry (`R1`) has the key; `R2` is the context.
    Same,
    /// Finds the entry in the copy at `CopyAt`.
    Find,
    /// The same, and makes it if there is none.
    Ensure,
    /// The entry in this processor's copy.
    Entry,
    /// Counts an update that is lost.
    Lose,
    Update,
    Load,
    Fetch,
    Store,
    Put,
    Bump,
    Erase,
    Has,
    /// The number of a stack.
    Intern,
}
