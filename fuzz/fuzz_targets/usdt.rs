//! Notes about static probes: what is sound in them is found, nothing panics or takes long.
//!
//! The first byte chooses the class, 32 or 64 bits. The others are the notes of a file without section headers.
#![no_main]

use std::path::Path;

use image::Image;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((class, notes)) = data.split_first() else { return };
    let file = if class & 1 == 0 { file_64(notes) } else { file_32(notes) };
    let image = Image::parse(file, Path::new("fuzzed")).expect("its headers are sound");
    let probes = image.static_probes();
    // A note has at least 32 bytes, and an argument two.
    assert!(probes.len() <= notes.len() / 32);
    assert!(probes.iter().map(|probe| probe.arguments.len()).sum::<usize>() <= notes.len() / 2 + 1);
    for probe in probes {
        assert!(!probe.provider.is_empty() && !probe.name.is_empty());
        for argument in probe.arguments {
            assert!(matches!(argument.bytes, 1 | 2 | 4 | 8));
            let _ = argument.to_string();
        }
    }
});

fn numbers<const SIZE: usize>(out: &mut Vec<u8>, all: &[u64]) {
    for number in all {
        out.extend_from_slice(&number.to_le_bytes()[..SIZE]);
    }
}

fn file_64(notes: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    numbers::<2>(&mut file, &[3, 62]);
    numbers::<4>(&mut file, &[1]);
    numbers::<8>(&mut file, &[0, 64, 0]);
    numbers::<4>(&mut file, &[0]);
    numbers::<2>(&mut file, &[64, 56, 1, 64, 0, 0]);
    numbers::<4>(&mut file, &[4, 4]);
    numbers::<8>(&mut file, &[120, 0, 0, notes.len() as u64, 0, 4]);
    file.extend_from_slice(notes);
    file
}

fn file_32(notes: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    numbers::<2>(&mut file, &[3, 3]);
    numbers::<4>(&mut file, &[1, 0, 52, 0, 0]);
    numbers::<2>(&mut file, &[52, 32, 1, 40, 0, 0]);
    numbers::<4>(&mut file, &[4, 84, 0, 0, notes.len() as u64, 0, 4, 4]);
    file.extend_from_slice(notes);
    file
}
