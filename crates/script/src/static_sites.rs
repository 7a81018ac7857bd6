//! Where static probes are in programs and libraries, and where these have their arguments: what a
//! script with `usdt` attach points is compiled for.

use std::collections::BTreeMap;

use vm::Register;

/// The sites of `usdt` attach points, by the attach point's text in full form.
pub type StaticSites = BTreeMap<String, Vec<StaticSite>>;

/// A static probe in a program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSite {
    /// The program or library, as the engine names it.
    pub file: String,
    /// Its provider and its name: `python:gc__start`.
    pub name: String,
    /// Where its instruction is in the file.
    pub offset: u64,
    /// The address in the file of the counter that must be more than 0, if it has one.
    pub semaphore: Option<u64>,
    /// Where its arguments are.
    pub arguments: Vec<SiteArgument>,
}

/// An argument of a static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteArgument {
    /// Its size: 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// Whether it is signed.
    pub signed: bool,
    /// Where it is; `None` if a handler cannot read it.
    pub place: Option<SitePlace>,
}

/// Where an argument is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SitePlace {
    /// It is this number.
    Constant(i64),
    /// The bits of a register from the given one on.
    Register(Register, u8),
    /// In memory, at the sum of these.
    Memory {
        /// A register.
        base: Option<Register>,
        /// Another one, and by what it is multiplied: 1, 2, 4 or 8.
        index: Option<(Register, u8)>,
        /// A number.
        displacement: i64,
    },
}
