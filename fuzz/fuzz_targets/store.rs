//! Any file: the reader of trace stores takes what is sound in it and names the rest. It is read as it is, and once more with
//! all checksums set right, as by someone who wants the rest to be believed. What is read is in order, lies within the
//! file, takes no more memory than the file explains, and can be shown, filtered, and written again.
#![no_main]

mod seal;

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use seal::sealed;
use trace::store::{Filter, Item, Reader, Store};
use trace::{Form, Items, Record, Text, raw};

fuzz_target!(|data: &[u8]| {
    judge(data);
    judge(&sealed(data));
    for word in [4, 8] {
        if let Ok((record, items)) = raw::read(data, word) {
            let mut again = Vec::new();
            raw::write(&record, items, &mut again);
            let (back, _) = raw::read(&again, word).expect("it was written so");
            assert_eq!((back.eip, back.time, &back.name), (record.eip, record.time, &record.name));
        }
    }
});

/// Reads a file, and uses what comes of it.
fn judge(file: &[u8]) {
    let Ok(mut reader) = Reader::new(Cursor::new(file)) else { return };
    let about = reader.info().about.clone();
    let mut again = Store::new(Vec::new(), &about).expect("a vector takes everything");
    let mut text = Text::new(Items::ALL, Form::Formatted);
    let mut records: Vec<(u32, Record)> = Vec::new();
    while let Some(item) = reader.next().expect("bytes in memory can be read") {
        match item {
            Item::Record(entry) => {
                assert!(entry.record.data.len() <= file.len());
                text.write(entry.record, &mut std::io::sink()).expect("nothing refuses nothing");
                again.record(entry.program, entry.record).expect("what was read can be written");
                records.push((entry.program, entry.record.clone()));
            }
            Item::Fact(fact) => again.fact(&fact).expect("what was read can be written"),
            Item::Damage(damage) => {
                assert!(damage.offset <= file.len() as u64, "{damage}");
                assert!(damage.skipped <= file.len() as u64, "{damage}");
            }
        }
    }
    let written = again.finish().expect("a vector takes everything");
    let mut copy = Reader::new(Cursor::new(&written)).expect("it was written so");
    let mut expected = records.iter();
    while let Some(item) = copy.next().expect("bytes in memory can be read") {
        match item {
            Item::Record(entry) => {
                assert_eq!(expected.next().map(|(program, record)| (*program, record)), Some((entry.program, entry.record)));
            }
            Item::Fact(_) => {}
            Item::Damage(damage) => panic!("{damage}"),
        }
    }
    assert!(expected.next().is_none());
    // Whatever is asked for, no more comes than without asking.
    if let Some((program, first)) = records.first() {
        let filter = Filter {
            from: Some(first.time),
            tids: vec![first.tid],
            probes: vec![(*program, first.probe)],
            ..Filter::default()
        };
        reader.select(filter).expect("bytes in memory can be read");
        let mut count = 0;
        while let Some(item) = reader.next().expect("bytes in memory can be read") {
            if let Item::Record(entry) = item {
                assert!(entry.record.time >= first.time && entry.record.tid == first.tid);
                count += 1;
            }
        }
        assert!(count <= records.len());
    }
}
