//! Every instruction that the assembler knows is refused, or its slot does the same from another
//! address.

use std::collections::BTreeMap;

use crate::common::encodings::{Addresses, Encoding, all};
use dprobes_patch::{Displaced, Mode, Refusal, SLOT_CAPACITY, SlotPosition, displace_in};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

const HIGH: Addresses = Addresses {
    mode: Mode::Bits64,
    site: 0x7f12_3456_7ff8,
    data: 0x7f12_3556_0000,
    target: 0x7f12_3456_7ff8 + 0x40,
};
const LOW: Addresses =
    Addresses { mode: Mode::Bits64, site: 0x40_0ff3, data: 0x60_0000, target: 0x40_0ff3 - 0x40 };

const HIGH_32: Addresses =
    Addresses { mode: Mode::Bits32, site: 0xf7f1_0ff8, data: 0xf7f5_0000, target: 0xf7f1_0ff8 + 0x40 };
const LOW_32: Addresses = Addresses { mode: Mode::Bits32, ..LOW };

fn decode(mode: Mode, bytes: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(mode.bits(), bytes, address, DecoderOptions::NONE).decode()
}

/// The instruction followed by other bytes, as in a program.
fn followed(bytes: &[u8]) -> Vec<u8> {
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(&[
        0x48, 0x85, 0xc0, 0x0f, 0x84, 0xcc, 0x05, 0x66, 0x67, 0x00, 0xff, 0x24, 0x25, 0xe9, 0xd5,
    ]);
    longer
}

/// The slot's first instruction is equivalent to the original, and a jump to the next instruction
/// follows.
fn check_slot(encoding: &Encoding, displaced: &Displaced, slot_address: u64) {
    let context = || format!("{encoding:02x?}: {displaced:?} at {slot_address:#x}");
    let slot = displaced.slot(slot_address).unwrap_or_else(|refusal| panic!("{}: {refusal}", context()));
    assert!(slot.bytes.len() <= SLOT_CAPACITY, "{}", context());
    assert_eq!(slot.position_at(0), SlotPosition::Before, "{}", context());
    let mode = displaced.mode();
    let decode = |bytes: &[u8], address| decode(mode, bytes, address);
    let next = displaced.address() + displaced.length() as u64;
    let original = decode(displaced.original(), displaced.address());
    let copy = decode(&slot.bytes, slot_address);
    assert_eq!(copy.len(), slot.instruction_length, "{}", context());
    let is_call = displaced.is_emulated() && original.mnemonic() == Mnemonic::Call;
    let is_jump =
        displaced.is_emulated() && (original.is_jmp_short_or_near() || original.is_jcc_short_or_near());
    let counts =
        displaced.is_emulated() && (original.is_loop() || original.is_loopcc() || original.is_jcx_short());
    if is_call {
        // The golden listing shows the bytes; running them shows that they are equivalent.
        let pushed: Vec<u8> = match mode {
            Mode::Bits64 => next.to_le_bytes().to_vec(),
            Mode::Bits32 => [&[0x68][..], &(next as u32).to_le_bytes()].concat(),
        };
        let found = slot.bytes.windows(pushed.len()).filter(|bytes| *bytes == pushed).count();
        assert_eq!(found, 1, "{}", context());
        return;
    }
    if is_jump {
        assert_eq!(copy.mnemonic(), original.mnemonic(), "{}", context());
        assert_eq!(copy.near_branch_target(), original.near_branch_target(), "{}", context());
        if original.mnemonic() == Mnemonic::Jmp {
            return;
        }
    } else if counts {
        assert_eq!(copy.code(), original.code(), "{}", context());
        let taken = (copy.near_branch_target() - slot_address) as usize;
        let jump = decode(&slot.bytes[taken..], slot_address + taken as u64);
        assert_eq!(jump.near_branch_target(), original.near_branch_target(), "{}", context());
    } else {
        // The decoder reports rip-relative operands as absolute addresses, so equal instructions
        // mean equal addresses; where only the low 32 bits count, it reports those.
        assert_eq!(copy, original, "{}", context());
        assert_eq!(copy.len(), original.len(), "{}", context());
    }
    let mut after = copy.len();
    if original.code() == Code::Syscall {
        assert_eq!(
            slot.position_at(after),
            SlotPosition::After { rip: next, rcx: Some(next) },
            "{}",
            context()
        );
        let load = decode(&slot.bytes[after..], slot_address + after as u64);
        assert_eq!((load.code(), load.immediate64()), (Code::Mov_r64_imm64, next), "{}", context());
        after += load.len();
    }
    assert_eq!(slot.position_at(after), SlotPosition::After { rip: next, rcx: None }, "{}", context());
    let jump = decode(&slot.bytes[after..], slot_address + after as u64);
    let long = if mode == Mode::Bits64 { Code::Jmp_rel32_64 } else { Code::Jmp_rel32_32 };
    assert_eq!((jump.code(), jump.near_branch_target()), (long, next), "{}", context());
}

/// The name of a refusal, for the table of what is refused.
fn name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Truncated { .. } => "cut off",
        Refusal::Unknown { .. } => "unknown",
        Refusal::SoftwareInterrupt { .. } => "software interrupt",
        Refusal::FarTransfer { .. } => "far transfer",
        Refusal::FixedReturn { .. } => "fixed return",
        Refusal::Enclave { .. } => "enclave",
        Refusal::MakersDiffer { .. } => "makers differ",
        Refusal::ShortTransaction { .. } => "short transaction",
        Refusal::StackSegment { .. } => "stack segment",
        Refusal::Unproven { .. } => "unproven",
        Refusal::OutOfReach { .. } => "out of reach",
    }
}

#[test]
fn every_instruction_is_refused_or_does_the_same_from_its_slot() {
    let found = displace_all([HIGH, LOW], 15_000);
    assert!(found.slots > 100_000 && found.relative > 5_000, "{found:?}");
    insta::assert_snapshot!("refused", found.refused.join("\n"));
    insta::assert_snapshot!("emulated", found.emulated.join("\n"));
}

#[test]
fn every_instruction_of_32_bit_code_too() {
    let found = displace_all([HIGH_32, LOW_32], 10_000);
    assert!(found.slots > 60_000 && found.relative == 0, "{found:?}");
    insta::assert_snapshot!("refused_32", found.refused.join("\n"));
    insta::assert_snapshot!("emulated_32", found.emulated.join("\n"));
}

/// The results of all instructions.
#[derive(Debug)]
struct Found {
    slots: u32,
    relative: u32,
    refused: Vec<String>,
    emulated: Vec<String>,
}

fn displace_all(places: [Addresses; 2], least: usize) -> Found {
    let mut refused: BTreeMap<String, &'static str> = BTreeMap::new();
    let mut emulated: BTreeMap<String, ()> = BTreeMap::new();
    let (mut slots, mut relative) = (0, 0);
    for addresses in places {
        let encodings = all(addresses);
        assert!(encodings.len() > least, "only {} encodings", encodings.len());
        for encoding in &encodings {
            let displaced = match displace_in(addresses.mode, &followed(&encoding.bytes), addresses.site) {
                Ok(displaced) => displaced,
                Err(refusal) => {
                    assert!(refusal.to_string().contains(&format!("{:#x}", addresses.site)), "{refusal}");
                    refused.insert(format!("{:?}", encoding.code), name(&refusal));
                    continue;
                }
            };
            assert!(followed(&encoding.bytes).starts_with(displaced.original()));
            if displaced.is_emulated() {
                emulated.insert(format!("{:?}", encoding.code), ());
            }
            let reach = displaced.reach();
            let middle = addresses.site.clamp(*reach.start(), *reach.end());
            let (below, above) = (middle.saturating_sub(1 << 30), middle + (1 << 30));
            let near = [middle, below, above, *reach.start(), *reach.end()];
            for slot in near.into_iter().filter(|slot| reach.contains(slot)) {
                check_slot(encoding, &displaced, slot);
                slots += 1;
            }
            for beyond in [reach.start().checked_sub(1), reach.end().checked_add(1)].into_iter().flatten() {
                assert!(matches!(displaced.slot(beyond), Err(Refusal::OutOfReach { .. })), "{encoding:02x?}");
            }
            let original = decode(addresses.mode, displaced.original(), addresses.site);
            relative += u32::from(original.is_ip_rel_memory_operand());
        }
    }
    let refused: Vec<_> = refused.iter().map(|(code, why)| format!("{code}: {why}")).collect();
    Found { slots, relative, refused, emulated: emulated.into_keys().collect() }
}

#[test]
fn an_instruction_that_is_cut_off_is_refused() {
    for (addresses, encoding) in
        [LOW, LOW_32].into_iter().flat_map(|each| all(each).into_iter().map(move |e| (each, e)))
    {
        let displace = |bytes: &[u8]| displace_in(addresses.mode, bytes, addresses.site);
        let Ok(displaced) = displace(&followed(&encoding.bytes)) else { continue };
        for length in 0..displaced.length() {
            let cut = displace(&displaced.original()[..length]);
            // A part of an instruction can be a whole one only if the rest was ignored padding, of
            // which there is none.
            assert!(
                matches!(cut, Err(Refusal::Truncated { .. })),
                "{encoding:02x?} cut to {length}: {cut:?}"
            );
        }
        let exact = displace(displaced.original()).expect("the whole instruction is there");
        assert_eq!(exact.length(), displaced.length());
    }
}
