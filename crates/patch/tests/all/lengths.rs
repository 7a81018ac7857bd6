//! A second decoder agrees on the lengths of instructions: on every encoding, and on the code of
//! real programs. The decoders never differ on an encoding that both know.

use std::collections::BTreeMap;
use std::fs;

use crate::common::encodings::{Addresses, all};
use dprobes_patch::{Mode, Refusal, displace_in};
use object::{Object, ObjectSection, SectionKind};
use yaxpeax_arch::{Decoder, LengthedInstruction};
use yaxpeax_x86::{long_mode, protected_mode};

/// The length by the other decoder, if it knows the instruction.
fn other_length(mode: Mode, bytes: &[u8]) -> Option<usize> {
    let mut reader = yaxpeax_arch::U8Reader::new(bytes);
    match mode {
        Mode::Bits64 => long_mode::InstDecoder::default()
            .decode(&mut reader)
            .ok()
            .map(|instruction| instruction.len().to_const() as usize),
        Mode::Bits32 => protected_mode::InstDecoder::default()
            .decode(&mut reader)
            .ok()
            .map(|instruction| instruction.len().to_const() as usize),
    }
}

fn compare(mode: Mode, bytes: &[u8], address: u64, differences: &mut BTreeMap<String, u32>) -> usize {
    let ours = displace_in(mode, bytes, address);
    let theirs = other_length(mode, bytes);
    let (Ok(displaced), Some(length)) = (&ours, theirs) else {
        return ours.map_or(0, |displaced| displaced.length());
    };
    if displaced.length() != length {
        let mnemonic = displaced.text().split(' ').next().unwrap_or_default().to_owned();
        *differences.entry(mnemonic).or_default() += 1;
        eprintln!("{:02x?} {} other: {length}", displaced.original(), displaced.text());
    }
    displaced.length()
}

#[test]
fn every_encoding() {
    every_encoding_of(Mode::Bits64, 20_000);
}

#[test]
fn every_encoding_of_32_bit_code() {
    every_encoding_of(Mode::Bits32, 12_000);
}

fn every_encoding_of(mode: Mode, least: usize) {
    let addresses = Addresses { mode, site: 0x40_1000, data: 0x50_0000, target: 0x40_1040 };
    let mut differences = BTreeMap::new();
    let (mut both, mut ours_alone) = (0, 0);
    for encoding in all(addresses) {
        let mut bytes = encoding.bytes.clone();
        bytes.extend_from_slice(&[0x90; 15]);
        compare(mode, &bytes, addresses.site, &mut differences);
        match other_length(mode, &bytes) {
            Some(_) => both += 1,
            None => ours_alone += 1,
        }
    }
    eprintln!("{both} known to both, {ours_alone} to ours alone");
    assert!(both > least);
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn real_programs() {
    // A program, by one of the paths that it has.
    for (mode, paths) in [
        (Mode::Bits64, &["/proc/self/exe"][..]),
        (Mode::Bits64, &["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"]),
        (Mode::Bits32, &["/lib32/libc.so.6", "/lib/i386-linux-gnu/libc.so.6"]),
    ] {
        let read = |path: &&str| Some((path.to_string(), fs::read(path).ok()?));
        let Some((path, file)) = paths.iter().find_map(read) else {
            testing::skipped("real programs", &paths.join(" or "));
            continue;
        };
        let file = object::File::parse(&*file).expect("a program that runs is an ELF file");
        let text = file
            .sections()
            .find(|section| section.kind() == SectionKind::Text && section.name() == Ok(".text"))
            .expect("it has code");
        let (address, bytes) = (text.address(), text.data().expect("it is in the file"));
        let mut differences = BTreeMap::new();
        let mut refusals: BTreeMap<String, u32> = BTreeMap::new();
        let (mut at, mut count, mut ours_alone) = (0, 0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..(at + 15).min(bytes.len())];
            let length = compare(mode, rest, address + at as u64, &mut differences);
            if let Err(refusal) = displace_in(mode, rest, address + at as u64) {
                let why = match refusal {
                    Refusal::SoftwareInterrupt { text, .. } | Refusal::FarTransfer { text, .. } => text,
                    other => other.to_string(),
                };
                *refusals.entry(why).or_default() += 1;
            }
            ours_alone += u32::from(length > 0 && other_length(mode, rest).is_none());
            at += length.max(1);
            count += 1;
        }
        eprintln!("{path}: {count} instructions, {ours_alone} known to ours alone; refused: {refusals:?}");
        assert!(count > 10_000 && differences.is_empty(), "{path}: {differences:?}");
        // Compilers fill the space between functions with int3.
        let refused: u32 = refusals.iter().filter(|(why, _)| *why != "int3").map(|(_, count)| count).sum();
        assert!(refused < count / 1000, "{path}: {refused} of {count}: {refusals:?}");
    }
}
