//! Transfers of control, stack and flags: run at the site, in slots and emulated, with states that
//! cover every path through each.

use crate::common::compare::compare;
use crate::common::forms::{TARGETS, all_complete, near, rounds, short};
use crate::common::native::{
    Arena, BACKWARD, DATA, FAR, FORWARD, OPERAND, SITE, SLOT_ABOVE, SLOT_BELOW, STACK, Start,
};
use crate::common::random::{Random, poke, start};
use dprobes_patch::{Registers, displace};

#[test]
fn conditions_taken_and_not() {
    for condition in 0..16_u8 {
        for (bytes, target) in [
            (short(&[0x70 | condition], FORWARD), FORWARD),
            (short(&[0x70 | condition], BACKWARD), BACKWARD),
            (near(&[0x0f, 0x80 | condition], FAR), FAR),
            (near(&[0x2e, 0x0f, 0x80 | condition], BACKWARD), BACKWARD),
            (short(&[0xf2, 0x70 | condition], FORWARD), FORWARD),
            (short(&[0x66, 0x48, 0x70 | condition], FORWARD), FORWARD),
        ] {
            // All 32 combinations of carry, parity, zero, sign and overflow.
            let mut arena = Arena::take();
            let (mut taken, mut passed) = (0, 0);
            for combination in 0..32_u64 {
                let mut state = start(&arena, &mut Random::new(combination));
                let bit = |number: u64, flag: u64| if combination >> number & 1 == 1 { flag } else { 0 };
                state.registers.rflags =
                    0x202 | bit(0, 0x1) | bit(1, 0x4) | bit(2, 0x40) | bit(3, 0x80) | bit(4, 0x800);
                let (end, ways) =
                    compare(&mut arena, &bytes, &TARGETS, &state).expect("a branch is displaced");
                assert!(ways.emulated && ways.slots == 2);
                assert_eq!(end.registers.rflags, state.registers.rflags);
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
            (short(&[0x67, opcode], FORWARD), FORWARD),
            (short(&[0x48, opcode], BACKWARD), BACKWARD),
            (short(&[0x67, 0x66, 0x48, opcode], FORWARD), FORWARD),
        ] {
            let counts = [0, 1, 2, 5, 1 << 32, (1 << 32) + 1, 0xffff_ffff, u64::MAX, 0xdead_beef_0000_0001];
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
    for prefix in [&[][..], &[0xf2], &[0x67], &[0x3e], &[0x66, 0x48], &[0x66, 0x66, 0x48], &[0x48]] {
        for target in TARGETS {
            all_complete(&rounds(&near(&[prefix, &[0xe9]].concat(), target), 4, |_, _| {}), true);
            let bytes = near(&[prefix, &[0xe8]].concat(), target);
            for (end, ways) in rounds(&bytes, 4, |_, _| {}) {
                assert!(ways.emulated && ways.slots == 2);
                assert_eq!((end.registers.rip, end.registers.gpr[4]), (target, STACK - 8));
                let pushed = &end.data[(STACK - 8 - DATA) as usize..][..8];
                assert_eq!(
                    pushed,
                    (SITE + bytes.len() as u64).to_le_bytes(),
                    "the original's return address"
                );
            }
        }
        all_complete(&rounds(&short(&[prefix, &[0xeb]].concat(), FORWARD), 4, |_, _| {}), true);
    }
    // `call next`, as old code finds its own address.
    all_complete(&rounds(&[0xe8, 0, 0, 0, 0], 4, |_, _| {}), true);
}

/// The possible prefixes of a padded jump, as many as fit, have no effect on it.
#[test]
fn jumps_behind_prefixes() {
    for prefix in [0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65, 0x67_u8].into_iter().chain(0x40..=0x4f) {
        for count in [1, 2, 3, 9] {
            for last in [prefix, 0x2e, 0x4f] {
                // REX is the last, if there is one.
                if prefix & 0xf0 == 0x40 && (count > 1 || last != prefix) {
                    continue;
                }
                let opcode = [vec![prefix; count], vec![last, 0xe9]].concat();
                all_complete(&rounds(&near(&opcode, FAR), 1, |_, _| {}), true);
            }
        }
    }
}

#[test]
fn jumps_and_calls_through_registers() {
    for register in (0..16_u8).filter(|register| *register != 4) {
        let rex: &[u8] = if register >= 8 { &[0x41] } else { &[] };
        for operation in [0xd0, 0xe0] {
            for prefix in [&[][..], &[0x3e], &[0xf2]] {
                let bytes = [prefix, rex, &[0xff, operation | (register & 7)]].concat();
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
    let pointed = |state: &mut Start, random: &mut Random, address| {
        poke(state, address, TARGETS[random.below(3) as usize]);
    };
    let relative = |opcode: &[u8]| near(opcode, OPERAND);
    let cases: Vec<(Vec<u8>, u64)> = vec![
        (vec![0xff, 0x13], OPERAND),                                        // [rbx]
        (vec![0xff, 0x53, 0x10], OPERAND + 0x10),                           // [rbx+16]
        (vec![0xf2, 0xff, 0x13], OPERAND),                                  // bnd
        (vec![0x3e, 0xff, 0x13], OPERAND),                                  // notrack
        (vec![0x48, 0xff, 0x13], OPERAND),                                  // a prefix that says nothing
        (vec![0x66, 0x48, 0xff, 0x13], OPERAND),                            // 16 bits overridden by 64
        (vec![0x67, 0xff, 0x13], OPERAND),                                  // [ebx]
        (vec![0x67, 0xff, 0x53, 0xf0], OPERAND - 16),                       // [ebx-16]
        (vec![0xff, 0x14, 0x24], STACK),                                    // [rsp]
        (vec![0xff, 0x54, 0x24, 0x08], STACK + 8),                          // [rsp+8]
        (vec![0xff, 0x54, 0x24, 0xf8], STACK - 8), // [rsp-8], where the return address goes
        (vec![0xff, 0x54, 0x24, 0xf0], STACK - 16), // [rsp-16]
        (vec![0xff, 0x94, 0x24, 0, 1, 0, 0], STACK + 0x100), // [rsp+0x100]
        (vec![0x67, 0xff, 0x54, 0x24, 0x08], STACK + 8), // [esp+8]
        (vec![0xff, 0x55, 0x08], STACK + 0x108),   // [rbp+8]
        (vec![0xff, 0x14, 0x25, 0, 0x10, 0, 0x21], OPERAND), // [absolute]
        (vec![0x41, 0xff, 0x94, 0x75, 0, 0x10, 0, 0], OPERAND), // [r13+rsi*2+0x1000]
        (vec![0x65, 0xff, 0x14, 0x25, 0x40, 0, 0, 0], DATA + 0x2040), // gs:[0x40]
        (vec![0x65, 0x67, 0xff, 0x14, 0x25, 0x40, 0, 0, 0], DATA + 0x2040), // the same, 32 bits
        (relative(&[0xff, 0x15]), OPERAND),        // [rip+...]
        (relative(&[0x66, 0x48, 0xff, 0x15]), OPERAND), // thread-local storage
        (relative(&[0x67, 0xff, 0x15]), OPERAND),  // [eip+...]
        (relative(&[0x3e, 0xff, 0x15]), OPERAND),
    ];
    for (bytes, address) in &cases {
        assert_eq!((DATA, OPERAND), (0x2100_0000, 0x2100_1000), "the absolute operand above");
        let call = rounds(bytes, 6, |state, random| pointed(state, random, *address));
        all_complete(&call, true);
        // The same operands for a jump and a push, which only run in the slot.
        let opcode = bytes.iter().position(|byte| *byte == 0xff).expect("each has one") + 1;
        for other in [4, 6] {
            let mut bytes = bytes.clone();
            bytes[opcode] = (bytes[opcode] & !0x38) | (other << 3);
            all_complete(&rounds(&bytes, 6, |state, random| pointed(state, random, *address)), false);
        }
    }
    // fs is the test program's own; compute the operand from it.
    let through_fs = |state: &mut Start, random: &mut Random| {
        state.registers.gpr[3] = OPERAND.wrapping_sub(state.registers.fs_base);
        pointed(state, random, OPERAND);
    };
    all_complete(&rounds(&[0x64, 0xff, 0x13], 6, through_fs), true);
    all_complete(&rounds(&[0x64, 0xff, 0x23], 6, through_fs), false);
    // An offset truncated by an address-size prefix: the base has more than 32 bits, the sum wraps.
    let cut = |state: &mut Start, random: &mut Random| {
        state.registers.gpr[3] = 0xabcd_0000_ffff_fff0;
        state.registers.gpr[6] = (OPERAND + 0x10) | (0x7 << 40);
        pointed(state, random, OPERAND);
    };
    all_complete(&rounds(&[0x67, 0xff, 0x14, 0x33], 6, cut), true);
}

#[test]
fn pushes_and_returns() {
    for register in 0..16_u8 {
        let rex: &[u8] = if register >= 8 { &[0x41] } else { &[] };
        let low = register & 7;
        all_complete(&rounds(&[rex, &[0x50 | low]].concat(), 3, |_, _| {}), true);
        all_complete(&rounds(&[rex, &[0xff, 0xf0 | low]].concat(), 3, |_, _| {}), true);
        all_complete(&rounds(&[&[0x66], rex, &[0x50 | low]].concat(), 3, |_, _| {}), false);
        all_complete(&rounds(&[rex, &[0x58 | low]].concat(), 3, |_, _| {}), false);
    }
    for bytes in [&[0x6a, 0x80][..], &[0x6a, 0x7f], &[0x68, 0xf0, 0xde, 0xbc, 0x9a], &[0x48, 0x6a, 0xff]] {
        all_complete(&rounds(bytes, 3, |_, _| {}), true);
    }
    for bytes in [&[0x66, 0x6a, 0x80][..], &[0x66, 0x68, 0x34, 0x92], &[0x9c], &[0x66, 0x9c], &[0xc9]] {
        all_complete(&rounds(bytes, 3, |_, _| {}), false);
    }
    for bytes in
        [&[0xc3][..], &[0xf3, 0xc3], &[0xf2, 0xc3], &[0x48, 0xc3], &[0xc2, 0x10, 0], &[0xc2, 0xff, 0xff]]
    {
        let ends = rounds(bytes, 6, |state, random| poke(state, STACK, TARGETS[random.below(3) as usize]));
        all_complete(&ends, true);
    }
}

#[test]
fn nothing_at_all() {
    let mut cases: Vec<Vec<u8>> = vec![
        vec![0x90],
        vec![0x66, 0x90],
        vec![0x48, 0x90],
        vec![0xf2, 0x90],
        vec![0x0f, 0x1f, 0x00],
        vec![0x0f, 0x1f, 0x40, 0x00],
        vec![0x0f, 0x1f, 0x44, 0x00, 0x00],
        vec![0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        vec![0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        vec![0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        vec![0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        vec![0x0f, 0x1f, 0x05, 0, 0, 0, 0x40],
        vec![0xf3, 0x0f, 0x1e, 0xfa],
        vec![0xf3, 0x0f, 0x1e, 0xfb],
    ];
    for padding in 1..=5 {
        cases.push([vec![0x66; padding], vec![0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]].concat());
    }
    for bytes in &cases {
        all_complete(&rounds(bytes, 3, |_, _| {}), true);
    }
    // Exchanges that look like one, and `pause`.
    for bytes in [
        &[0x41, 0x90][..],
        &[0x49, 0x90],
        &[0xf3, 0x90],
        &[0xf3, 0x41, 0x90],
        &[0x87, 0xc0],
        &[0x0f, 0x19, 0xc0],
    ] {
        all_complete(&rounds(bytes, 6, |_, _| {}), false);
    }
}

#[test]
fn flags_from_the_stack() {
    for bytes in [&[0x9d][..], &[0x66, 0x9d], &[0x48, 0x9d]] {
        let ends = rounds(bytes, 64, |state, random| {
            // Everything but the trap flag and, since the pads are not aligned, the alignment flag.
            let value = random.next() & !0x4_0100;
            poke(state, STACK, value);
        });
        all_complete(&ends, false);
    }
}

#[test]
fn system_calls() {
    let mut arena = Arena::take();
    let pid = u64::from(std::process::id());
    for bytes in [&[0x0f, 0x05][..], &[0x48, 0x0f, 0x05]] {
        for round in 0..8 {
            let mut state = start(&arena, &mut Random::new(round));
            state.registers.gpr[0] = libc::SYS_getpid as u64;
            let (end, ways) =
                compare(&mut arena, bytes, &TARGETS, &state).expect("a system call is displaced");
            assert!(!ways.faulted && ways.slots == 2 && !ways.emulated);
            assert_eq!(end.registers.gpr[0], pid);
            assert_eq!(
                end.registers.gpr[1],
                SITE + bytes.len() as u64,
                "rcx is the original's return address"
            );
            assert_eq!(end.registers.gpr[11], state.registers.rflags, "r11 is the flags");
        }
        let displaced = displace(bytes, SITE).expect("a system call is displaced");
        let slot = displaced.slot(SLOT_ABOVE).expect("in reach");
        let next = SITE + bytes.len() as u64;
        // In the kernel, or just returned from it.
        let mut stopped = Registers { rip: SLOT_ABOVE + bytes.len() as u64, ..Registers::default() };
        assert!(slot.mend(&mut stopped));
        assert_eq!((stopped.rip, stopped.gpr[1]), (next, next));
        // Restarted by the kernel.
        let mut stopped = Registers { rip: SLOT_ABOVE + bytes.len() as u64 - 2, ..Registers::default() };
        assert!(slot.mend(&mut stopped));
        assert_eq!((stopped.rip, stopped.gpr[1]), (SITE, 0));
    }
}

/// A transaction begun in a slot aborts to the original's target. (It always aborts here, at the
/// latest when it enters the kernel.)
#[test]
fn transactions() {
    if !std::arch::is_x86_feature_detected!("rtm") {
        return testing::skipped("transactions", "a processor that has them (rtm)");
    }
    let mut arena = Arena::take();
    let bytes = near(&[0xc7, 0xf8], FAR);
    let displaced = displace(&bytes, SITE).expect("xbegin is displaced");
    for slot_address in [SLOT_ABOVE, SLOT_BELOW] {
        let slot = displaced.slot(slot_address).expect("in reach");
        arena.pad(FAR);
        arena.pad(SITE + 6);
        arena.write(SITE, &[0xcc]);
        arena.write(slot_address, &slot.bytes);
        let mut state = start(&arena, &mut Random::new(3));
        state.registers.rip = slot_address;
        let end = arena.run(&state);
        assert_eq!((end.registers.rip, end.fault), (FAR, None));
        let mut gpr = end.registers.gpr;
        gpr[0] = state.registers.gpr[0];
        assert_eq!(gpr, state.registers.gpr, "all but the abort's status");
    }
}

/// Intel's and AMD's processors treat an operand-size prefix differently; each does the same in the
/// slot as at the site.
#[test]
fn what_the_makers_understand_differently() {
    for bytes in [&[0x66, 0xc3][..], &[0x66, 0xc2, 8, 0], &[0x66, 0xff, 0x23], &[0x66, 0xff, 0xe2]] {
        let ends = rounds(bytes, 6, |state, random| {
            let target = TARGETS[random.below(3) as usize];
            state.registers.gpr[2] = target;
            poke(state, OPERAND, target);
            poke(state, STACK, target);
        });
        assert!(ends.iter().all(|(_, ways)| ways.slots == 2 && !ways.emulated));
    }
}
