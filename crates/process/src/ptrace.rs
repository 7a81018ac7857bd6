//! The ptrace requests, each as one function. All of this crate's ptrace calls are here.
//!
//! Those that nix makes as they are needed are nix's. It cannot name a real-time signal, and does not have PTRACE_LISTEN, nor the
//! register sets and masks that have a size of their own.

use std::cell::Cell;
use std::mem::{MaybeUninit, size_of};
use std::ptr::{null_mut, without_provenance_mut};

use libc::{c_int, c_uint, c_void, iovec, pid_t, siginfo_t, user_fpregs_struct, user_regs_struct};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::{Error, FloatRegisters, OwnSegment, Registers, RseqRegistration};

/// Requests that the libc crate does not name.
const PTRACE_GETSIGMASK: c_uint = 0x420a;
const PTRACE_SETSIGMASK: c_uint = 0x420b;
const PTRACE_GET_THREAD_AREA: c_uint = 25;
const PTRACE_SET_THREAD_AREA: c_uint = 26;
const PTRACE_GET_RSEQ_CONFIGURATION: c_uint = 0x420f;

/// The system calls stop with this bit set beside SIGTRAP, so that they cannot be mistaken for a signal.
pub(crate) const SYSCALL_STOP: c_int = libc::SIGTRAP | 0x80;

thread_local! {
    /// The thread whose last stop is known here, but not taken from the kernel yet, and the stop's wait status; 0: none.
    static UNTAKEN: Cell<(pid_t, c_int)> = const { Cell::new((0, 0)) };
}

/// Notes that a thread's stop is known and not taken.
pub(crate) fn set_untaken(tid: pid_t, status: c_int) {
    UNTAKEN.set((tid, status));
}

/// The thread whose stop is known and still to be taken, and the stop's status. It is not noted any more.
pub(crate) fn untaken() -> Option<(pid_t, c_int)> {
    Some(UNTAKEN.replace((0, 0))).filter(|(tid, _)| *tid != 0)
}

/// A thread leaves its stop: there is nothing to be taken.
fn leaves_its_stop(tid: pid_t) {
    if UNTAKEN.get().0 == tid {
        UNTAKEN.set((0, 0));
    }
}

/// What a request that failed says.
fn failed(what: &'static str, tid: pid_t) -> impl Fn(Errno) -> Error {
    move |errno| Error::from_io(what, tid, errno.into())
}

/// Makes one request whose result is only success or failure.
fn request(
    what: &'static str,
    request: c_uint,
    tid: pid_t,
    address: usize,
    data: usize,
) -> Result<(), Error> {
    // SAFETY: the requests made through this function take integers, not pointers, as address and data.
    let result = unsafe {
        libc::ptrace(
            request,
            tid,
            without_provenance_mut::<c_void>(address),
            without_provenance_mut::<c_void>(data),
        )
    };
    if result == -1 { Err(Error::last(what, tid)) } else { Ok(()) }
}

/// Starts tracing a thread without stopping it.
pub(crate) fn seize(tid: pid_t, options: c_int) -> Result<(), Error> {
    request("tracing", libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Sets the options of a stopped thread.
pub(crate) fn set_options(tid: pid_t, options: c_int) -> Result<(), Error> {
    request("setting the trace options", libc::PTRACE_SETOPTIONS, tid, 0, options as usize)
}

/// Asks a running thread to stop.
pub(crate) fn interrupt(tid: pid_t) -> Result<(), Error> {
    request("stopping", libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread run, with a signal or 0.
pub(crate) fn resume(tid: pid_t, signal: c_int) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("resuming", libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Lets a stopped thread execute one instruction, with a signal or 0.
pub(crate) fn step(tid: pid_t, signal: c_int) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("stepping", libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)
}

/// Sets a debug register of a stopped thread.
pub(crate) fn set_debug_register(tid: pid_t, number: usize, value: u64) -> Result<(), Error> {
    let place = std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
    request("setting a debug register", libc::PTRACE_POKEUSER, tid, place, value as usize)
}

/// Lets a stopped thread run to the next entry or exit of a system call.
pub(crate) fn resume_to_syscall(tid: pid_t) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("resuming", libc::PTRACE_SYSCALL, tid, 0, 0)
}

/// Leaves a thread in its job-control stop, while events go on being reported.
pub(crate) fn listen(tid: pid_t) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("listening", libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Ends the tracing of a stopped thread, delivering a signal or 0.
pub(crate) fn detach(tid: pid_t, signal: c_int) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("detaching", libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The registers of a stopped thread.
pub(crate) fn registers(tid: pid_t) -> Result<Registers, Error> {
    let raw = ptrace::getregs(Pid::from_raw(tid)).map_err(failed("reading the registers", tid))?;
    Ok(Registers::from_raw(raw))
}

/// Room for a register set. The largest, the extended state with AMX tiles, has 11 KiB.
const REGISTER_SET: usize = 1 << 14;

/// A register set of a stopped thread, named by the type of the note that holds it in a core file, in the layout
/// that it has there.
pub(crate) fn register_set(tid: pid_t, note: c_int) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0u8; REGISTER_SET];
    let mut place = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes at `iov_base`, which `bytes` has, and the number of bytes
    // written in `iov_len`.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid,
            without_provenance_mut::<c_void>(note as usize),
            std::ptr::from_mut(&mut place),
        )
    };
    if result == -1 {
        return Err(Error::last("reading a register set", tid));
    }
    bytes.truncate(place.iov_len);
    Ok(bytes)
}

/// Whether a stopped thread has a shadow stack, on which a return address must be that it returns to.
pub(crate) fn has_shadow_stack(tid: pid_t) -> bool {
    /// The shadow stack's pointer; only a thread that has one has the set.
    const NT_X86_SHSTK: c_int = 0x204;
    register_set(tid, NT_X86_SHSTK).is_ok_and(|bytes| !bytes.is_empty())
}

/// The floating-point and SSE registers of a stopped thread.
pub(crate) fn float_registers(tid: pid_t) -> Result<FloatRegisters, Error> {
    let mut raw = MaybeUninit::<user_fpregs_struct>::uninit();
    // SAFETY: the kernel writes one user_fpregs_struct at `data`, whatever the thread's own word is.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETFPREGS, tid, null_mut::<c_void>(), raw.as_mut_ptr()) };
    if result == -1 {
        return Err(Error::last("reading the floating-point registers", tid));
    }
    // SAFETY: the request succeeded, so the structure is filled.
    Ok(FloatRegisters::from_raw(unsafe { raw.assume_init() }))
}

/// The kernel's description of a segment (arch/x86/include/uapi/asm/ldt.h).
#[repr(C)]
#[derive(Default)]
struct UserDescriptor {
    number: u32,
    base: u32,
    limit: u32,
    flags: u32,
}

/// The bit of a description's flags that says that there is no such segment.
const NOT_PRESENT: u32 = 1 << 5;

/// A thread's own segment at this place of the global descriptor table, if there is one.
pub(crate) fn own_segment(tid: pid_t, place: u16) -> Option<OwnSegment> {
    let mut descriptor = UserDescriptor::default();
    // SAFETY: the kernel writes one user_desc at `data`.
    let result = unsafe {
        libc::ptrace(
            PTRACE_GET_THREAD_AREA,
            tid,
            without_provenance_mut::<c_void>(usize::from(place)),
            std::ptr::from_mut(&mut descriptor),
        )
    };
    let UserDescriptor { base, limit, flags, .. } = descriptor;
    (result != -1 && flags & NOT_PRESENT == 0).then_some(OwnSegment { base, limit, flags })
}

/// Sets a thread's own segment at this place of the global descriptor table, or takes it away.
pub(crate) fn set_own_segment(tid: pid_t, place: u16, segment: Option<OwnSegment>) -> Result<(), Error> {
    // All zeros are none.
    let OwnSegment { base, limit, flags } = segment.unwrap_or(OwnSegment { base: 0, limit: 0, flags: 0 });
    let mut descriptor = UserDescriptor { number: place.into(), base, limit, flags };
    // SAFETY: the kernel reads one user_desc at `data`.
    let result = unsafe {
        libc::ptrace(
            PTRACE_SET_THREAD_AREA,
            tid,
            without_provenance_mut::<c_void>(usize::from(place)),
            std::ptr::from_mut(&mut descriptor),
        )
    };
    if result == -1 { Err(Error::last("setting a segment", tid)) } else { Ok(()) }
}

/// Sets the registers of a stopped thread.
pub(crate) fn set_registers(tid: pid_t, registers: &Registers) -> Result<(), Error> {
    let Err(error) = ptrace::setregs(Pid::from_raw(tid), *registers.raw()) else { return Ok(()) };
    let failed = failed("setting the registers", tid);
    if error != Errno::EIO {
        return Err(failed(error));
    }
    // A program may set the bases of fs and gs (`wrfsbase`) to what ptrace takes from nobody. All before them can be set without them.
    const BEFORE_BASES: usize = std::mem::offset_of!(user_regs_struct, fs_base);
    let mut part =
        iovec { iov_base: std::ptr::from_ref(registers.raw()).cast_mut().cast(), iov_len: BEFORE_BASES };
    // SAFETY: the kernel reads the first bytes of one user_regs_struct.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, tid, libc::NT_PRSTATUS, &raw mut part) };
    if result == -1 { Err(failed(error)) } else { Ok(()) }
}

/// What the signal at whose delivery a thread is stopped carries.
pub(crate) fn signal_info(tid: pid_t) -> Result<siginfo_t, Error> {
    ptrace::getsiginfo(Pid::from_raw(tid)).map_err(failed("reading the signal", tid))
}

/// Changes what the signal carries.
pub(crate) fn set_signal_info(tid: pid_t, info: &siginfo_t) -> Result<(), Error> {
    ptrace::setsiginfo(Pid::from_raw(tid), info).map_err(failed("setting the signal", tid))
}

/// The number that goes with the event at which a thread is stopped: a new thread's id, an exit status.
pub(crate) fn event_message(tid: pid_t) -> Result<u64, Error> {
    let message = ptrace::getevent(Pid::from_raw(tid)).map_err(failed("reading the event", tid))?;
    Ok(message.cast_unsigned())
}

/// The signals a stopped thread blocks.
pub(crate) fn signal_mask(tid: pid_t) -> Result<u64, Error> {
    let mut mask: u64 = 0;
    // SAFETY: the kernel writes the 8 bytes named by the size in `address`.
    let result = unsafe {
        libc::ptrace(
            PTRACE_GETSIGMASK,
            tid,
            without_provenance_mut::<c_void>(size_of::<u64>()),
            std::ptr::from_mut(&mut mask),
        )
    };
    if result == -1 { Err(Error::last("reading the signal mask", tid)) } else { Ok(mask) }
}

/// Sets the signals a stopped thread blocks.
pub(crate) fn set_signal_mask(tid: pid_t, mask: u64) -> Result<(), Error> {
    // SAFETY: the kernel reads the 8 bytes named by the size in `address`.
    let result = unsafe {
        libc::ptrace(
            PTRACE_SETSIGMASK,
            tid,
            without_provenance_mut::<c_void>(size_of::<u64>()),
            std::ptr::from_ref(&mask),
        )
    };
    if result == -1 { Err(Error::last("setting the signal mask", tid)) } else { Ok(()) }
}

/// The kernel's structure for restartable sequences (include/uapi/linux/ptrace.h).
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    address: u64,
    size: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

/// A stopped thread's registration for restartable sequences, or `None` where it has none or the kernel is older than 5.13.
pub(crate) fn rseq_registration(tid: pid_t) -> Option<RseqRegistration> {
    let mut configuration = RseqConfiguration::default();
    // SAFETY: the kernel writes at most the number of bytes given in `address`.
    let result = unsafe {
        libc::ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION,
            tid,
            without_provenance_mut::<c_void>(size_of::<RseqConfiguration>()),
            std::ptr::from_mut(&mut configuration),
        )
    };
    let RseqConfiguration { address, size, signature, .. } = configuration;
    (result > 0 && address != 0).then_some(RseqRegistration { address, size, signature })
}
