//! The agent's parameters for an address space: constants in its memory, written by
//! [`crate::image`].

use core::sync::atomic::Ordering;

use super::{guarded, segment};
use layout::stacks::Directory;
use layout::thread_id;
use layout::{ABANDONED, Identity};

/// The constants. Read as volatile, so that the compiler does not substitute these initial values.
#[cfg_attr(image, unsafe(no_mangle))]
#[allow(non_upper_case_globals, reason = "it is a symbol of the image, beside the entries")]
pub(super) static dprobes_settings: Settings = Settings { identity: 0, reader: 0, stacks: 0 };

/// The type of [`dprobes_settings`].
#[repr(C)]
pub(super) struct Settings {
    /// The address of the [`Identity`].
    pub(super) identity: u64,
    /// The address of the word that shows whether the reader of all rings lives.
    pub(super) reader: u64,
    /// The address of the [`Directory`] of the tables for walking stacks, or 0.
    pub(super) stacks: u64,
}

/// The identity of the process.
pub(super) fn identity() -> &'static Identity {
    // SAFETY: the constant is mapped; its value is the address of a page that is mapped as long as
    // the agent is, and whose fields are atomic.
    unsafe { &*(core::ptr::read_volatile(&raw const dprobes_settings.identity) as *const Identity) }
}

/// The tables for walking stacks, and their version, if there are any.
pub(super) fn stacks() -> Option<(unwind::Index<'static>, u64)> {
    // SAFETY: the constant is mapped; a nonzero value is the address of a directory, which is
    // mapped wherever handlers work in a context, and whose fields are atomic.
    let directory = unsafe {
        (core::ptr::read_volatile(&raw const dprobes_settings.stacks) as *const Directory).as_ref()?
    };
    // Before the list is looked for, so that it is no version of one after that list.
    let version = directory.version.load(Ordering::Acquire);
    let (block, list) = directory.block()?;
    let words = block as *const u64;
    // SAFETY: the tracer has put the number of the block's words into its first word. Of these,
    // only those are read that stay as they are, until no thread can have found this block.
    let words = unsafe { core::slice::from_raw_parts(words, words.read() as usize) };
    Some((unwind::Index::new(words, list), version))
}

/// The process id: common to all threads, or else the one stored for this thread.
pub(super) fn process() -> u32 {
    match identity().pid.load(Ordering::Relaxed) {
        0 => segment::number(thread_id::PROCESS).unwrap_or_else(|| identity().owner.load(Ordering::Relaxed)),
        pid => pid,
    }
}

/// The current value of the reader's sign of life. A program that has unmapped it has no reader.
pub(super) fn reader() -> u64 {
    // SAFETY: the constant is mapped.
    let address = unsafe { core::ptr::read_volatile(&raw const dprobes_settings.reader) };
    guarded::word(address).unwrap_or(ABANDONED)
}
