//! Every instruction of this processor, run at its own address and in slots: registers, flags, vector registers, memory and faults
//! are the same.

mod common;

use common::compare::compare;
use common::encodings::{Addresses, Encoding, Shape, all};
use common::native::{Arena, FORWARD, OPERAND, SITE, STACK};
use common::random::{Random, poke, start};
use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, OpKind, Register};

/// Why an instruction is not run here, if so.
fn left_out(encoding: &Encoding) -> Option<&'static str> {
    use Mnemonic::*;
    let instruction = Decoder::with_ip(64, &encoding.bytes, SITE, DecoderOptions::NONE).decode();
    let op_code = instruction.op_code();
    if instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_segment_register() {
        return Some("changes a segment, on which the test program runs");
    }
    if op_code.must_be_cpl0() {
        return Some("is the kernel's, which writes a line to its log for each");
    }
    match instruction.mnemonic() {
        Wrfsbase | Wrgsbase | Lfs | Lgs | Lss | Wrpkru | Xrstor | Xrstor64 => {
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
    if !std::arch::is_x86_feature_detected!("xsave") {
        eprintln!("this processor has no xsave, by which the test compares vector registers");
        return;
    }
    let mut arena = Arena::take();
    let addresses = Addresses { site: SITE, data: OPERAND, target: FORWARD };
    let (mut ran, mut completed, mut emulated, mut slots, mut skipped) = (0, 0, 0, 0, 0);
    for (index, encoding) in all(addresses).iter().enumerate() {
        if left_out(encoding).is_some() {
            skipped += 1;
            continue;
        }
        for round in 0..2 {
            let mut random = Random::new(index as u64 * 16 + round + 1);
            let mut state = start(&arena, &mut random);
            arrange(&mut state, encoding, arena.fs_base);
            let Some((_, ways)) = compare(&mut arena, &encoding.bytes, &[FORWARD], &state) else { continue };
            ran += 1;
            completed += u32::from(!ways.faulted);
            emulated += u32::from(ways.emulated);
            slots += ways.slots;
        }
    }
    eprintln!(
        "{ran} runs ({completed} without a fault), {slots} in slots, {emulated} emulated; {skipped} left out"
    );
    // A processor without AVX-512 completes about half as many.
    assert!(ran > 25_000 && completed > 8_000 && slots > 50_000 && emulated > 200);
}

/// Points what the instruction follows to where it can go.
fn arrange(state: &mut common::native::Start, encoding: &Encoding, fs_base: u64) {
    let instruction = Decoder::with_ip(64, &encoding.bytes, SITE, DecoderOptions::NONE).decode();
    if encoding.shape == Shape::Fs {
        state.registers.gpr[3] = OPERAND.wrapping_sub(fs_base);
    }
    match instruction.mnemonic() {
        Mnemonic::Jmp | Mnemonic::Call if instruction.op0_kind() == OpKind::Register => {
            state.registers.gpr[instruction.op0_register().number()] = FORWARD;
        }
        Mnemonic::Jmp | Mnemonic::Call if instruction.op0_kind() == OpKind::Memory => {
            poke(state, if encoding.shape == Shape::Stack { STACK + 0x40 } else { OPERAND }, FORWARD);
        }
        Mnemonic::Ret => poke(state, STACK, FORWARD),
        // The trap and alignment flags are tests of their own.
        Mnemonic::Popfq | Mnemonic::Popf => poke(state, STACK, common::random::FLAGS | 2),
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
        Mnemonic::Enter if instruction.code() == Code::Enterq_imm16_imm8 => {
            state.registers.gpr[5] = STACK + 0x200
        }
        _ => {}
    }
}
