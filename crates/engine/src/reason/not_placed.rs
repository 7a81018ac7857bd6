//! Why a probepoint is no site.

use std::fmt;
use std::path::PathBuf;

use image::{Doubt, NoCode, NotAnInstruction, PatternError, SymbolMismatch};
use rpn::ModuleFile;

use super::NoJump;

/// Why no probe can be placed at a probepoint. Its text ends with the remedy, if there is one.
///
/// `place` is a place as messages name it (`offset 0x1001`), `instruction` an instruction as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotPlaced {
    /// An address in a process is given for a file that may be loaded anywhere.
    #[error(
        "`address =` is an address in a process, but this module may be loaded anywhere; give `offset =` instead"
    )]
    AddressInFile,
    /// The file has no code at the given offset.
    #[error("the file has no code at offset {offset:#x}; {code}")]
    NoCode {
        /// The offset.
        offset: u64,
        /// Where it has code.
        code: CodeRanges,
    },
    /// A symbol and a number lead to a place outside the module's code.
    #[error("this place is outside the code of the module; {0}")]
    Outside(CodeRanges),
    /// The given address is not in the module.
    #[error(
        "address {address:#x} is not in this module, whose code is mapped at {}; `offset =` takes offsets in the file",
        ranges(code.iter().copied())
    )]
    OtherModule {
        /// The address.
        address: u64,
        /// Where the module's code is: start and end of each mapping.
        code: Vec<(u64, u64)>,
    },
    /// A tracepoint is no place in a module.
    #[error("a tracepoint is the kernel's, and in no module of a process")]
    Tracepoint,
    /// Points of functions were asked for one address.
    #[error("points of functions have no address of their own")]
    Points,
    /// A file does not have the symbols of the module.
    #[error(
        "{} does not have the symbols of {}: {difference}",
        printable::path(symbols),
        printable::path(module)
    )]
    OtherSymbols {
        /// The file with symbols.
        symbols: PathBuf,
        /// The module's file.
        module: PathBuf,
        /// How they differ.
        difference: SymbolMismatch,
    },
    /// The site of a PPDF is at another address than when it was built.
    #[error(
        "offset {offset:#x} expected at address {expected:#x}, found at {found:#x}; build the PPDF again"
    )]
    Moved {
        /// The site's offset in the file.
        offset: u64,
        /// The address noted in the PPDF.
        expected: u64,
        /// The address in this file.
        found: u64,
    },
    /// The module is not the file that a PPDF was built for.
    #[error(
        "{0} found: the PPDF was built for another build of the module; build it again for this one",
        other_file(expected, build_id, *size)
    )]
    OtherFile {
        /// The file that it was built for.
        expected: Box<ModuleFile>,
        /// The build-id of the module; empty if it has none.
        build_id: Vec<u8>,
        /// Its size in bytes.
        size: u64,
    },
    /// Another opcode is there than the given one.
    #[error(
        "opcode {expected:#04x} expected, {found:#04x} found at {place}; correct `opcode =`, or leave it out: the \
         disassembler then checks the place"
    )]
    Opcode {
        /// The given opcode.
        expected: u32,
        /// The byte there.
        found: u8,
        /// The place.
        place: String,
    },
    /// Another instruction is there than when the PPDF was built.
    #[error(
        "the instruction {} expected, {} found at {place}: the module was changed since the PPDF was built; build it \
         again, or see `--dont-verify-opcodes`",
        shown(expected),
        shown(found)
    )]
    Instruction {
        /// The bytes of the instruction in the PPDF.
        expected: Vec<u8>,
        /// The bytes there.
        found: Vec<u8>,
        /// The place.
        place: String,
    },
    /// The name is that of data.
    #[error("`{0}` is data, not code: a probe is on an instruction; `dprobes list` shows the functions")]
    Data(String),
    /// There is no such symbol.
    #[error("no symbol `{name}`; {hint}")]
    NoSymbol {
        /// The name.
        name: String,
        /// What may help.
        hint: Hint,
    },
    /// Several functions have this name.
    #[error(
        "`{name}` names {count} functions: {}; give the full name of one, or its offset",
        places.join(", ")
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
        /// The first of them, and where they are.
        places: Vec<String>,
    },
    /// There is no such function.
    #[error("no function `{0}`")]
    NoFunction(String),
    /// No function has a name that matches.
    #[error("no function matches `{pattern}`; {hint}")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// What may help.
        hint: Hint,
    },
    /// The pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A function has no return.
    #[error("it never returns: it has no `ret`, and no jump to another function")]
    NeverReturns,
    /// An offset is not in its function.
    #[error(
        "the function has {size:#x} bytes: offset {offset:#x} is not in it (offsets of points are hexadecimal)"
    )]
    BeyondFunction {
        /// Bytes of the function.
        size: u64,
        /// The offset.
        offset: u64,
    },
    /// Bytes of a function were passed over.
    #[error("{0} bytes in it look like data")]
    LikeData(u64),
    /// Nothing was found.
    #[error("it has no site")]
    NoSite,
    /// Nothing was found but what had to be left out: all of it in one line.
    #[error("{0}")]
    AllLeftOut(String),
    /// One of several sites cannot be probed.
    #[error("{name}: {reason}")]
    OneOf {
        /// The site, by its function.
        name: String,
        /// Why.
        reason: Box<NotPlaced>,
    },
    /// No function starts there that can be disassembled.
    #[error(transparent)]
    NoOutline(NotAnInstruction),
    /// There is no code.
    #[error("{place} is not code: {why}; `--dont-verify-opcodes` probes it anyway")]
    NotCode {
        /// The place.
        place: String,
        /// What is there.
        why: NoCode,
    },
    /// The place is inside an instruction.
    #[error(
        "{place} is inside the instruction `{instruction}`; the nearest boundaries are {before} and {after}; \
         `--dont-verify-opcodes` probes it anyway"
    )]
    InsideInstruction {
        /// The place.
        place: String,
        /// The instruction.
        instruction: String,
        /// Where it starts.
        before: String,
        /// Where the next one starts.
        after: String,
    },
    /// Bytes before the place look like data.
    #[error(
        "{place} cannot be checked: the bytes at {at}, between the last known start {start} and the next one, look \
         like data; `--dont-verify-opcodes` probes it anyway"
    )]
    Undecodable {
        /// The place.
        place: String,
        /// Where these bytes are.
        at: String,
        /// The last known start before them.
        start: String,
    },
    /// The place may be data.
    #[error("{0} (`--dont-verify-opcodes` probes it anyway)")]
    Doubtful(Doubt),
    /// The dynamic linker changes the instruction.
    #[error(
        "`{instruction}`: the dynamic linker relocates its bytes (a text relocation), and would overwrite the probe"
    )]
    Relocated {
        /// The instruction.
        instruction: String,
    },
    /// The instruction is in a restartable sequence.
    #[error(
        "`{instruction}` is in a restartable sequence (rseq), which would be restarted at each hit, for ever"
    )]
    Restartable {
        /// The instruction.
        instruction: String,
    },
    /// The instruction is a call or return, and the process has a shadow stack.
    #[error("`{instruction}`: the process has a shadow stack, and calls cannot be displaced there")]
    ShadowStack {
        /// The instruction.
        instruction: String,
    },
    /// The instruction cannot be displaced.
    #[error(transparent)]
    Displace(#[from] patch::Refusal),
    /// The module has no code that is probed here.
    #[error("the module is for another machine")]
    OtherMachine,
    /// The memory cannot be read.
    #[error("the memory at {0:#x} cannot be read")]
    Unreadable(u64),
    /// Another debugger has a breakpoint there.
    #[error("another debugger has a breakpoint at {0:#x}; remove it first")]
    Breakpoint(u64),
    /// It has to be a jump, and none can stand there.
    #[error("no jump can stand there: {0}")]
    NoJump(NoJump),
    /// Neither a jump nor a trap can stand there.
    #[error("nothing can be written there: {0}")]
    NotWritten(NoJump),
    /// Whoever places probes outside of this crate has a reason of its own: its text.
    #[error("{0}")]
    Other(String),
}

impl NotPlaced {
    /// Whether the text suggests other names.
    pub fn suggests_names(&self) -> bool {
        matches!(
            self,
            NotPlaced::NoSymbol { hint: Hint::Near(_), .. } | NotPlaced::NoMatch { hint: Hint::Near(_), .. }
        )
    }
}

/// Where a file has code: the start and end of each range of offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRanges(pub Vec<(u64, u64)>);

impl fmt::Display for CodeRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => write!(f, "it has none at all"),
            false => write!(f, "its code is at offset {}", ranges(self.0.iter().copied())),
        }
    }
}

/// What may help if a name is not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The file has no symbols.
    NoSymbols,
    /// The functions can be listed.
    List,
    /// It was inlined wherever it is called.
    Inlined,
    /// It is a function of another module, which this one calls.
    Imported,
    /// Similar names.
    Near(Vec<String>),
}

impl Hint {
    /// For a file that has these names like the one that was not found.
    pub(crate) fn near(names: Vec<String>) -> Hint {
        if names.is_empty() { Hint::List } else { Hint::Near(names) }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::NoSymbols => write!(
                f,
                "the file has no symbols: give the offset in the file as a number, or with --sym the file that has them"
            ),
            Hint::List => write!(f, "`dprobes list` shows the functions"),
            Hint::Inlined => write!(
                f,
                "the compiler has put the function into its callers; a script can probe its lines: \
                 `uprobe:BINARY:FILE.c:LINE`"
            ),
            Hint::Imported => {
                write!(f, "it is called from here and is in another module; `*` for the module means any")
            }
            Hint::Near(names) => {
                let names: Vec<String> =
                    names.iter().map(|name| format!("`{}`", printable::text(name))).collect();
                write!(f, "did you mean {}?", names.join(", "))
            }
        }
    }
}

/// What is expected of a module's file, and what it has instead.
fn other_file(expected: &ModuleFile, build_id: &[u8], size: u64) -> String {
    if build_id == expected.build_id {
        return format!("a file of {} bytes expected, one of {size}", expected.size);
    }
    let id = |bytes: &[u8]| match bytes {
        [] => "no build-id".to_owned(),
        bytes => format!("build-id {}", image::hex(bytes)),
    };
    format!("{} expected, {}", id(&expected.build_id), id(build_id))
}

/// Bytes as text.
fn shown(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("`{}`", digits.join(" "))
}

/// Ranges of addresses or offsets as text: `0x1000 to 0x1fff`.
fn ranges(ranges: impl IntoIterator<Item = (u64, u64)>) -> String {
    let shown = ranges.into_iter().map(|(start, end)| format!("{start:#x} to {:#x}", end.saturating_sub(1)));
    shown.collect::<Vec<_>>().join(", ")
}
