//! Tests that all that is written is read, and that damage costs no more than it must.

use std::io::Cursor;

use proptest::prelude::*;

use super::block::HEADER;
use super::*;
use crate::Record;

fn about() -> About {
    About {
        version: "0.1.0".to_owned(),
        host: "here".to_owned(),
        kernel: "Linux 6.12.0".to_owned(),
        machine: "x86_64".to_owned(),
        processors: 2,
        start: 1_700_000_000_000_000_000,
        monotonic: -5,
        pid: 4711,
        command: vec!["dprobes".to_owned(), "run".to_owned()],
    }
}

/// A record that differs from its neighbours in everything.
fn record(number: u32) -> Record {
    Record {
        major: 1,
        minor: number % 3,
        cpu: number % 2,
        pid: 100 + number % 2,
        tid: 100 + number % 5,
        probe: number % 3,
        uid: 1000,
        cs: 0x33,
        eip: 0x7f00_1234_5678 + u64::from(number % 3),
        ss: 0x2b,
        esp: 0x7ffc_0000_1000 - u64::from(number * 16),
        time: 1_700_000_000_000_000_000 + u64::from(number) * 1000,
        name: format!("thread-{}", number % 5),
        word: 8,
        data: (0..number % 20).map(|byte| byte as u8).collect(),
    }
}

/// A store of blocks with `each` records.
fn written(blocks: u32, each: u32) -> Vec<u8> {
    let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
    for number in 0..blocks * each {
        store.record(7, &record(number)).expect("a vector takes everything");
        if number % each == each - 1 {
            store.flush().expect("a vector takes everything");
        }
    }
    store.finish().expect("a vector takes everything")
}

/// All that a reader returns.
#[derive(Debug, Default, PartialEq)]
struct Given {
    records: Vec<(u64, u32, Record)>,
    facts: Vec<Fact>,
    damages: Vec<Damage>,
}

impl Given {
    /// How many records are lost according to the damage; none if unknown.
    fn lost(&self) -> Option<u64> {
        self.damages.iter().map(|damage| damage.records).sum()
    }
}

fn given<S: std::io::Read + std::io::Seek>(reader: &mut Reader<S>) -> Given {
    let mut given = Given::default();
    while let Some(item) = reader.next().expect("bytes in memory can be read") {
        match item {
            Item::Record(entry) => given.records.push((entry.number, entry.program, entry.record.clone())),
            Item::Fact(fact) => given.facts.push(fact),
            Item::Damage(damage) => given.damages.push(damage),
        }
    }
    given
}

fn read(bytes: &[u8]) -> Result<(Info, Given), Error> {
    let mut reader = Reader::new(Cursor::new(bytes))?;
    let given = given(&mut reader);
    Ok((reader.info().clone(), given))
}

fn sound(bytes: &[u8]) -> (Info, Given) {
    let (info, given) = read(bytes).expect("it is a store");
    assert_eq!(given.damages, []);
    (info, given)
}

#[test]
fn records_and_facts_come_back_as_they_were_told() {
    let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
    let facts: Vec<Fact> = vec![
        Program { number: 1, module: "libc.so.6".to_owned(), items: crate::Items::ALL, ..Program::default() }
            .into(),
        Probe {
            program: 1,
            number: 2,
            point: "malloc".to_owned(),
            group: Some("memory".to_owned()),
            ..Probe::default()
        }
        .into(),
        Module { number: 0, path: "/lib/libc.so.6".to_owned(), build_id: "0a1b".to_owned() }.into(),
        Site {
            program: 1,
            probe: 2,
            pid: 5,
            address: 0x7f00_0000_0001,
            symbol: "malloc+0x4".to_owned(),
            ..Site::default()
        }
        .into(),
        Loss { time: 9, program: 1, probe: 2, dropped: 3 }.into(),
        Counts { program: 1, probe: 2, hits: 9, runs: 9, logged: 6, dropped: 3, ..Counts::default() }.into(),
        Variables { program: Some(1), values: vec![0, u64::MAX] }.into(),
        Variables { program: None, values: vec![] }.into(),
        Note { time: 10, text: "a note".to_owned() }.into(),
        Source { module: 0, offset: 7, file: "a.c".to_owned(), line: 3 }.into(),
        Template { major: 1, minor: 2, description: "d".to_owned(), format: None, program: Some(1) }.into(),
    ];
    for fact in &facts {
        store.fact(fact).expect("a vector takes everything");
    }
    let records: Vec<Record> = (0..100).map(record).collect();
    for record in &records {
        store.record(1, record).expect("a vector takes everything");
    }
    assert!(store.waits());
    let bytes = store.finish().expect("a vector takes everything");
    let (info, given) = sound(&bytes);
    let expected: Vec<_> =
        records.iter().enumerate().map(|(at, record)| (at as u64, 1, record.clone())).collect();
    assert_eq!(given.records, expected);
    assert_eq!(given.facts[0], about().into());
    assert_eq!(given.facts[1..=facts.len()], facts);
    assert_eq!((&info.about, info.records, info.complete), (&about(), 100, true));
    assert_eq!(info.times, Some((records[0].time, records[99].time)));
    assert_eq!(Lookup::new(&info).probe(1, 2).map(|probe| probe.point.as_str()), Some("malloc"));
    let sites: Vec<_> = info.sites.iter().map(|site| (site.pid, site.address, &*site.symbol)).collect();
    assert_eq!(sites, [(5, 0x7f00_0000_0001, "malloc+0x4")]);
    assert_eq!((info.dropped(), info.disorder), (3, 0));
    assert_eq!(info.threads.len(), 10);
    let mut threads = info.threads.iter().filter(|thread| (thread.pid, thread.tid) == (101, 103));
    assert_eq!(threads.next_back().map(|thread| thread.name.as_str()), Some("thread-3"));
}

#[test]
fn a_record_takes_few_bytes() {
    let bytes = written(1, 10_000);
    let data: usize = (0..10_000).map(|number| record(number).data.len()).sum();
    let overhead = (bytes.len() - data) as f64 / 10_000.0;
    assert!(overhead < 12.0, "{overhead}");
}

#[test]
fn times_that_step_back_are_told() {
    let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
    for time in [50, 100, 40, 90, 70, 200] {
        store.record(0, &Record { time, ..Record::default() }).expect("a vector takes everything");
        store.flush().expect("a vector takes everything");
    }
    let (info, given) = sound(&store.finish().expect("a vector takes everything"));
    assert_eq!((info.disorder, info.times), (60, Some((40, 200))));
    assert_eq!(given.records.len(), 6);
}

#[test]
fn only_what_is_wanted_is_read() {
    let bytes = written(10, 100);
    let mut reader = Reader::new(Cursor::new(&bytes)).expect("it is a store");
    let all: Vec<Record> = (0..1000).map(record).collect();
    let start = all[0].time;
    let filters = [
        Filter { from: Some(start + 250_500), to: Some(start + 700_000), ..Filter::default() },
        Filter { from: Some(start + 2_000_000), ..Filter::default() },
        Filter { to: Some(start), ..Filter::default() },
        Filter { pids: vec![101], ..Filter::default() },
        Filter { tids: vec![102, 103], codes: vec![(1, 2), (9, 9)], ..Filter::default() },
        Filter { probes: vec![(7, 1)], from: Some(start + 999_000), ..Filter::default() },
        Filter { probes: vec![(8, 1)], ..Filter::default() },
        Filter::default(),
    ];
    let within = |list: &[u32], own| list.is_empty() || list.contains(&own);
    for filter in filters {
        let expected: Vec<Record> = all
            .iter()
            .filter(|record| {
                filter.from.is_none_or(|from| record.time >= from)
                    && filter.to.is_none_or(|to| record.time <= to)
                    && within(&filter.pids, record.pid)
                    && within(&filter.tids, record.tid)
                    && (filter.codes.is_empty() || filter.codes.contains(&(record.major, record.minor)))
                    && (filter.probes.is_empty() || filter.probes.contains(&(7, record.probe)))
            })
            .cloned()
            .collect();
        reader.select(filter.clone()).expect("it can be read");
        let given = given(&mut reader);
        let records: Vec<Record> = given.records.into_iter().map(|(_, _, record)| record).collect();
        assert_eq!(records, expected, "{filter:?}");
        assert_eq!(given.damages, [], "{filter:?}");
    }
}

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
        let header = super::block::Header::decode(header).expect("it is sound");
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
    assert_eq!(reason(b""), "it is no trace store: it is empty");
    assert!(reason(b"text").contains("does not begin as one"));
    assert!(reason(&[0x55; 100_000]).contains("does not begin as one"));
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
    let header = super::block::Header {
        store: 1,
        kind: super::block::Kind::Records,
        length: super::block::MAX_PAYLOAD as u32,
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
        bytes.extend(super::block::Header { number, ..header }.encode());
    }
    let start = std::time::Instant::now();
    let (_, given) = read(&bytes).expect("headers are sound");
    assert_eq!(given.records.len(), 0);
    assert!(!given.damages.is_empty() && given.damages.len() < 100);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

/// An output that takes a limited number of bytes, and later all.
struct Full {
    bytes: Vec<u8>,
    room: usize,
}

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.bytes.extend_from_slice(&bytes[..taken]);
        if taken == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_could_not_be_written_is_counted_and_what_came_later_is_read() {
    let mut store = Store::new(Full { bytes: Vec::new(), room: 1000 }, &about()).expect("there is room");
    let mut failed = 0;
    for number in 0..400 {
        if number == 200 {
            store.out_mut().room = usize::MAX;
        }
        store.record(7, &record(number)).expect("it is kept");
        if number % 20 == 19 {
            failed += u64::from(store.flush().is_err());
        }
    }
    assert_eq!(store.lost(), failed * 20);
    let lost = store.lost();
    let bytes = store.finish().expect("there is room").bytes;
    let (info, given) = read(&bytes).expect("it is a store");
    assert!(lost > 0 && !info.complete);
    assert_eq!(given.records.len() as u64, 400 - lost);
    assert_eq!(given.lost(), Some(lost), "{:?}", given.damages);
    for (number, _, read) in &given.records {
        assert_eq!(*read, record(*number as u32));
    }
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
    let largest = Record { data: vec![1; MAX_DATA], ..record(0) };
    store.record(0, &largest).expect("it fits");
    store.record(0, &Record { data: vec![1; MAX_DATA + 1], ..record(0) }).expect_err("too large");
    store.record(0, &Record { name: "a".repeat(MAX_NAME + 1), ..record(0) }).expect_err("too large");
    store.fact(&Note { time: 0, text: "a".repeat(2 << 20) }.into()).expect_err("too large");
    let given = sound(&store.finish().expect("a vector takes everything")).1;
    assert_eq!(given.records.len(), 1);
    assert_eq!(given.records[0].2, largest);
}

fn any_record() -> impl Strategy<Value = Record> {
    let few = prop_oneof![0u32..4, any::<u32>()];
    (
        prop::array::uniform8(few),
        any::<[u64; 3]>(),
        0u32..3,
        "[a-zé]{0,3}",
        prop::sample::select(vec![0usize, 4, 8]),
        prop::collection::vec(any::<u8>(), 0..40),
    )
        .prop_map(
            |([major, minor, cpu, pid, tid, probe, uid, cs], [eip, esp, time], ss, name, word, data)| {
                Record { major, minor, cpu, pid, tid, probe, uid, cs, eip, ss, esp, time, name, word, data }
            },
        )
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(
        records in prop::collection::vec((any_record(), 0u32..3, any::<bool>()), 0..60),
    ) {
        let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
        for (record, program, flush) in &records {
            store.record(*program, record).expect("a vector takes everything");
            if *flush {
                store.flush().expect("a vector takes everything");
            }
        }
        let bytes = store.finish().expect("a vector takes everything");
        let (info, given) = sound(&bytes);
        prop_assert_eq!(info.records, records.len() as u64);
        prop_assert_eq!(given.records.len(), records.len());
        for ((number, program, read), (at, (record, own, _))) in given.records.iter().zip(records.iter().enumerate()) {
            prop_assert_eq!((*number, *program), (at as u64, *own));
            prop_assert_eq!(read, record);
        }
    }

    #[test]
    fn facts_that_have_grown_are_read_with_and_without_what_was_added(
        templates in prop::collection::vec(
            (any::<[u32; 2]>(), "[a-zé]{0,9}", prop::option::of("[a-z%]{0,9}"), prop::option::of(any::<u32>())),
            0..20,
        ),
    ) {
        let templates: Vec<Template> = templates.into_iter()
            .map(|([major, minor], description, format, program)| Template { major, minor, description, format, program })
            .collect();
        let mut store = Store::new(Vec::new(), &about()).expect("a vector takes everything");
        for template in &templates {
            store.fact(&template.clone().into()).expect("a vector takes everything");
        }
        let (info, _) = sound(&store.finish().expect("a vector takes everything"));
        prop_assert_eq!(&info.templates, &templates);
        // As in version 1: without the program, the last field.
        for template in templates {
            let (mut entry, mut body) = (Vec::new(), Vec::new());
            let common = Template { program: None, ..template };
            Fact::from(common.clone()).encode(&mut entry, &mut body);
            let mut old = vec![11];
            super::bytes::push_bytes(&mut old, &body[..body.len() - 1]);
            let read = Fact::decode(&mut super::bytes::Cursor::new(&old, 0)).expect("it is right");
            prop_assert_eq!(read, Some(common.into()));
        }
    }

    #[test]
    fn any_payload_is_read_to_an_end(
        payload in prop::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..300), kind in 1u8..5, records in 0u32..9,
        version in 1u8..=2,
    ) {
        let mut bytes = written(1, 3);
        let kind = match kind {
            1 => super::block::Kind::Facts,
            2 => super::block::Kind::Records,
            3 => super::block::Kind::Index,
            _ => super::block::Kind::End,
        };
        let store = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let end = block_ends(&bytes);
        bytes.truncate(end[2].0);
        let header = super::block::Header {
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
