//! A plugin in Rust: it gives handlers a new instruction, and passes each record on only once.
//!
//! `callk` takes a size and an address, as `log mrf` does, and pushes the 64-bit FNV-1a hash of that memory. Where it cannot be read it
//! pushes 0. Of records of one program whose logged bytes are the same, only the first is written.
//!
//! ```text
//! cargo build --release --manifest-path examples/plugins/unique/Cargo.toml
//! dprobes run --plugin ./libunique.so --at 'libc:puts:entry' --do 'push 4 push r, rdi callk log 1' -- ./app
//! ```

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int, c_long};
use std::sync::{LazyLock, Mutex, OnceLock};

use hooks::plugin::{Api, Callk, CallkExit, Event, LogExit, VERSION, guarded};
use hooks::{HookHeader, Record};

/// What this plugin was compiled with.
#[unsafe(no_mangle)]
#[used]
pub static dprobes_plugin_version: u32 = VERSION;

/// The most memory that is hashed at once, in bytes.
const MOST: usize = 4096;

const CONTINUE: c_int = 0;
const RETURN: c_int = -1;

/// What dprobes gives.
struct Dprobes(&'static Api);

// SAFETY: nothing of it changes, and its functions may be called on any thread.
unsafe impl Send for Dprobes {}
// SAFETY: as above.
unsafe impl Sync for Dprobes {}

static DPROBES: OnceLock<Dprobes> = OnceLock::new();

/// The records that there were.
#[derive(Default)]
struct Seen {
    /// Those that were passed on: their programs' events, and their logged bytes.
    passed: HashSet<(u32, Vec<u8>)>,
    /// How many were not.
    repeated: u64,
}

static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

unsafe extern "C-unwind" fn hash(_: *const HookHeader, call: *mut Callk) -> c_int {
    guarded(CONTINUE, || {
        // SAFETY: dprobes passes a call that is there while this runs.
        let shown = unsafe { &*call };
        let mut memory = [0_u8; MOST];
        // SAFETY: as above; there is room for as much as is asked for.
        unsafe {
            let address = (shown.pop)(call);
            let size = (shown.pop)(call);
            let known = usize::try_from(size).ok().filter(|&size| size <= MOST);
            let hash = known
                .filter(|&size| (shown.read)(call, address, memory.as_mut_ptr().cast(), size) == 0)
                .map_or(0, |size| fnv(&memory[..size]));
            (shown.push)(call, hash);
        }
        CONTINUE
    })
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

unsafe extern "C-unwind" fn log(_: *const HookHeader, code: *mut c_long, event: u32, record: *const Event) -> c_int {
    guarded(CONTINUE, || {
        // SAFETY: dprobes passes a record that is there while this runs, with so many logged bytes.
        let logged = unsafe { std::slice::from_raw_parts((*record).log, (*record).log_size as usize) };
        let mut seen = SEEN.lock().expect("nothing panics while it is held");
        if seen.passed.insert((event, logged.to_vec())) {
            return CONTINUE;
        }
        seen.repeated += 1;
        // SAFETY: dprobes passes where the code is to go. 0: the record is taken care of.
        unsafe { *code = 0 };
        RETURN
    })
}

/// The exits' records, which stay where they are.
struct Exits([Record; 2]);

// SAFETY: they are changed only by the functions of dprobes, in turn.
unsafe impl Send for Exits {}

static EXITS: Mutex<Option<Box<Exits>>> = Mutex::new(None);

/// Registers the exits.
///
/// # Safety
/// dprobes calls it, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dprobes_plugin_init(api: *const Api) -> c_int {
    guarded(1, || {
        // SAFETY: dprobes passes an interface that is never freed, of the version it has read.
        let api: &'static Api = unsafe { &*api };
        DPROBES.get_or_init(|| Dprobes(api));
        let name: &CStr = c"unique";
        // SAFETY: an exit is called with what its hook passes: these are the types of the two hooks.
        let mut exits = Box::new(Exits(unsafe {
            [
                Record::new(std::mem::transmute::<CallkExit, hooks::CExit>(hash), name.as_ptr()),
                Record::new(std::mem::transmute::<LogExit, hooks::CExit>(log), name.as_ptr()),
            ]
        }));
        let second = &raw mut exits.0[1];
        exits.0[0].hook_next = second;
        let first = &raw mut exits.0[0];
        *EXITS.lock().expect("not poisoned") = Some(exits);
        // SAFETY: the records stay where they are until they are deregistered.
        unsafe {
            match [(api.exit_register)(api.callk, first), (api.exit_register)(api.log_event, second)] {
                [0, 0] => (api.exit_arm)(first),
                [error, 0] | [_, error] => error,
            }
        }
    })
}

/// Takes the exits away, and says what there was.
///
/// # Safety
/// dprobes calls it, once, after `dprobes_plugin_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dprobes_plugin_end() {
    guarded(0, || {
        let (Some(dprobes), Some(mut exits)) = (DPROBES.get(), EXITS.lock().expect("not poisoned").take()) else {
            return 0;
        };
        // SAFETY: they were registered by `dprobes_plugin_init`; no exit runs when this has returned.
        unsafe { (dprobes.0.exit_deregister)(&raw mut exits.0[0]) };
        let seen = SEEN.lock().expect("nothing panics while it is held");
        let text = format!("unique: {} records, {} repeated", seen.passed.len(), seen.repeated);
        if let Ok(text) = CString::new(text) {
            // SAFETY: it is a string.
            unsafe { (dprobes.0.tell)(text.as_ptr()) };
        }
        0
    });
}
