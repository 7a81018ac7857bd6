//! Properties that hold for any bytes, registers and memory.

use dprobes_patch::{Memory, Mode, Registers, SLOT_CAPACITY, SlotPosition, displace_in};
use proptest::prelude::*;

/// Memory that grants a number of accesses, with any content, and records writes.
struct Granting {
    accesses: usize,
    content: [u8; 8],
    written: Vec<(u64, Vec<u8>)>,
}

impl Memory for Granting {
    fn read(&mut self, _: u64, into: &mut [u8]) -> bool {
        let granted = self.accesses > 0;
        self.accesses = self.accesses.saturating_sub(1);
        if granted {
            into.copy_from_slice(&self.content[..into.len()]);
        }
        granted
    }

    fn write(&mut self, address: u64, from: &[u8]) -> bool {
        let granted = self.accesses > 0;
        self.accesses = self.accesses.saturating_sub(1);
        if granted {
            self.written.push((address, from.to_vec()));
        }
        granted
    }
}

/// Bytes that often begin an emulated instruction.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let emulated = proptest::sample::select(vec![
        vec![0x53],
        vec![0x6a],
        vec![0x68],
        vec![0xe8],
        vec![0xe9],
        vec![0xeb],
        vec![0x74],
        vec![0xe2],
        vec![0xe3],
        vec![0xc3],
        vec![0xc2],
        vec![0xff, 0x13],
        vec![0xff, 0x15],
        vec![0xff, 0x54, 0x24],
        vec![0xff, 0xd0],
        vec![0xff],
        vec![0x9d],
        vec![0x0f, 0x84],
        vec![0x90],
        vec![],
    ]);
    let prefixes = proptest::collection::vec(
        proptest::sample::select(vec![0x66, 0x67, 0x64, 0x65, 0x3e, 0xf2, 0xf3, 0x48, 0x41, 0x40]),
        0..4,
    );
    (prefixes, emulated, proptest::collection::vec(any::<u8>(), 0..16))
        .prop_map(|(prefixes, start, rest)| [prefixes, start, rest].concat())
}

fn mode() -> impl Strategy<Value = Mode> {
    proptest::sample::select(vec![Mode::Bits32, Mode::Bits64])
}

fn any_registers() -> impl Strategy<Value = Registers> {
    let number = prop_oneof![Just(0), 0..1_u64 << 47, any::<u64>()];
    (proptest::collection::vec(number, 16), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(values, rflags, fs_base, gs_base)| {
            let mut gpr = [0; 16];
            gpr.copy_from_slice(&values);
            Registers { gpr, rip: 0, rflags, fs_base, gs_base }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn emulation_is_all_or_nothing(
        mode in mode(),
        bytes in code(),
        address in prop_oneof![0..1_u64 << 47, any::<u64>()],
        registers in any_registers(),
        content in any::<[u8; 8]>(),
        accesses in 0..3_usize,
    ) {
        let Ok(displaced) = displace_in(mode, &bytes, address) else { return Ok(()) };
        let before = Registers { rip: address, ..registers };
        let mut after = before;
        let mut memory = Granting { accesses, content, written: Vec::new() };
        let wanted = displaced.wants_emulation(&before, &mut Granting { accesses, content, written: Vec::new() });
        prop_assert!(displaced.is_emulated() || !wanted || displaced.text().contains("popf"));
        match displaced.emulate(&mut after, &mut memory) {
            Err(_) => {
                prop_assert_eq!(before, after);
                prop_assert!(memory.written.is_empty());
            }
            Ok(()) => {
                prop_assert!(memory.written.len() <= 1);
                let end = if mode == Mode::Bits32 { 1 << 32 } else { 1 << 47 };
                prop_assert!(after.rip < end);
                prop_assert_eq!((after.fs_base, after.gs_base), (before.fs_base, before.gs_base));
                // At most one register besides rip: rsp, or the count.
                let changed: Vec<_> = (0..16).filter(|number| before.gpr[*number] != after.gpr[*number]).collect();
                prop_assert!(changed.len() <= 1 && changed.iter().all(|number| [1, 4].contains(number)));
                prop_assert!(before.rflags == after.rflags || displaced.text().contains("popf"));
            }
        }
    }

    #[test]
    fn slots_exist_exactly_within_reach(
        mode in mode(),
        bytes in code(),
        address in prop_oneof![0..1_u64 << 47, any::<u64>()],
        slot in any::<u64>(),
        near in -(1_i64 << 33)..1_i64 << 33,
    ) {
        let Ok(displaced) = displace_in(mode, &bytes, address) else { return Ok(()) };
        prop_assert!(displaced.length() <= bytes.len());
        let reach = displaced.reach();
        prop_assert!(!reach.is_empty());
        for slot in [slot, address.wrapping_add_signed(near), *reach.start(), *reach.end()] {
            match displaced.slot(slot) {
                Ok(made) => {
                    prop_assert!(reach.contains(&slot));
                    prop_assert!(made.bytes.len() <= SLOT_CAPACITY && made.instruction_length <= made.bytes.len());
                    prop_assert_eq!(made.position_at(0), SlotPosition::Before);
                }
                Err(refusal) => {
                    prop_assert!(!reach.contains(&slot));
                    prop_assert!(refusal.to_string().contains("must be between"));
                }
            }
        }
    }

    #[test]
    fn any_bytes_at_all(mode in mode(), bytes in proptest::collection::vec(any::<u8>(), 0..40), address in any::<u64>()) {
        match displace_in(mode, &bytes, address) {
            Ok(displaced) => prop_assert!((1..=15).contains(&displaced.length()) && !displaced.text().is_empty()),
            Err(refusal) => prop_assert!(!refusal.to_string().contains('\n')),
        }
    }
}
