//! Damaged files: never a panic, never a hang, never more memory than the file justifies.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{PLAIN, Scratch, have, run};
use image::Image;
use proptest::prelude::*;

/// A small library with every table that images read: versions, both hash tables, unwinding
/// entries, notes, and compressed symbols.
fn victim() -> Option<&'static Vec<u8>> {
    static VICTIM: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let make = || {
        if !have("damage", &["gcc", "strip", "objcopy", "xz"]) {
            return None;
        }
        let scratch = Scratch::new();
        let map = scratch.file("versions.map", "V_1 { global: *; };\nV_2 { global: pick; } V_1;\n");
        let script = format!("-Wl,--version-script={}", map.display());
        let options = ["-shared", "-fPIC", "-Wl,--hash-style=both", &script];
        let library = scratch.compile("plain.c", PLAIN, "whole.so", &options);
        let small = scratch.path().join("small");
        run(Command::new("objcopy").arg("--only-keep-debug").arg(&library).arg(&small));
        run(Command::new("xz").arg(&small));
        let stripped = scratch.strip(&library, "stripped.so", &[]);
        let packed = scratch.path().join("packed.so");
        let section = format!(".gnu_debugdata={}", scratch.path().join("small.xz").display());
        run(Command::new("objcopy").args(["--add-section", &section]).arg(&stripped).arg(&packed));
        Some(std::fs::read(packed).unwrap())
    };
    VICTIM.get_or_init(make).as_ref()
}

/// Calls every query of an image.
fn ask_everything(bytes: Vec<u8>) -> Result<(), String> {
    let image = Image::parse(bytes, Path::new("damaged.so")).map_err(|error| error.to_string())?;
    let _ = (image.machine(), image.soname(), image.build_id(), image.interpreter(), image.entry());
    let _ = (image.restartable_sequences(), image.nearest_names("pick"));
    for name in ["pick", "pick@@V_2", "ns::f(int)"] {
        let _ = (image.lookup(name), image.select_named(name));
    }
    let _ = (image.is_data("pick"), image.control_flow().count());
    let _ = (image.control_flow().closed(0..u64::MAX), image.possible_targets().within(0..u64::MAX));
    let _ = image.select_matching(&|name| name.len() % 2 == 0);
    let mut places: Vec<u64> = image.functions().iter().take(100).map(|function| function.vaddr).collect();
    places.extend(image.segments().iter().take(20).flat_map(|s| [s.vaddr, s.vaddr.wrapping_add(s.mem_size)]));
    places.extend([0, image.entry(), 0x1000, 0x1001, u64::MAX]);
    for vaddr in places {
        for vaddr in [vaddr, vaddr.wrapping_add(1), vaddr.wrapping_sub(1)] {
            let _ = image.check_boundary(vaddr).map_err(|misplaced| misplaced.to_string());
            let _ = (image.outline(vaddr), image.implementations(vaddr));
            let _ = (image.entered_inside(vaddr), image.instruction_text(vaddr), image.section_name(vaddr));
            let _ = (image.function_at(vaddr), image.text(vaddr, 16), image.text(vaddr, usize::MAX));
            let _ = (image.offset_of_address(vaddr), image.address_of_offset(vaddr));
        }
    }
    for problem in image.problems() {
        let text = problem.to_string();
        assert!(text.contains("damaged.so"), "{text}");
    }
    Ok(())
}

#[test]
fn the_victim_is_sound() {
    let Some(victim) = victim() else { return };
    let image = Image::parse(victim.clone(), Path::new("whole.so")).unwrap();
    assert!(image.problems().is_empty(), "{:?}", image.problems());
    assert_eq!(image.lookup("pick").matches[0].full_name(), "pick@@V_2");
    assert_eq!(image.lookup("twice").matches.len(), 1);
}

#[test]
fn every_length() {
    let Some(victim) = victim() else { return };
    // Each header cut at each byte, and the rest at steps that hit every table.
    for length in (0..1024).chain((1024..victim.len()).step_by(97)) {
        if let Err(error) = ask_everything(victim[..length].to_vec()) {
            assert!(error.contains("damaged.so"), "{error}");
        }
    }
}

#[test]
fn every_header_byte() {
    let Some(victim) = victim() else { return };
    // The file header and all program headers, each byte set to the most harmful values.
    for at in 0..64 + 56 * 12 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = victim.clone();
            bytes[at] = value;
            let _ = ask_everything(bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random bytes anywhere; the tables are dense enough for a third of them to hit one.
    #[test]
    fn random_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60)) {
        if let Some(victim) = victim() {
            let mut bytes = victim.clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = ask_everything(bytes);
        }
    }

    /// Whole words of section headers, which are at the end of the file.
    #[test]
    fn random_section_headers(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..8)) {
        if let Some(victim) = victim() {
            let mut bytes = victim.clone();
            let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
            let words = (bytes.len() - table) / 8;
            for (at, value) in changes {
                let at = table + at.index(words) * 8;
                // Small values are the dangerous ones: they pass the first checks.
                let value = if value % 3 == 0 { value } else { value % 0x8000 };
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            let _ = ask_everything(bytes);
        }
    }
}

/// A table of many symbols that all have the same long name takes as much time and memory to read
/// as to write.
#[test]
fn names_that_overlap() {
    let Some(victim) = victim() else { return };
    let mut bytes = victim.clone();
    let field = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let sections = field(&bytes, 0x28) as usize;
    let kind = |bytes: &[u8], index: usize| bytes[sections + index * 64 + 4];
    let dynsym = (0..40).find(|index| kind(&bytes, *index) == 11).unwrap();
    let header = sections + dynsym * 64;
    let link = u32::from_le_bytes(bytes[header + 40..header + 44].try_into().unwrap()) as usize;
    // Both tables at the end of the file: 40,000 symbols, each named by the same 100,000 letters.
    let symbol_at = field(&bytes, header + 24) as usize;
    let defined = (1..).find(|i| bytes[symbol_at + i * 24 + 6] != 0).unwrap();
    let symbol: Vec<u8> = bytes[symbol_at + defined * 24..][..24].to_vec();
    let mut symbol = symbol;
    symbol[..4].copy_from_slice(&1_u32.to_le_bytes());
    let place = |bytes: &mut Vec<u8>, header: usize, contents: Vec<u8>| {
        let (at, size) = (bytes.len() as u64, contents.len() as u64);
        bytes.extend(contents);
        bytes[header + 24..header + 32].copy_from_slice(&at.to_le_bytes());
        bytes[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
    };
    place(&mut bytes, header, symbol.repeat(40_000));
    let mut strings = vec![b'a'; 100_000];
    strings[0] = 0;
    strings.push(0);
    place(&mut bytes, sections + link * 64, strings);
    let started = std::time::Instant::now();
    let image = Image::parse(bytes, Path::new("damaged.so")).unwrap();
    let problems: Vec<String> = image.problems().iter().map(ToString::to_string).collect();
    assert!(problems.iter().any(|problem| problem.contains("overlap")), "{problems:?}");
    assert!(started.elapsed().as_secs() < 5);
}

/// A sparse file that claims tables of terabytes.
#[test]
fn a_sparse_file() {
    let Some(victim) = victim() else { return };
    let scratch = Scratch::new();
    let path: PathBuf = scratch.path().join("sparse.so");
    let mut bytes = victim.clone();
    let sections = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(bytes[0x3c..0x3e].try_into().unwrap()) as usize;
    for index in 1..count {
        let size = sections + index * 64 + 32;
        bytes[size..size + 8].copy_from_slice(&(1_u64 << 39).to_le_bytes());
    }
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let image = Image::open(&path).unwrap();
    let problems: Vec<String> = image.problems().iter().map(ToString::to_string).collect();
    assert!(problems.iter().any(|problem| problem.contains("at most")), "{problems:?}");
    assert!(problems.iter().all(|problem| problem.contains("sparse.so")), "{problems:?}");
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The offsets of the program headers of loaded segments.
fn loaded(bytes: &[u8]) -> Vec<usize> {
    let (table, count) = (word(bytes, 0x20) as usize, usize::from(bytes[0x38]));
    (0..count).map(|number| table + number * 56).filter(|at| bytes[*at] == 1).collect()
}

/// The sum of the code sizes overflows a word, and there is no code beyond the end of the file.
#[test]
fn segments_of_half_of_all_addresses() {
    let Some(victim) = victim() else { return };
    let mut bytes = victim.clone();
    let loaded: Vec<usize> = loaded(&bytes).into_iter().take(2).collect();
    for at in &loaded {
        bytes[at + 4] = 5;
        bytes[at + 32..at + 40].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    }
    assert_eq!(loaded.len(), 2);
    let length = bytes.len() as u64;
    let image = Image::parse(bytes, Path::new("damaged.so")).unwrap();
    assert!(image.segments().iter().all(|segment| segment.offset + segment.file_size <= length));
    assert!(image.control_flow().count() > 0);
}

/// A function that claims most of a large file without code is not checked byte by byte.
#[test]
fn a_function_of_a_gigabyte() {
    const SIZE: u64 = 1 << 30;
    let Some(victim) = victim() else { return };
    let mut bytes = victim.clone();
    let mut loaded = loaded(&bytes).into_iter();
    // The segment with code; all others have none.
    let code = loaded.find(|at| bytes[at + 4] & 1 != 0).unwrap();
    for at in [32, 40] {
        bytes[code + at..code + at + 8].copy_from_slice(&SIZE.to_le_bytes());
    }
    let sections = word(&bytes, 0x28) as usize;
    let dynsym = (0..40).map(|index| sections + index * 64).find(|at| bytes[at + 4] == 11).unwrap();
    let (symbols, size) = (word(&bytes, dynsym + 24) as usize, word(&bytes, dynsym + 32) as usize);
    for symbol in (symbols..symbols + size).step_by(24) {
        bytes[symbol + 16..symbol + 24].copy_from_slice(&SIZE.to_le_bytes());
    }
    let scratch = Scratch::new();
    let path = scratch.path().join("large.so");
    std::fs::write(&path, bytes).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    let image = Image::open(&path).unwrap();
    let pick = image.lookup("pick").matches[0].vaddr;
    let (done, wait) = std::sync::mpsc::channel();
    let outline = std::thread::spawn(move || {
        let outline = image.outline(pick);
        let _ = done.send(());
        outline
    });
    wait.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not take long");
    let outline = outline.join().unwrap().unwrap();
    assert!(outline.unknown_bytes() > SIZE / 2 && !outline.instructions.is_empty());
}

/// Every query for an address searches all segments, so their number is limited.
#[test]
fn more_program_headers_than_linux_loads() {
    let Some(victim) = victim() else { return };
    let with = |count: u16| {
        let mut bytes = victim.clone();
        bytes[0x20..0x28].copy_from_slice(&(victim.len() as u64).to_le_bytes());
        bytes[0x38..0x3a].copy_from_slice(&count.to_le_bytes());
        bytes.resize(victim.len() + usize::from(count) * 56, 0);
        Image::parse(bytes, Path::new("damaged.so"))
    };
    assert!(with(1170).is_ok());
    let error = with(1171).unwrap_err().to_string();
    assert!(error.contains("program headers"), "{error}");
}

/// Thousands of sections that are all the same large table are not read thousands of times.
#[test]
fn sections_that_are_one_table() {
    /// Sections of each kind, and bytes of the table.
    const SECTIONS: usize = 8000;
    const TABLE: usize = 1 << 20;
    let Some(victim) = victim() else { return };
    let mut bytes = victim.clone();
    let (table, count) = (word(&bytes, 0x28) as usize, usize::from(bytes[0x3c]));
    let headers: Vec<[u8; 64]> =
        (0..count).map(|number| bytes[table + number * 64..][..64].try_into().unwrap()).collect();
    let of_kind = |kind: u8| *headers.iter().find(|header| header[4] == kind).unwrap();
    // Symbols of data without the wanted name: the same 24 bytes are also relocations of an
    // irrelevant kind.
    let at = bytes.len() as u64;
    let entry = [1, 0, 0, 0, 0x11, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(entry.iter().copied().cycle().take(TABLE));
    let mut all: Vec<u8> = headers.concat();
    // SHT_RELA, SHT_DYNSYM, SHT_INIT_ARRAY.
    for kind in [4, 11, 14] {
        let mut header = of_kind(kind);
        if kind != 14 {
            header[24..32].copy_from_slice(&at.to_le_bytes());
        }
        header[32..40].copy_from_slice(&(TABLE as u64).to_le_bytes());
        (0..SECTIONS).for_each(|_| all.extend(header));
    }
    let place = bytes.len() as u64;
    bytes.extend(all);
    bytes[0x28..0x30].copy_from_slice(&place.to_le_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&((count + 3 * SECTIONS) as u16).to_le_bytes());
    let image = Image::parse(bytes, Path::new("damaged.so")).unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    let asked = std::thread::spawn(move || {
        assert!(!image.is_data("nothing"));
        assert_eq!(image.restartable_sequences(), []);
        assert!(image.control_flow().count() > 0);
        let _ = done.send(());
    });
    match wait.recv_timeout(std::time::Duration::from_secs(30)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
            panic!("it takes as long as the sections are many")
        }
        _ => asked.join().unwrap(),
    }
}
