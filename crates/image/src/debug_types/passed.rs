//! Where functions have their parameters, and what they return.

use super::kinds::TypeId;

/// The registers for floats, in the order in which parameters take them.
pub(super) const FLOATS: [&str; 15] = [
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
    "xmm12", "xmm13", "xmm14",
];

/// A part of a value in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The register, as `rdi`; of one for floats, its first bytes.
    pub register: &'static str,
    /// Where its bytes are in the value.
    pub offset: u64,
    /// How many.
    pub bytes: u8,
}

/// Where a value is when its function begins or returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// In registers.
    Registers(Vec<Piece>),
    /// On the stack, so many bytes above the stack pointer.
    Stack(u64),
    /// In memory, at the address in a register.
    Pointed(&'static str),
    /// It cannot be read, for this reason.
    Nowhere(String),
}

impl Passed {
    /// `long double` and its like, in registers of their own.
    pub(super) fn in_extended_registers() -> Passed {
        Passed::Nowhere("it is in a register of the x87, which is not read".to_owned())
    }
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its type.
    pub of: TypeId,
    /// Where it is when the function begins.
    pub passed: Passed,
}

/// What a function takes and returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionType {
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Whether more may follow.
    pub is_variadic: bool,
    /// The type of what it returns; `None` is `void`. Of several results of a Go function it is the
    /// first.
    pub result: Option<TypeId>,
    /// Where that is when it returns.
    pub returned: Passed,
}
