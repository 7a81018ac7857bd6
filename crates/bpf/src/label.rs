//! Labels, and what can be wrong with a program's form.

/// A place in the program that jumps, calls or loads of addresses name before or after it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub(crate) u32);

/// Why the instructions are no program. Item numbers count what was pushed, a 64-bit load as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A label that is used is not bound.
    #[error("label {} is used, but not bound", .0.0)]
    Unbound(Label),
    /// A label is bound to two places.
    #[error("label {} is bound twice", .0.0)]
    BoundTwice(Label),
    /// A call or an address names a label that no function begins at.
    #[error("label {} is called, but is no function", .0.0)]
    NotAFunction(Label),
    /// A jump leads into another function.
    #[error("item {0} jumps into another function")]
    LeavesFunction(usize),
    /// After this item the function ends without `exit` or a jump.
    #[error("after item {0} the function has no end")]
    NoEnd(usize),
    /// A jump could not be made to reach its target, not even by steps.
    #[error("item {0} jumps too far")]
    TooFar(usize),
}
