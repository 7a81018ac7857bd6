//! The functions of the interface in C. All `unsafe` of this crate is here: pointers of the caller
//! become references and slices, and the two handles become pointers.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use trace::template::Templates;

use crate::formatter::Formatter;
use crate::status::{self, Failure, Status};
use crate::store::StoreText;

/// `dpfmt_formatter` of the header.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "the header's name")]
pub struct dpfmt_formatter(Formatter);

/// `dpfmt_store` of the header.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "the header's name")]
pub struct dpfmt_store(StoreText);

/// Runs a call. A failure or a panic becomes a status and the thread's message.
fn guarded(call: impl FnOnce() -> Result<Status, Failure>) -> c_int {
    // After a panic, the header allows nothing but closing the handle; dropping it needs no
    // invariant that a panic could have broken.
    let done = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Failure::new(Status::Bug, format!("a mistake in this library: {text}; please report it")))
    });
    match done {
        Ok(status) => status as c_int,
        Err(failure) => {
            status::keep(&failure.message);
            failure.status as c_int
        }
    }
}

fn null(name: &str) -> Failure {
    Failure::new(Status::Argument, format!("`{name}` is NULL; a pointer to it expected"))
}

/// A reference to what a caller's pointer points to.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that nothing changes during `'a`.
unsafe fn shared<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: a pointer that is not NULL points to a `T` that nothing changes, says the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// The text of a string in C.
///
/// # Safety
/// `pointer` is NULL, or points to bytes up to a NUL that nothing changes during `'a`.
unsafe fn string<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: not NULL, so there are bytes up to a NUL that nothing changes, says the caller.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// The caller's bytes.
///
/// # Safety
/// `pointer` is NULL, or points to so many bytes that nothing changes during `'a`.
unsafe fn bytes<'a>(pointer: *const c_void, count: usize, name: &str) -> Result<&'a [u8], Failure> {
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(name)),
        (false, _) if isize::try_from(count).is_err() => {
            Err(Failure::new(Status::Argument, format!("no memory has {count} bytes for `{name}`")))
        }
        // SAFETY: there are `count` bytes that nothing changes, says the caller, and their number
        // is no more than a slice may have.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), count) }),
    }
}

fn word(word: c_int) -> Result<usize, Failure> {
    match word {
        4 => Ok(4),
        8 => Ok(8),
        _ => Err(Failure::new(Status::Argument, format!("a word of {word} bytes; 4 or 8 expected"))),
    }
}

/// Writes a text and a NUL to the caller's buffer, and its length.
///
/// # Safety
/// `buffer` is NULL, or points to `size` bytes that may be written; `length` is NULL, or points to
/// a `size_t` that may be written.
unsafe fn hand_over(
    text: &[u8],
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Result<Status, Failure> {
    if !length.is_null() {
        // SAFETY: not NULL, so it may be written, says the caller.
        unsafe { length.write(text.len()) };
    }
    if buffer.is_null() && size > 0 {
        return Err(null("buffer"));
    }
    let fits = text.len() < size;
    if size > 0 {
        let written = if fits { text } else { &[] };
        // SAFETY: the buffer is not NULL and has `size` bytes, says the caller; the text and its
        // NUL are no more. The text is ours, so the two do not overlap.
        unsafe {
            buffer.copy_from_nonoverlapping(written.as_ptr().cast(), written.len());
            buffer.add(written.len()).write(0);
        }
    }
    match fits {
        true => Ok(Status::Ok),
        false => {
            let needed = text.len() + 1;
            Err(Failure::new(Status::Short, format!("the text needs {needed} bytes; the buffer has {size}")))
        }
    }
}

/// A call that makes a handle and stores it at the caller's place, `name`, for it.
///
/// # Safety
/// `place` is NULL, or points to a pointer that may be written.
unsafe fn opened<T>(place: *mut *mut T, name: &str, open: impl FnOnce() -> Result<T, Failure>) -> c_int {
    guarded(|| {
        if place.is_null() {
            return Err(null(name));
        }
        let handle = Box::new(open()?);
        // SAFETY: not NULL, so it may be written, says the caller.
        unsafe { place.write(Box::into_raw(handle)) };
        Ok(Status::Ok)
    })
}

/// A call that frees a handle.
///
/// # Safety
/// `handle` is NULL, or was made by [`opened`] and is not used again.
unsafe fn closed<T>(handle: *mut T) {
    guarded(|| {
        if !handle.is_null() {
            // SAFETY: `opened` made it from a box, and it is not used again, says the caller.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(Status::Ok)
    });
}

/// What a status means.
#[unsafe(no_mangle)]
pub extern "C" fn dpfmt_status_text(status: c_int) -> *const c_char {
    status::text(status).as_ptr()
}

/// The message of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn dpfmt_message() -> *const c_char {
    // The text is the thread's until its next failure replaces it, as the header says.
    status::with_message(CStr::as_ptr)
}

/// Reads the templates of a directory.
///
/// # Safety
/// As the header says: `directory` is a string, `formatter` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_open_templates(
    directory: *const c_char,
    formatter: *mut *mut dpfmt_formatter,
) -> c_int {
    let open = || {
        // SAFETY: NULL or a string that stays as it is during the call, says the header.
        let directory = unsafe { string(directory, "directory") }?;
        Formatter::open(path(directory)).map(dpfmt_formatter)
    };
    // SAFETY: NULL or a place for a pointer, says the header.
    unsafe { opened(formatter, "formatter", open) }
}

/// Reads the text of a template file.
///
/// # Safety
/// As the header says: `text` is a string, `formatter` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_parse_templates(
    text: *const c_char,
    formatter: *mut *mut dpfmt_formatter,
) -> c_int {
    let open = || {
        // SAFETY: NULL or a string that stays as it is during the call, says the header.
        let text = unsafe { string(text, "text") }?;
        let text = text.to_str().map_err(|error| {
            let at = error.valid_up_to();
            Failure::new(
                Status::Templates,
                format!("the templates are no UTF-8 at byte {at}; UTF-8 expected"),
            )
        })?;
        Ok(dpfmt_formatter(Formatter::parse(text)))
    };
    // SAFETY: NULL or a place for a pointer, says the header.
    unsafe { opened(formatter, "formatter", open) }
}

/// The mistakes in the templates.
///
/// # Safety
/// As the header says: `formatter` is a handle, `buffer` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_problems(
    formatter: *const dpfmt_formatter,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL or a handle, which no other thread uses meanwhile, says the header.
        let dpfmt_formatter(formatter) = unsafe { shared(formatter, "formatter") }?;
        // SAFETY: the buffer and the length are as the header says.
        unsafe { hand_over(formatter.problems().as_bytes(), buffer, size, length) }
    })
}

/// The text of a record.
///
/// # Safety
/// As the header says: `formatter` is a handle, `record` has `count` bytes, `buffer` has `size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_format(
    formatter: *const dpfmt_formatter,
    record: *const c_void,
    count: usize,
    of_word: c_int,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL or a handle, which no other thread uses meanwhile, says the header.
        let dpfmt_formatter(formatter) = unsafe { shared(formatter, "formatter") }?;
        // SAFETY: NULL or so many bytes that stay as they are during the call, says the header.
        let record = unsafe { bytes(record, count, "record") }?;
        let text = formatter.format(record, word(of_word)?)?;
        // SAFETY: the buffer and the length are as the header says.
        unsafe { hand_over(&text, buffer, size, length) }
    })
}

/// The text of logged bytes.
///
/// # Safety
/// As the header says: `formatter` is a handle, `data` has `count` bytes, `buffer` has `size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_format_data(
    formatter: *const dpfmt_formatter,
    major: u32,
    minor: u32,
    data: *const c_void,
    count: usize,
    of_word: c_int,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL or a handle, which no other thread uses meanwhile, says the header.
        let dpfmt_formatter(formatter) = unsafe { shared(formatter, "formatter") }?;
        // SAFETY: NULL or so many bytes that stay as they are during the call, says the header.
        let data = unsafe { bytes(data, count, "data") }?;
        let text = formatter.format_data((major, minor), data, word(of_word)?)?;
        // SAFETY: the buffer and the length are as the header says.
        unsafe { hand_over(&text, buffer, size, length) }
    })
}

/// Frees templates.
///
/// # Safety
/// As the header says: `formatter` is NULL, or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_close(formatter: *mut dpfmt_formatter) {
    // SAFETY: NULL or a handle that is not used again, says the header.
    unsafe { closed(formatter) };
}

/// Opens a store.
///
/// # Safety
/// As the header says: `path_of_it` is a string, `templates` NULL or a string, `store` a place for
/// a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_open_store(
    path_of_it: *const c_char,
    templates: *const c_char,
    store: *mut *mut dpfmt_store,
) -> c_int {
    let open = || {
        // SAFETY: NULL or a string that stays as it is during the call, says the header.
        let file = unsafe { string(path_of_it, "path") }?;
        let templates = match templates.is_null() {
            true => None,
            false => {
                // SAFETY: not NULL, so a string that stays as it is during the call.
                let directory = unsafe { string(templates, "templates") }?;
                let opened = Templates::open(path(directory));
                Some(opened.map_err(|error| Failure::new(Status::Templates, error.to_string()))?)
            }
        };
        StoreText::open(path(file), templates).map(dpfmt_store)
    };
    // SAFETY: NULL or a place for a pointer, says the header.
    unsafe { opened(store, "store", open) }
}

/// The text of the next record.
///
/// # Safety
/// As the header says: `store` is a handle, `buffer` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_next(
    store: *mut dpfmt_store,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL or a handle, which no other thread uses meanwhile, says the header.
        let Some(dpfmt_store(store)) = (unsafe { store.as_mut() }) else { return Err(null("store")) };
        let Some(text) = store.current()? else { return Ok(Status::End) };
        // SAFETY: the buffer and the length are as the header says.
        let status = unsafe { hand_over(text, buffer, size, length) }?;
        // It stays the next one if it was not handed over.
        store.advance();
        Ok(status)
    })
}

/// Closes a store.
///
/// # Safety
/// As the header says: `store` is NULL, or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dpfmt_close_store(store: *mut dpfmt_store) {
    // SAFETY: NULL or a handle that is not used again, says the header.
    unsafe { closed(store) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_with_its_text() {
        assert_eq!(guarded(|| panic!("what is wrong")), Status::Bug as c_int);
        status::with_message(|message| {
            let message = message.to_string_lossy();
            assert!(message.contains("a mistake in this library: what is wrong"), "{message}");
        });
    }
}
