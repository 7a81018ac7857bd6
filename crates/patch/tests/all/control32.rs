//! 32-bit code: transfers of control, stack and flags, run at the site, in slots and emulated.
//! Every row covers an effect of the mode: 4-byte words on the stack, ecx and cx as counts,
//! addresses that wrap at 4 GiB, segments with a base.

use crate::common;
use crate::common::compare::compare;
use crate::common::forms::{TARGETS, all_complete, near, rounds_in, short};
use crate::common::native::{
    Arena, BACKWARD, DATA, DATA_LENGTH, DataMemory, End, FAR, FORWARD, NOWHERE, OPERAND, SITE, SLOT_ABOVE,
    STACK, Start,
};
use crate::common::random::{FLAGS, Random, poke, start};
use dprobes_patch::{Access, Memory, Mode, Registers, SlotPosition, displace_in};

const MODE: Mode = Mode::Bits32;

fn rounds(
    bytes: &[u8],
    count: u64,
    change: impl Fn(&mut Start, &mut Random),
) -> Vec<(End, common::compare::Ways)> {
    rounds_in(MODE, bytes, count, change)
}

/// The word at an address of the data, after a run.
fn word(end: &End, address: u64) -> u32 {
    let offset = (address - DATA) as usize;
    u32::from_le_bytes(std::array::from_fn(|byte| end.data[offset + byte]))
}

#[test]
fn conditions_taken_and_not() {
    for condition in 0..16_u8 {
        for (bytes, target) in [
            (short(&[0x70 | condition], FORWARD), FORWARD),
            (near(&[0x0f, 0x80 | condition], FAR), FAR),
            (near(&[0x2e, 0x0f, 0x80 | condition], BACKWARD), BACKWARD),
        ] {
            let mut arena = Arena::take_in(MODE);
            let (mut taken, mut passed) = (0, 0);
            for combination in 0..32_u64 {
                let mut state = start(&arena, &mut Random::new(combination));
                let bit = |number: u64, flag: u64| if combination >> number & 1 == 1 { flag } else { 0 };
                state.registers.rflags =
                    0x202 | bit(0, 0x1) | bit(1, 0x4) | bit(2, 0x40) | bit(3, 0x80) | bit(4, 0x800);
                let (end, ways) =
                    compare(&mut arena, &bytes, &TARGETS, &state).expect("a branch is displaced");
                assert!(ways.emulated && ways.slots == 2);
                if end.registers.rip == target { taken += 1 } else { passed += 1 }
            }
            assert!(taken >= 8 && passed >= 8, "{bytes:02x?}: {taken} taken, {passed} not");
        }
    }
}

#[test]
fn counting_branches() {
    for opcode in 0xe0..=0xe3_u8 {
        for (bytes, target) in [
            (short(&[opcode], FORWARD), FORWARD),
            (short(&[opcode], BACKWARD), BACKWARD),
            // cx counts, and the upper half of ecx stays.
            (short(&[0x67, opcode], FORWARD), FORWARD),
        ] {
            let counts = [0, 1, 2, 5, 1 << 16, (1 << 16) + 1, 0xffff, 0xffff_ffff, 0xdead_0001];
            let ends = rounds(&bytes, 64, |state, random| {
                state.registers.gpr[1] = counts[random.below(counts.len() as u64) as usize];
            });
            all_complete(&ends, true);
            let taken = ends.iter().filter(|(end, _)| end.registers.rip == target).count();
            assert!(taken > 2 && taken < 62, "{bytes:02x?}: {taken} taken");
        }
    }
}

#[test]
fn jumps_and_calls_with_their_target_inside() {
    for prefix in [&[][..], &[0xf2], &[0x67], &[0x3e]] {
        for target in TARGETS {
            all_complete(&rounds(&near(&[prefix, &[0xe9]].concat(), target), 4, |_, _| {}), true);
            let bytes = near(&[prefix, &[0xe8]].concat(), target);
            for (end, ways) in rounds(&bytes, 4, |_, _| {}) {
                assert!(ways.emulated && ways.slots == 2);
                assert_eq!((end.registers.rip, end.registers.gpr[4]), (target, STACK - 4));
                assert_eq!(u64::from(word(&end, STACK - 4)), SITE + bytes.len() as u64);
            }
        }
        all_complete(&rounds(&short(&[prefix, &[0xeb]].concat(), FORWARD), 4, |_, _| {}), true);
    }
    // `call next`, as position-independent code finds its own address: the popped address is the
    // original's.
    let ends = rounds(&[0xe8, 0, 0, 0, 0], 4, |_, _| {});
    all_complete(&ends, true);
    assert!(ends.iter().all(|(end, _)| u64::from(word(end, STACK - 4)) == SITE + 5));
}

#[test]
fn jumps_and_calls_through_registers() {
    for register in (0..8_u8).filter(|register| *register != 4) {
        for operation in [0xd0, 0xe0] {
            for prefix in [&[][..], &[0x3e], &[0xf2]] {
                let bytes = [prefix, &[0xff, operation | register]].concat();
                let ends = rounds(&bytes, 6, |state, random| {
                    state.registers.gpr[usize::from(register)] = TARGETS[random.below(3) as usize];
                });
                all_complete(&ends, true);
            }
        }
    }
}

#[test]
fn calls_through_memory() {
    let gs = DATA + 0x2000;
    let cases: Vec<(Vec<u8>, u64)> = vec![
        (vec![0xff, 0x13], OPERAND),                              // [ebx]
        (vec![0xff, 0x53, 0x10], OPERAND + 0x10),                 // [ebx+16]
        (vec![0xf2, 0xff, 0x13], OPERAND),                        // bnd
        (vec![0x3e, 0xff, 0x13], OPERAND),                        // notrack, or ds
        (vec![0x36, 0xff, 0x13], OPERAND),                        // ss
        (vec![0x2e, 0xff, 0x13], OPERAND),                        // cs
        (vec![0xff, 0x14, 0x24], STACK),                          // [esp]
        (vec![0xff, 0x54, 0x24, 0x08], STACK + 8),                // [esp+8]
        (vec![0xff, 0x54, 0x24, 0xfc], STACK - 4),                // [esp-4], where the return address goes
        (vec![0xff, 0x54, 0x24, 0xf8], STACK - 8),                // [esp-8]
        (vec![0xff, 0x55, 0x08], STACK + 0x108),                  // [ebp+8]
        (vec![0xff, 0x15, 0, 0x10, 0, 0x21], OPERAND),            // [absolute]
        (vec![0x65, 0xff, 0x15, 0x10, 0, 0, 0], gs + 0x10),       // gs:[0x10], the system call of a C library
        (vec![0x65, 0xff, 0x15, 0xfc, 0xff, 0xff, 0xff], gs - 4), // gs:[-4], where its variables are
    ];
    for (bytes, address) in &cases {
        let change = |state: &mut Start, random: &mut Random| {
            poke(state, *address, TARGETS[random.below(3) as usize]);
        };
        all_complete(&rounds(bytes, 6, change), true);
        // The same operands for a jump and a push, which only run in the slot.
        let opcode = bytes.iter().position(|byte| *byte == 0xff).expect("each has one") + 1;
        for other in [4, 6] {
            let mut bytes = bytes.clone();
            bytes[opcode] = (bytes[opcode] & !0x38) | (other << 3);
            all_complete(&rounds(&bytes, 6, change), false);
        }
    }
    // A sum that wraps at 4 GiB.
    let wraps = |state: &mut Start, random: &mut Random| {
        state.registers.gpr[3] = 0xffff_fff0;
        state.registers.gpr[6] = OPERAND + 0x10;
        poke(state, OPERAND, TARGETS[random.below(3) as usize]);
    };
    all_complete(&rounds(&[0xff, 0x14, 0x33], 6, wraps), true);
}

#[test]
fn pushes_and_returns() {
    for register in 0..8_u8 {
        for (end, ways) in rounds(&[0x50 | register], 3, |_, _| {}) {
            assert!(ways.emulated && ways.slots == 2 && end.registers.gpr[4] == STACK - 4);
        }
        all_complete(&rounds(&[0xff, 0xf0 | register], 3, |_, _| {}), true);
        all_complete(&rounds(&[0x66, 0x50 | register], 3, |_, _| {}), false);
        all_complete(&rounds(&[0x58 | register], 3, |_, _| {}), false);
    }
    for bytes in [&[0x6a, 0x80][..], &[0x6a, 0x7f], &[0x68, 0xf0, 0xde, 0xbc, 0x9a]] {
        all_complete(&rounds(bytes, 3, |_, _| {}), true);
    }
    // pusha, popa, pushf, segment registers, leave, enter: only in the slot.
    for bytes in [
        &[0x60][..],
        &[0x61],
        &[0x66, 0x60],
        &[0x66, 0x61],
        &[0x9c],
        &[0x66, 0x9c],
        &[0x0e],
        &[0x06],
        &[0x16],
        &[0x1e],
        &[0x0f, 0xa0],
        &[0x0f, 0xa8],
        &[0xc9],
        &[0xc8, 0x20, 0, 0],
        &[0xc8, 0x20, 0, 2],
        &[0x66, 0x6a, 0x80],
        &[0x66, 0x68, 0x34, 0x92],
    ] {
        all_complete(&rounds(bytes, 3, |_, _| {}), false);
    }
    for bytes in [&[0xc3][..], &[0xf3, 0xc3], &[0xf2, 0xc3], &[0xc2, 0x10, 0], &[0xc2, 0xff, 0xff]] {
        let ends = rounds(bytes, 6, |state, random| poke(state, STACK, TARGETS[random.below(3) as usize]));
        all_complete(&ends, true);
    }
}

#[test]
fn what_only_32_bit_code_has() {
    // daa, das, aaa, aas, aam, aad, salc, inc and dec of a register, xlat, arpl.
    for bytes in [
        &[0x27][..],
        &[0x2f],
        &[0x37],
        &[0x3f],
        &[0xd4, 0x0a],
        &[0xd5, 0x0a],
        &[0xd6],
        &[0x41],
        &[0x4a],
        &[0x82, 0xc3, 0x05],
        &[0x63, 0xc8],
        &[0xa1, 0, 0x10, 0, 0x21],
    ] {
        all_complete(&rounds(bytes, 8, |_, _| {}), false);
    }
    // les and lds load the data segment again; bound is within its bounds, or faults at the site.
    let pointer = |state: &mut Start, _: &mut Random| poke(state, OPERAND, 0x2b_1234_5678);
    all_complete(&rounds(&[0xc4, 0x0b], 3, pointer), false);
    all_complete(&rounds(&[0xc5, 0x0b], 3, pointer), false);
    for (index, faults) in [(5, false), (99, true)] {
        let bounds = |state: &mut Start, _: &mut Random| {
            state.registers.gpr[2] = index;
            poke(state, OPERAND, 10 << 32);
        };
        for (end, ways) in rounds(&[0x62, 0x13], 3, bounds) {
            assert_eq!((ways.faulted, ways.slots), (faults, 2));
            assert!(!faults || end.registers.rip == SITE);
        }
    }
    // aam by zero.
    for (end, ways) in rounds(&[0xd4, 0], 3, |_, _| {}) {
        assert_eq!((end.fault.map(|fault| fault.signal), ways.slots), (Some(libc::SIGFPE), 2));
    }
}

#[test]
fn flags_from_the_stack() {
    for bytes in [&[0x9d][..], &[0x66, 0x9d]] {
        let ends = rounds(bytes, 64, |state, random| poke(state, STACK, random.next() & !0x4_0100));
        all_complete(&ends, false);
    }
    // One that sets the trap flag is emulated, and does what the processor does.
    for (bytes, size) in [(&[0x9d][..], 4), (&[0x66, 0x9d], 2)] {
        let mut arena = Arena::take_in(MODE);
        for round in 0..16 {
            let mut random = Random::new(round);
            let mut state = start(&arena, &mut random);
            state.registers.rip = SITE;
            poke(&mut state, STACK, random.next() & !0x4_0000 | 0x100);
            let displaced = displace_in(MODE, bytes, SITE).expect("it can be displaced");
            arena.write(SITE, bytes);
            arena.pad(SITE + bytes.len() as u64);
            let expected = arena.run(&state);
            assert_eq!(expected.fault.map(|fault| fault.signal), Some(libc::SIGTRAP));
            let mut emulated = state.clone();
            assert!(displaced.wants_emulation(&emulated.registers, &mut DataMemory(&mut emulated.data)));
            let done = displaced.emulate(&mut emulated.registers, &mut DataMemory(&mut emulated.data));
            assert_eq!(done, Ok(()));
            assert_eq!(emulated.registers.rflags, expected.registers.rflags);
            assert_eq!(emulated.registers.gpr[4], STACK + size);
        }
    }
}

#[test]
fn sixteen_bits_of_target() {
    // A return or jump that truncates the target to 16 bits does so in the slot, too, and ends
    // nowhere.
    for bytes in [&[0x66, 0xc3][..], &[0x66, 0xff, 0xe2], &[0x66, 0xff, 0x23]] {
        for (end, ways) in rounds(bytes, 3, |state, _| {
            state.registers.gpr[2] = FORWARD;
            poke(state, OPERAND, FORWARD);
            poke(state, STACK, FORWARD);
        }) {
            assert_eq!((end.registers.rip, ways.slots, ways.emulated), (FORWARD & 0xffff, 2, false));
        }
    }
}

#[test]
fn faults_are_the_original_s() {
    type Change = fn(&mut Start, &mut Random);
    let unmapped_stack: Change = |state, _| state.registers.gpr[4] = NOWHERE;
    let stack_at_zero: Change = |state, _| state.registers.gpr[4] = 0;
    let unmapped_ebx: Change = |state, _| state.registers.gpr[3] = NOWHERE;
    let cases: Vec<(Vec<u8>, Change, i32)> = vec![
        (vec![0x53], unmapped_stack, libc::SIGSEGV),
        (vec![0x53], stack_at_zero, libc::SIGSEGV),
        (vec![0x60], unmapped_stack, libc::SIGSEGV),
        (vec![0xc3], unmapped_stack, libc::SIGSEGV),
        (near(&[0xe8], FORWARD), unmapped_stack, libc::SIGSEGV),
        (vec![0xff, 0xd2], unmapped_stack, libc::SIGSEGV),
        (vec![0xff, 0x13], unmapped_ebx, libc::SIGSEGV),
        (vec![0xff, 0x13], unmapped_stack, libc::SIGSEGV),
        (vec![0xff, 0x23], unmapped_ebx, libc::SIGSEGV),
        (vec![0x8b, 0x03], unmapped_ebx, libc::SIGSEGV),
        (vec![0x89, 0x03], unmapped_ebx, libc::SIGSEGV),
        (vec![0x9d], unmapped_stack, libc::SIGSEGV),
        (vec![0xf7, 0xf1], |state, _| state.registers.gpr[1] = 0, libc::SIGFPE),
        (vec![0x0f, 0x0b], |_, _| {}, libc::SIGILL),
        (vec![0xf4], |_, _| {}, libc::SIGSEGV),
        (
            vec![0xf3, 0xa5],
            |state, _| {
                state.registers.rflags &= !0x400;
                state.registers.gpr[1] = 64;
                state.registers.gpr[7] = DATA + DATA_LENGTH as u64 - 64;
            },
            libc::SIGSEGV,
        ),
    ];
    for (bytes, change, signal) in cases {
        for (end, ways) in rounds(&bytes, 3, change) {
            let fault = end.fault.unwrap_or_else(|| panic!("{bytes:02x?} does not fault"));
            assert_eq!((fault.signal, end.registers.rip), (signal, SITE), "{bytes:02x?}: {fault:x?}");
            assert_eq!((ways.slots, ways.emulated), (2, false), "{bytes:02x?}");
        }
    }
}

/// Memory that is mapped everywhere and records the last access.
struct Everywhere(Option<(u64, usize)>);

impl Memory for Everywhere {
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        into.fill(0x11);
        self.0 = Some((address, into.len()));
        true
    }

    fn write(&mut self, address: u64, from: &[u8]) -> bool {
        self.0 = Some((address, from.len()));
        true
    }
}

#[test]
fn the_stack_pointer_wraps_at_4_gib() {
    let run = |bytes: &[u8], esp: u64| {
        let mut registers = Registers { rip: SITE, rflags: 0x202, ..Registers::default() };
        registers.gpr[4] = esp;
        let mut memory = Everywhere(None);
        displace_in(MODE, bytes, SITE)
            .expect("it can be displaced")
            .emulate(&mut registers, &mut memory)
            .expect("memory is everywhere");
        (registers.gpr[4], memory.0)
    };
    assert_eq!(run(&[0x53], 0), (0xffff_fffc, Some((0xffff_fffc, 4))));
    assert_eq!(run(&[0xe8, 0, 0, 0, 0], 4), (0, Some((0, 4))));
    assert_eq!(run(&[0xc3], 0xffff_fffc), (0, Some((0xffff_fffc, 4))));
    assert_eq!(run(&[0xc2, 8, 0], 0xffff_fffc), (8, Some((0xffff_fffc, 4))));
    // Upper halves are not part of the program's state.
    assert_eq!(run(&[0x53], 0xdead_0000_1000), (0xffc, Some((0xffc, 4))));
    let mut registers = Registers { rip: SITE, rflags: 0x4_0202, ..Registers::default() };
    registers.gpr[4] = STACK + 2;
    let push = displace_in(MODE, &[0x53], SITE).expect("it can be displaced");
    let refused = push.emulate(&mut registers, &mut Everywhere(None));
    assert_eq!(refused, Err(Access { address: STACK - 2, size: 4, write: true, stack: true }), "alignment");
}

/// From every instruction of a slot the program's own state can be restored.
#[test]
fn every_stop_in_a_slot_has_a_place() {
    let mut arena = Arena::take_in(MODE);
    let cases: Vec<Vec<u8>> = vec![
        vec![0xff, 0x13],
        vec![0xff, 0xd2],
        vec![0xff, 0x54, 0x24, 0x08],
        vec![0x65, 0xff, 0x15, 0x10, 0, 0, 0],
        near(&[0xe8], FORWARD),
        near(&[0x0f, 0x84], FORWARD),
        short(&[0xe2], FORWARD),
        near(&[0xe9], FORWARD),
        vec![0x60],
        vec![0x01, 0xd8],
    ];
    for bytes in cases {
        let displaced = displace_in(MODE, &bytes, SITE).expect("it can be displaced");
        let slot = displaced.slot(SLOT_ABOVE).expect("in reach");
        arena.write(SLOT_ABOVE, &slot.bytes);
        let mut state = start(&arena, &mut Random::new(11));
        state.registers.gpr[2] = FORWARD;
        state.registers.rflags &= !FLAGS;
        for address in [OPERAND, STACK + 8, DATA + 0x2010] {
            poke(&mut state, address, FORWARD);
        }
        let original = state.registers;
        state.registers.rip = SLOT_ABOVE;
        let mut steps = 0;
        while (SLOT_ABOVE..SLOT_ABOVE + slot.bytes.len() as u64).contains(&state.registers.rip) {
            let mut shown = state.registers;
            let place = slot.position_at((shown.rip - SLOT_ABOVE) as usize);
            assert!(slot.mend(&mut shown), "{displaced:?} at {:#x}", state.registers.rip);
            match place {
                SlotPosition::Before | SlotPosition::Pushed { .. } | SlotPosition::Prepared { .. } => {
                    assert_eq!((shown.rip, shown.gpr), (SITE, original.gpr), "{displaced:?} {place:?}");
                }
                SlotPosition::After { rip, .. } | SlotPosition::Done { rip, .. } => {
                    assert_eq!(shown.rip, rip)
                }
                SlotPosition::Inside => panic!("{displaced:?} at {:#x}", state.registers.rip),
            }
            let end = arena.step(&state);
            state.registers = end.registers;
            state.data = end.data;
            steps += 1;
            assert!(steps < 10, "{displaced:?}");
        }
        assert!(state.registers.rip == FORWARD || state.registers.rip == SITE + bytes.len() as u64);
    }
}
