//! Why jumps are not planned.

use super::NotMapped;

/// Why no jumps can be planned for a file in an address space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCovered {
    /// Its code is another machine's.
    #[error("the module is for another machine")]
    OtherMachine,
    /// There is no free memory at low addresses.
    #[error("there is no room below 2 GiB in that address space")]
    NoneLow,
    /// Its code cannot be read.
    #[error("the code cannot be read")]
    UnreadableCode,
    /// There is no memory for trampolines.
    #[error(transparent)]
    NotMapped(#[from] NotMapped),
}
