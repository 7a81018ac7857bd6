//! The interface of a program to the plugins it loads: shared objects that register exits at its
//! hooks.
//!
//! A plugin is written in C, or in Rust with this crate. A Rust plugin must not use the registry of
//! its own copy of this crate, which is empty: it uses the functions of [`Api`], which are the
//! program's.
//!
//! ```text
//! the program                             the plugin
//!   reads dprobes_plugin_version   --->     VERSION of what it was compiled with
//!   calls dprobes_plugin_init(api) --->     registers and arms its exits; 0, or it is not wanted
//!   ...                                     its exits are called
//!   calls dprobes_plugin_end()     --->     takes them away; optional
//! ```

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::{HookHeader, Record};

/// The version of this interface. Fields may be added at the end without a new version: see
/// [`Api::size`].
pub const VERSION: u32 = 1;

/// The functions and hooks of the program: `struct dprobes_api` of `dprobes_plugin.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Api {
    /// [`VERSION`].
    pub version: u32,
    /// The size of this structure.
    pub size: u32,
    /// `int exit(struct hook *, uint32_t *event, const char *name, const char *format, const char
    /// *description)`: a program is inserted; the exit sets `*event` to the number by which it
    /// knows the program.
    pub create_event: *const HookHeader,
    /// `int exit(struct hook *, long *code, uint32_t event, const struct dprobes_event *)`: a
    /// record is made.
    pub log_event: *const HookHeader,
    /// `int exit(struct hook *, int *rc, uint32_t event)`: the program is removed.
    pub destroy_event: *const HookHeader,
    /// `int exit(struct hook *, struct dprobes_callk *)`: a handler has executed `callk`.
    pub callk: *const HookHeader,
    /// The text behind `=` on the command line; may be empty.
    pub argument: *const c_char,
    /// [`crate::hook_exit_register`].
    pub exit_register: unsafe extern "C" fn(*const HookHeader, *mut Record) -> c_int,
    /// [`crate::hook_exit_deregister`].
    pub exit_deregister: unsafe extern "C" fn(*mut Record) -> c_int,
    /// [`crate::hook_exit_arm`].
    pub exit_arm: unsafe extern "C" fn(*mut Record) -> c_int,
    /// [`crate::hook_exit_disarm`].
    pub exit_disarm: unsafe extern "C" fn(*mut Record) -> c_int,
    /// [`crate::hook_find`].
    pub find: unsafe extern "C" fn(*const c_char) -> *const HookHeader,
    /// Prints a line of text to the user.
    pub tell: unsafe extern "C" fn(*const c_char),
}

/// A logged record: `struct dprobes_event`. Valid while the exit runs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// The program's number, as `create_event` has set it.
    pub id: u32,
    /// The length of `data`.
    pub size: u32,
    /// The record: the flags of its header, the header's items, the logged bytes (docs/records.md).
    pub data: *const u8,
    /// The length of the logged bytes.
    pub log_size: u32,
    /// The word size of the probed program: 4 or 8 bytes.
    pub word: u32,
    /// The logged bytes: the end of `data`.
    pub log: *const u8,
    /// The major code.
    pub major: u32,
    /// The minor code.
    pub minor: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The processor.
    pub cpu: u32,
    /// The probe's number in its program.
    pub probe: u32,
    /// Nanoseconds since 1970; 0 if the header has no time.
    pub time: u64,
}

/// A `callk`: `struct dprobes_callk`. Valid while the exit runs. Its fields are those of the C
/// structure.
#[derive(Debug)]
#[repr(C)]
pub struct Callk {
    /// The size of this structure.
    pub size: u32,
    /// The word size of the probed program: 4 or 8 bytes.
    pub word: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The processor.
    pub cpu: u32,
    /// The probe's major code.
    pub major: u32,
    /// The probe's minor code.
    pub minor: u32,
    /// The program's number, as `create_event` has set it.
    pub event: u32,
    /// The probepoint's address.
    pub address: u64,
    /// The module named in the program.
    pub module: *const c_char,
    /// For the program's use.
    pub own: *mut c_void,
    /// Pops a word from the RPN stack.
    pub pop: unsafe extern "C" fn(*mut Callk) -> u64,
    /// Pushes a word on the RPN stack.
    pub push: unsafe extern "C" fn(*mut Callk, u64),
    /// Logs bytes as `log mrf` does. Returns 0, or -1 if they do not fit; then nothing is logged.
    pub log: unsafe extern "C" fn(*mut Callk, *const c_void, usize) -> c_int,
    /// Reads a register by its index (docs/language.md, "Registers"). Returns 0, or -1 if it is
    /// unavailable.
    pub get_register: unsafe extern "C" fn(*mut Callk, u32, *mut u64) -> c_int,
    /// Sets a register that a handler may pop. Returns 0, or -1 if it may not.
    pub set_register: unsafe extern "C" fn(*mut Callk, u32, u64) -> c_int,
    /// Reads memory of the process. Returns 0, or -1 if not all of it can be read.
    pub read: unsafe extern "C" fn(*mut Callk, u64, *mut c_void, usize) -> c_int,
    /// Writes up to 8 bytes of memory of the process. Returns 0, or -1 if not all can be written;
    /// then nothing is.
    pub write: unsafe extern "C" fn(*mut Callk, u64, *const c_void, usize) -> c_int,
}

/// The plugin's `dprobes_plugin_init`.
pub type Init = unsafe extern "C" fn(*const Api) -> c_int;
/// The plugin's `dprobes_plugin_end`.
pub type End = unsafe extern "C" fn();

/// An exit for [`Api::create_event`].
pub type CreateExit = unsafe extern "C-unwind" fn(
    *const HookHeader,
    *mut u32,
    *const c_char,
    *const c_char,
    *const c_char,
) -> c_int;
/// An exit for [`Api::log_event`].
pub type LogExit = unsafe extern "C-unwind" fn(*const HookHeader, *mut c_long, u32, *const Event) -> c_int;
/// An exit for [`Api::destroy_event`].
pub type DestroyExit = unsafe extern "C-unwind" fn(*const HookHeader, *mut c_int, u32) -> c_int;
/// An exit for [`Api::callk`].
pub type CallkExit = unsafe extern "C-unwind" fn(*const HookHeader, *mut Callk) -> c_int;

impl Record {
    /// A record for an exit of one of this module's types, cast to `extern "C-unwind" fn()`.
    pub const fn new(exit: crate::CExit, name: *const c_char) -> Record {
        Record {
            hook_exit: Some(exit),
            hook_next: std::ptr::null_mut(),
            hook_flags: std::sync::atomic::AtomicU32::new(0),
            hook_index: std::sync::atomic::AtomicU32::new(0),
            hook_head: std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()),
            hook_exit_name: name,
            hook_context: std::ptr::null_mut(),
            hook_entry: std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

/// Runs the body of an exit or of `dprobes_plugin_init` of a plugin in Rust. A panic must not leave
/// the plugin; then it returns `otherwise`. (The panic's message has been printed.)
pub fn guarded(otherwise: c_int, body: impl FnOnce() -> c_int) -> c_int {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(otherwise)
}
