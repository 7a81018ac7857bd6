use super::*;
use layout::status;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { log: 64, traces: 32 };
const RING: Ring = Ring { place: 8, size: 1024 };

#[test]
fn what_begins_amid_a_word_is_nonsense() {
    // Loss marks everywhere, the last one cut off.
    let bytes = state::LOST.to_le_bytes().repeat(256);
    for tail in 1..8 {
        let mut cursor = Cursor { tail, head: 24 };
        let mut head = Head::default();
        let next = cursor.next(&bytes[..], RING, |_| Some(BOUNDS), false, &mut head);
        assert!(matches!(next, Next::Nonsense(Invalid::Fill)), "{tail}");
        cursor.empty();
        assert_eq!(cursor.filled(), 0);
    }
}

/// A record of site 0, with stack traces of this size if it has a `ExtraHeader` part.
fn record(state: u32, flags: u32, log: usize, traces: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![0; record_size(log, traces.map(|_| 0))];
    bytes[..4].copy_from_slice(&status(state, flags, log).to_le_bytes());
    if let Some(traces) = traces {
        let at = bytes.len() - MORE;
        bytes[at..at + 4].copy_from_slice(&8u32.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&9u32.to_le_bytes());
        bytes[at + offset_of!(ExtraHeader, traces)..].copy_from_slice(&traces.to_le_bytes());
    }
    bytes
}

/// What comes next: the head if it is a record.
fn next(head: u64, tail: u64, at: usize, bytes: &[u8]) -> Result<Head, Option<Invalid>> {
    let mut memory = vec![0; 8 + 1024];
    memory[8 + at..][..bytes.len()].copy_from_slice(bytes);
    let bounds = |number| (number == 0).then_some(BOUNDS);
    match (Cursor { head, tail }).next(&memory[..], RING, bounds, false, &mut Head::default()) {
        Next::Record(record) => Ok(*record),
        Next::Nonsense(nonsense) => Err(Some(nonsense)),
        Next::Nothing | Next::Lost(_) => Err(None),
    }
}

#[test]
fn what_no_handler_writes_is_nonsense() {
    let of = |bytes: &[u8]| next(1024, 0, 0, bytes).map(|record| (record.log, record.codes, record.traces));
    let committed = |flags, log, traces| of(&record(state::COMMITTED, flags, log, traces));
    assert_eq!(committed(0, 10, None), Ok((Some(10), None, 0)));
    assert_eq!(committed(flag::MORE, 10, Some(3)), Ok((Some(10), Some((8, 9)), 3)));
    assert_eq!(committed(flag::MORE | flag::NO_LOG, 0, Some(32)), Ok((None, Some((8, 9)), 32)));
    assert_eq!(committed(flag::MORE | flag::NO_LOG, 8, Some(32)), Err(Some(Invalid::State)));
    assert_eq!(committed(0x400, 10, None), Err(Some(Invalid::State)));
    assert_eq!(committed(0, 65, None), Err(Some(Invalid::Bounds)));
    assert_eq!(committed(flag::MORE, 0, Some(33)), Err(Some(Invalid::Bounds)));
    assert_eq!(committed(flag::MORE, 0, Some(u64::MAX)), Err(Some(Invalid::Bounds)));
    assert_eq!(of(&record(9, 0, 0, None)), Err(Some(Invalid::State)));
    assert_eq!(of(&record(state::TENTATIVE, 0, 0, None)), Err(None));
    let mut other = record(state::COMMITTED, 0, 0, None);
    // The greatest length that a status can have.
    other[2..4].fill(0xff);
    assert_eq!(of(&other), Err(Some(Invalid::Size)));
    other[2..4].fill(0);
    other[offset_of!(Header, number)] = 1;
    assert_eq!(of(&other), Err(Some(Invalid::Site)));
    // Larger than what was put in; larger than the ring; part of a word.
    let whole = record(state::COMMITTED, 0, 16, None);
    let long = record(state::COMMITTED, flag::MORE, 16, Some(8));
    let put = |bytes: &[u8], head: usize| next(head as u64, 0, 0, bytes);
    assert!(put(&whole, whole.len()).is_ok());
    assert_eq!(put(&whole, whole.len() - 8), Err(Some(Invalid::Size)));
    assert!(put(&long, long.len() + 8).is_ok());
    assert_eq!(put(&long, long.len()), Err(Some(Invalid::Size)));
    assert_eq!(put(&long, long.len() - 8), Err(Some(Invalid::Size)));
    assert_eq!(put(&whole, 1032), Err(Some(Invalid::Fill)));
    assert_eq!(next(u64::MAX, 0, 0, &whole), Err(Some(Invalid::Fill)));
    assert_eq!(next(77, 0, 0, &whole), Err(Some(Invalid::Fill)));
    // A skip that leads past the end; a header that does not fit before the end of the ring.
    assert_eq!(next(512, 0, 0, &record(state::SKIP, 0, 0, None)), Err(Some(Invalid::Fill)));
    let committed = status(state::COMMITTED, 0, 0).to_le_bytes();
    assert_eq!(next(1040, 1016, 1016, &committed), Err(Some(Invalid::Size)));
}

#[test]
fn what_was_read_is_passed_as_a_whole() {
    let records = [
        record(state::COMMITTED, 0, 13, None),
        record(state::DROPPED, flag::MORE, 8, Some(0)),
        record(state::COMMITTED, 0, 0, None),
    ];
    let memory: Vec<u8> = [&[0; 8][..], &records.concat(), &[0; 1024]].concat();
    let head = records.concat().len() as u64;
    let (mut cursor, mut read, mut head) = (Cursor { head, tail: 0 }, Vec::new(), Head::default());
    while let Next::Record(record) = cursor.next(&memory[..], RING, |_| Some(BOUNDS), false, &mut head) {
        read.push((record.log, record.dropped));
        cursor.pass(record);
    }
    assert_eq!(read, [(Some(13), false), (Some(8), true), (Some(0), false)]);
    assert_eq!(cursor.filled(), 0);
}

#[test]
fn the_mark_of_a_loss_stands_between_two_records() {
    let mark = [state::LOST.to_le_bytes(), 7u32.to_le_bytes()].concat();
    let parts = [record(state::COMMITTED, 0, 0, None), mark.clone(), record(state::COMMITTED, 0, 8, None)];
    let memory: Vec<u8> = [&[0; 8][..], &parts.concat(), &[0; 1024]].concat();
    let mut cursor = Cursor { head: parts.concat().len() as u64, tail: 0 };
    let (mut read, mut head) = (Vec::new(), Head::default());
    loop {
        match cursor.next(&memory[..], RING, |_| Some(BOUNDS), false, &mut head) {
            Next::Record(record) => {
                read.push(record.log.ok_or(0));
                cursor.pass(record);
            }
            Next::Lost(count) => read.push(Err(count)),
            other => break assert_eq!(other, Next::Nothing),
        }
    }
    assert_eq!(read, [Ok(0), Err(7), Ok(8)]);
    // The mark in the last bytes of the ring.
    let mut memory = vec![0; 8 + 1024];
    memory[8 + 1016..].copy_from_slice(&mark);
    let mut cursor = Cursor { head: 1024, tail: 1016 };
    assert_eq!(cursor.next(&memory[..], RING, |_| None, false, &mut head), Next::Lost(7));
    assert_eq!(cursor.filled(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(
        words in prop::collection::vec(
            prop_oneof![
                0u32..6,
                (0u32..40).prop_map(|n| n * 8),
                (1u32..5, 0u32..4, 0u32..80).prop_map(|(state, flags, log)| state | flags << 8 | log << 16),
                any::<u32>()
            ],
            1..300
        ),
        head in prop_oneof![(0u64..160).prop_map(|n| n * 8), any::<u64>()],
        tail in prop_oneof![Just(0u64), (0u64..160).prop_map(|n| n * 8), any::<u64>()],
        all in any::<bool>(),
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        read_to_the_end(&bytes, Cursor { head, tail }, BOUNDS, all);
    }
}
