//! Runs every instruction of this processor at its own address and in slots: registers, flags,
//! vector registers, memory and faults are the same.

use crate::common;
use crate::common::compare::compare;
use crate::common::encodings::{Addresses, Encoding, Shape, all};
use crate::common::native::{Arena, FORWARD, OPERAND, SITE, STACK};
use crate::common::random::{Random, poke, start};
use dprobes_patch::Mode;
use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, OpKind, Register};

/// Why an instruction is not run here, if it is left out.
fn left_out(mode: Mode, encoding: &Encoding) -> Option<&'static str> {
    use Mnemonic::*;
    let instruction = Decoder::with_ip(mode.bits(), &encoding.bytes, SITE, DecoderOptions::NONE).decode();
    let op_code = instruction.op_code();
    if instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_segment_register() {
        return Some("changes a segment, on which the test program runs");
    }
    if op_code.must_be_cpl0() {
        return Some("is the kernel's, which writes a line to its log for each");
    }
    match instruction.mnemonic() {
        Lds | Les | Wrfsbase | Wrgsbase | Lfs | Lgs | Lss | Wrpkru | Xrstor | Xrstor64 => {
            Some("changes a segment or a key, on which the test program runs")
        }
        Rdtsc | Rdtscp | Rdrand | Rdseed | Rdpid | Rdpmc | Rdpru | Cpuid | Lsl | Xgetbv | Umwait | Tpause
        | Umonitor => Some("gives something else each time, or on each processor"),
        Xsave | Xsave64 | Xsaveopt | Xsaveopt64 | Xsavec | Xsavec64 => {
            Some("stores what the processor knows to be unused")
        }
        Vmcall | Vmmcall | Vmgexit | Vmfunc | Tdcall | Seamcall | Seamret | Seamops | Getsec | Getsecq => {
            Some("is the hypervisor's")
        }
        Encls | Enclu | Enclv => Some("is for enclaves"),
        Syscall => Some("is run in a test of its own"),
        Xbegin => Some("is run in a test of its own"),
        Enqcmd | Enqcmds | Senduipi => Some("is for devices and other processors"),
        _ => None,
    }
}

#[test]
fn every_instruction_computes_the_same_displaced() {
    // A processor without AVX-512 completes about half as many.
    every_instruction(Mode::Bits64, [25_000, 8_000, 50_000, 200]);
}

#[test]
fn every_instruction_of_32_bit_code_computes_the_same_displaced() {
    every_instruction(Mode::Bits32, [18_000, 5_000, 36_000, 150]);
}

/// At least this many runs, completed runs, runs in slots, and emulations.
fn every_instruction(mode: Mode, least: [usize; 4]) {
    if !std::arch::is_x86_feature_detected!("xsave") {
        return testing::skipped("every instruction", "xsave, by which the test compares vector registers");
    }
    let mut arena = Arena::take_in(mode);
    let addresses = Addresses { mode, site: SITE, data: OPERAND, target: FORWARD };
    let (mut ran, mut completed, mut emulated, mut slots, mut skipped) = (0, 0, 0, 0, 0);
    for (index, encoding) in all(addresses).iter().enumerate() {
        if left_out(mode, encoding).is_some() {
            skipped += 1;
            continue;
        }
        for round in 0..2 {
            let mut random = Random::new(index as u64 * 16 + round + 1);
            let mut state = start(&arena, &mut random);
            arrange(&mut state, encoding, &arena);
            let Some((_, ways)) = compare(&mut arena, &encoding.bytes, &[FORWARD], &state) else { continue };
            ran += 1;
            completed += usize::from(!ways.faulted);
            emulated += usize::from(ways.emulated);
            slots += ways.slots;
        }
    }
    eprintln!(
        "{ran} runs ({completed} without a fault), {slots} in slots, {emulated} emulated; {skipped} left out"
    );
    assert!(ran > least[0] && completed > least[1] && slots > least[2] && emulated > least[3]);
}

/// Makes the instruction's pointers valid.
fn arrange(state: &mut common::native::Start, encoding: &Encoding, arena: &Arena) {
    let instruction =
        Decoder::with_ip(arena.mode.bits(), &encoding.bytes, SITE, DecoderOptions::NONE).decode();
    if encoding.shape == Shape::Fs {
        state.registers.gpr[3] = match arena.mode {
            Mode::Bits64 => OPERAND.wrapping_sub(arena.fs_base),
            Mode::Bits32 => OPERAND.wrapping_sub(arena.gs_base) & 0xffff_ffff,
        };
    }
    match instruction.mnemonic() {
        Mnemonic::Jmp | Mnemonic::Call if instruction.op0_kind() == OpKind::Register => {
            state.registers.gpr[instruction.op0_register().number()] = FORWARD;
        }
        Mnemonic::Jmp | Mnemonic::Call if instruction.op0_kind() == OpKind::Memory => {
            poke(state, if encoding.shape == Shape::Stack { STACK + 0x40 } else { OPERAND }, FORWARD);
        }
        Mnemonic::Ret => poke(state, STACK, FORWARD),
        // The trap and alignment flags have tests of their own.
        Mnemonic::Popfq | Mnemonic::Popfd | Mnemonic::Popf => poke(state, STACK, common::random::FLAGS | 2),
        // rbx + al is an operand of many bytes otherwise.
        Mnemonic::Xlatb => state.registers.gpr[3] = OPERAND,
        Mnemonic::Movdir64b => {
            let register = instruction.op0_register().full_register();
            if register != Register::RBX {
                state.registers.gpr[register.number()] = OPERAND + 0x1000;
            }
        }
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu | Mnemonic::Clzero => {
            state.registers.gpr[0] = OPERAND;
        }
        // The highest nesting level that stays within the data.
        Mnemonic::Enter
            if matches!(instruction.code(), Code::Enterq_imm16_imm8 | Code::Enterd_imm16_imm8) =>
        {
            state.registers.gpr[5] = STACK + 0x200
        }
        _ => {}
    }
}
