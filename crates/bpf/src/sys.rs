//! The system calls, and what the kernel's headers define for them.
//!
//! The structures are those of `union bpf_attr` and `struct perf_event_attr`, as long as Linux 6.1
//! needs them; `libc` has neither. Newer kernels take the missing rest as zero.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// The commands of bpf(2).
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    ProgramTestRun = 10,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    MapLookupBatch = 24,
    LinkCreate = 28,
}

/// An argument of bpf(2): a structure of numbers, without padding that is not zero.
///
/// # Safety
/// The type is `repr(C)`, and each of its bytes is initialized, whatever its value.
pub(crate) unsafe trait Attribute: Copy {}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct MapCreate {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
    pub(crate) inner_map_fd: u32,
    pub(crate) numa_node: u32,
    pub(crate) map_name: [u8; 16],
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct MapElement {
    pub(crate) map_fd: u32,
    pub(crate) pad: u32,
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) flags: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct MapBatch {
    pub(crate) in_batch: u64,
    pub(crate) out_batch: u64,
    pub(crate) keys: u64,
    pub(crate) values: u64,
    pub(crate) count: u32,
    pub(crate) map_fd: u32,
    pub(crate) elem_flags: u64,
    pub(crate) flags: u64,
}

/// Has more than 15 fields because the kernel's structure has them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ProgramLoad {
    pub(crate) prog_type: u32,
    pub(crate) insn_cnt: u32,
    pub(crate) insns: u64,
    pub(crate) license: u64,
    pub(crate) log_level: u32,
    pub(crate) log_size: u32,
    pub(crate) log_buf: u64,
    pub(crate) kern_version: u32,
    pub(crate) prog_flags: u32,
    pub(crate) prog_name: [u8; 16],
    pub(crate) prog_ifindex: u32,
    pub(crate) expected_attach_type: u32,
    pub(crate) prog_btf_fd: u32,
    pub(crate) func_info_rec_size: u32,
    pub(crate) func_info: u64,
    pub(crate) func_info_cnt: u32,
    pub(crate) line_info_rec_size: u32,
    pub(crate) line_info: u64,
    pub(crate) line_info_cnt: u32,
    pub(crate) attach_btf_id: u32,
    pub(crate) attach_btf_obj_fd: u32,
    pub(crate) core_relo_cnt: u32,
    pub(crate) fd_array: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct TestRun {
    pub(crate) prog_fd: u32,
    pub(crate) retval: u32,
    pub(crate) data_size_in: u32,
    pub(crate) data_size_out: u32,
    pub(crate) data_in: u64,
    pub(crate) data_out: u64,
    pub(crate) repeat: u32,
    pub(crate) duration: u32,
    pub(crate) ctx_size_in: u32,
    pub(crate) ctx_size_out: u32,
    pub(crate) ctx_in: u64,
    pub(crate) ctx_out: u64,
    pub(crate) flags: u32,
    pub(crate) cpu: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct BtfLoad {
    pub(crate) btf: u64,
    pub(crate) btf_log_buf: u64,
    pub(crate) btf_size: u32,
    pub(crate) btf_log_size: u32,
    pub(crate) btf_log_level: u32,
    pub(crate) pad: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawTracepointOpen {
    pub(crate) name: u64,
    pub(crate) prog_fd: u32,
    pub(crate) pad: u32,
    pub(crate) cookie: u64,
}

/// What all links have, and the part of one kind.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct LinkCreate<T> {
    pub(crate) prog_fd: u32,
    pub(crate) target_fd: u32,
    pub(crate) attach_type: u32,
    pub(crate) flags: u32,
    pub(crate) kind: T,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PerfEventLink {
    pub(crate) cookie: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct TracingLink {
    pub(crate) target_btf_id: u32,
    pub(crate) pad: u32,
    pub(crate) cookie: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct KprobeMultiLink {
    pub(crate) flags: u32,
    pub(crate) count: u32,
    pub(crate) symbols: u64,
    pub(crate) addresses: u64,
    pub(crate) cookies: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct UprobeMultiLink {
    pub(crate) path: u64,
    pub(crate) offsets: u64,
    pub(crate) ref_counter_offsets: u64,
    pub(crate) cookies: u64,
    pub(crate) count: u32,
    pub(crate) flags: u32,
    pub(crate) pid: u32,
    pub(crate) pad: u32,
}

/// Asserts that types are [`Attribute`]s.
macro_rules! attributes {
    ($($type:ty),*) => {
        // SAFETY: these are `repr(C)` and consist of numbers; the padding is spelled out as `pad`,
        // and none is left, since every field of 8 bytes lies at a multiple of 8.
        $(unsafe impl Attribute for $type {})*
    };
}

attributes!(MapCreate, MapElement, MapBatch, ProgramLoad, TestRun, BtfLoad, RawTracepointOpen);
attributes!(LinkCreate<PerfEventLink>, LinkCreate<TracingLink>, LinkCreate<KprobeMultiLink>);
attributes!(LinkCreate<UprobeMultiLink>);

/// bpf(2).
///
/// # Safety
/// The addresses in the argument name memory that lives during the call, as long as the command
/// reads or writes there.
pub(crate) unsafe fn bpf<T: Attribute>(command: Command, argument: &mut T) -> Result<i32, Errno> {
    let size = size_of::<T>();
    // SAFETY: the kernel reads and writes at most `size` bytes of the argument; the caller answers
    // for the addresses in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as i32, std::ptr::from_mut(argument), size) };
    Errno::result(result).map(|result| result as i32)
}

/// bpf(2) for commands that return a new descriptor.
///
/// # Safety
/// As for [`bpf`]; the command returns a descriptor.
pub(crate) unsafe fn bpf_open<T: Attribute>(command: Command, argument: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller answers for it.
    let descriptor = unsafe { bpf(command, argument)? };
    // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `struct perf_event_attr` as of its fifth version, of 112 bytes.
///
/// Has more than 15 fields because the kernel's structure has them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PerfEventAttr {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup_events: u32,
    pub(crate) bp_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) sample_regs_user: u64,
    pub(crate) sample_stack_user: u32,
    pub(crate) clock: i32,
    pub(crate) sample_regs_intr: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) sample_max_stack: u16,
    pub(crate) reserved: u16,
}

/// Bits of `PerfEventAttr::flags`.
pub(crate) mod event_flag {
    pub(crate) const DISABLED: u64 = 1 << 0;
    pub(crate) const INHERIT: u64 = 1 << 1;
    pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(crate) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    /// `sample_period` is a rate.
    pub(crate) const FREQUENCY: u64 = 1 << 10;
    /// Linux 5.13 or later, as the next one.
    pub(crate) const INHERIT_THREAD: u64 = 1 << 35;
    pub(crate) const REMOVE_ON_EXEC: u64 = 1 << 36;
}

/// perf_event_open(2) of an event that is no group's member, with a descriptor that exec closes.
///
/// # Safety
/// The addresses in `config1` and `config2`, where the kind of event has them there, name strings
/// that live during the call.
pub(crate) unsafe fn perf_event_open(attr: &PerfEventAttr, pid: i32, cpu: i32) -> Result<OwnedFd, Errno> {
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let attr = PerfEventAttr { size: size_of::<PerfEventAttr>() as u32, ..*attr };
    let address = std::ptr::from_ref(&attr);
    // SAFETY: the kernel reads `size` bytes of the structure; the caller answers for the addresses.
    let result = unsafe { libc::syscall(libc::SYS_perf_event_open, address, pid, cpu, -1, CLOSE_ON_EXEC) };
    let descriptor = Errno::result(result)? as i32;
    // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes a perf event count.
pub(crate) fn enable_event(event: BorrowedFd<'_>) -> Result<(), Errno> {
    const ENABLE: libc::Ioctl = 0x2400;
    // SAFETY: this request takes a number, and no address.
    Errno::result(unsafe { libc::ioctl(event.as_raw_fd(), ENABLE, 0) }).map(drop)
}

/// The number in a file of sysfs or tracefs.
pub(crate) fn read_number(path: &str) -> Result<u32, Errno> {
    let text = read_file(path)?;
    let text = String::from_utf8_lossy(&text);
    text.trim().parse().map_err(|_| Errno::EINVAL)
}

/// The bytes of a file.
pub(crate) fn read_file(path: &str) -> Result<Vec<u8>, Errno> {
    let read = || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut File::open(path)?, &mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// The address of a slice's first byte, as the kernel's structures have it: 0 if it is empty.
pub(crate) fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_ptr() as u64 }
}

/// The address of a slice's first byte, for the kernel to write to.
pub(crate) fn address_mut<T>(slice: &mut [T]) -> u64 {
    slice.as_mut_ptr() as u64
}

/// A descriptor as the kernel's structures have it.
pub(crate) fn number(descriptor: &impl AsRawFd) -> u32 {
    descriptor.as_raw_fd() as u32
}

/// A name as the kernel keeps it: up to 15 letters, digits, `_` and `.`, then zero.
pub(crate) fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let allowed = name.bytes().filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
    for (to, from) in bytes.iter_mut().take(15).zip(allowed) {
        *to = from;
    }
    bytes
}
