//! One instruction run three ways, from the same state: at its own address, in slots above and below, and emulated.

use dprobes_patch::{Displaced, displace_in};

use super::native::{Arena, DATA, DataMemory, End, SITE, SLOT_ABOVE, SLOT_BELOW, Start};

/// Which of the ways were taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways {
    pub slots: usize,
    pub emulated: bool,
    pub faulted: bool,
}

/// Runs `bytes` at the site, and in every way that it can be displaced, and compares all there is to compare. Pads are put where
/// the instruction ends and at `targets`. None if it is refused.
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

    // From here on the site is as it is while a probe is armed: whoever runs there is trapped.
    arena.write(SITE, &[0xcc]);
    for slot in [SLOT_ABOVE, SLOT_BELOW] {
        if displaced.reach().contains(&slot) {
            let mut end = run_slot(arena, &displaced, slot, &start);
            forgive_below_stack(&displaced, &start, &mut end, &expected);
            assert_same(&displaced, &format!("slot at {slot:#x}"), &start, &end, &expected);
            ways.slots += 1;
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
    Some((expected, ways))
}

/// Runs the instruction in its slot, with what surrounds a stop in it.
fn run_slot(arena: &mut Arena, displaced: &Displaced, address: u64, start: &Start) -> End {
    let slot = displaced.slot(address).expect("it is in reach");
    arena.write(address, &[0xcc; 64]);
    arena.write(address, &slot.bytes);
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
    end
}

/// Some faults give the address of the instruction; the slot's, there.
fn normalise(end: &mut End, stopped: u64) {
    if let Some(fault) = end.fault.as_mut().filter(|fault| fault.address == stopped) {
        fault.address = end.registers.rip;
    }
}

/// The one thing in which a slot may differ: that of a call through a register or memory writes two words below the return address.
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
