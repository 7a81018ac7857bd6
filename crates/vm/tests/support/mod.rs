//! What the case files are read and run with.

pub(crate) mod assembler;
pub(crate) mod case;
pub(crate) mod machine;
pub(crate) mod text;
