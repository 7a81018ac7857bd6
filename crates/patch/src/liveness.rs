//! What a handler need not save, because the program overwrites it before it looks.
//!
//! Both questions are answered by reading the code from a site on, in a straight line, as far as the bytes go, nothing but the
//! answer "dead" being a promise. Of flags it is a promise about what anybody can see: an instruction that can fault shows them to a
//! signal handler, or in a core dump. Of registers it is a promise about what the program computes; what shows them at an instruction
//! in between sees what the handler left.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, RflagsBits,
};

use crate::{Mode, harmless};

/// The arithmetic flags: carry, parity, auxiliary, zero, sign, overflow.
const STATUS: u32 =
    RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// How many instructions are looked at, at most. Flags and registers that live longer are saved.
const HORIZON: usize = 24;

/// Whether the arithmetic flags (CF PF AF ZF SF OF) are dead at the site: whether each of them is written before it is read or shown by a
/// fault, on the straight line of `code`, which begins with the site's own instruction. Code that ends early, cannot be decoded or transfers
/// control leaves them alive.
///
/// What is on the stack near the stack pointer does not fault: a handler has just written below it. Nor does what is relative to rip: it is the
/// module's own.
///
/// `at_function_entry` says that the site is the first instruction of a function that is called by the System V ABI, by which flags
/// hold nothing at a call or a return. There they are dead unless the straight line reads them first.
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
            // The other end of a direct jump or call is code of the same kind, and by the ABI a call and a return look at no flags.
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

/// The general registers that are dead at the site: written before they are read on the straight line of `code`, which begins
/// with the site's own instruction. Bit N is the register that [`crate::Registers::gpr`] has at N. The stack pointer never is.
///
/// Nothing is taken from the calling convention: a compiler that sees both sides of a call departs from it.
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

/// The instructions from `address` on, until one is not to be decoded or the horizon is reached.
fn straight(mode: Mode, code: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(mode.bits(), code, address, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
        .take_while(|instruction| !instruction.is_invalid())
        .take(HORIZON)
}

/// Whether a write to `register` leaves nothing of what was in it: in 64-bit code a write to the low 32 bits clears the others.
fn replaces(mode: Mode, register: Register) -> bool {
    register.is_gpr32() || mode == Mode::Bits64 && register.is_gpr64()
}

/// The arithmetic flags that the instruction writes whatever its operands are. What the manuals call undefined after it counts as
/// written only where every processor writes it.
fn overwritten(instruction: &Instruction) -> u32 {
    use Mnemonic as M;
    let written = instruction.rflags_written() | instruction.rflags_cleared() | instruction.rflags_set();
    match instruction.mnemonic() {
        M::Add | M::Sub | M::Cmp | M::Neg | M::Adc | M::Sbb | M::Xadd | M::Cmpxchg => STATUS,
        M::Inc | M::Dec => STATUS & !RflagsBits::CF,
        // The auxiliary carry is undefined in the manuals; processors clear it.
        M::And | M::Or | M::Xor | M::Test => STATUS,
        // A count of zero changes nothing: only counts in the instruction are known.
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

/// Whether a shift is by a number other than zero, as the processor counts.
fn shifts(instruction: &Instruction) -> bool {
    let wide = matches!(instruction.op0_register().size(), 8) || instruction.memory_size().size() == 8;
    instruction.op1_kind() == OpKind::Immediate8
        && instruction.immediate8() & if wide { 0x3f } else { 0x1f } != 0
}
