//! The C record of an exit, and the call of its function.

use std::ffi::{c_int, c_long};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arguments::ARGUMENTS;
use crate::entry::{CExit, Callee, Entry, Record, Verdict};
use crate::head::HookHeader;
use crate::state::Armed;

/// The flag of a record whose exit is armed.
pub(crate) const ARMED: u32 = 1;

/// The results of a C exit.
const CONTINUE: c_int = 0;
const RETURN: c_int = -1;

/// The kind of site that was hit: it decides the arguments of C exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Kind {
    /// The function cannot be made to return, or returns nothing.
    Plain,
    /// An exit can set the code that the function returns.
    Code,
}

/// The record of a C exit.
fn record(entry: &Entry) -> Option<&Record> {
    match entry.callee {
        // SAFETY: the owner keeps the record as long as it is registered, and this is called for
        // registered exits only.
        Callee::C(_, record) if !entry.gone.load(Ordering::SeqCst) => unsafe { record.as_ref() },
        _ => None,
    }
}

/// Writes to the record whether it is armed.
pub(crate) fn show_armed(entry: &Entry, armed: bool) {
    if let Some(record) = record(entry) {
        if armed {
            record.hook_flags.fetch_or(ARMED, Ordering::SeqCst);
        } else {
            record.hook_flags.fetch_and(!ARMED, Ordering::SeqCst);
        }
    }
}

/// Writes its position to the record.
pub(crate) fn show_index(entry: &Entry, index: usize) {
    if let Some(record) = record(entry) {
        record.hook_index.store(index as u32, Ordering::SeqCst);
    }
}

/// Detaches a record from its exit, which is being deregistered.
pub(crate) fn show_gone(entry: &Entry) {
    show_armed(entry, false);
    if let Some(record) = record(entry) {
        record.hook_index.store(0, Ordering::SeqCst);
        let own = record.hook_entry.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if !own.is_null() {
            // SAFETY: `hook_exit_register` put it there by `Arc::into_raw`, and it is removed once.
            drop(unsafe { Arc::from_raw(own) });
        }
    }
}

/// Calls an exit in C.
pub(crate) fn call(
    exit: CExit,
    record: *mut Record,
    head: &HookHeader,
    kind: Kind,
    armed: &Armed,
    arguments: &[usize; ARGUMENTS],
) -> Verdict {
    type Plain = unsafe extern "C-unwind" fn(&HookHeader, usize, usize, usize, usize, usize, usize) -> c_int;
    type Code = unsafe extern "C-unwind" fn(
        &HookHeader,
        *mut c_long,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
    ) -> c_int;
    let [a, b, c, d, e, f] = *arguments;
    let mut code: c_long = 0;
    let answer = match kind {
        // SAFETY: the caller who registered it has promised a function of these parameters, or of
        // the first of them: it ignores further words in registers and above the return address.
        Kind::Plain => unsafe { std::mem::transmute::<CExit, Plain>(exit)(head, a, b, c, d, e, f) },
        // SAFETY: as above.
        Kind::Code => unsafe { std::mem::transmute::<CExit, Code>(exit)(head, &mut code, a, b, c, d, e, f) },
    };
    // The exit may have deregistered itself, and its record may be freed.
    if !armed.entry.gone.load(Ordering::SeqCst) {
        // SAFETY: it is registered, so its owner keeps it: deregistering waits for this thread.
        let flags = unsafe { &(*record).hook_flags };
        if flags.load(Ordering::SeqCst) & ARMED == 0 {
            armed.arming.found_unarmed();
        }
    }
    match answer {
        CONTINUE => Verdict::Continue,
        RETURN => Verdict::Return(code as isize),
        _ => Verdict::Terminate,
    }
}
