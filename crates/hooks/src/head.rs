//! What Rust and C share of a hook: its name, what it passes, and where its exits are found.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use crate::state::State;

/// The flags of a hook's head, as the original numbers them; `GENERIC` is this library's.
pub(crate) const ACTIVE: u32 = 0x8000_0000;
pub(crate) const EXCLUSIVE: u32 = 0x2000_0000;
pub(crate) const GENERIC: u32 = 0x1000_0000;

/// What Rust and C share of a hook: `struct hook` of `dprobes_hooks.h`. A declared hook is one of these, in static memory.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    name: *const c_char,
    parameters: *const c_char,
    /// The flags.
    pub(crate) flags: AtomicU32,
    /// How many parameters.
    count: u32,
    /// Not 0 while an exit is armed: what a tested site tests.
    pub(crate) active: AtomicU8,
    reserved: [u8; 7],
    /// Made when the hook is identified, and never freed: a thread may be about to look at it.
    pub(crate) state: AtomicPtr<State>,
}

// SAFETY: the two pointers are to constant strings, and all that changes is atomic.
unsafe impl Sync for Head {}

impl Head {
    pub(crate) const fn new(name: &'static CStr, parameters: &'static CStr, count: u32, flags: u32) -> Head {
        Head {
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

    /// The hook's parameters as they were declared: names and types.
    pub fn parameters(&self) -> String {
        text(self.parameters).trim_end_matches(", ").to_owned()
    }

    /// How many parameters there are. New ones come behind the old: an exit can tell whether a hook passes what it needs.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Whether one exit only may be registered.
    pub fn is_exclusive(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Whether the hook may have any number of sites, in functions that are copied into others too.
    pub fn is_generic(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & GENERIC != 0
    }

    /// Whether an exit is armed, so that the sites are not dormant.
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

/// A C string as text; nothing where there is none.
fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: heads hold constant C strings: `Head::new` takes one, and the macros of the C header pass literals.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}
