//! The C interface: records, exits and the functions of `include/dprobes_hooks.h`.
//!
//! A record belongs to the caller, who zeroes it before first use and keeps it until deregistering
//! has returned 0. Its flags are shared: an exit that clears ARMED in its own record while it runs
//! disarms itself.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arguments::ARGUMENTS;
use crate::dispatch::dispatch;
use crate::entry::{CExit, Callee, Conditions, Departure, Entry, Priority, Record, Verdict};
use crate::head::HookHeader;
use crate::record::{ARMED, Kind};
use crate::site::{self, Site};
use crate::{Error, registry};

/// The flags of a record: those of the original, then this library's own.
const PRIORITY_FIRST: u32 = 4;
const PRIORITY_LAST: u32 = 8;
const QUEUE_LIFO: u32 = 0x10;
const PRIORITY_ONLY: u32 = 0x20;
const QUIESCED: u32 = 0x40;
const SIGNALS_BLOCKED: u32 = 0x80;

/// The result of deregistering if a thread may still be inside ([`Departure::Pending`]).
const PENDING: c_int = 1;

/// The number of an error, or 0.
fn answer(result: Result<(), Error>) -> c_int {
    result.map_or_else(Error::code, |()| 0)
}

/// Reads what a record requests.
fn wanted(record: &Record) -> Result<(CExit, Priority, Conditions), Error> {
    let flags = record.hook_flags.load(Ordering::SeqCst);
    let priority = match flags & (PRIORITY_FIRST | PRIORITY_LAST | PRIORITY_ONLY | QUEUE_LIFO) {
        0 => Priority::Unspecified,
        PRIORITY_FIRST => Priority::First,
        PRIORITY_LAST => Priority::Last,
        PRIORITY_ONLY => Priority::Only,
        QUEUE_LIFO => Priority::Lifo,
        _ => return Err(Error::Invalid),
    };
    let conditions =
        Conditions { quiesced: flags & QUIESCED != 0, signals_blocked: flags & SIGNALS_BLOCKED != 0 };
    Ok((record.hook_exit.ok_or(Error::Invalid)?, priority, conditions))
}

/// Registers an exit. 0, or an error's number.
///
/// # Safety
/// `hook` is a declared hook; `record` was zeroed and filled, is valid until it is deregistered,
/// and its function takes the hook's arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_register(hook: *const HookHeader, record: *mut Record) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(head), Some(wants)) = (unsafe { hook.as_ref() }, unsafe { record.as_ref() }) else {
        return Error::Invalid.code();
    };
    let register = || {
        if !wants.hook_entry.load(Ordering::SeqCst).is_null() {
            return Err(Error::Registered);
        }
        let (exit, priority, conditions) = wanted(wants)?;
        let name = match wants.hook_exit_name.is_null() {
            // SAFETY: the caller's promise: a name is a string.
            false => unsafe { CStr::from_ptr(wants.hook_exit_name) }.to_string_lossy().into_owned(),
            // As the original names it.
            true => format!("{record:p}"),
        };
        wants.hook_flags.fetch_and(!ARMED, Ordering::SeqCst);
        let entry = Entry {
            head,
            name,
            priority,
            conditions,
            callee: Callee::C(exit, record),
            gone: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        };
        let entry = registry::register(head, entry)?;
        wants.hook_head.store(hook.cast_mut(), Ordering::SeqCst);
        wants.hook_entry.store(Arc::into_raw(entry).cast_mut(), Ordering::SeqCst);
        Ok(())
    };
    answer(register())
}

/// The exits of a list of records.
///
/// # Safety
/// The list consists of valid records, and ends in null.
unsafe fn entries(mut record: *mut Record) -> Result<Vec<Arc<Entry>>, Error> {
    let mut entries = Vec::new();
    // SAFETY: the caller's promise.
    while let Some(next) = unsafe { record.as_ref() } {
        let entry = next.hook_entry.load(Ordering::SeqCst);
        if entry.is_null() {
            return Err(Error::NotRegistered);
        }
        // SAFETY: it came from `Arc::into_raw` and is not released before the record is
        // deregistered.
        entries.push(unsafe {
            Arc::increment_strong_count(entry);
            Arc::from_raw(entry.cast_const())
        });
        record = next.hook_next;
    }
    if entries.is_empty() { Err(Error::Invalid) } else { Ok(entries) }
}

/// Arms the exits of a list, all at once. Returns 0, or an error's number; then none is armed.
///
/// # Safety
/// The list is of registered records linked by `hook_next`, and ends in null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_arm(record: *mut Record) -> c_int {
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(record) };
    answer(entries.and_then(|list| registry::arm(&list.iter().map(|entry| &**entry).collect::<Vec<_>>())))
}

/// Disarms the exits of a list, all at once. Returns 0, or an error's number.
///
/// # Safety
/// As for [`hook_exit_arm`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_disarm(record: *mut Record) -> c_int {
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(record) };
    answer(entries.and_then(|list| registry::disarm(&list.iter().map(|entry| &**entry).collect::<Vec<_>>())))
}

/// Disarms and deregisters the exits of a list. Returns 0 if no thread is inside any of them, and
/// the records are the caller's again; 1 if it was called from inside an exit and threads may still
/// be inside: the records must stay; or an error's number.
///
/// # Safety
/// As for [`hook_exit_arm`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_deregister(record: *mut Record) -> c_int {
    // SAFETY: the caller's promise.
    let list = match unsafe { entries(record) } {
        Ok(list) => list,
        Err(error) => return error.code(),
    };
    // Disarm all at once; then deregister one after the other.
    if let Err(error) = registry::disarm(&list.iter().map(|entry| &**entry).collect::<Vec<_>>()) {
        return error.code();
    }
    let mut answer = 0;
    for entry in list {
        match registry::deregister(&entry) {
            Ok(Departure::Complete) => {}
            Ok(Departure::Pending) => answer = PENDING,
            Err(error) => return error.code(),
        }
    }
    answer
}

/// Makes a hook known. Returns 0, or an error's number.
///
/// # Safety
/// `hook` is a declared hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_identify(hook: *const HookHeader) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { hook.as_ref() } {
        Some(head) => {
            registry::identify(head);
            0
        }
        None => Error::Invalid.code(),
    }
}

/// Deregisters all exits of a hook and makes it unknown. Returns 0, or an error's number.
///
/// # Safety
/// `hook` is a declared hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_delete(hook: *const HookHeader) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { hook.as_ref() } {
        Some(head) => answer(registry::delete(head)),
        None => Error::Invalid.code(),
    }
}

/// The first known hook with this name; null if there is none.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_find(name: *const c_char) -> *const HookHeader {
    if name.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    registry::find(&name).map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Makes all hooks with sites known. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn hook_initialise() -> c_int {
    registry::initialise();
    0
}

/// Deletes all hooks. Returns 0, or an error's number if exits are registered and `force` is 0.
#[unsafe(no_mangle)]
pub extern "C" fn hook_terminate(force: c_int) -> c_int {
    answer(registry::terminate(force != 0))
}

/// A hit of a site in C, with `count` arguments. Returns whether the function is to return; then
/// `*code` is the value, if `code` is not null.
///
/// # Safety
/// `hook` is a declared hook, `arguments` points to `count` words, and `code` to a word or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_hit(
    hook: *const HookHeader,
    code: *mut c_long,
    arguments: *const usize,
    count: c_uint,
) -> c_int {
    let mut words = [0; ARGUMENTS];
    let count = ARGUMENTS.min(count as usize);
    // SAFETY: the caller's promise.
    let head = unsafe {
        words[..count].copy_from_slice(std::slice::from_raw_parts(arguments, count));
        &*hook
    };
    let kind = if code.is_null() { Kind::Plain } else { Kind::Code };
    match dispatch(head, kind, &words) {
        Verdict::Return(value) => {
            if !code.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *code = value as c_long };
            }
            1
        }
        Verdict::Continue | Verdict::Terminate => 0,
    }
}

/// Makes the hooks of a table of sites known. The header's macros call it when a library is loaded.
///
/// # Safety
/// There are sites from `start` to `stop`, until [`hook_sites_delete`] is called with the same
/// arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_sites_identify(start: *const Site, stop: *const Site) {
    // SAFETY: the caller's promise.
    registry::identify_table(unsafe { site::table(start, stop) });
}

/// Forgets the hooks of a table of sites. The header's macros call it when a library is unloaded.
///
/// # Safety
/// As for [`hook_sites_identify`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_sites_delete(start: *const Site, stop: *const Site) {
    // SAFETY: the caller's promise.
    registry::delete_table(unsafe { site::table(start, stop) });
}
