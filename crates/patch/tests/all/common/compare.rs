//! Runs one instruction from the same state at its own address, in slots above and below, and
//! emulated. A slot continues in three ways: at the next instruction, elsewhere, and behind itself.

use dprobes_patch::{Continuation, Displaced, displace_in};

use super::native::{Arena, DATA, DataMemory, ELSEWHERE, End, SITE, SLOT_ABOVE, SLOT_BELOW, Start};

/// Which of the ways were taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways {
    pub slots: usize,
    pub emulated: bool,
    pub faulted: bool,
}

/// Runs `bytes` at the site and displaced in every possible way, and compares everything. Pads are
/// put behind the instruction and at `targets`. `None` if it is refused.
pub fn compare(arena: &mut Arena, bytes: &[u8], targets: &[u64], start: &Start) -> Option<(End, Ways)> {
    let displaced = displace_in(arena.mode, bytes, SITE).ok()?;
    let next = SITE + displaced.length() as u64;
    arena.write(SITE, &[0x90; 48]);
    for target in targets.iter().chain(&[next]) {
        arena.pad(*target);
    }
    arena.write(SITE, displaced.original());
    let mut start = start.clone();
    start.registers.rip = SITE;
    let mut expected = arena.run(&start);
    normalise(&mut expected, SITE);
    let mut ways = Ways { faulted: expected.fault.is_some(), ..Ways::default() };

    // From here on the site has a breakpoint, as while a probe is armed.
    arena.write(SITE, &[0xcc]);
    for slot in [SLOT_ABOVE, SLOT_BELOW] {
        for onward in [Continuation::Next, Continuation::To(ELSEWHERE), Continuation::Behind] {
            if !displaced.reach_to(onward).contains(&slot) {
                continue;
            }
            let mut end = run_slot(arena, &displaced, slot, onward, &start);
            forgive_below_stack(&displaced, &start, &mut end, &expected);
            assert_same(&displaced, &format!("slot at {slot:#x}, {onward:x?}"), &start, &end, &expected);
            ways.slots += usize::from(onward == Continuation::Next);
        }
    }
    let mut emulated = start.clone();
    let wanted = displaced.wants_emulation(&emulated.registers, &mut DataMemory(&mut emulated.data));
    if wanted && displaced.emulate(&mut emulated.registers, &mut DataMemory(&mut emulated.data)).is_ok() {
        let end = arena.run(&emulated);
        assert_same(&displaced, "emulation", &start, &end, &expected);
        ways.emulated = true;
    } else {
        assert_eq!(
            (&emulated.registers, &emulated.data),
            (&start.registers, &start.data),
            "{displaced:?}: all or nothing"
        );
    }
    if !displaced.may_fault() {
        assert!(!ways.faulted, "{displaced:?} faulted: {:x?}", expected.fault);
    }
    assert_predicted(&displaced, &start, &expected);
    Some((expected, ways))
}

/// The static predictions match what the instruction did.
fn assert_predicted(displaced: &Displaced, start: &Start, end: &End) {
    if end.fault.is_some() {
        return;
    }
    let next = SITE + displaced.length() as u64;
    if let Some(delta) = displaced.stack_delta().filter(|_| end.registers.rip == next) {
        let moved = end.registers.gpr[4].wrapping_sub(start.registers.gpr[4]);
        let width = u64::MAX >> (64 - displaced.mode().bits());
        assert_eq!(moved & width, delta.cast_unsigned() & width, "{displaced:?}");
    }
    // A transfer may also lead to the next instruction; a non-transfer leads nowhere else.
    if !displaced.transfers_control() {
        assert_eq!(end.registers.rip, next, "{displaced:?}");
    }
    if !displaced.falls_through() {
        assert!(displaced.transfers_control(), "{displaced:?}");
    }
}

/// Runs the instruction in its slot, and handles stops in it.
fn run_slot(
    arena: &mut Arena,
    displaced: &Displaced,
    address: u64,
    onward: Continuation,
    start: &Start,
) -> End {
    let slot = displaced.slot_to(address, onward).expect("it is in reach");
    arena.write(address, &[0xcc; 96]);
    arena.write(address, &slot.bytes);
    let behind = address + slot.bytes.len() as u64;
    match onward {
        Continuation::Next => {}
        Continuation::To(elsewhere) => arena.pad(elsewhere),
        Continuation::Behind => arena.pad(behind),
    }
    let mut start = start.clone();
    start.registers.rip = address;
    let mut end = arena.run(&start);
    let stopped = end.registers.rip;
    if end.fault.is_some() && (address..address + slot.bytes.len() as u64).contains(&stopped) {
        assert!(
            slot.mend(&mut end.registers),
            "{displaced:?}: faulted at {stopped:#x} in its slot: {:x?}",
            end.fault
        );
    }
    normalise(&mut end, stopped);
    let next = SITE + displaced.length() as u64;
    match onward {
        Continuation::Next => {}
        Continuation::To(elsewhere) if stopped == elsewhere => end.registers.rip = next,
        Continuation::Behind if stopped == behind => {
            assert!(slot.mend(&mut end.registers), "{displaced:?}: behind is a place, too");
        }
        Continuation::To(_) | Continuation::Behind => {
            assert!(
                displaced.transfers_control() || end.fault.is_some(),
                "{displaced:?} fell through to its next"
            );
        }
    }
    end
}

/// Some faults report the instruction's address, which is the slot's there.
fn normalise(end: &mut End, stopped: u64) {
    if let Some(fault) = end.fault.as_mut().filter(|fault| fault.address == stopped) {
        fault.address = end.registers.rip;
    }
}

/// Ignores the one allowed difference of a slot: a call through a register or memory writes two
/// words below the return address.
fn forgive_below_stack(displaced: &Displaced, start: &Start, end: &mut End, expected: &End) {
    let indirect =
        displaced.is_emulated() && displaced.needs_plain_stack() && displaced.original().contains(&0xff);
    let word = u64::from(displaced.mode().bits()) / 8;
    let (below, length) = (start.registers.gpr[4].wrapping_sub(3 * word), 2 * word as usize);
    let below = below.checked_sub(DATA).map(|offset| offset as usize);
    if let Some(below) =
        below.filter(|below| indirect && end.registers.rip != SITE && below + length <= end.data.len())
    {
        end.data[below..below + length].copy_from_slice(&expected.data[below..below + length]);
    }
}

fn assert_same(displaced: &Displaced, way: &str, start: &Start, end: &End, expected: &End) {
    assert!(
        end == expected,
        "{displaced:?} ({:02x?}), {way}, from {:x?}:\n  {}",
        displaced.original(),
        start.registers,
        end.difference(expected)
    );
}
