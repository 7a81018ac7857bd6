//! All ptrace requests of this crate, one function each.
//!
//! Requests go through nix where it has them as needed. It cannot represent a real-time signal, and
//! lacks PTRACE_LISTEN and the register sets and masks of variable size.

use std::cell::Cell;
use std::mem::{MaybeUninit, size_of};
use std::ptr::{null_mut, without_provenance_mut};

use libc::{c_int, c_void, iovec, pid_t, siginfo_t, user_fpregs_struct, user_regs_struct};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::{Error, FloatRegisters, OwnSegment, Registers, RseqRegistration};

/// The type of a request, which differs between C libraries.
#[cfg(target_env = "musl")]
type Request = c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// Requests that the libc crate does not name.
const PTRACE_GETSIGMASK: Request = 0x420a;
const PTRACE_SETSIGMASK: Request = 0x420b;
const PTRACE_GET_THREAD_AREA: Request = 25;
const PTRACE_SET_THREAD_AREA: Request = 26;
const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;

/// An option: suspends the thread's seccomp filters while it is traced (needs CAP_SYS_ADMIN).
pub(crate) const SUSPEND_SECCOMP: c_int = 1 << 21;

/// The wait status of a system call stop has this bit set beside SIGTRAP, so it cannot be mistaken
/// for a signal.
pub(crate) const SYSCALL_STOP: c_int = libc::SIGTRAP | 0x80;

thread_local! {
    /// The thread whose last stop was seen here but not yet taken from the kernel by `waitpid`, and
    /// its wait status. 0: none.
    static UNTAKEN: Cell<(pid_t, c_int)> = const { Cell::new((0, 0)) };
}

/// Notes that a thread's stop was seen but not taken from the kernel.
pub(crate) fn set_pending_stop(tid: pid_t, status: c_int) {
    UNTAKEN.set((tid, status));
}

/// Returns and clears the thread whose stop is still to be taken, with the stop's wait status.
pub(crate) fn untaken() -> Option<(pid_t, c_int)> {
    Some(UNTAKEN.replace((0, 0))).filter(|(tid, _)| *tid != 0)
}

/// Notes that a thread leaves its stop: nothing is left to take.
fn leaves_its_stop(tid: pid_t) {
    if UNTAKEN.get().0 == tid {
        UNTAKEN.set((0, 0));
    }
}

/// The error of a failed request.
fn failed(what: &'static str, tid: pid_t) -> impl Fn(Errno) -> Error {
    move |errno| Error::from_io(what, tid, errno.into())
}

/// Makes a request that returns only success or failure.
fn request(
    what: &'static str,
    request: Request,
    tid: pid_t,
    address: usize,
    data: usize,
) -> Result<(), Error> {
    // SAFETY: the requests made through this function take integers, not pointers, as address and
    // data.
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

/// Resumes a stopped thread, with a signal or 0.
pub(crate) fn resume(tid: pid_t, signal: c_int) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("resuming", libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Makes a stopped thread execute one instruction, with a signal or 0.
pub(crate) fn step(tid: pid_t, signal: c_int) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("stepping", libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)
}

/// Sets a debug register of a stopped thread.
pub(crate) fn set_debug_register(tid: pid_t, number: usize, value: u64) -> Result<(), Error> {
    let place = std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
    request("setting a debug register", libc::PTRACE_POKEUSER, tid, place, value as usize)
}

/// Resumes a stopped thread until the next entry or exit of a system call.
pub(crate) fn resume_to_syscall(tid: pid_t) -> Result<(), Error> {
    leaves_its_stop(tid);
    request("resuming", libc::PTRACE_SYSCALL, tid, 0, 0)
}

/// Leaves a thread in its job-control stop; its events are still reported.
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

/// Bytes for a register set. The largest, the extended state with AMX tiles, has 11 KiB.
const REGISTER_SET: usize = 1 << 14;

/// A register set of a stopped thread, named by the type of its note in a core file, in the note's
/// layout.
pub(crate) fn register_set(tid: pid_t, note: c_int) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0u8; REGISTER_SET];
    let mut place = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes to `iov_base`, and `bytes` has that many;
    // it stores the number written in `iov_len`.
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

/// Whether a stopped thread has a shadow stack, which must match every return address.
pub(crate) fn has_shadow_stack(tid: pid_t) -> bool {
    /// The note of the shadow stack pointer; only a thread with a shadow stack has the set.
    const NT_X86_SHSTK: c_int = 0x204;
    register_set(tid, NT_X86_SHSTK).is_ok_and(|bytes| !bytes.is_empty())
}

/// The floating-point and SSE registers of a stopped thread.
pub(crate) fn float_registers(tid: pid_t) -> Result<FloatRegisters, Error> {
    let mut raw = MaybeUninit::<user_fpregs_struct>::uninit();
    // SAFETY: the kernel writes one user_fpregs_struct at `data`, also for a 32-bit thread.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETFPREGS, tid, null_mut::<c_void>(), raw.as_mut_ptr()) };
    if result == -1 {
        return Err(Error::last("reading the floating-point registers", tid));
    }
    // SAFETY: the request succeeded, so the structure is filled.
    Ok(FloatRegisters::from_raw(unsafe { raw.assume_init() }))
}

/// The kernel's `struct user_desc`, which describes a segment (arch/x86/include/uapi/asm/ldt.h).
#[repr(C)]
#[derive(Default)]
struct UserDescriptor {
    number: u32,
    base: u32,
    limit: u32,
    flags: u32,
}

/// The flag of a descriptor without a segment.
const NOT_PRESENT: u32 = 1 << 5;

/// A thread's own segment at an index of the global descriptor table, if there is one.
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

/// Sets or removes a thread's own segment at an index of the global descriptor table.
pub(crate) fn set_own_segment(tid: pid_t, place: u16, segment: Option<OwnSegment>) -> Result<(), Error> {
    // A descriptor of all zeros removes the segment.
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
    // A program can set the bases of fs and gs (`wrfsbase`) to values that ptrace rejects. The
    // registers before them can still be set.
    const BEFORE_BASES: usize = std::mem::offset_of!(user_regs_struct, fs_base);
    let mut part =
        iovec { iov_base: std::ptr::from_ref(registers.raw()).cast_mut().cast(), iov_len: BEFORE_BASES };
    // SAFETY: the kernel reads only the first `BEFORE_BASES` bytes of one user_regs_struct.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, tid, libc::NT_PRSTATUS, &raw mut part) };
    if result == -1 { Err(failed(error)) } else { Ok(()) }
}

/// The siginfo of the signal at whose delivery a thread is stopped.
pub(crate) fn signal_info(tid: pid_t) -> Result<siginfo_t, Error> {
    ptrace::getsiginfo(Pid::from_raw(tid)).map_err(failed("reading the signal", tid))
}

/// Changes that siginfo.
pub(crate) fn set_signal_info(tid: pid_t, info: &siginfo_t) -> Result<(), Error> {
    ptrace::setsiginfo(Pid::from_raw(tid), info).map_err(failed("setting the signal", tid))
}

/// The value of the event at which a thread is stopped: a new thread's id, an exit status.
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

/// The kernel's `struct ptrace_rseq_configuration` (include/uapi/linux/ptrace.h).
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    address: u64,
    size: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

/// A stopped thread's rseq registration, or `None` if it has none or the kernel is older than 5.13.
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
