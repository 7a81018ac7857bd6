//! Finds registers and flags that a handler need not save because the program overwrites them
//! before reading them.
//!
//! Both functions read the code in a straight line from the site on. Only the answer "dead" is a
//! promise. For flags it covers all observers, including a signal handler or core dump after a
//! fault. For registers it covers only what the program computes: an observer at an instruction in
//! between sees what the handler left.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, RflagsBits,
};

use crate::{Mode, harmless};

/// The arithmetic flags: carry, parity, auxiliary, zero, sign, overflow.
const STATUS: u32 =
    RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// The number of instructions to read at most. Flags and registers that live longer are saved.
const HORIZON: usize = 24;

/// Whether the arithmetic flags (CF PF AF ZF SF OF) are dead at the site: each is written before it
/// is read or exposed by a fault, on the straight line of `code`, which begins with the site's
/// instruction. Code that ends early, cannot be decoded or transfers control counts as reading
/// them.
///
/// Accesses near the stack pointer do not fault, since a handler has just written below it; nor do
/// rip-relative accesses, which belong to the module.
///
/// `at_function_entry`: the site is the first instruction of a function called by the System V ABI,
/// in which flags carry nothing across a call or return. There they are dead unless the straight
/// line reads them first.
pub fn flags_are_dead(mode: Mode, code: &[u8], address: u64, at_function_entry: bool) -> bool {
    let mut pending = STATUS;
    let mut has_frame = false;
    for instruction in straight(mode, code, address) {
        if instruction.rflags_read() & pending != 0 || harmless::may_show(&instruction, has_frame) {
            return false;
        }
        has_frame |= instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_register() == Register::RBP
            && instruction.op1_register() == Register::RSP;
        pending &= !overwritten(&instruction);
        if pending == 0 {
            return true;
        }
        match instruction.flow_control() {
            FlowControl::Next => {}
            // A direct jump or call leads to ABI-conforming code too, and calls and returns pass no
            // flags.
            FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Return
            | FlowControl::IndirectBranch
            | FlowControl::UnconditionalBranch => {
                return at_function_entry && instruction.mnemonic() != Mnemonic::Syscall;
            }
            _ => return false,
        }
    }
    false
}

/// The general registers that are dead at the site: written before they are read on the straight
/// line of `code`, which begins with the site's instruction. Bit N is entry N of
/// [`crate::Registers::gpr`]. The stack pointer is never dead.
///
/// The calling convention is not relied on: a compiler that sees both sides of a call departs from
/// it.
pub fn dead_registers(mode: Mode, code: &[u8], address: u64) -> u16 {
    let (mut dead, mut seen) = (0_u16, 1_u16 << 4);
    let mut information = InstructionInfoFactory::new();
    for instruction in straight(mode, code, address) {
        let used = information.info(&instruction);
        let mut written = 0_u16;
        for register in used.used_registers() {
            let full = register.register().full_register();
            if !full.is_gpr() {
                continue;
            }
            let bit = 1_u16 << full.number();
            if register.access() == OpAccess::Write && replaces(mode, register.register()) {
                written |= bit;
            } else {
                seen |= bit;
            }
        }
        dead |= written & !seen;
        seen |= written;
        if seen == u16::MAX || instruction.flow_control() != FlowControl::Next {
            break;
        }
    }
    dead
}

/// The instructions from `address` on, up to the first that cannot be decoded or to [`HORIZON`].
fn straight(mode: Mode, code: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(mode.bits(), code, address, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
        .take_while(|instruction| !instruction.is_invalid())
        .take(HORIZON)
}

/// Whether a write to `register` replaces all of it: in 64-bit code a write to the low 32 bits
/// clears the others.
fn replaces(mode: Mode, register: Register) -> bool {
    register.is_gpr32() || mode == Mode::Bits64 && register.is_gpr64()
}

/// The arithmetic flags that the instruction always writes. Flags that the manuals call undefined
/// count only if every processor writes them.
fn overwritten(instruction: &Instruction) -> u32 {
    use Mnemonic as M;
    let written = instruction.rflags_written() | instruction.rflags_cleared() | instruction.rflags_set();
    match instruction.mnemonic() {
        M::Add | M::Sub | M::Cmp | M::Neg | M::Adc | M::Sbb | M::Xadd | M::Cmpxchg => STATUS,
        M::Inc | M::Dec => STATUS & !RflagsBits::CF,
        // The auxiliary carry is undefined in the manuals; processors clear it.
        M::And | M::Or | M::Xor | M::Test => STATUS,
        // A count of zero changes nothing: only immediate counts are known.
        M::Shl | M::Sal | M::Shr | M::Sar if shifts(instruction) => {
            written & (RflagsBits::CF | RflagsBits::PF | RflagsBits::ZF | RflagsBits::SF)
        }
        M::Clc | M::Stc | M::Cmc => RflagsBits::CF,
        M::Bt | M::Bts | M::Btr | M::Btc => RflagsBits::CF,
        M::Comiss | M::Comisd | M::Ucomiss | M::Ucomisd => STATUS,
        M::Popf | M::Popfd | M::Popfq => STATUS,
        _ => 0,
    }
}

/// Whether a shift has an immediate count that is not zero after masking.
fn shifts(instruction: &Instruction) -> bool {
    let wide = matches!(instruction.op0_register().size(), 8) || instruction.memory_size().size() == 8;
    instruction.op1_kind() == OpKind::Immediate8
        && instruction.immediate8() & if wide { 0x3f } else { 0x1f } != 0
}
