//! Any file: the reader of PPDFs takes it or refuses it. It is read as it is, and once more with its length and checksum
//! set right, as by someone who wants the rest to be believed. What is taken is sound: it can be written, is the
//! same when it is read again, and everything that reads an object can have it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpn::Selection;
use rpn::ppdf::{MAGIC, Ppdf, is_ppdf, read, write};

/// Where the length of the file stands in its header, and the checksum.
const LENGTH: std::ops::Range<usize> = 16..20;
const CHECKSUM: std::ops::Range<usize> = 20..24;

fuzz_target!(|data: &[u8]| {
    judge(data);
    if data.len() >= CHECKSUM.end {
        let mut sealed = data.to_vec();
        sealed[..MAGIC.len()].copy_from_slice(&MAGIC);
        sealed[LENGTH].copy_from_slice(&(data.len() as u32).to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&sealed[..CHECKSUM.start]);
        hasher.update(&sealed[CHECKSUM.end..]);
        sealed[CHECKSUM].copy_from_slice(&hasher.finalize().to_le_bytes());
        judge(&sealed);
    }
});

/// Reads a file, and uses what comes of it.
fn judge(file: &[u8]) {
    match read(file) {
        Ok(ppdf) => use_it(ppdf),
        Err(damaged) => {
            assert!(damaged.offset <= file.len(), "{damaged}");
            assert!(!damaged.to_string().chars().any(char::is_control), "{damaged}");
        }
    }
}

/// Does with a PPDF what the command does.
fn use_it(ppdf: Ppdf) {
    let again = write(&ppdf).expect("what was read can be written");
    assert!(is_ppdf(&again));
    assert_eq!(read(&again).as_ref(), Ok(&ppdf));
    let Ppdf { mut object, places } = ppdf;
    assert!(!rpn::disassemble(&object).is_empty());
    for (_, span) in &object.lines {
        let _ = (places.locate(*span), places.included_from(span.source), places.name(span.source));
    }
    let first = |names: &[String]| names.iter().take(1).cloned().collect();
    let selection = Selection { groups: first(&object.groups), types: first(&object.types) };
    let before = object.probes.len();
    match selection.apply(&mut object) {
        Ok(removed) => assert_eq!(object.probes.len(), before - removed),
        Err(reason) => assert!(object.probes.len() == before && !reason.is_empty()),
    }
}
