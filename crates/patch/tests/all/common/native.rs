//! Runs code on this processor with given registers and memory, and returns the resulting state.
//!
//! 32-bit code is entered and left by far jumps, in the same process; it can only reach addresses
//! below 4 GiB.
//!
//! The code, its slots and its data are at fixed addresses below 2 GiB, so that every kind of
//! address (relative to rip or eip, absolute, 32 bits wide) can name them:
//!
//! ```text
//!   0x0800_0000  a slot below the site, and the way back from 32-bit code
//!   0x2000_0000  code: the site, and around it the pads: wherever the instruction can lead, the thread lands on one
//!   0x2100_0000  data: operands, and the stack
//!   0x2102_0000  the number of the pad that was reached
//!   0x6000_0000  a slot above the site
//! ```

mod faults;

use std::arch::global_asm;
use std::ptr::addr_of_mut;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use dprobes_patch::{Memory, Mode, Registers};
use faults::{FIRST, STEPPING, Stepping, TRAP_FLAG, fault_address, prepare_signals};

pub const SLOT_BELOW: u64 = 0x0800_0000;
pub const CODE: u64 = 0x2000_0000;
pub const SITE: u64 = CODE + 0x1000;
pub const DATA: u64 = 0x2100_0000;
pub const DATA_LENGTH: usize = 0x4000;
/// Where 32-bit code switches back to 64-bit code.
const EXIT: u64 = SLOT_BELOW + 0x800;
const REACHED: u64 = 0x2102_0000;
pub const SLOT_ABOVE: u64 = 0x6000_0000;
/// The initial rsp.
pub const STACK: u64 = DATA + 0x3000;
/// The address of operands.
pub const OPERAND: u64 = DATA + 0x1000;
/// Targets of branches: forward and backward within 8 bits, and farther.
pub const FORWARD: u64 = SITE + 0x60;
pub const BACKWARD: u64 = SITE - 0x60;
pub const FAR: u64 = CODE + 0x2800;
/// Where a slot continues that does not continue at the next instruction.
pub const ELSEWHERE: u64 = CODE + 0x3800;
/// An address that is never mapped here.
pub const NOWHERE: u64 = 0x2200_0000;

const PAGES: [(u64, usize, i32); 5] = [
    (SLOT_BELOW, 0x1000, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
    (CODE, 0x4000, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
    (DATA, DATA_LENGTH, libc::PROT_READ | libc::PROT_WRITE),
    (REACHED, 0x1000, libc::PROT_READ | libc::PROT_WRITE),
    (SLOT_ABOVE, 0x1000, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
];

/// The size of the part of the state that `xsave` stores: x87, vector and mask registers.
const EXTENDED: usize = 2688;
/// Those components' bits; the rest (protection keys, tiles) is left alone.
const COMPONENTS: u64 = 0xe7;

/// The state that the assembly below loads before the code and stores after it, using these
/// offsets.
#[repr(C, align(64))]
struct Frame {
    gpr: [u64; 16],       // 0
    rflags: u64,          // 128
    entry: u64,           // 136
    host_stack: u64,      // 144
    far: u64,             // 152: 32 bits of address and a segment, for a far jump
    padding: [u64; 4],    // 160
    extended: [u8; 4096], // 192
    host: [u8; 4096],     // 4288
}

static mut FRAME: Frame = Frame {
    gpr: [0; 16],
    rflags: 0,
    entry: 0,
    host_stack: 0,
    far: 0,
    padding: [0; 4],
    extended: [0; 4096],
    host: [0; 4096],
};

/// The state at a fault, noted by the handler.
static mut FAULT: Option<Fault> = None;

global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".globl patch_test_enter, patch_test_far, patch_test_leave, patch_test_recover",
    "patch_test_enter:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "pushfq",
    "mov [rip + {frame} + 144], rsp",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave64 [rip + {frame} + 4288]",
    "xrstor64 [rip + {frame} + 192]",
    "lea rsp, [rip + {frame} + 128]",
    "popfq",
    "mov rax, [rip + {frame} + 0]",
    "mov rcx, [rip + {frame} + 8]",
    "mov rdx, [rip + {frame} + 16]",
    "mov rbx, [rip + {frame} + 24]",
    "mov rsp, [rip + {frame} + 32]",
    "mov rbp, [rip + {frame} + 40]",
    "mov rsi, [rip + {frame} + 48]",
    "mov rdi, [rip + {frame} + 56]",
    "mov r8, [rip + {frame} + 64]",
    "mov r9, [rip + {frame} + 72]",
    "mov r10, [rip + {frame} + 80]",
    "mov r11, [rip + {frame} + 88]",
    "mov r12, [rip + {frame} + 96]",
    "mov r13, [rip + {frame} + 104]",
    "mov r14, [rip + {frame} + 112]",
    "mov r15, [rip + {frame} + 120]",
    "jmp [rip + {frame} + 136]",
    "patch_test_far:",
    "jmp fword ptr [rip + {frame} + 152]",
    "patch_test_leave:",
    "mov [rip + {frame} + 0], rax",
    "mov [rip + {frame} + 8], rcx",
    "mov [rip + {frame} + 16], rdx",
    "mov [rip + {frame} + 24], rbx",
    "mov [rip + {frame} + 32], rsp",
    "mov [rip + {frame} + 40], rbp",
    "mov [rip + {frame} + 48], rsi",
    "mov [rip + {frame} + 56], rdi",
    "mov [rip + {frame} + 64], r8",
    "mov [rip + {frame} + 72], r9",
    "mov [rip + {frame} + 80], r10",
    "mov [rip + {frame} + 88], r11",
    "mov [rip + {frame} + 96], r12",
    "mov [rip + {frame} + 104], r13",
    "mov [rip + {frame} + 112], r14",
    "mov [rip + {frame} + 120], r15",
    "lea rsp, [rip + {frame} + 136]",
    "pushfq",
    "patch_test_recover:",
    "mov rsp, [rip + {frame} + 144]",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave64 [rip + {frame} + 192]",
    "xrstor64 [rip + {frame} + 4288]",
    "popfq",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
    frame = sym FRAME,
);

unsafe extern "C" {
    fn patch_test_enter();
    fn patch_test_far();
    fn patch_test_leave();
    fn patch_test_recover();
}

/// The state before an instruction.
#[derive(Clone)]
pub struct Start {
    pub registers: Registers,
    /// The x87 and vector registers, as `xsave` lays them out.
    pub extended: Vec<u8>,
    /// The bytes at [`DATA`].
    pub data: Vec<u8>,
}

/// A signal that the code raised instead of reaching a pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub signal: i32,
    pub code: i32,
    pub address: u64,
    /// The processor's exception and its error code.
    pub trap: i64,
    pub error: i64,
}

/// The state after an instruction: on a pad, or at a fault.
#[derive(Clone, PartialEq, Eq)]
pub struct End {
    /// rip is the address of the pad or of the faulting instruction.
    pub registers: Registers,
    pub fault: Option<Fault>,
    pub extended: Vec<u8>,
    pub data: Vec<u8>,
}

impl End {
    /// The first differences from `other`, for a message.
    pub fn difference(&self, other: &End) -> String {
        let mut lines = Vec::new();
        if self.registers != other.registers {
            lines.push(format!("{:x?}\n  {:x?}", self.registers, other.registers));
        }
        if self.fault != other.fault {
            lines.push(format!("{:x?} {:x?}", self.fault, other.fault));
        }
        for (name, left, right) in
            [("extended", &self.extended, &other.extended), ("data", &self.data, &other.data)]
        {
            for (offset, (a, b)) in left.iter().zip(right).enumerate().filter(|(_, (a, b))| a != b).take(8) {
                lines.push(format!("{name}[{offset:#x}] {a:#x} {b:#x}"));
            }
        }
        lines.join("\n  ")
    }
}

/// The mapped arena. There is one; its owner runs alone.
pub struct Arena {
    /// The mode of the code that it runs.
    pub mode: Mode,
    _guard: MutexGuard<'static, ()>,
    pub fs_base: u64,
    pub gs_base: u64,
}

static LOCK: Mutex<()> = Mutex::new(());

impl Arena {
    pub fn take() -> Arena {
        Arena::take_in(Mode::Bits64)
    }

    pub fn take_in(mode: Mode) -> Arena {
        static ONCE: Once = Once::new();
        let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        ONCE.call_once(map_pages);
        prepare_signals();
        let (mut fs_base, gs_base) = (0_u64, DATA + 0x2000);
        if mode == Mode::Bits32 {
            load_segments(gs_base as u32);
            return Arena { _guard: guard, mode, fs_base, gs_base };
        }
        // SAFETY: the first call writes 8 bytes to the variable it is given; the second sets a
        // register that nothing in a 64-bit program on Linux uses.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_arch_prctl, 0x1003, &raw mut fs_base), 0, "ARCH_GET_FS");
            assert_eq!(libc::syscall(libc::SYS_arch_prctl, 0x1001, gs_base), 0, "ARCH_SET_GS");
        }
        Arena { _guard: guard, mode, fs_base, gs_base }
    }

    /// Writes bytes to the arena.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        assert!(is_inside(address, bytes.len()), "{address:#x}");
        // SAFETY: the range is within the arena's mappings, which are writable and which only the
        // owner of `self` uses.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
    }

    /// Reads bytes from the arena.
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        assert!(is_inside(address, length), "{address:#x}");
        // SAFETY: the range is within the arena's mappings, which are readable and which only the
        // owner of `self` uses.
        unsafe { std::slice::from_raw_parts(address as *const u8, length).to_vec() }
    }

    /// Writes a pad at `address`: notes that it was reached, and ends the run.
    ///
    /// ```text
    ///   c7 05 rel32 imm32      mov dword [rip+reached], number
    ///   ff 25 00 00 00 00      jmp [rip]
    ///   <8 bytes>              the end of the run
    /// ```
    /// In 32-bit code:
    /// ```text
    ///   c7 05 abs32 imm32      mov dword [reached], number
    ///   ea imm32 33 00         jmp 0x33:exit
    /// exit:                    the last two instructions above
    /// ```
    pub fn pad(&mut self, address: u64) {
        let mut leave = vec![0xff, 0x25, 0, 0, 0, 0];
        leave.extend_from_slice(&(patch_test_leave as *const () as u64).to_le_bytes());
        if self.mode == Mode::Bits32 {
            let mut bytes = vec![0xc7, 0x05];
            bytes.extend_from_slice(&(REACHED as u32).to_le_bytes());
            bytes.extend_from_slice(&(address as u32).to_le_bytes());
            bytes.push(0xea);
            bytes.extend_from_slice(&(EXIT as u32).to_le_bytes());
            bytes.extend_from_slice(&[0x33, 0]);
            self.write(EXIT, &leave);
            return self.write(address, &bytes);
        }
        let mut bytes = vec![0xc7, 0x05];
        bytes.extend_from_slice(&((REACHED as i64 - (address as i64 + 10)) as i32).to_le_bytes());
        bytes.extend_from_slice(&(address as u32).to_le_bytes());
        bytes.extend_from_slice(&leave);
        self.write(address, &bytes);
    }

    /// Runs from `start` until a pad or a fault.
    pub fn run(&mut self, start: &Start) -> End {
        self.write(DATA, &start.data);
        self.write(REACHED, &[0; 4]);
        // SAFETY: the lock is held, so nothing else uses the frame. `patch_test_enter` saves and
        // restores what the calling convention requires, and the x87 and vector registers; the code
        // between runs on the arena's memory and returns through a pad or, by the signal handler,
        // through `patch_test_recover`.
        let (gpr, rflags, extended, fault) = unsafe {
            let frame = addr_of_mut!(FRAME);
            (*frame).gpr = start.registers.gpr;
            (*frame).rflags = start.registers.rflags;
            (*frame).entry = match self.mode {
                Mode::Bits64 => start.registers.rip,
                Mode::Bits32 => patch_test_far as *const () as u64,
            };
            (*frame).far = start.registers.rip & 0xffff_ffff | 0x23 << 32;
            FIRST = start.registers.rip;
            (&mut (*frame).extended)[..EXTENDED].copy_from_slice(&start.extended);
            *addr_of_mut!(FAULT) = None;
            patch_test_enter();
            let mut extended = (&(*frame).extended)[..EXTENDED].to_vec();
            forget_unstable(&mut extended);
            ((*frame).gpr, (*frame).rflags, extended, *addr_of_mut!(FAULT))
        };
        let mut rip = [0; 4];
        rip.copy_from_slice(&self.read(REACHED, 4));
        let rip = if fault.is_some() { fault_address() } else { u32::from_le_bytes(rip).into() };
        let mut gpr = gpr;
        if self.mode == Mode::Bits32 {
            // The upper halves, and the registers of 64-bit code, do not matter.
            for (value, before) in gpr.iter_mut().zip(&start.registers.gpr).skip(8) {
                *value = *before;
            }
            gpr.iter_mut().take(8).for_each(|value| *value &= 0xffff_ffff);
        }
        let registers = Registers {
            gpr,
            rip,
            // The resume flag is set by the processor when it takes a fault.
            rflags: rflags & !(1 << 16),
            fs_base: start.registers.fs_base,
            gs_base: start.registers.gs_base,
        };
        End { registers, fault, extended, data: self.read(DATA, DATA_LENGTH) }
    }
}

impl Arena {
    /// Executes one instruction at `start`'s rip with the trap flag set; afterwards rip is where it
    /// led, and the trap flag is as before.
    pub fn step(&mut self, start: &Start) -> End {
        let mut traced = start.clone();
        traced.registers.rflags |= TRAP_FLAG;
        // SAFETY: the lock is held; the handler reads it only while code runs, in `run`.
        unsafe { STEPPING = Stepping::Enters };
        let mut end = self.run(&traced);
        // SAFETY: as above.
        unsafe { STEPPING = Stepping::No };
        assert_eq!(end.fault.take().map(|fault| fault.signal), Some(libc::SIGTRAP), "{:x?}", end.registers);
        end.registers.rflags = end.registers.rflags & !TRAP_FLAG | start.registers.rflags & TRAP_FLAG;
        end
    }
}

/// The arena's data, to an emulation.
pub struct DataMemory<'a>(pub &'a mut Vec<u8>);

impl DataMemory<'_> {
    fn range(&self, address: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address.checked_sub(DATA)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.0.len()).then_some(start..end)
    }
}

impl Memory for DataMemory<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        let Some(range) = self.range(address, into.len()) else { return false };
        into.copy_from_slice(&self.0[range]);
        true
    }

    fn write(&mut self, address: u64, from: &[u8]) -> bool {
        let Some(range) = self.range(address, from.len()) else { return false };
        self.0[range].copy_from_slice(from);
        true
    }
}

/// A template for x87 and vector registers: all present, no exceptions enabled.
pub fn extended_image() -> Vec<u8> {
    let mut image = vec![0; EXTENDED];
    image[0..2].copy_from_slice(&0x037f_u16.to_le_bytes());
    image[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    // SAFETY: the instruction only reads a register, and every processor with `xsave` and a system
    // that uses it has it.
    let available = unsafe { std::arch::x86_64::_xgetbv(0) };
    image[512..520].copy_from_slice(&(COMPONENTS & available).to_le_bytes());
    image
}

/// Clears the address of the last x87 instruction, which differs between site and slot, and the
/// part of the image used by the system.
fn forget_unstable(extended: &mut [u8]) {
    extended[8..16].fill(0);
    extended[416..576].fill(0);
}

/// Loads data segments, which only 32-bit code needs; gs begins at `gs_base`.
fn load_segments(gs_base: u32) {
    /// The first of the descriptors that a thread may set (the kernel's GDT_ENTRY_TLS_MIN on
    /// x86-64).
    const DESCRIPTOR: u32 = 12;
    // 32 bits, writable, counted in pages, usable.
    let descriptor: [u32; 4] = [DESCRIPTOR, gs_base, 0xf_ffff, 0x51];
    let mut result = 243_u64;
    // SAFETY: set_thread_area, a 32-bit system call, reads 16 bytes of the arena, which the caller
    // owns, and clears r8 to r11; 64-bit code on Linux does not use ds, es and gs.
    unsafe {
        std::ptr::copy_nonoverlapping(descriptor.as_ptr(), DATA as *mut u32, descriptor.len());
        std::arch::asm!("xchg rbx, {at}", "int 0x80", "xchg rbx, {at}", at = inout(reg) DATA => _,
            inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        assert_eq!(result, 0, "set_thread_area");
        std::arch::asm!("mov ds, {data:x}", "mov es, {data:x}", "mov gs, {thread:x}",
            data = in(reg) 0x2b, thread = in(reg) DESCRIPTOR << 3 | 3);
    }
}

fn is_inside(address: u64, length: usize) -> bool {
    PAGES.iter().any(|(start, size, _)| {
        address >= *start && address.checked_add(length as u64).is_some_and(|end| end <= start + *size as u64)
    })
}

fn map_pages() {
    for (address, length, protection) in PAGES {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: the flags forbid that an existing mapping is replaced.
        let mapped = unsafe { libc::mmap(address as *mut _, length, protection, flags, -1, 0) };
        assert_eq!(mapped as u64, address, "cannot map {address:#x}");
    }
}
