//! Runs handlers on a stopped thread: implements [`vm::Machine`] for it.

use std::sync::atomic::{AtomicBool, Ordering};

use layout::PAGE;
use process::{FloatRegisters, Registers, Stopped};
use vm::{Clock, Fault, Machine, Register, RegisterSet, RunAccess, Shape};

use crate::observer::{Callk, Observer};
use crate::seen::Seen;
use crate::space::Space;
use crate::tables::Tables;
use crate::tracked::Identity;

/// The thread that hit a probe: its registers before the probed instruction, and its memory.
pub(crate) struct HitMachine<'a> {
    pub(crate) thread: &'a Stopped,
    pub(crate) registers: &'a mut Registers,
    pub(crate) identity: &'a mut Identity,
    /// Its address space.
    space: Option<&'a Space>,
    /// The floating-point and SSE registers, read when a handler first asks for one. Handlers
    /// cannot change them.
    float: Option<FloatRegisters>,
    /// Whether the session is to end.
    stop: &'a AtomicBool,
    /// The maps of its program.
    tables: Option<&'a Tables>,
    /// What the function is to return instead of being run.
    pub(crate) overridden: Option<u64>,
    /// The recipient of `callk`, and the probe. `None` during the call.
    caller: Option<Caller<'a>>,
}

/// The probe whose handler runs, and the recipient of its `callk`.
pub(crate) struct Caller<'a> {
    pub(crate) observer: &'a mut dyn Observer,
    /// The program's number.
    pub(crate) program: usize,
    pub(crate) codes: (u32, u32),
    pub(crate) module: &'a str,
}

impl<'a> HitMachine<'a> {
    pub(crate) fn new(
        thread: &'a Stopped,
        registers: &'a mut Registers,
        identity: &'a mut Identity,
        space: Option<&'a Space>,
        caller: Caller<'a>,
        stop: &'a AtomicBool,
    ) -> HitMachine<'a> {
        HitMachine {
            thread,
            registers,
            identity,
            space,
            float: None,
            stop,
            tables: None,
            overridden: None,
            caller: Some(caller),
        }
    }

    /// The same with the maps of the program.
    pub(crate) fn with_tables(self, tables: Option<&'a Tables>) -> HitMachine<'a> {
        HitMachine { tables, ..self }
    }

    /// The memory, as a handler sees it.
    fn seen(&self) -> Seen<'_> {
        Seen { tid: self.identity.tid, space: self.space, rsp: self.registers.rsp() }
    }

    /// The floating-point and SSE registers; `None` if the thread has been killed.
    fn float(&mut self) -> Option<&FloatRegisters> {
        if self.float.is_none() {
            self.float = self.thread.float_registers().ok();
        }
        self.float.as_ref()
    }
}

/// Whether a segment register accepts a selector: 0, a flat user segment, or a thread-local segment
/// of the GDT. Selectors of an LDT are refused, since the tracer cannot inspect an LDT.
fn can_be_loaded(thread: &Stopped, selector: u16) -> bool {
    match (selector & 7, selector >> 3) {
        (0, 0) => true,
        (3, 4..=6) => true,
        (3, 12..=14) => thread.segment_base(selector).is_some(),
        _ => false,
    }
}

/// The index in [`Registers::general`] of each register, by its DWARF number.
const DWARF: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

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

impl Machine for HitMachine<'_> {
    fn register(&mut self, register: Register) -> u64 {
        if let Some(place) = general(register) {
            return self.registers.general()[place];
        }
        let registers = &self.registers;
        match register {
            Register::Cs => registers.cs(),
            Register::Ds => registers.ds(),
            Register::Es => registers.es(),
            Register::Fs => registers.fs(),
            Register::Gs => registers.gs(),
            Register::Ss => registers.ss(),
            Register::Rip | Register::Eip => registers.rip(),
            Register::Rflags | Register::Eflags => registers.rflags(),
            Register::FsBase => registers.fs_base(),
            Register::GsBase => registers.gs_base(),
            _ => unreachable!("every register is either general or named above"),
        }
    }

    fn accepts(&mut self, register: Register, value: u64) -> bool {
        let is_segment = matches!(register, Register::Ds | Register::Es | Register::Fs | Register::Gs);
        !is_segment || u16::try_from(value).is_ok_and(|selector| can_be_loaded(self.thread, selector))
    }

    fn set_register(&mut self, register: Register, value: u64) {
        if let Some(place) = general(register) {
            let mut values = self.registers.general();
            values[place] = value;
            self.registers.set_general(&values);
            return;
        }
        match register {
            Register::Ds => self.registers.set_ds(value),
            Register::Es => self.registers.set_es(value),
            Register::Fs => self.registers.set_fs(value),
            Register::Gs => self.registers.set_gs(value),
            // The assembler lets no other register be popped, and the interpreter checks it.
            _ => {}
        }
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.seen().read(address, into).map_err(|address| Fault { address })
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.seen().write(address, from).map_err(|address| Fault { address })
    }

    fn is_over(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        self.seen().verify(address, write)
    }

    fn pid(&mut self) -> u64 {
        self.identity.pid as u64
    }

    fn processor(&mut self) -> u64 {
        u64::from(self.identity.processor())
    }

    fn wide_register(&mut self, register: Register) -> Option<u128> {
        let (code, data) = (self.registers.cs(), self.registers.ds());
        let float = self.float()?;
        let numbered = |first: Register| usize::from(register as u16 - first as u16);
        Some(match register {
            Register::Fcw => float.control().into(),
            Register::Fsw => float.status().into(),
            Register::Ftw => float.tags().into(),
            Register::Fip => float.instruction().into(),
            Register::Fdp => float.operand().into(),
            // A 64-bit kernel does not save these two. Like the kernel does for i386, the thread's
            // cs and ds are used.
            Register::Fcs => code.into(),
            Register::Fds => data.into(),
            Register::Mxcsr => float.mxcsr().into(),
            _ if register.shape() == Shape::Float => float.stack(numbered(Register::Fr0)),
            _ if register.shape() == Shape::Vector => match register.set() {
                RegisterSet::Both => float.vector(numbered(Register::Xmm0)),
                RegisterSet::Long => float.vector(8 + numbered(Register::Xmm8)),
            },
            // The rest belong to the kernel.
            _ => return None,
        })
    }

    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        let answer = std::arch::x86_64::__cpuid(leaf);
        Some([answer.eax, answer.ebx, answer.ecx, answer.edx])
    }

    fn call_registered(&mut self, run: &mut dyn RunAccess) -> bool {
        let Some(caller) = self.caller.take() else { return false };
        caller.observer.called(&mut Callk {
            program: caller.program,
            pid: self.identity.pid,
            tid: self.identity.tid,
            codes: caller.codes,
            module: caller.module,
            address: self.registers.rip(),
            machine: self,
            run,
        });
        self.caller = Some(caller);
        true
    }

    fn thread(&mut self) -> Option<u64> {
        Some(self.identity.tid as u64)
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        let tables = self.tables?;
        Some(tables.time(clock))
    }

    fn random(&mut self) -> Option<u32> {
        use std::hash::{BuildHasher, RandomState};
        Some(RandomState::new().hash_one(self.identity.tid) as u32)
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        let status = process::Status::read(self.identity.tid).ok()?;
        Some((status.uid, status.gid))
    }

    fn parent(&mut self) -> Option<u32> {
        let status = process::Status::read(self.identity.tid).ok()?;
        u32::try_from(status.parent).ok()
    }

    fn signal(&mut self, number: u64, to_thread: bool) -> bool {
        let (pid, tid) = (self.identity.pid, self.identity.tid);
        if let Some(number) = i32::try_from(number).ok().filter(|number| (1..=64).contains(number)) {
            // SAFETY: it takes numbers only. The thread is stopped, so neither it nor its process
            // can have become another one.
            unsafe {
                match to_thread {
                    true => libc::syscall(libc::SYS_tgkill, pid, tid, number),
                    false => libc::kill(pid, number).into(),
                };
            }
        }
        true
    }

    fn override_function(&mut self, result: u64) -> bool {
        self.overridden = Some(result);
        !self.registers.is_32_bit()
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        crate::tables::name_of(self.identity.tid)
    }

    fn stack(&mut self, frames: &mut [u64]) -> Option<usize> {
        let general = self.registers.general();
        let [rsp, rbp] = [4, 5].map(|number| general[number]);
        let all = DWARF.map(|number| general[number]);
        let registers = unwind::Registers { rip: self.registers.rip(), rsp, rbp, all: Some(&all) };
        let seen = self.seen();
        let read = |address| {
            let mut bytes = [0; 8];
            seen.read(address, &mut bytes).ok().map(|()| u64::from_le_bytes(bytes))
        };
        Some(match self.space.map(|space| &space.shared.unwinding).filter(|unwinding| unwinding.any()) {
            Some(unwinding) => unwinding.walk(&registers, read, frames),
            None => unwind::walk_frame_pointers(&registers, read, frames),
        })
    }

    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.thread.segment_base(selector).map(|base| base.wrapping_add(offset))
    }
}

/// The memory of a stopped thread, for an emulated instruction.
pub(crate) struct ThreadMemory {
    pub(crate) tid: i32,
}

impl patch::Memory for ThreadMemory {
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        process::read(self.tid, address, into).is_ok()
    }

    fn write(&mut self, address: u64, from: &[u8]) -> bool {
        let end = address.wrapping_add((from.len() as u64).saturating_sub(1));
        if address / PAGE != end / PAGE {
            // All or nothing: the second page must be accessible before bytes on the first are
            // written.
            let mut bytes = [0; 16];
            let Some(old) = bytes.get_mut(..from.len()) else { return false };
            if process::read(self.tid, address, old).is_err() {
                return false;
            }
            return match process::write(self.tid, address, from) {
                Ok(()) => true,
                Err(count) => {
                    let _ = process::write(self.tid, address, &old[..count]);
                    false
                }
            };
        }
        process::write(self.tid, address, from).is_ok()
    }
}

/// Whether the thread's segments start at 0, as the emulation assumes. In 64-bit code they do. In
/// 32-bit code they do as Linux sets them up, but a program may define others (`modify_ldt`).
pub(crate) fn has_flat_segments(registers: &Registers) -> bool {
    /// The selector of the data and stack segment of 32-bit code.
    const DATA: u64 = 0x2b;
    !registers.is_32_bit() || [registers.ds(), registers.es(), registers.ss()] == [DATA; 3]
}
