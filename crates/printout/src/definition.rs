//! What the structs of a script are.

use script::Type;

/// The layout of a struct or union.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Its size in bytes.
    pub bytes: u64,
    /// Its fields, in their order.
    pub members: Vec<Member>,
}

/// A field of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its type.
    pub ty: Type,
    /// For a bit field: the first bit, counted from the lowest one at `offset`, and how many.
    pub bits: Option<(u8, u8)>,
}
