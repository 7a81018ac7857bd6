//! The C side: records, exits and the functions of `include/dprobes_hooks.h`.
//!
//! A record belongs to the caller, who zeroes it before the first use and keeps it until deregistering has returned 0. Its flags
//! are shared: an exit that clears ARMED in its own record while it runs disarms itself.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arguments::ARGUMENTS;
use crate::dispatch::{Kind, dispatch};
use crate::exit::{Callee, Conditions, Departure, Entry, Priority, Verdict};
use crate::head::Head;
use crate::site::{self, Site};
use crate::state::Armed;
use crate::{Error, registry};

/// The flags of a record: those of the original, and behind them this library's own.
const ARMED: u32 = 1;
const PRIORITY_FIRST: u32 = 4;
const PRIORITY_LAST: u32 = 8;
const QUEUE_LIFO: u32 = 0x10;
const PRIORITY_ONLY: u32 = 0x20;
const QUIESCED: u32 = 0x40;
const SIGNALS_BLOCKED: u32 = 0x80;

/// What a C exit answers.
const CONTINUE: c_int = 0;
const RETURN: c_int = -1;

/// What deregistering answers where a thread may still be inside ([`Departure::Pending`]).
const PENDING: c_int = 1;

/// An exit in C. It is passed the hook; at a site that can return a code, a pointer to that; and then the hook's arguments.
pub type Exit = unsafe extern "C-unwind" fn();

/// `struct hook_rec`: what a caller registers.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    /// The function.
    pub hook_exit: Option<Exit>,
    /// The next of a list that is armed, disarmed or deregistered together.
    pub hook_next: *mut Record,
    /// The flags: priority and conditions as wanted, and whether it is armed.
    pub hook_flags: AtomicU32,
    /// Its place among the hook's exits, from 1 on.
    pub hook_index: AtomicU32,
    /// The hook; set by registering.
    pub hook_head: AtomicPtr<Head>,
    /// Its name, or null.
    pub hook_exit_name: *const c_char,
    /// The caller's own.
    pub hook_context: *mut c_void,
    /// The library's own; 0 where it is not registered.
    pub(crate) hook_entry: AtomicPtr<Entry>,
}

/// The record of a C exit.
fn record(entry: &Entry) -> Option<&Record> {
    match entry.callee {
        // SAFETY: the owner keeps the record as long as it is registered, and this is called for registered exits only.
        Callee::C(_, record) if !entry.gone.load(Ordering::SeqCst) => unsafe { record.as_ref() },
        _ => None,
    }
}

/// Shows in a record whether it is armed.
pub(crate) fn show_armed(entry: &Entry, armed: bool) {
    if let Some(record) = record(entry) {
        if armed {
            record.hook_flags.fetch_or(ARMED, Ordering::SeqCst);
        } else {
            record.hook_flags.fetch_and(!ARMED, Ordering::SeqCst);
        }
    }
}

/// Shows in a record which place it has.
pub(crate) fn show_index(entry: &Entry, index: usize) {
    if let Some(record) = record(entry) {
        record.hook_index.store(index as u32, Ordering::SeqCst);
    }
}

/// Frees a record from its exit, which is taken away.
pub(crate) fn show_gone(entry: &Entry) {
    show_armed(entry, false);
    if let Some(record) = record(entry) {
        record.hook_index.store(0, Ordering::SeqCst);
        let own = record.hook_entry.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if !own.is_null() {
            // SAFETY: `hook_exit_register` put it there by `Arc::into_raw`, and it is taken out once.
            drop(unsafe { Arc::from_raw(own) });
        }
    }
}

/// Calls an exit in C.
pub(crate) fn call(
    exit: Exit,
    record: *mut Record,
    head: &Head,
    kind: Kind,
    armed: &Armed,
    arguments: &[usize; ARGUMENTS],
) -> Verdict {
    type Plain = unsafe extern "C-unwind" fn(&Head, usize, usize, usize, usize, usize, usize) -> c_int;
    type Code =
        unsafe extern "C-unwind" fn(&Head, *mut c_long, usize, usize, usize, usize, usize, usize) -> c_int;
    let [a, b, c, d, e, f] = *arguments;
    let mut code: c_long = 0;
    let answer = match kind {
        // SAFETY: who registered it has promised a function of these parameters, or of the first of them: further words in
        // registers and above the return address are none of its business.
        Kind::Plain => unsafe { std::mem::transmute::<Exit, Plain>(exit)(head, a, b, c, d, e, f) },
        // SAFETY: as above.
        Kind::Code => unsafe { std::mem::transmute::<Exit, Code>(exit)(head, &mut code, a, b, c, d, e, f) },
    };
    // It may have deregistered itself, and its record may be gone.
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

/// The number of an error, or 0.
fn answer(result: Result<(), Error>) -> c_int {
    result.map_or_else(Error::code, |()| 0)
}

/// Reads what a record asks for.
fn wanted(record: &Record) -> Result<(Exit, Priority, Conditions), Error> {
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
/// `hook` is a declared hook; `record` was zeroed and filled, is valid until it is deregistered, and its function takes the hook's
/// arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_register(hook: *const Head, record: *mut Record) -> c_int {
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
            // As the original names them.
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
/// The list is of valid records, and ends.
unsafe fn entries(mut record: *mut Record) -> Result<Vec<Arc<Entry>>, Error> {
    let mut entries = Vec::new();
    // SAFETY: the caller's promise.
    while let Some(next) = unsafe { record.as_ref() } {
        let entry = next.hook_entry.load(Ordering::SeqCst);
        if entry.is_null() {
            return Err(Error::NotRegistered);
        }
        // SAFETY: it came from `Arc::into_raw` and is not given up before the record is deregistered.
        entries.push(unsafe {
            Arc::increment_strong_count(entry);
            Arc::from_raw(entry.cast_const())
        });
        record = next.hook_next;
    }
    if entries.is_empty() { Err(Error::Invalid) } else { Ok(entries) }
}

/// Arms the exits of a list, all at once. 0, or an error's number: then none is armed.
///
/// # Safety
/// The list is of registered records linked by `hook_next`, and ends in null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_arm(record: *mut Record) -> c_int {
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(record) };
    answer(entries.and_then(|list| registry::arm(&list.iter().map(|entry| &**entry).collect::<Vec<_>>())))
}

/// Disarms the exits of a list, all at once. 0, or an error's number.
///
/// # Safety
/// As for [`hook_exit_arm`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_exit_disarm(record: *mut Record) -> c_int {
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(record) };
    answer(entries.and_then(|list| registry::disarm(&list.iter().map(|entry| &**entry).collect::<Vec<_>>())))
}

/// Disarms the exits of a list and takes them away. 0: no thread is inside of any, and the records are the caller's again; 1: it was called
/// from inside of an exit, and threads may still be inside: the records must stay; or an error's number.
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
    // All at once; then one after the other.
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

/// Makes a hook known. 0, or an error's number.
///
/// # Safety
/// `hook` is a declared hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_identify(hook: *const Head) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { hook.as_ref() } {
        Some(head) => {
            registry::identify(head);
            0
        }
        None => Error::Invalid.code(),
    }
}

/// Takes all exits of a hook away and makes it unknown. 0, or an error's number.
///
/// # Safety
/// `hook` is a declared hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_delete(hook: *const Head) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { hook.as_ref() } {
        Some(head) => answer(registry::delete(head)),
        None => Error::Invalid.code(),
    }
}

/// The first known hook of a name; null if there is none.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_find(name: *const c_char) -> *const Head {
    if name.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    registry::find(&name).map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Makes all hooks known that have sites. 0.
#[unsafe(no_mangle)]
pub extern "C" fn hook_initialise() -> c_int {
    registry::initialise();
    0
}

/// Deletes all hooks: 0, or an error's number where exits are registered and `force` is 0.
#[unsafe(no_mangle)]
pub extern "C" fn hook_terminate(force: c_int) -> c_int {
    answer(registry::terminate(force != 0))
}

/// A hit of a site in C, of `count` arguments. Whether the function is to return: then `*code` is what, if `code` is not null.
///
/// # Safety
/// `hook` is a declared hook, `arguments` points at `count` words, and `code` at a word or nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_hit(
    hook: *const Head,
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

/// Makes the hooks of a table of sites known. The macros of the header call it when a library is loaded.
///
/// # Safety
/// From `start` to `stop` there are sites, until [`hook_sites_delete`] is called with the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_sites_identify(start: *const Site, stop: *const Site) {
    // SAFETY: the caller's promise.
    registry::identify_table(unsafe { site::table(start, stop) });
}

/// Forgets the hooks of a table of sites. The macros of the header call it when a library is unloaded.
///
/// # Safety
/// As for [`hook_sites_identify`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hook_sites_delete(start: *const Site, stop: *const Site) {
    // SAFETY: the caller's promise.
    registry::delete_table(unsafe { site::table(start, stop) });
}
