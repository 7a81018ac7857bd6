//! A second decoder agrees on where instructions end: on every encoding, and on the code of real programs. There is no encoding
//! that both know and on whose length they differ.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::encodings::{Addresses, all};
use dprobes_patch::{Refusal, displace};
use object::{Object, ObjectSection, SectionKind};
use yaxpeax_arch::{Decoder, LengthedInstruction};
use yaxpeax_x86::long_mode::InstDecoder;

/// What the other decoder makes of the bytes: the length of the instruction, if it knows any.
fn other_length(decoder: &InstDecoder, bytes: &[u8]) -> Option<usize> {
    decoder
        .decode(&mut yaxpeax_arch::U8Reader::new(bytes))
        .ok()
        .map(|instruction| instruction.len().to_const() as usize)
}

fn compare(
    decoder: &InstDecoder,
    bytes: &[u8],
    address: u64,
    differences: &mut BTreeMap<String, u32>,
) -> usize {
    let ours = displace(bytes, address);
    let theirs = other_length(decoder, bytes);
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
    let decoder = InstDecoder::default();
    let addresses = Addresses { site: 0x40_1000, data: 0x50_0000, target: 0x40_1040 };
    let mut differences = BTreeMap::new();
    let (mut both, mut ours_alone) = (0, 0);
    for encoding in all(addresses) {
        let mut bytes = encoding.bytes.clone();
        bytes.extend_from_slice(&[0x90; 15]);
        compare(&decoder, &bytes, addresses.site, &mut differences);
        match other_length(&decoder, &bytes) {
            Some(_) => both += 1,
            None => ours_alone += 1,
        }
    }
    eprintln!("{both} known to both, {ours_alone} to ours alone");
    assert!(both > 20_000);
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn real_programs() {
    for path in ["/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let Ok(file) = fs::read(path) else {
            eprintln!("{path} is missing");
            continue;
        };
        let file = object::File::parse(&*file).expect("a program that runs is an ELF file");
        let text = file
            .sections()
            .find(|section| section.kind() == SectionKind::Text && section.name() == Ok(".text"))
            .expect("it has code");
        let (address, bytes) = (text.address(), text.data().expect("it is in the file"));
        let decoder = InstDecoder::default();
        let mut differences = BTreeMap::new();
        let mut refusals: BTreeMap<String, u32> = BTreeMap::new();
        let (mut at, mut count, mut ours_alone) = (0, 0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..(at + 15).min(bytes.len())];
            let length = compare(&decoder, rest, address + at as u64, &mut differences);
            if let Err(refusal) = displace(rest, address + at as u64) {
                let why = match refusal {
                    Refusal::SoftwareInterrupt { text, .. } | Refusal::FarTransfer { text, .. } => text,
                    other => other.to_string(),
                };
                *refusals.entry(why).or_default() += 1;
            }
            ours_alone += u32::from(length > 0 && other_length(&decoder, rest).is_none());
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
