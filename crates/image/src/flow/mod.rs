//! Proves which instructions control reaches, in all the code of a file.
//!
//! To move an instruction that the user did not name, its boundaries must be certain. Linear
//! disassembly is not: tables stand between functions, and in old assembly inside them. So the
//! analysis starts from what is known to be reached (functions, by their symbols and unwinding
//! entries; the program's entry) and follows fallthrough, direct branches, and those `switch`
//! tables that can be read completely.
//!
//! ```text
//!   function         cmp   $5,%eax           the table has 6 elements
//!                    ja    default           reached
//!                    lea   table(%rip),%rdx
//!                    movslq (%rdx,%rax,4),%rax
//!                    add   %rdx,%rax
//!                    notrack jmp *%rax       its 6 targets are reached
//! ```
//!
//! Instructions between two proven ones that do nothing are padding. Control does not reach it if
//! the code before it goes elsewhere and the targets of all jumps of the function are known.
//!
//! Control continues after a call only if the callee is proven to return there (`returns`). Nothing
//! falls through the end that the function's symbol or unwinding entry gives. Landing pads in the
//! exception tables are reached.
//!
//! Modules: `proven` has the result, `blocks` its basic blocks, `piece` the code and its proven
//! instructions, `walk` follows the code, `table` reads the code before an indirect jump, `effects`
//! knows what those instructions change, `returns` which calls return, as `callees` finds by what
//! each function does with its `return_address` (`register_values`); `likely` reads what is not
//! proven.

mod blocks;
mod callees;
mod effects;
mod likely;
mod piece;
mod proven;
mod register_values;
mod return_address;
mod returns;
mod table;
mod walk;

use super::Image;
use piece::Piece;
use walk::FlowAnalysis;

pub use blocks::{Block, Leaves};
pub(crate) use piece::{decode_with, decoder};
pub use proven::{ControlFlow, Doubt, NotAnalyzed, Unresolved};

/// The most bytes of code of one file that are analyzed; Chromium exceeds this.
const CODE: u64 = 64 << 20;

/// Answers [`Image::control_flow`].
pub(crate) fn control_flow(image: &Image) -> &ControlFlow {
    image.flow.get_or_init(|| {
        if image.headers.machine.bitness() != Some(64) {
            return problem(NotAnalyzed::OtherMachine);
        }
        let sizes = image.headers.executable_segments().map(|segment| segment.file_size);
        let size = sizes.fold(0, u64::saturating_add);
        if size > CODE {
            return problem(NotAnalyzed::TooLarge { size, most: CODE });
        }
        let pieces = image.headers.executable_segments().filter_map(|segment| {
            let size = usize::try_from(segment.file_size).ok()?;
            let bytes = image.text(segment.vaddr, size)?;
            Some(Piece::new(segment.vaddr, bytes))
        });
        let pieces: Vec<Piece> = pieces.collect();
        let mut walk = FlowAnalysis::new(image, pieces.iter().map(Piece::anew).collect());
        walk.all();
        let mut walk = walk.again(pieces);
        walk.all();
        walk.pad();
        walk.guess();
        walk.flow
    })
}

fn problem(problem: NotAnalyzed) -> ControlFlow {
    ControlFlow { problem: Some(problem), ..ControlFlow::default() }
}
