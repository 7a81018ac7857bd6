//! Turns sites into jumps: makes a [`Draft`], carries it out (`CarryOutcome`), and makes a new one
//! if the process has changed meanwhile.

use layout::PAGE;
use process::{Module, Stopped};

use super::{Draft, proof};
use crate::loader::Arrived;
use crate::module_key::module_key;
use crate::site::Planned;
use crate::space::Space;

pub(super) mod armer;

/// How many drafts are tried: another thread may map something at a chosen place, or load a module.
const TRIES: usize = 4;

/// What is to be armed in a module.
pub(crate) enum ToArm {
    /// Sites still to be planned.
    Planned(Vec<Planned>),
    /// A draft that was made before.
    Drafted(Box<Draft>),
}

/// Whether no thread has executed the code of a module yet, nor will before this thread goes on:
/// the program has not begun, and the thread is at its process's very first instruction, or at the
/// system call by which the dynamic linker has just mapped that code or closes its file. Of other
/// code that is not known. The linker itself is never fresh: the engine has its own sites there.
pub(super) fn is_fresh(space: &Space, thread: &Stopped, module: &Module) -> bool {
    if !space.starting || proof::may_be_linker(thread.tid(), module) {
        return false;
    }
    let mapped = match space.mapped_now {
        Some(Arrived::At(mapped)) => mapped,
        Some(Arrived::File(device, inode)) => {
            let is_its = (device, inode) == (module.device, module.inode);
            return is_its && !space.seen.contains(&module_key(module));
        }
        None => {
            let registers = thread.registers();
            return registers.is_ok_and(|registers| proof::is_first(thread.tid(), registers.rip()));
        }
    };
    let mut segments = module.image.segments().iter().filter(|segment| segment.executable);
    let (segment, other) = (segments.next(), segments.next());
    segment.is_some_and(|segment| {
        let start = segment.vaddr.wrapping_add(module.bias);
        let offset = mapped.wrapping_sub(start / PAGE * PAGE);
        other.is_none() && offset < segment.mem_size
    })
}
