//! The part of a hook shared by Rust and C: its name, its parameters, and a pointer to its exits.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use crate::state::State;

/// The flags of a hook, numbered as in the original; `GENERIC` is this library's own.
pub(crate) const ACTIVE: u32 = 0x8000_0000;
pub(crate) const EXCLUSIVE: u32 = 0x2000_0000;
pub(crate) const GENERIC: u32 = 0x1000_0000;

/// The part of a hook shared by Rust and C: `struct hook` of `dprobes_hooks.h`, in static memory.
#[derive(Debug)]
#[repr(C)]
pub struct HookHeader {
    name: *const c_char,
    parameters: *const c_char,
    /// The flags.
    pub(crate) flags: AtomicU32,
    /// The number of parameters.
    count: u32,
    /// Not 0 while an exit is armed; tested sites read it.
    pub(crate) active: AtomicU8,
    reserved: [u8; 7],
    /// Created when the hook is identified, and never freed: a thread may be about to read it.
    pub(crate) state: AtomicPtr<State>,
}

// SAFETY: the two pointers are to constant strings, and everything that changes is atomic.
unsafe impl Sync for HookHeader {}

impl HookHeader {
    pub(crate) const fn new(
        name: &'static CStr,
        parameters: &'static CStr,
        count: u32,
        flags: u32,
    ) -> HookHeader {
        HookHeader {
            name: name.as_ptr(),
            parameters: parameters.as_ptr(),
            flags: AtomicU32::new(flags),
            count,
            active: AtomicU8::new(0),
            reserved: [0; 7],
            state: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The hook's name.
    pub fn name(&self) -> String {
        text(self.name)
    }

    /// The hook's declared parameters: names and types.
    pub fn parameters(&self) -> String {
        text(self.parameters).trim_end_matches(", ").to_owned()
    }

    /// The number of parameters. New ones are added behind the old: an exit can tell whether a hook
    /// passes what it needs.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Whether only one exit may be registered.
    pub fn is_exclusive(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Whether the hook may have any number of sites, also in inlined functions.
    pub fn is_generic(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & GENERIC != 0
    }

    /// Whether an exit is armed, so that the sites are active.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) != 0
    }

    /// The state, once the hook has been identified.
    pub(crate) fn state(&self) -> Option<&'static State> {
        // SAFETY: it is null, or a state that is never freed.
        unsafe { self.state.load(Ordering::Acquire).as_ref() }
    }
}

/// A C string as text; empty if it is null.
fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: heads hold constant C strings: `HookHeader::new` takes one, and the macros of the C
    // header pass literals.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}
