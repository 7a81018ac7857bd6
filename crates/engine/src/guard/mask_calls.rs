//! Finds the system calls of a libc that block all signals for a moment.
//!
//! ```text
//!     xor   edi, edi                  how: SIG_BLOCK
//!     lea   rsi, [rip+...]            a set that is a constant:     every signal
//!     mov   eax, 14                   rt_sigprocmask
//!     syscall                         here
//! ```
//!
//! Or the set is a number that the code has just stored where rsi points
//! (`movabs rax, ...; mov [rbx+2288], rax; lea rsi, [rbx+2288]`). The arguments must be determined
//! by the straight-line code before the call, into which no branch leads: then they are the same
//! each time. Signal sets of the *program* are not found: the libc gets a pointer to them, and
//! removes its own signals.
//!
//! Such a call becomes a site of the engine. Its slot lends the call another set, without SIGTRAP
//! ([`patch::SubstitutedArgument`]). So a thread never blocks SIGTRAP there, and a trap meanwhile
//! is handled as any other, with or without a tracer.

use std::rc::Rc;
use std::sync::Arc;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register,
};
use image::{Image, Machine};
use patch::{Argument, SubstitutedArgument};

use super::mask;
use crate::loader;
use crate::signal::SIGTRAP_BIT;

/// The bytes of `mov eax,14`: the number of rt_sigprocmask.
const MOV_EAX_14: [u8; 5] = [0xb8, 14, 0, 0, 0];
/// Bytes of code before a call that are searched for its arguments.
const BEFORE: u64 = 80;
/// The number of rsi, and those of the registers that a system call changes.
const RSI: u8 = 6;
const CHANGED: [u8; 3] = [0, 1, 11];

/// A system call that blocks all signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskCall {
    /// The address of the `syscall`, in the file's own numbering.
    pub(crate) vaddr: u64,
    /// The signal set it blocks.
    pub(crate) set: u64,
    /// Where the set is, in the file's own numbering.
    pub(crate) argument: Argument,
}

impl MaskCall {
    /// The set lent to it in a module with this load bias.
    pub(crate) fn lent(&self, bias: u64) -> SubstitutedArgument {
        let argument = match self.argument {
            Argument::Address(vaddr) => Argument::Address(vaddr.wrapping_add(bias)),
            sum @ Argument::Sum { .. } => sum,
        };
        SubstitutedArgument { bytes: self.set & !SIGTRAP_BIT, argument }
    }
}

/// The calls found in each file.
#[derive(Debug, Default)]
pub(crate) struct MaskCalls {
    known: Vec<(Arc<Image>, Rc<[MaskCall]>)>,
}

impl MaskCalls {
    /// The number of files kept.
    const KEPT: usize = 64;

    /// The calls in a file.
    pub(crate) fn of(&mut self, image: &Arc<Image>) -> Rc<[MaskCall]> {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| Arc::ptr_eq(known, image)) {
            return Rc::clone(known);
        }
        let found: Rc<[MaskCall]> = find(image).into();
        if self.known.len() >= MaskCalls::KEPT {
            self.known.clear();
        }
        self.known.push((Arc::clone(image), Rc::clone(&found)));
        found
    }
}

/// Finds the calls in a file.
fn find(image: &Image) -> Vec<MaskCall> {
    if image.machine() != Machine::X86_64 {
        return Vec::new();
    }
    let segments = image.segments().iter().filter(|segment| segment.executable);
    let texts: Vec<(u64, Vec<u8>)> = segments
        .filter_map(|segment| Some((segment.vaddr, image.text(segment.vaddr, segment.file_size as usize)?)))
        .collect();
    let mut lines = Vec::new();
    for (start, text) in &texts {
        for at in (0..text.len()).filter(|&at| text[at..].starts_with(&MOV_EAX_14)) {
            let next = loader::after_syscall(64, &text[at..], start + at as u64);
            let call = next
                .map(|next| (next - 2 - start) as usize)
                .filter(|&call| text[call..].starts_with(&[0x0f, 0x05]));
            lines.extend(call.and_then(|call| Line::before(image, *start, text, call)));
        }
    }
    for line in &mut lines {
        if let Some(function) = image.function_at(line.call) {
            line.begins_at(function.vaddr);
        }
    }
    for (start, text) in &texts {
        each_target(*start, text, |target| {
            for line in lines.iter_mut().filter(|line| line.call >= target) {
                line.begins_at(target);
            }
        });
    }
    lines.iter().filter_map(|line| line.block(image)).collect()
}

/// A straight line of instructions before a `syscall`.
struct Line {
    instructions: Vec<Instruction>,
    /// The address of the `syscall`, which is not part of the line.
    call: u64,
}

impl Line {
    /// The longest line before a call at `call`; `None` if instruction boundaries are unknown
    /// there.
    fn before(image: &Image, start: u64, text: &[u8], call: usize) -> Option<Line> {
        let first = call.saturating_sub(BEFORE as usize);
        (first..call).find_map(|from| {
            let line = Line::of(&text[from..call], start + from as u64)?;
            image.check_boundary(start + from as u64).ok()?;
            Some(line)
        })
    }

    /// The instructions of some code, if it is a straight line.
    fn of(code: &[u8], address: u64) -> Option<Line> {
        let mut instructions = Vec::new();
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
                return None;
            }
            instructions.push(instruction);
        }
        Some(Line { instructions, call: address + code.len() as u64 })
    }

    /// Control may reach an address: instructions before it say nothing.
    fn begins_at(&mut self, address: u64) {
        if self.instructions.first().is_some_and(|first| first.ip() < address) {
            self.instructions.retain(|instruction| instruction.ip() >= address);
        }
    }

    /// The call, if it blocks all signals.
    fn block(&self, image: &Image) -> Option<MaskCall> {
        const RAX: usize = 0;
        const RDI: usize = 7;
        let mut known = Known::default();
        let mut information = InstructionInfoFactory::new();
        self.instructions.iter().for_each(|instruction| known.follow(instruction, &mut information));
        let Value::Argument(argument) = known.registers[usize::from(RSI)] else { return None };
        let set = match argument {
            Argument::Address(vaddr) => image.constant(vaddr)?,
            Argument::Sum { .. } => known.stored.filter(|(place, _)| *place == argument)?.1,
        };
        let blocks = [libc::SIG_BLOCK, libc::SIG_SETMASK].map(|how| Value::Number(how as u64));
        let asks = known.registers[RAX] == Value::Number(libc::SYS_rt_sigprocmask as u64)
            && blocks.contains(&known.registers[RDI])
            && mask::is_of_a_libc(set);
        asks.then_some(MaskCall { vaddr: self.call, set, argument })
    }
}

/// The known value of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Unknown,
    Number(u64),
    Argument(Argument),
}

/// The known state of a thread.
#[derive(Default)]
struct Known {
    registers: [Value; 16],
    /// The number that was stored last, and its place.
    stored: Option<(Argument, u64)>,
}

impl Known {
    fn follow(&mut self, instruction: &Instruction, information: &mut InstructionInfoFactory) {
        let written = self.written(instruction);
        let stores = self.stores(instruction);
        let used = information.info(instruction);
        let writes = |access| {
            !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
        };
        if used.used_memory().iter().any(|used| writes(used.access())) {
            self.stored = stores;
        }
        for used in used.used_registers().iter().filter(|used| writes(used.access())) {
            if let Some(number) = number(used.register()) {
                self.forget(number);
            }
        }
        if let Some((register, value)) = written {
            self.registers[usize::from(register)] = value;
        }
    }

    /// A register was changed: forgets what depends on it.
    fn forget(&mut self, register: u8) {
        self.registers[usize::from(register)] = Value::Unknown;
        let rests = |argument: &Argument| matches!(argument, Argument::Sum { register: base, .. } if *base == register);
        for value in &mut self.registers {
            if matches!(value, Value::Argument(argument) if rests(argument)) {
                *value = Value::Unknown;
            }
        }
        self.stored = self.stored.filter(|(place, _)| !rests(place));
    }

    /// The register that an instruction sets and its value, if known.
    fn written(&self, instruction: &Instruction) -> Option<(u8, Value)> {
        let register =
            (instruction.op0_kind() == OpKind::Register).then(|| number(instruction.op0_register()))??;
        let value = match instruction.code() {
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
                if instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register() =>
            {
                Value::Number(0)
            }
            Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 => {
                Value::Number(instruction.immediate(1))
            }
            Code::Mov_rm32_imm32 => Value::Number(instruction.immediate(1) & 0xffff_ffff),
            // A `lea` of a register from itself is unknown: its base is overwritten.
            Code::Lea_r64_m => Value::Argument(memory_argument(instruction).filter(
                |place| !matches!(place, Argument::Sum { register: base, .. } if *base == register),
            )?),
            _ => return None,
        };
        Some((register, value))
    }

    /// The number that an instruction stores and its place, if known.
    fn stores(&self, instruction: &Instruction) -> Option<(Argument, u64)> {
        if instruction.op0_kind() != OpKind::Memory {
            return None;
        }
        let number = match instruction.code() {
            Code::Mov_rm64_r64 => match self.registers[usize::from(number(instruction.op1_register())?)] {
                Value::Number(number) => number,
                _ => return None,
            },
            Code::Mov_rm64_imm32 => instruction.immediate(1),
            _ => return None,
        };
        Some((memory_argument(instruction)?, number))
    }
}

/// The number of a general register, of 64 bits or a part of it.
fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    (register.is_gpr() && full.is_gpr64()).then(|| full.number() as u8)
}

/// The place in memory of an operand, if a slot can address it too.
fn memory_argument(instruction: &Instruction) -> Option<Argument> {
    if instruction.segment_prefix() != Register::None || instruction.memory_index() != Register::None {
        return None;
    }
    if instruction.is_ip_rel_memory_operand() {
        let is_wide = instruction.memory_base() == Register::RIP;
        return is_wide.then(|| Argument::Address(instruction.ip_rel_memory_address()));
    }
    let base = instruction.memory_base();
    let register =
        number(base).filter(|register| base.is_gpr64() && *register != RSI && !CHANGED.contains(register))?;
    let displacement = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
    Some(Argument::Sum { register, displacement })
}

/// Calls `show` with the target of everything that could be a branch, at any byte of the code.
fn each_target(start: u64, text: &[u8], mut show: impl FnMut(u64)) {
    for at in 0..text.len() {
        let (length, field) = match text[at..] {
            // call, jmp
            [0xe8 | 0xe9, a, b, c, d, ..] => (5, i32::from_le_bytes([a, b, c, d])),
            // jcc
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => (6, i32::from_le_bytes([a, b, c, d])),
            // jmp, jcc; loop and jrcxz
            [0xeb | 0x70..=0x7f | 0xe0..=0xe3, a, ..] => (2, i32::from(a.cast_signed())),
            _ => continue,
        };
        show((start + at as u64 + length).wrapping_add_signed(field.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `xor edi,edi`, `movabs rax,0xfffffffeffffffff`, `mov [rbx+0x8f0],rax`,
    /// `lea rsi,[rbx+0x8f0]`, `mov eax,14`: glibc at the end of a thread.
    const END: [&[u8]; 5] = [
        &[0x31, 0xff],
        &[0x48, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff],
        &[0x48, 0x89, 0x83, 0xf0, 0x08, 0, 0],
        &[0x48, 0x8d, 0xb3, 0xf0, 0x08, 0, 0],
        &MOV_EAX_14,
    ];

    fn libc() -> Arc<Image> {
        let modules = process::modules(std::process::id() as i32, &mut process::ImageCache::new());
        let modules = modules.expect("the own modules");
        let libc = modules.iter().find(|module| module.path.ends_with("libc.so.6")).expect("a libc");
        Arc::clone(&libc.image)
    }

    fn asks(code: &[&[u8]]) -> Option<MaskCall> {
        Line::of(&code.concat(), 0x1000).and_then(|line| line.block(&libc()))
    }

    #[test]
    fn what_a_thread_blocks_at_its_end_is_seen() {
        let argument = Argument::Sum { register: 3, displacement: 0x8f0 };
        let vaddr = 0x1000 + END.concat().len() as u64;
        let block = MaskCall { vaddr, set: 0xffff_fffe_ffff_ffff, argument };
        assert_eq!(asks(&END), Some(block));
        assert_eq!(block.lent(7), SubstitutedArgument { bytes: 0xffff_fffe_ffff_ffef, argument });
    }

    #[test]
    fn what_is_not_seen_whole_is_nothing() {
        let with = |place: usize, bytes: &'static [u8]| {
            let mut code = END.to_vec();
            code.insert(place, bytes);
            asks(&code)
        };
        // A `nop` changes nothing, anywhere.
        assert!((0..=5).all(|place| with(place, &[0x90]).is_some()));
        // `mov edi,1`: the set is unblocked. `mov edi,ebx`: unknown.
        assert_eq!((with(1, &[0xbf, 1, 0, 0, 0]), with(1, &[0x89, 0xdf])), (None, None));
        // `inc rbx`: the set is elsewhere. `mov [rsp],ecx`: the set may have changed.
        assert_eq!((with(3, &[0x48, 0xff, 0xc3]), with(3, &[0x89, 0x0c, 0x24])), (None, None));
        // `inc al`: another set; another call.
        assert_eq!((with(2, &[0xfe, 0xc0]), with(5, &[0xfe, 0xc0])), (None, None));
        // `mov rsi,rbx`: another pointer. `je`: there is another way.
        assert_eq!((with(4, &[0x48, 0x89, 0xde]), with(4, &[0x74, 0])), (None, None));
        // Each instruction is needed.
        for missing in 0..END.len() {
            let mut code = END.to_vec();
            code.remove(missing);
            assert_eq!(asks(&code), None, "{missing}");
        }
    }

    #[test]
    fn a_branch_into_the_line_hides_what_is_before() {
        let line = || Line::of(&END.concat(), 0x1000).expect("a straight line");
        for (at, seen) in [(0, true), (2, false), (12, false), (29, false)] {
            let mut line = line();
            line.begins_at(0x1000 + at);
            assert_eq!(line.block(&libc()).is_some(), seen, "{at}");
        }
        // `jmp`, `je`, and both with 32 bits; backwards, too.
        let code = [0xeb, 0x10, 0x74, 0xfe, 0xe9, 0, 1, 0, 0, 0x0f, 0x84, 0xf1, 0xff, 0xff, 0xff];
        let mut targets = Vec::new();
        each_target(0x1000, &code, |target| targets.push(target));
        assert!([0x1012, 0x1002, 0x1109, 0x1000].iter().all(|target| targets.contains(target)));
    }

    #[test]
    fn a_libc_has_such_calls() {
        let image = libc();
        let blocks = find(&image);
        assert!(blocks.len() >= 2, "{blocks:x?}");
        for block in blocks {
            assert_eq!(image.text(block.vaddr, 2).as_deref(), Some(&[0x0f, 0x05][..]));
            assert!(mask::is_of_a_libc(block.set), "{block:x?}");
        }
    }
}
