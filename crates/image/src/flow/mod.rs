//! What is proven of where control comes to, in all the code of a file.
//!
//! Whoever moves an instruction that nobody has named must know that it is one, and where it begins. Reading on in a straight line
//! tells neither: tables stand between functions, in old assembly in them. So this goes from what is known to be reached - functions,
//! by their symbols and unwinding entries; the program's entry - along falling through, direct branches, and those tables of a `switch` that can
//! be read whole.
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
//! What is between two proven instructions, and does nothing, is padding. Control does not come to it, if what is before it goes elsewhere and
//! it is known where all jumps of the function lead.
//!
//! Control goes on behind a call only if the callee is proven to return there (`returns`). Nothing falls over the end of what the function's
//! symbol or unwinding entry claims. Landing pads of exceptions are reached, as the exception table says.
//!
//! `proven` is what comes of it, `piece` the code with what is proven of it, `walk` goes along it, `table` reads what is before an indirect jump,
//! `effects` tells what the instructions there change, `returns` which calls come back,
//! `likely` reads what is not proven.

mod effects;
mod likely;
mod piece;
mod proven;
mod returns;
mod table;
mod walk;

use super::Image;
use piece::Piece;
use walk::Walk;

pub use proven::{ControlFlow, Doubt, Unresolved};

/// Bytes of code of one file; Chromium's is beyond it.
const CODE: u64 = 64 << 20;

impl Image {
    /// What is proven of the control flow. It is found out once.
    pub fn control_flow(&self) -> &ControlFlow {
        self.flow.get_or_init(|| {
            if self.headers.machine.bitness() != Some(64) {
                return problem("it is no x86-64 code".to_owned());
            }
            let sizes = self.headers.executable_segments().map(|segment| segment.file_size);
            let size = sizes.fold(0, u64::saturating_add);
            if size > CODE {
                return problem(format!("it has {} MiB of code, more than are looked through", size >> 20));
            }
            let pieces = self.headers.executable_segments().filter_map(|segment| {
                let size = usize::try_from(segment.file_size).ok()?;
                let bytes = self.text(segment.vaddr, size)?;
                Some(Piece::new(segment.vaddr, bytes))
            });
            let pieces: Vec<Piece> = pieces.collect();
            let mut walk = Walk::new(self, pieces.iter().map(Piece::anew).collect());
            walk.all();
            let mut walk = walk.again(pieces);
            walk.all();
            walk.pad();
            walk.guess();
            walk.flow
        })
    }
}

fn problem(problem: String) -> ControlFlow {
    ControlFlow { problem: Some(problem), ..ControlFlow::default() }
}
