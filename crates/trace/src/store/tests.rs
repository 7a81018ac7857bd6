//! Tests that all that is written is read; `damage` tests stores that are not whole.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::Record;

mod damage;
mod groups;

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

#[test]
fn a_command_line_can_be_given_to_a_shell_again() {
    let mut about = about();
    about.command =
        ["dprobes", "run", "--at", "a.out:f*", "--do", "push 'x'", ""].map(str::to_owned).to_vec();
    assert_eq!(about.command_line(), r"dprobes run --at 'a.out:f*' --do 'push '\''x'\''' ''");
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
            logged: Some("1p|".to_owned()),
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
}
