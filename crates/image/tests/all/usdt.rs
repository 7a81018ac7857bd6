//! Static probes: the list is readelf's, arguments are where the code has them, and damaged notes
//! are left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use image::{ArgumentPlace, Image, StaticProbe};
use proptest::prelude::*;

use crate::common::{have, run};

/// A probe in words: provider, name, address, semaphore, the texts of its arguments.
type Row = (String, String, u64, u64, Vec<String>);

/// What readelf says of a file's static probes.
fn told(path: &Path) -> Vec<Row> {
    let text = run(Command::new("readelf").arg("-n").arg(path));
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once(':').map(|(key, value)| (key, value.trim())) else {
            continue;
        };
        let number =
            |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).expect("a number");
        match key {
            "Provider" => rows.push((value.to_owned(), String::new(), 0, 0, Vec::new())),
            "Name" => rows.last_mut().expect("behind a provider").1 = value.to_owned(),
            "Location" => {
                let mut parts = value.split(',').map(|part| part.rsplit(' ').next().expect("a number"));
                let mut part = || number(parts.next().expect("three numbers"));
                let (location, _base, semaphore) = (part(), part(), part());
                let row = rows.last_mut().expect("behind a provider");
                (row.2, row.3) = (location, semaphore);
            }
            "Arguments" => {
                rows.last_mut().expect("behind a provider").4 = value.split(' ').map(str::to_owned).collect();
                rows.last_mut().expect("behind a provider").4.retain(|text| !text.is_empty());
            }
            _ => {}
        }
    }
    rows
}

/// The same as the image says it. The size of an argument is not shown as it was written.
fn read(probes: &[StaticProbe]) -> Vec<Row> {
    let row = |it: &StaticProbe| {
        let arguments = it.arguments.iter().map(|argument| {
            let (minus, float) =
                (if argument.signed { "-" } else { "" }, if argument.float { "f" } else { "" });
            format!("{minus}{}{float}@{}", argument.bytes, argument.text)
        });
        (it.provider.clone(), it.name.clone(), it.vaddr, it.semaphore.unwrap_or(0), arguments.collect())
    };
    probes.iter().map(row).collect()
}

/// Programs and libraries of this machine that may have static probes.
fn candidates() -> Vec<PathBuf> {
    let names = ["/usr/bin/python3", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
    let others = ["/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libm.so.6"];
    names.into_iter().chain(others).map(PathBuf::from).filter(|path| path.exists()).collect()
}

#[test]
fn static_probes_are_those_that_readelf_tells() {
    if !have("usdt", &["gcc", "readelf"]) {
        return;
    }
    let target = testing::target("usdt").expect("gcc is there");
    let paths = candidates();
    for path in paths.iter().chain([&target]) {
        let probes = Image::open(path).expect("it is an ELF file").static_probes();
        assert_eq!(read(&probes), told(path), "{}", path.display());
    }
    assert_eq!(Image::open(&target).expect("it is there").static_probes().len(), 9);
}

#[test]
fn probes_are_at_instructions_that_do_nothing() {
    if !have("usdt", &["gcc"]) {
        return;
    }
    let image = Image::open(&testing::target("usdt").expect("gcc is there")).expect("it is an ELF file");
    for probe in image.static_probes() {
        assert_eq!(image.text(probe.vaddr, 1).as_deref(), Some(&[0x90][..]), "{}", probe.name);
        assert!(image.check_boundary(probe.vaddr).is_ok(), "{}", probe.name);
        let unknown = probe.arguments.iter().filter(|argument| argument.place.is_none()).count();
        assert_eq!(unknown, usize::from(probe.name == "floats"), "{}", probe.name);
    }
}

/// A program without section headers whose notes are a part of their own.
fn program(notes: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [3_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_NOTE, readable.
    file.extend([4_u32, 4].into_iter().flat_map(u32::to_le_bytes));
    for word in [120, 0, 0, notes.len() as u64, 0, 4] {
        file.extend(word.to_le_bytes());
    }
    file.extend_from_slice(notes);
    file
}

/// A note, as it may be in a file.
fn note(addresses: [u64; 3], texts: &str) -> Vec<u8> {
    let size = 24 + texts.len();
    let mut note: Vec<u8> = [8, size as u32, 3].into_iter().flat_map(u32::to_le_bytes).collect();
    note.extend(b"stapsdt\0");
    note.extend(addresses.into_iter().flat_map(u64::to_le_bytes));
    note.extend(texts.bytes());
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

fn probes(notes: &[u8]) -> Vec<StaticProbe> {
    Image::parse(program(notes), Path::new("made")).expect("its headers are sound").static_probes()
}

#[test]
fn notes_that_are_loaded_are_found_without_sections() {
    let mut notes = note([0x1000, 0, 0x2000], "p\0one\0-4@%eax\0");
    notes.extend(note([0x1001, 0, 0], "p\0two\0\0"));
    let found = probes(&notes);
    assert_eq!(
        read(&found),
        [
            ("p".into(), "one".into(), 0x1000, 0x2000, vec!["-4@%eax".into()]),
            ("p".into(), "two".into(), 0x1001, 0, vec![]),
        ]
    );
    let register = found[0].arguments[0].place.clone();
    assert!(matches!(register, Some(ArgumentPlace::Register(it)) if (it.name, it.bits) == ("rax", 32)));
}

#[test]
fn damaged_notes_are_left_out() {
    let good = note([0x1000, 0, 0], "p\0good\0\0");
    for (bad, left) in [
        (note([1, 2, 3], "no NUL at all"), 1),
        (note([1, 2, 3], "\0\0\0"), 1),
        (note([1, 2, 3], &format!("{}\0name\0\0", "p".repeat(5000))), 1),
        // Another owner.
        (note([1, 2, 3], "p\0other\0\0").iter().map(|it| if *it == b's' { b'x' } else { *it }).collect(), 1),
        // Sizes beyond the end: what follows cannot be found.
        ([u32::MAX, 8, 3].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>(), 0),
        ([8, u32::MAX, 3].into_iter().flat_map(u32::to_le_bytes).collect(), 0),
        (vec![8, 0], 0),
    ] {
        let found = probes(&[bad, good.clone()].concat());
        assert_eq!(found.iter().filter(|it| it.name == "good").count(), left);
        assert_eq!(found.len(), left);
    }
}

proptest! {
    #[test]
    fn any_notes_are_read(
        parts in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            (any::<[u64; 3]>(), "[a-z\0]{0,20}[-0-9@%a-z(),$ \0]{0,40}").prop_map(|(words, texts)| note(words, &texts)),
        ], 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let all = parts.concat();
        let notes = &all[..cut.index(all.len() + 1)];
        let found = probes(notes);
        // Each is explained by a note of at least this size.
        prop_assert!(found.len() <= notes.len() / 44);
    }

    #[test]
    fn a_note_is_read_as_it_is_written(
        address in any::<u64>(), semaphore in any::<u64>(),
        provider in "[a-z_]{1,20}", name in "[a-z_]{1,20}", count in 0_usize..12,
    ) {
        let arguments = vec!["-4@%eax".to_owned(); count];
        let text = format!("{provider}\0{name}\0{}\0", arguments.join(" "));
        let found = read(&probes(&note([address, 0, semaphore], &text)));
        prop_assert_eq!(found, [(provider, name, address, semaphore, arguments)]);
    }
}
