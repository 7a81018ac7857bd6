//! Damaged input: never a panic, never a hang, never more memory than the input explains.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::{compile, source};
use proptest::prelude::*;
use testing::{Scratch, have};
use unwind::{
    Cfa, Index, Lookup, Module, Registers, Row, Rule, Saved, Table, build, walk, walk_frame_pointers,
};

/// A small program with all that tables are made from.
fn victim() -> Option<&'static Vec<u8>> {
    static VICTIM: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let make = || {
        if !have("unwind: damage", &["gcc"]) {
            return None;
        }
        let scratch = Scratch::new();
        let options = ["-c", "-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
        let bare = compile(&scratch, "gcc", &[source("bare.c")], "bare.o", &options);
        let program = compile(&scratch, "gcc", &[source("mixed.c"), bare], "program", &["-O2", "-g0"]);
        Some(std::fs::read(program).expect("it was just linked"))
    };
    VICTIM.get_or_init(make).as_ref()
}

/// The range of a section in the victim's bytes, found by its header.
fn section(file: &[u8], wanted: &str) -> std::ops::Range<usize> {
    let number = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0, |whole, byte| whole << 8 | usize::from(*byte))
    };
    let (table, names) = (number(0x28, 8), number(0x3e, 2));
    let header = |at: usize| table + 64 * at;
    let strings = number(header(names) + 0x18, 8);
    let found = (0..number(0x3c, 2)).map(header).find(|header| {
        let name = &file[strings + number(*header, 4)..];
        name.starts_with(wanted.as_bytes()) && name[wanted.len()] == 0
    });
    let header = found.expect("the victim has the section");
    let start = number(header + 0x18, 8);
    start..start + number(header + 0x20, 8)
}

/// What holds of each table: rows ascend, and two in sequence differ.
fn check(file: &[u8]) -> Result<Table, String> {
    let begin = Instant::now();
    let table = Table::read(file).map_err(|error| error.to_string())?;
    assert!(begin.elapsed() < Duration::from_secs(10), "{} bytes took {:?}", file.len(), begin.elapsed());
    // A row takes a byte of a program at least; code without information has some more.
    assert!(table.rows.len() <= 3 * file.len(), "{} rows of {} bytes", table.rows.len(), file.len());
    for pair in table.rows.windows(2) {
        assert!(pair[0].address < pair[1].address && pair[0].rule != pair[1].rule, "{pair:x?}");
    }
    Ok(table)
}

#[test]
fn the_victim_is_sound() {
    let Some(victim) = victim() else { return };
    assert!(!section(victim, ".debug_frame").is_empty());
    assert!(check(victim).expect("it is sound").rows.len() > 20);
}

#[test]
fn every_length() {
    let Some(victim) = victim() else { return };
    for length in (0..1024).chain((1024..victim.len()).step_by(61)) {
        let _ = check(&victim[..length]);
    }
}

#[test]
fn every_byte_of_the_headers_and_tables() {
    let Some(victim) = victim() else { return };
    let places = (0..64 + 56 * 13).chain(section(victim, ".eh_frame")).chain(section(victim, ".debug_frame"));
    for at in places {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = victim.clone();
            bytes[at] = value;
            let _ = check(&bytes);
        }
    }
}

/// A copy of the victim whose `.eh_frame` is another, at the end of the file.
fn with_frames(victim: &[u8], frames: &[u8]) -> Vec<u8> {
    let range = section(victim, ".eh_frame");
    // What its section header says of it: offset and size.
    let said = [range.start as u64, range.len() as u64].map(u64::to_le_bytes).concat();
    let place = victim.windows(16).rposition(|bytes| bytes == said).expect("the header");
    let mut bytes = victim.to_vec();
    let now = [victim.len() as u64, frames.len() as u64].map(u64::to_le_bytes).concat();
    bytes[place..place + 16].copy_from_slice(&now);
    bytes.extend(frames);
    bytes
}

/// An `.eh_frame` with a common entry that has so many instructions, and 50,000 functions of 16
/// bytes that refer to it.
fn many_functions(instructions: usize) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut entry = |is_common: bool, rest: &[u8]| {
        frames.extend((rest.len() as u32 + 4).to_le_bytes());
        let back = if is_common { 0 } else { frames.len() as u32 };
        frames.extend(back.to_le_bytes());
        frames.extend_from_slice(rest);
    };
    // Version 1, no augmentation; factors 1 and -8; return address 16. The CFA is rsp + 8, the
    // return address is below it. Then it remembers and restores.
    let mut common = vec![1, 0, 1, 0x78, 16, 12, 7, 8, 0x90, 1];
    common.extend([0x0a, 0x0b].repeat(instructions / 2));
    entry(true, &common);
    for number in 0..50_000u64 {
        entry(false, &[0x10_0000 + number * 16, 16].map(u64::to_le_bytes).concat());
    }
    frames
}

/// A common entry of a megabyte, to which many functions refer, is not executed for each.
#[test]
fn long_common_entries() {
    let Some(victim) = victim() else { return };
    let at = 0x10_0000 + 49_999 * 16;
    let rule = |instructions| {
        let table = check(&with_frames(victim, &many_functions(instructions))).expect("the file is sound");
        let module = Module { start: table.base, end: u64::MAX, bias: table.base, table: &table.rows };
        [module].as_slice().rule(at, false).expect("in the module")
    };
    let known = Rule::Frame { cfa: Cfa::Rsp(8), rbp: Saved::No, rbx: Saved::No };
    assert_eq!(rule(200), known);
    assert_eq!(rule(1 << 20), Rule::Unsupported);
}

/// A function whose entry cannot be translated does not have the rule of the one before it.
#[test]
fn a_damaged_entry_after_a_sound_one() {
    let Some(victim) = victim() else { return };
    let mut frames = Vec::new();
    for (number, return_address) in [(0u64, 16), (1, 15)] {
        let common = [1, 0, 1, 0x78, return_address, 12, 7, 8, 0x80 | return_address, 1];
        frames.extend((common.len() as u32 + 4).to_le_bytes());
        frames.extend([0; 4]);
        frames.extend(common);
        frames.extend(20u32.to_le_bytes());
        // How far back the common entry is.
        frames.extend((common.len() as u32 + 12).to_le_bytes());
        frames.extend([0x10_0000 + number * 16, 16].map(u64::to_le_bytes).concat());
    }
    let table = check(&with_frames(victim, &frames)).expect("the file is sound");
    let module = Module { start: table.base, end: u64::MAX, bias: table.base, table: &table.rows };
    let rule = |at| [module].as_slice().rule(at, false).expect("in the module");
    assert_eq!(rule(0x10_000f), Rule::Frame { cfa: Cfa::Rsp(8), rbp: Saved::No, rbx: Saved::No });
    assert_eq!(rule(0x10_0010), Rule::Unsupported);
}

/// Any registers, any stack: the frames are as many as there is room for, and words are read at
/// multiples of 8 only, in proportion to the frames.
fn check_walk<L: Lookup + ?Sized>(modules: &L, registers: &Registers<'_>, stack: &[u64], base: u64) {
    let mut frames = [0; 64];
    for room in [0, 1, 2, 64] {
        let mut reads = 0;
        let mut read = |address: u64| {
            reads += 1;
            assert_eq!(address % 8, 0, "{address:x}");
            let at = usize::try_from(address.checked_sub(base)? / 8).ok()?;
            stack.get(at).copied()
        };
        let count = walk(registers, modules, &mut read, &mut frames[..room]);
        assert!(count <= room && (room == 0 || (count > 0 && frames[0] == registers.rip)));
        let by_pointers = walk_frame_pointers(registers, &mut read, &mut frames[..room]);
        assert!(by_pointers <= room);
        assert!(reads <= 8 * room + 8, "{reads} words for {room} frames");
    }
}

/// Where the stacks of these tests begin.
const STACK: u64 = 0x7fff_0000_0000;

/// A word of a stack: often an address in it, or in the module.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..80u64).prop_map(|at| STACK + 8 * at),
        4 => 0x1000..0x1400u64,
        1 => any::<u64>(),
        1 => Just(0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_anywhere(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60)) {
        if let Some(victim) = victim() {
            let mut bytes = victim.clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = check(&bytes);
        }
    }

    #[test]
    fn random_bytes_in_the_tables(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
        is_debug in any::<bool>(),
    ) {
        if let Some(victim) = victim() {
            let mut bytes = victim.clone();
            let range = section(victim, if is_debug { ".debug_frame" } else { ".eh_frame" });
            for (at, value) in changes {
                let at = range.start + at.index(range.len());
                bytes[at] = value;
            }
            let _ = check(&bytes);
        }
    }

    #[test]
    fn a_table_of_random_bytes(table in prop::collection::vec(any::<u8>(), 0..2000)) {
        if let Some(victim) = victim() {
            let mut bytes = victim.clone();
            let range = section(victim, ".eh_frame");
            let size = table.len().min(range.len());
            bytes[range.start..range.start + size].copy_from_slice(&table[..size]);
            let _ = check(&bytes);
        }
    }

    #[test]
    fn random_stacks_rows_and_registers(
        rules in prop::collection::vec(prop_oneof![any::<u32>(), (any::<u32>(), 0..16u32).prop_map(|(rule, n)| {
            // Small numbers, so that the walk goes on.
            rule & 0x7 | n << 15
        })], 0..60),
        stack in prop::collection::vec(word(), 80),
        all in prop::array::uniform16(word()),
        (rip, has_all) in (0x0fff..0x1402u64, any::<bool>()),
    ) {
        let table: Vec<Row> =
            rules.iter().zip(0..).map(|(rule, at)| Row { address: 16 * at, rule: *rule }).collect();
        let modules = [Module { start: 0x1000, end: 0x1400, bias: 0x1000, table: &table }];
        let registers = Registers { rip, rsp: all[7], rbp: all[6], all: has_all.then_some(&all) };
        check_walk(modules.as_slice(), &registers, &stack, STACK);
        check_walk(&Index::new(&build(&modules), 0), &registers, &stack, STACK);
    }

    #[test]
    fn random_indices(
        words in prop::collection::vec(prop_oneof![0..60u64, any::<u64>(), (0..16u64, 0..16u64).prop_map(|(a, b)| a | b << 32)], 0..80),
        stack in prop::collection::vec(word(), 80),
        (rip, rsp, rbp) in (word(), word(), word()),
    ) {
        let registers = Registers { rip, rsp, rbp, all: None };
        check_walk(&Index::new(&words, 0), &registers, &stack, STACK);
    }
}
