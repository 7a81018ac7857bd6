//! The interface of `callk` to plugins: a C structure with functions that do what a handler may do.

use std::ffi::{CString, c_int, c_void};

use hooks::plugin::Callk;
use vm::{Register, RegisterSet, Shape, Word};

/// The error result of the functions for plugins.
const NOT: c_int = -1;

/// A `callk` of a handler, and the structure that shows it to plugins.
pub(super) struct Bridge<'a, 'b> {
    shown: Callk,
    call: &'a mut engine::Callk<'b>,
    _module: CString,
}

impl<'a, 'b> Bridge<'a, 'b> {
    pub(super) fn new(call: &'a mut engine::Callk<'b>, event: u32) -> Bridge<'a, 'b> {
        let module = super::text(call.module);
        let shown = Callk {
            size: size_of::<Callk>() as u32,
            word: call.run.word().bytes() as u32,
            pid: call.pid as u32,
            tid: call.tid as u32,
            cpu: call.machine.processor() as u32,
            major: call.codes.0,
            minor: call.codes.1,
            event,
            address: call.address,
            module: module.as_ptr(),
            own: std::ptr::null_mut(),
            pop,
            push,
            log,
            get_register,
            set_register,
            read,
            write,
        };
        Bridge { shown, call, _module: module }
    }

    /// The structure for exits. It points into this bridge, which must not move until they have
    /// run.
    pub(super) fn show(&mut self) -> *mut Callk {
        self.shown.own = (&raw mut self.call).cast();
        &raw mut self.shown
    }
}

/// The engine's call behind the structure that a plugin got.
///
/// # Safety
/// An exit was given `shown`, and that exit still runs, on this thread.
unsafe fn call<'a>(shown: *mut Callk) -> &'a mut engine::Callk<'a> {
    // SAFETY: `own` points at the bridge's reference as long as the exit runs; nothing else uses it
    // meanwhile.
    unsafe { *(*shown).own.cast::<&mut engine::Callk<'a>>() }
}

unsafe extern "C" fn pop(shown: *mut Callk) -> u64 {
    // SAFETY: the plugin passes the structure that it was given.
    unsafe { call(shown) }.run.pop()
}

unsafe extern "C" fn push(shown: *mut Callk, value: u64) {
    // SAFETY: the plugin passes the structure that it was given.
    unsafe { call(shown) }.run.push(value);
}

unsafe extern "C" fn log(shown: *mut Callk, bytes: *const c_void, size: usize) -> c_int {
    if bytes.is_null() || size > vm::LOG_LIMIT {
        return NOT;
    }
    // SAFETY: the plugin passes the structure that it was given, and `size` readable bytes.
    let (call, bytes) = unsafe { (call(shown), std::slice::from_raw_parts(bytes.cast(), size)) };
    if call.run.log(bytes) { 0 } else { NOT }
}

/// The register with an index, if the program's processor has it.
fn register(index: u32, word: Word) -> Option<Register> {
    let register = Register::from_index(u16::try_from(index).ok()?)?;
    (word == Word::W8 || register.set() == RegisterSet::Both).then_some(register)
}

/// Truncates a value to the register's width: 32 bits for an i386 name, as `push r` and `pop r` do.
fn cut(register: Register, value: u64) -> u64 {
    match register.set() {
        RegisterSet::Both => Word::W4.truncate(value),
        RegisterSet::Long => value,
    }
}

unsafe extern "C" fn get_register(shown: *mut Callk, index: u32, value: *mut u64) -> c_int {
    // SAFETY: the plugin passes the structure that it was given.
    let call = unsafe { call(shown) };
    let word = call.run.word();
    let found = register(index, word).and_then(|register| match register.shape() {
        Shape::General => Some(cut(register, call.machine.register(register))),
        Shape::Word => call.machine.wide_register(register).map(|wide| wide as u64),
        _ => None,
    });
    match found {
        Some(found) if !value.is_null() => {
            // SAFETY: the plugin passes a pointer with room for a value.
            unsafe { *value = word.truncate(found) };
            0
        }
        _ => NOT,
    }
}

unsafe extern "C" fn set_register(shown: *mut Callk, index: u32, value: u64) -> c_int {
    // SAFETY: the plugin passes the structure that it was given.
    let call = unsafe { call(shown) };
    let word = call.run.word();
    match register(index, word).filter(|register| register.can_pop()) {
        Some(register) => {
            call.machine.set_register(register, cut(register, word.truncate(value)));
            0
        }
        None => NOT,
    }
}

/// Whether a range of memory is within the addresses that a program of this word size can name.
fn is_range(word: Word, address: u64, size: usize) -> bool {
    let last = (size as u64).checked_sub(1).and_then(|more| address.checked_add(more));
    last.is_some_and(|last| last <= word.truncate(u64::MAX))
}

unsafe extern "C" fn read(shown: *mut Callk, address: u64, into: *mut c_void, size: usize) -> c_int {
    // SAFETY: the plugin passes the structure that it was given.
    let call = unsafe { call(shown) };
    if into.is_null() || size > vm::LOG_LIMIT || !is_range(call.run.word(), address, size) {
        return NOT;
    }
    // The plugin's buffer may be uninitialised, and the machine may write only a part of it, so it
    // is zeroed first.
    // SAFETY: the plugin passes a buffer with room for `size` bytes.
    let into = unsafe {
        std::ptr::write_bytes(into.cast::<u8>(), 0, size);
        std::slice::from_raw_parts_mut(into.cast(), size)
    };
    call.machine.read(address, into).map_or(NOT, |()| 0)
}

unsafe extern "C" fn write(shown: *mut Callk, address: u64, from: *const c_void, size: usize) -> c_int {
    // SAFETY: the plugin passes the structure that it was given.
    let call = unsafe { call(shown) };
    if from.is_null() || ![1, 2, 4, 8].contains(&size) || !is_range(call.run.word(), address, size) {
        return NOT;
    }
    // SAFETY: the plugin passes `size` readable bytes.
    let from = unsafe { std::slice::from_raw_parts(from.cast(), size) };
    call.machine.write(address, from).map_or(NOT, |()| 0)
}
