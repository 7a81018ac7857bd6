//! How a draft is carried out: the steps, their outcomes, and the writing of code that no thread
//! uses yet.
//!
//! ```text
//!     handler memory, areas and pages are mapped          one thread is stopped, the others run
//!     trampolines and landing pads are written        nobody jumps to them yet
//!     the ledger is told what will be changed
//!     all threads are held
//!         is the code what the draft was made for?
//!         threads on the way to a trampoline are put back to their sites
//!         the sites are written
//! ```
//!
//! `carry_out/armer.rs` takes these steps, with as few as possible while threads are held. If the
//! process has changed since the draft was made, none of its code is changed, and the draft has to
//! be made again.

use std::io;

use super::draft::Draft;
use crate::jump::not_jumped::NotJumped;
use crate::jump::write;
use crate::reason::NoJump;
use crate::space::Space;

mod armer;

/// Landing pads closer together than this are written in one piece, if their page is not in use
/// yet.
const NEAR: u64 = 2048;

/// The outcome of `Armer::carry_out`.
pub(crate) enum CarryOutcome {
    /// It was carried out; these sites did not become jumps.
    Out(Vec<NotJumped>),
    /// The process has changed since the draft was made; with the reason.
    Outdated(Box<Draft>, NoJump),
}

/// The outcome of `Armer::write_all`.
enum Written {
    /// It is written, except for these sites.
    All(Vec<NotJumped>),
    /// None of the program's code is changed.
    Nothing(Result<CarryOutcome, NoJump>),
}

/// Writes trampolines, pads in new pages and descriptions of handlers, which no thread uses yet.
fn write_code(space: &mut Space, draft: &mut Draft) -> io::Result<()> {
    let memory = &space.code.memory;
    draft.bytes.code.sort_unstable_by_key(|(address, _)| *address);
    write::all(memory, draft.bytes.code.iter().map(|(address, bytes)| (*address, &bytes[..])))?;
    write::apart(
        memory,
        draft.bytes.new_page_pads.iter().map(|(&address, bytes)| (address, &bytes[..])),
        NEAR,
    )?;
    if let Some(handler_memory) = draft.after.as_mut().and_then(|after| after.handler_memory.as_mut()) {
        handler_memory.write(memory)?;
    }
    Ok(())
}
