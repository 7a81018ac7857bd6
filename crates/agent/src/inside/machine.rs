//! The thread that hit a probe, as the interpreter's machine.
//!
//! It behaves like the tracer's own machine (crate `engine`), which accesses the same thread from
//! outside.

use core::sync::atomic::Ordering;

use maps::Maps;
use vm::{Clock, Fault, Machine, Register, RegisterSet, Shape};

use super::float::FloatRegisters;
use super::hidden::Hidden;
use super::stack::Stack;
use super::{guarded, kernel, segment, settings};
use layout::{ClockWords, ProbeEnd, Registers};

/// The thread's registers as compiled code has stored them, and its memory.
pub(super) struct Thread<'a> {
    pub(super) registers: &'a mut Registers,
    /// The program's xmm0 to xmm15.
    pub(super) vectors: &'a [u128; 16],
    /// The memory hidden from the handler.
    pub(super) hidden: Hidden,
    /// The floating-point registers, read when first needed. No handler can change them.
    pub(super) float: Option<FloatRegisters>,
    /// Tells whether the probe is disabled.
    pub(super) over: Option<&'a ProbeEnd>,
    /// How times are computed.
    pub(super) clock: ClockWords<'a>,
    /// The maps.
    pub(super) maps: Maps<'a>,
    /// What its context remembers of stacks.
    pub(super) memos: &'a mut unwind::Memos,
    /// The index of the map of threads.
    pub(super) threads: Option<usize>,
    /// The thread's id; 0: not known.
    pub(super) tid: u32,
}

/// The time stamp counter, or what stands for it where threads may not read it.
pub(super) fn counter() -> u64 {
    let identity = settings::identity();
    match identity.no_rdtsc.load(Ordering::Relaxed) {
        // SAFETY: this thread may read it.
        0 => unsafe { core::arch::x86_64::_rdtsc() },
        _ => identity.time.load(Ordering::Relaxed),
    }
}

/// A number of which each bit depends on all bits of the seed (the finalizer of MurmurHash3).
fn scrambled(seed: u64) -> u32 {
    let mut number = (seed ^ seed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (number ^ number >> 33) as u32
}

/// The index of a register in [`Registers::general`].
fn general(register: Register) -> Option<usize> {
    Some(match register {
        Register::Rax | Register::Eax => 0,
        Register::Rcx | Register::Ecx => 1,
        Register::Rdx | Register::Edx => 2,
        Register::Rbx | Register::Ebx => 3,
        Register::Rsp | Register::Esp => 4,
        Register::Rbp | Register::Ebp => 5,
        Register::Rsi | Register::Esi => 6,
        Register::Rdi | Register::Edi => 7,
        Register::R8 => 8,
        Register::R9 => 9,
        Register::R10 => 10,
        Register::R11 => 11,
        Register::R12 => 12,
        Register::R13 => 13,
        Register::R14 => 14,
        Register::R15 => 15,
        _ => return None,
    })
}

/// The number at a place of what is known of a thread.
fn number_at(known: &[u8; 32], place: usize) -> u32 {
    known[place..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

impl Thread<'_> {
    /// What the tracer has noted of this thread: its name, user and group, and its process's
    /// parent; zeros if nothing.
    fn known(&self) -> [u8; 32] {
        let mut value = [0; 32];
        if let Some(map) = self.threads {
            self.maps.fetch(map, &u64::from(self.tid).to_le_bytes(), &mut value);
        }
        value
    }
}

impl Machine for Thread<'_> {
    fn register(&mut self, register: Register) -> u64 {
        if let Some(place) = general(register) {
            return self.registers.general[place];
        }
        match register {
            Register::Cs => segment::cs(),
            Register::Ds => segment::ds(),
            Register::Es => segment::es(),
            Register::Fs => segment::fs(),
            Register::Gs => segment::gs(),
            Register::Ss => segment::ss(),
            Register::Rip | Register::Eip => self.registers.rip,
            Register::Rflags | Register::Eflags => self.registers.rflags,
            Register::FsBase => segment::fs_base(),
            Register::GsBase => segment::gs_base(),
            // The interpreter asks for no other: every register of this shape is general or named
            // above.
            _ => 0,
        }
    }

    fn accepts(&mut self, register: Register, value: u64) -> bool {
        let is_segment = matches!(register, Register::Ds | Register::Es | Register::Fs | Register::Gs);
        !is_segment || u16::try_from(value).is_ok_and(segment::can_be_loaded)
    }

    fn set_register(&mut self, register: Register, value: u64) {
        if let Some(place) = general(register) {
            self.registers.general[place] = value;
            return;
        }
        match register {
            Register::Ds => segment::set_ds(value as u16),
            Register::Es => segment::set_es(value as u16),
            Register::Fs => segment::set_fs(value as u16),
            Register::Gs => segment::set_gs(value as u16),
            // The assembler allows no other register to be popped, and the interpreter checks that.
            _ => {}
        }
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.hidden.read(address, into, self.registers.general[4]).map_err(|address| Fault { address })
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.hidden.write(address, from, self.registers.general[4]).map_err(|address| Fault { address })
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        self.hidden.verify(address, write, self.registers.general[4])
    }

    fn pid(&mut self) -> u64 {
        settings::process().into()
    }

    fn processor(&mut self) -> u64 {
        (kernel::processor() & layout::PROCESSOR_MASK).into()
    }

    fn wide_register(&mut self, register: Register) -> Option<u128> {
        let numbered = |first: Register| usize::from(register as u16 - first as u16);
        if register.shape() == Shape::Vector {
            let number = match register.set() {
                RegisterSet::Both => numbered(Register::Xmm0),
                RegisterSet::Long => 8 + numbered(Register::Xmm8),
            };
            return self.vectors.get(number).copied();
        }
        let float = self.float.get_or_insert_with(FloatRegisters::now);
        Some(match register {
            Register::Fcw => float.control().into(),
            Register::Fsw => float.status().into(),
            Register::Ftw => float.tags().into(),
            Register::Fip => float.instruction().into(),
            Register::Fdp => float.operand().into(),
            // A 64-bit kernel does not keep these two; as it does for i386, use the thread's
            // segments.
            Register::Fcs => segment::cs().into(),
            Register::Fds => segment::ds().into(),
            Register::Mxcsr => float.mxcsr().into(),
            _ if register.shape() == Shape::Float => float.stack(numbered(Register::Fr0)),
            // The others are available to the kernel only.
            _ => return None,
        })
    }

    fn is_over(&mut self) -> bool {
        self.over.is_some_and(|over| over.removed.load(Ordering::Relaxed) != 0)
    }

    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        guarded::cpuid(leaf)
    }

    fn thread(&mut self) -> Option<u64> {
        Some(self.tid.into())
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        Some(self.clock.time(counter(), clock))
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        let value = self.known();
        Some((number_at(&value, 16), number_at(&value, 20)))
    }

    fn parent(&mut self) -> Option<u32> {
        Some(number_at(&self.known(), 24))
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        self.known().first_chunk().copied()
    }

    fn random(&mut self) -> Option<u32> {
        // Any two threads differ in one of these.
        let seed = counter() ^ u64::from(self.tid) << 40 ^ self.registers.general[4] << 16;
        Some(scrambled(seed))
    }

    fn stack_number(&mut self, maps: &Maps<'_>, map: usize, most: usize) -> Option<u64> {
        let mut stack = Stack { registers: self.registers, hidden: self.hidden, memos: self.memos };
        Some(stack.number(maps, map, most))
    }

    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        segment::base(selector).map(|base| base.wrapping_add(offset))
    }
}
