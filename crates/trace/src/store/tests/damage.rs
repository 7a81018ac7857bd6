//! Tests that damage to a store costs no more than it must.
//!
//! Stores are cut off, changed, or filled with what is no store; what a reader gives is compared
//! with what was written.

use proptest::prelude::*;

use super::super::block::{self, HEADER};
use super::{about, read, record, sound, written};
use crate::Record;
use crate::store::Store;

#[test]
fn a_store_that_is_cut_off_gives_all_blocks_before() {
    let bytes = written(5, 7);
    let whole = sound(&bytes).1;
    // The end of each block, and the number of records up to it.
    let ends = block_ends(&bytes);
    for length in 0..bytes.len() {
        let Ok((info, given)) = read(&bytes[..length]) else {
            assert!(length < ends[0].0, "{length}");
            continue;
        };
        let (end, records) =
            *ends.iter().rev().find(|(end, _)| *end <= length).expect("the first block is there");
        assert_eq!(given.records, whole.records[..records as usize], "{length}");
        assert_eq!(info.records, records, "{length}");
        assert!(!info.complete);
        assert_eq!(info.about, about());
        match given.damages.as_slice() {
            [] => assert_eq!(end, length),
            [damage] => {
                assert_eq!((damage.offset, damage.skipped), (end as u64, (length - end) as u64), "{damage}");
                assert_eq!(damage.records, None);
            }
            more => panic!("{length}: {more:?}"),
        }
    }
}

/// The end of each block, and the number of records up to it.
fn block_ends(bytes: &[u8]) -> Vec<(usize, u64)> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let header = bytes[at..].first_chunk().expect("a header");
        let header = block::Header::decode(header).expect("it is sound");
        at += header.size() as usize;
        ends.push((at, header.after()));
    }
    ends
}

#[test]
fn a_byte_that_is_changed_costs_no_more_than_its_block() {
    let bytes = written(5, 7);
    let (whole_info, whole) = sound(&bytes);
    for byte in 0..bytes.len() {
        for bit in [0x01, 0x80] {
            let mut flipped = bytes.clone();
            flipped[byte] ^= bit;
            let (info, given) = read(&flipped).expect("blocks are left");
            let mut expected = whole.records.iter();
            for record in &given.records {
                assert!(expected.any(|other| other == record), "byte {byte}: {record:?} was not written");
            }
            let lost = whole.records.len() - given.records.len();
            assert!(lost == 0 || lost == 7, "byte {byte}: {lost}");
            assert_eq!(given.damages.len(), usize::from(given != whole), "byte {byte}: {:?}", given.damages);
            for damage in &given.damages {
                let near = (damage.offset..=damage.offset + damage.skipped).contains(&(byte as u64));
                assert!(near || damage.offset - byte as u64 <= HEADER as u64, "byte {byte}: {damage}");
            }
            // The damage after the last block of records has none, so its count is unknown.
            if lost > 0 {
                assert_eq!(given.lost(), Some(lost as u64), "byte {byte}: {:?}", given.damages);
            }
            let in_records = info.complete && info.records == whole_info.records;
            assert!(in_records || info.records >= given.records.len() as u64, "byte {byte}");
        }
    }
}

#[test]
fn bytes_that_are_gone_or_too_many_cost_no_more_than_their_blocks() {
    let bytes = written(6, 50);
    let whole = sound(&bytes).1;
    let ends = block_ends(&bytes);
    let middle = (ends[5].0 + ends[6].0) / 2;
    let mut holed = bytes.clone();
    holed.drain(middle..middle + 40);
    let mut longer = bytes.clone();
    longer.splice(middle..middle, [0x89; 40]);
    let mut zeroed = bytes.clone();
    zeroed[ends[3].0 + 10..ends[4].0 + 10].fill(0);
    for changed in [holed, longer, zeroed] {
        let given = read(&changed).expect("blocks are left").1;
        let lost = whole.records.len() - given.records.len();
        assert!(lost > 0 && lost <= 100, "{lost}");
        assert_eq!(given.lost(), Some(lost as u64), "{:?}", given.damages);
    }
}

#[test]
fn a_store_in_the_log_of_another_is_data() {
    let inner = written(3, 7);
    let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
    for number in 0..4 {
        let record = Record { data: inner.clone(), ..record(number) };
        store.record(1, &record).expect("a vector takes everything");
        store.flush().expect("a vector takes everything");
    }
    let mut bytes = store.finish().expect("a vector takes everything");
    assert_eq!(sound(&bytes).1.records.len(), 4);
    let ends = block_ends(&bytes);
    // In the payload of the second record: the bytes that are skipped are full of blocks of another
    // store.
    bytes[ends[4].0 - 1] ^= 1;
    let given = read(&bytes).expect("blocks are left").1;
    assert_eq!((given.records.len(), given.lost()), (3, Some(1)));
    assert!(given.records.iter().all(|(_, program, record)| *program == 1 && record.data == inner));
}

#[test]
fn what_is_no_store_is_refused() {
    let reason = |bytes: &[u8]| read(bytes).expect_err("no store").to_string();
    assert_eq!(reason(b""), "it is not a trace store: it is empty");
    assert!(reason(b"text").contains("does not begin like one"));
    assert!(reason(&[0x55; 100_000]).contains("does not begin like one"));
    let mut later = written(0, 1);
    later.truncate(block_ends(&later)[0].0);
    later[8] = 9;
    let own = crc32fast::hash(&later[..60]);
    later[60..64].copy_from_slice(&own.to_le_bytes());
    assert!(reason(&later).contains("version 9"));
}

#[test]
fn headers_without_end_are_not_looked_through_again_and_again() {
    // Each header announces a large payload that does not follow.
    let header = block::Header {
        store: 1,
        kind: block::Kind::Records,
        length: block::MAX_PAYLOAD as u32,
        first: 0,
        least: 0,
        greatest: u64::MAX,
        disorder: 0,
        records: 1,
        number: 0,
        checksum: 0,
    };
    let mut bytes = Vec::new();
    for number in 0..100_000 {
        bytes.extend(block::Header { number, ..header }.encode());
    }
    let start = std::time::Instant::now();
    let (_, given) = read(&bytes).expect("headers are sound");
    assert_eq!(given.records.len(), 0);
    assert!(!given.damages.is_empty() && given.damages.len() < 100);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

proptest! {
    #[test]
    fn any_payload_is_read_to_an_end(
        payload in prop::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..300), kind in 1u8..5, records in 0u32..9,
        version in 1u8..=2,
    ) {
        let mut bytes = written(1, 3);
        let kind = match kind {
            1 => block::Kind::Facts,
            2 => block::Kind::Records,
            3 => block::Kind::Index,
            _ => block::Kind::End,
        };
        let store = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let end = block_ends(&bytes);
        bytes.truncate(end[2].0);
        let header = block::Header {
            store, kind, length: payload.len() as u32, first: 3, least: 0, greatest: u64::MAX, disorder: 0, records,
            number: 3, checksum: crc32fast::hash(&payload),
        };
        let mut encoded = header.encode();
        encoded[8] = version;
        let own = crc32fast::hash(&encoded[..HEADER - 4]);
        encoded[HEADER - 4..].copy_from_slice(&own.to_le_bytes());
        bytes.extend(encoded);
        bytes.extend(&payload);
        let (_, given) = read(&bytes).expect("blocks are sound");
        prop_assert!(given.records.len() <= 3 + payload.len());
        for damage in &given.damages {
            prop_assert!(damage.offset <= bytes.len() as u64, "{}", damage);
        }
    }
}
