//! Stops of displaced code: at faults, under the trap flag, between the instructions of a slot.

use crate::common::forms::{near, rounds, short};
use crate::common::native::{
    Arena, BACKWARD, DATA, DATA_LENGTH, DataMemory, FAR, FORWARD, NOWHERE, OPERAND, SITE, SLOT_ABOVE, STACK,
    Start,
};
use crate::common::random::{Random, poke, start};
use dprobes_patch::{Access, Registers, SlotPosition, displace};

/// The end of the data.
const END: u64 = DATA + DATA_LENGTH as u64;

/// A `popf` that sets the trap flag: the debug exception follows the next instruction, at the site
/// and emulated; in a slot it would come one instruction early.
#[test]
fn the_trap_flag_from_the_stack() {
    let mut arena = Arena::take();
    for (bytes, size) in [(&[0x9d][..], 8), (&[0x66, 0x9d], 2)] {
        for round in 0..32 {
            let mut random = Random::new(round);
            let mut state = start(&arena, &mut random);
            state.registers.rip = SITE;
            poke(&mut state, STACK, random.next() & !0x4_0000 | 0x100);
            let displaced = displace(bytes, SITE).expect("it can be displaced");
            let next = SITE + bytes.len() as u64;
            arena.write(SITE, bytes);
            arena.pad(next);
            let expected = arena.run(&state);
            let fault = expected.fault.expect("the trap flag traps");
            // The pad's first instruction has been executed.
            assert_eq!((fault.signal, expected.registers.rip), (libc::SIGTRAP, next + 10));
            assert_eq!(expected.registers.gpr[4], STACK + size);

            let mut emulated = state.clone();
            assert!(!displaced.is_emulated());
            assert!(displaced.wants_emulation(&emulated.registers, &mut DataMemory(&mut emulated.data)));
            displaced
                .emulate(&mut emulated.registers, &mut DataMemory(&mut emulated.data))
                .expect("the stack is there");
            assert_eq!(
                emulated.registers.rflags, expected.registers.rflags,
                "all flags but those only the kernel sees"
            );
            assert_eq!((emulated.registers.rip, emulated.registers.gpr[4]), (next, STACK + size));
        }
    }
}

/// With the trap flag already set nothing is emulated: the exception follows the displaced
/// instruction, in its slot, and is reported as if it followed the original.
#[test]
fn the_trap_flag_set_before() {
    let mut arena = Arena::take();
    let cases = [
        vec![0x90],
        vec![0x53],
        vec![0x9c],
        vec![0xc3],
        vec![0x48, 0x01, 0xd8],
        vec![0xff, 0xd2],
        vec![0xff, 0x13],
        near(&[0xe8], FORWARD),
        near(&[0xe9], FAR),
        short(&[0x74], FORWARD),
        short(&[0x75], FORWARD),
        short(&[0xe2], BACKWARD),
    ];
    for bytes in cases {
        let mut state = start(&arena, &mut Random::new(7));
        state.registers.gpr[2] = FORWARD;
        state.registers.rip = SITE;
        state.registers.rflags |= 0x100;
        poke(&mut state, OPERAND, FAR);
        poke(&mut state, STACK, BACKWARD);
        let displaced = displace(&bytes, SITE).expect("it can be displaced");
        assert!(!displaced.wants_emulation(&state.registers, &mut DataMemory(&mut state.data)));
        arena.write(SITE, &bytes);
        let expected = arena.step(&state);
        let slot = displaced.slot(SLOT_ABOVE).expect("in reach");
        arena.write(SLOT_ABOVE, &slot.bytes);
        state.registers.rip = SLOT_ABOVE;
        let mut end = arena.step(&state);
        // A call through a register or memory takes several steps; those in between are not the
        // program's.
        while matches!(
            slot.position_at(end.registers.rip.wrapping_sub(SLOT_ABOVE) as usize),
            SlotPosition::Pushed { .. }
        ) {
            end = arena.step(&Start { registers: end.registers, data: end.data.clone(), ..state.clone() });
        }
        slot.mend(&mut end.registers);
        assert_eq!(end.registers, expected.registers, "{displaced:?}");
    }
}

/// If the emulation is refused an access, the processor executes the slot, and its fault equals the
/// original's after the address is mended.
#[test]
fn faults_are_the_original_s() {
    let unmapped_stack = |state: &mut Start, _: &mut Random| state.registers.gpr[4] = NOWHERE;
    let wild_stack = |state: &mut Start, _: &mut Random| state.registers.gpr[4] = 0x8000_0000_0000_0100;
    let wild_rbx = |state: &mut Start, _: &mut Random| state.registers.gpr[3] = 0x8000_0000_0000_0100;
    let unmapped_rbx = |state: &mut Start, _: &mut Random| state.registers.gpr[3] = NOWHERE;
    let wild_return = |state: &mut Start, _: &mut Random| poke(state, STACK, 0x8000_0000_0000_0100);
    let wild_pointer = |state: &mut Start, _: &mut Random| poke(state, OPERAND, 0x8000_0000_0000_0100);
    let zero_rcx = |state: &mut Start, _: &mut Random| state.registers.gpr[1] = 0;
    type Change = fn(&mut Start, &mut Random);
    let cases: Vec<(Vec<u8>, Change, i32)> = vec![
        (vec![0x53], unmapped_stack, libc::SIGSEGV),
        (vec![0x6a, 1], wild_stack, libc::SIGBUS),
        (vec![0x68, 1, 2, 3, 4], unmapped_stack, libc::SIGSEGV),
        (vec![0xc3], unmapped_stack, libc::SIGSEGV),
        (vec![0xc3], wild_stack, libc::SIGBUS),
        (vec![0xc2, 8, 0], unmapped_stack, libc::SIGSEGV),
        (near(&[0xe8], FORWARD), unmapped_stack, libc::SIGSEGV),
        (near(&[0xe8], FORWARD), wild_stack, libc::SIGBUS),
        (vec![0xff, 0xd2], unmapped_stack, libc::SIGSEGV),
        (vec![0xff, 0x13], unmapped_rbx, libc::SIGSEGV),
        (vec![0xff, 0x13], wild_rbx, libc::SIGSEGV),
        (vec![0xff, 0x13], unmapped_stack, libc::SIGSEGV),
        (vec![0xff, 0x23], unmapped_rbx, libc::SIGSEGV),
        (vec![0xff, 0xe3], wild_rbx, libc::SIGSEGV),
        (vec![0xff, 0x23], wild_pointer, libc::SIGSEGV),
        (vec![0xc3], wild_return, libc::SIGSEGV),
        (vec![0x9d], unmapped_stack, libc::SIGSEGV),
        (vec![0x5b], unmapped_stack, libc::SIGSEGV),
        (vec![0x48, 0x8b, 0x03], unmapped_rbx, libc::SIGSEGV),
        (vec![0x48, 0x89, 0x03], unmapped_rbx, libc::SIGSEGV),
        (near(&[0x48, 0x8b, 0x05], NOWHERE), |_, _| {}, libc::SIGSEGV),
        (near(&[0xff, 0x15], NOWHERE), |_, _| {}, libc::SIGSEGV),
        (vec![0x48, 0xf7, 0xf1], zero_rcx, libc::SIGFPE),
        (vec![0x0f, 0x0b], |_, _| {}, libc::SIGILL),
        (vec![0x0f, 0xb9, 0xc0], |_, _| {}, libc::SIGILL),
        (vec![0xf4], |_, _| {}, libc::SIGSEGV),
        (vec![0xec], |_, _| {}, libc::SIGSEGV),
        (
            vec![0xf3, 0x48, 0xa5],
            |state, _| {
                state.registers.gpr[1] = 64;
                state.registers.gpr[7] = NOWHERE - 64;
            },
            libc::SIGSEGV,
        ),
    ];
    for (bytes, change, signal) in cases {
        for (end, ways) in rounds(&bytes, 3, change) {
            let fault = end.fault.unwrap_or_else(|| panic!("{bytes:02x?} does not fault"));
            assert_eq!(fault.signal, signal, "{bytes:02x?}: {fault:x?}");
            assert_eq!(end.registers.rip, SITE, "{bytes:02x?}");
            assert_eq!((ways.slots, ways.emulated), (2, false), "{bytes:02x?}");
        }
    }
    // A call through a register to an unmapped address completes; the target faults.
    for (end, ways) in rounds(&[0xff, 0xd3], 3, unmapped_rbx) {
        assert_eq!((end.registers.rip, ways.faulted, ways.emulated), (NOWHERE, true, true));
    }
}

/// A repeated instruction that faults midway has done a part, and is at the site again.
#[test]
fn a_repeated_instruction_stops_on_its_way() {
    let bytes = [0xf3, 0x48, 0xab];
    let ends = rounds(&bytes, 3, |state, _| {
        state.registers.rflags &= !0x400;
        state.registers.gpr[1] = 16;
        state.registers.gpr[7] = END - 64;
    });
    for (end, ways) in ends {
        assert!(ways.faulted && ways.slots == 2);
        assert_eq!((end.registers.rip, end.registers.gpr[1], end.registers.gpr[7]), (SITE, 8, END));
    }
}

/// A misaligned stack under the alignment check flag faults, so it is not emulated.
#[test]
fn misaligned_under_alignment_check() {
    let state = Registers { rip: SITE, rflags: 0x4_0202, ..Registers::default() };
    let mut data = vec![0; DATA_LENGTH];
    for (bytes, write) in
        [(&[0x53][..], true), (&[0xc3], false), (&[0xff, 0x13], false), (&[0xe8, 0, 0, 0, 0], true)]
    {
        let displaced = displace(bytes, SITE).expect("it can be displaced");
        let mut registers = state;
        registers.gpr[3] = OPERAND + 4;
        registers.gpr[4] = STACK + 4;
        let before = registers;
        let access =
            displaced.emulate(&mut registers, &mut DataMemory(&mut data)).expect_err("it is misaligned");
        assert_eq!((access.size, access.write, registers), (8, write, before));
        registers.rflags &= !0x4_0000;
        displaced.emulate(&mut registers, &mut DataMemory(&mut data)).expect("and allowed without the flag");
    }
}

#[test]
fn a_refused_access_says_which() {
    let mut data = vec![0; DATA_LENGTH];
    let mut try_with = |bytes: &[u8], rbx: u64, rsp: u64| {
        let displaced = displace(bytes, SITE).expect("it can be displaced");
        let mut registers = Registers { rip: SITE, rflags: 0x202, ..Registers::default() };
        (registers.gpr[3], registers.gpr[4], registers.gpr[5]) = (rbx, rsp, rbx);
        let before = registers;
        let access =
            displaced.emulate(&mut registers, &mut DataMemory(&mut data)).expect_err("it is refused");
        assert_eq!(registers, before);
        access
    };
    let stack = |address, write| Access { address, size: 8, write, stack: true };
    assert_eq!(try_with(&[0x53], 0, NOWHERE), stack(NOWHERE - 8, true));
    assert_eq!(try_with(&[0x53], 0, 0), stack(u64::MAX - 7, true));
    assert_eq!(try_with(&[0xc3], 0, NOWHERE), stack(NOWHERE, false));
    assert_eq!(try_with(&[0xff, 0x13], NOWHERE, STACK), Access { stack: false, ..stack(NOWHERE, false) });
    assert_eq!(try_with(&[0xff, 0x55, 0x08], NOWHERE, STACK), stack(NOWHERE + 8, false));
    assert!(!try_with(&[0x65, 0xff, 0x55, 0x08], NOWHERE, STACK).stack);
    assert_eq!(
        try_with(&[0xff, 0xe3], 1 << 47, STACK),
        Access { address: 1 << 47, size: 1, write: false, stack: false }
    );
    // Never emulated: the access is the instruction itself.
    assert_eq!(
        try_with(&[0x48, 0x89, 0xd8], 0, STACK),
        Access { address: SITE, size: 3, write: false, stack: false }
    );
}

/// From every instruction of a slot a valid state of the program can be restored: at the site with
/// the original rsp, or after the instruction.
#[test]
fn every_stop_in_a_slot_has_a_place() {
    let mut arena = Arena::take();
    let cases: Vec<Vec<u8>> = vec![
        vec![0xff, 0x13],
        vec![0xff, 0xd2],
        vec![0xff, 0x54, 0x24, 0x08],
        near(&[0xe8], FORWARD),
        near(&[0x0f, 0x84], FORWARD),
        short(&[0xe2], FORWARD),
        near(&[0xe9], FORWARD),
        vec![0x48, 0x01, 0xd8],
    ];
    for bytes in cases {
        let displaced = displace(&bytes, SITE).expect("it can be displaced");
        let slot = displaced.slot(SLOT_ABOVE).expect("in reach");
        arena.write(SLOT_ABOVE, &slot.bytes);
        let mut state = start(&arena, &mut Random::new(11));
        state.registers.gpr[2] = FORWARD;
        poke(&mut state, OPERAND, FORWARD);
        poke(&mut state, STACK + 8, FORWARD);
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
        let inside =
            (0..slot.bytes.len()).filter(|offset| slot.position_at(*offset) == SlotPosition::Inside).count();
        assert!(
            inside > 0
                && slot.position_at(slot.bytes.len()) == SlotPosition::Inside
                && slot.position_at(usize::MAX) == SlotPosition::Inside
        );
        let mut elsewhere = Registers { rip: SLOT_ABOVE - 1, ..Registers::default() };
        assert!(!slot.mend(&mut elsewhere) && elsewhere.rip == SLOT_ABOVE - 1);
    }
}
