//! What the kernel of this machine can do, found by trying.
//!
//! Nothing is executed by trying: programs are loaded and closed, links are asked for places that
//! do not exist, and what must really be attached is attached to `bpf_fentry_test1`, which the
//! kernel calls only in tests of its own.

use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;

use crate::assembler::Assembler;
use crate::btf::kernel_function;
use crate::helper::Helper;
use crate::insn::{Insn, Reg, Size};
use crate::kprobe::{KernelPlace, Kprobe, attach_tracing};
use crate::link::AttachError;
use crate::map::{Map, MapSpec};
use crate::program::{Program, ProgramKind, ProgramSpec};
use crate::uprobe::UprobeMulti;

/// Something that not every kernel can do, or allows this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Several uprobes by one link: Linux 6.6.
    UprobeMulti,
    /// Such a link can be limited to a process with all of its threads: Linux 6.11.
    UprobeMultiProcess,
    /// Programs at uprobes that may sleep: Linux 6.0.
    SleepableUprobe,
    /// Programs at uprobes that change the process's registers. Linux 6.18 does not have it yet.
    WriteRegisters,
    /// Programs that write the process's memory. Locked-down kernels refuse it. Trying it makes the
    /// kernel write a warning into its log.
    WriteMemory,
    /// Kprobes.
    Kprobe,
    /// Programs at the entry of kernel functions by the function tracer (fentry).
    Fentry,
    /// Ring maps: Linux 5.8.
    RingBuffer,
    /// Loops by a helper: Linux 5.17.
    Loop,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::UprobeMulti,
        Self::UprobeMultiProcess,
        Self::SleepableUprobe,
        Self::WriteRegisters,
        Self::WriteMemory,
        Self::Kprobe,
        Self::Fentry,
        Self::RingBuffer,
        Self::Loop,
    ];

    /// Whether this machine has it. It is tried once.
    pub fn is_available(self) -> bool {
        static FOUND: [OnceLock<bool>; Feature::ALL.len()] = [const { OnceLock::new() }; 9];
        *FOUND[self as usize].get_or_init(|| self.probe())
    }

    fn probe(self) -> bool {
        match self {
            Self::UprobeMulti => uprobe_multi(None) == Some(Errno::EBADF),
            // A kernel without such links answers the same as one that checks the process.
            Self::UprobeMultiProcess => {
                Self::UprobeMulti.is_available() && uprobe_multi(Some(u32::MAX)) == Some(Errno::EINVAL)
            }
            Self::SleepableUprobe => loads(ProgramKind::Uprobe { sleepable: true }, |_| {}),
            Self::WriteRegisters => loads(PLAIN, |assembler| {
                // The register `rax` in `struct pt_regs`.
                assembler.push(Insn::mov(Reg::R2, 0));
                assembler.push(Insn::store(Size::Double, Reg::R1, 80, Reg::R2));
            }),
            Self::WriteMemory => loads(PLAIN, |assembler| {
                assembler.push(Insn::store_imm(Size::Double, Reg::R10, -8, 0));
                assembler.push(Insn::mov(Reg::R1, 0));
                assembler.push(Insn::mov(Reg::R2, Reg::R10));
                assembler.push(Insn::alu64(crate::Alu::Add, Reg::R2, -8));
                assembler.push(Insn::mov(Reg::R3, 8));
                assembler.call(Helper::PROBE_WRITE_USER);
            }),
            Self::Kprobe => {
                let place = KernelPlace::Symbol { name: UNUSED_FUNCTION, offset: 0 };
                let program = load(ProgramKind::Kprobe, |_| {});
                program.is_some_and(|program| Kprobe { place, on_return: false }.attach(&program, 0).is_ok())
            }
            Self::Fentry => {
                let function = kernel_function(UNUSED_FUNCTION).ok().flatten();
                let kind = function.map(|function| ProgramKind::Tracing { function, on_return: false });
                let program = kind.and_then(|kind| load(kind, |_| {}));
                program.is_some_and(|program| attach_tracing(&program, 0).is_ok())
            }
            Self::RingBuffer => Map::create(&MapSpec::ring("probe", 4096)).is_ok(),
            Self::Loop => has_loop(),
        }
    }
}

const PLAIN: ProgramKind = ProgramKind::Uprobe { sleepable: false };

/// A function of the kernel that is only called in its tests.
const UNUSED_FUNCTION: &str = "bpf_fentry_test1";

/// Loads a program that does something and returns 0.
fn load(kind: ProgramKind, body: impl FnOnce(&mut Assembler)) -> Option<Program> {
    let mut assembler = Assembler::new();
    body(&mut assembler);
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    load_finished(kind, assembler)
}

fn load_finished(kind: ProgramKind, assembler: Assembler) -> Option<Program> {
    let code = assembler.finish().expect("the program is complete");
    Program::load(&ProgramSpec { kind, name: "probe", code: &code, maps: &[] }).ok()
}

fn loads(kind: ProgramKind, body: impl FnOnce(&mut Assembler)) -> bool {
    load(kind, body).is_some()
}

/// What the kernel answers to a request for uprobes in a directory. It checks the process first, if
/// it knows what a process is: there is none with the number -1.
fn uprobe_multi(process: Option<u32>) -> Option<Errno> {
    let program = load(ProgramKind::UprobeMulti { sleepable: false }, |_| {})?;
    let (path, offsets, cookies) = (Path::new("/"), &[0], &[0]);
    let request = UprobeMulti { path, offsets, cookies, reference_counters: &[], on_return: false, process };
    request.attach(&program).err().and_then(AttachError::errno)
}

fn has_loop() -> bool {
    let mut assembler = Assembler::new();
    let step = assembler.label();
    assembler.push(Insn::mov(Reg::R1, 1));
    assembler.load_function(Reg::R2, step);
    assembler.push(Insn::mov(Reg::R3, 0));
    assembler.push(Insn::mov(Reg::R4, 0));
    assembler.call(Helper::LOOP);
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    assembler.function(step);
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    load_finished(PLAIN, assembler).is_some()
}
