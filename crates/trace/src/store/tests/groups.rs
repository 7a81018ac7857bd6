//! Records in groups make the same blocks as one by one.

use std::io;

use proptest::prelude::*;

use crate::queue::Block;
use crate::store::{Batch, BatchBuilder};
use crate::{Record, Records};

/// The blocks of a store: payload, records, least and greatest time, disorder.
type Blocks = Vec<(Vec<u8>, u32, u64, u64, u64)>;

fn take(filling: &mut BatchBuilder, blocks: &mut Blocks) {
    let mut batch = Batch::default();
    filling.take(&mut batch);
    blocks.push((batch.records.clone(), batch.count, batch.least, batch.greatest, batch.disorder));
    batch.clear();
}

/// The blocks of records that come one by one.
fn one_by_one(records: &[Record]) -> Blocks {
    let (mut filling, mut blocks) = (BatchBuilder::new(), Blocks::new());
    for record in records {
        if filling.record(1, record).expect("it fits") {
            take(&mut filling, &mut blocks);
        }
    }
    take(&mut filling, &mut blocks);
    blocks
}

/// The blocks of records that come in groups of some size. Those without time have the time 0.
fn in_groups(records: &[Record], size: usize) -> Blocks {
    let (mut filling, mut blocks) = (BatchBuilder::new(), Blocks::new());
    let mut group = Records::default();
    for records in records.chunks(size) {
        group.clear_all();
        let mut heads: Vec<(Record, u32)> = Vec::new();
        for record in records {
            let common = Record { time: 0, cpu: 0, esp: 0, data: Vec::new(), ..record.clone() };
            let known = heads.iter().find(|(head, _)| *head == common).map(|&(_, number)| number);
            let head = known.unwrap_or_else(|| group.add_head(common.clone(), record.time != 0));
            if known.is_none() {
                heads.push((common, head));
            }
            let own = (record.time, record.cpu, record.esp);
            group.push(head, own, record.data.len())[..record.data.len()].copy_from_slice(&record.data);
        }
        filling.records(1, &mut group, |filling| {
            take(filling, &mut blocks);
            Ok(())
        });
        assert!(group.refused().next().is_none());
    }
    take(&mut filling, &mut blocks);
    blocks
}

fn record() -> impl Strategy<Value = Record> {
    let step = prop_oneof![5 => 0..200u64, 1 => 0..1u64 << 30, 1 => any::<u64>()];
    let length = prop_oneof![1 => Just(0), 1 => Just(8), 4 => Just(16), 1 => Just(24), 1 => 0..100usize, 1 => Just(3000)];
    (0..3u32, 0..3u32, 0..2u32, step.clone(), step, length).prop_map(
        |(probe, tid, cpu, passed, esp, length)| {
            let name = ["", "app", "worker-threads-1"][tid as usize].to_owned();
            let data = (0..length).map(|byte| (byte as u64 ^ passed) as u8).collect();
            // Only the third probe shows no times.
            let time = if probe == 2 { 0 } else { 1_700_000_000_000_000_000 + passed / 4 };
            Record { probe, tid, cpu, time, esp, name, data, eip: probe.into(), word: 8, ..Record::default() }
        },
    )
}

proptest! {
    #[test]
    fn groups_of_any_size_make_the_same_blocks(
        records in prop::collection::vec(record(), 1..600),
        size in 1..200usize,
    ) {
        prop_assert!(in_groups(&records, size) == one_by_one(&records));
    }
}

#[test]
fn a_full_block_ends_in_the_middle_of_a_group() {
    let record = |time: u64| Record { time, data: vec![time as u8; 1000], ..Record::default() };
    let records: Vec<Record> = (1..1000).map(record).collect();
    let blocks = in_groups(&records, 512);
    assert!(blocks.len() > 3);
    assert!(blocks == one_by_one(&records));
}

#[test]
fn what_fails_is_refused() {
    let mut group = Records::default();
    let head = group.add_head(Record::default(), true);
    let named = group.add_head(Record { name: "n".repeat(5000), ..Record::default() }, true);
    for time in 1..=1000 {
        let head = if time == 7 { named } else { head };
        group.push(head, (time, 0, 0), 1000);
    }
    let mut filling = BatchBuilder::new();
    let mut full = 0;
    filling.records(1, &mut group, |filling| {
        take(filling, &mut Blocks::new());
        full += 1;
        Err(io::ErrorKind::StorageFull.into())
    });
    let refused: Vec<u64> = group.refused().map(|(entry, _)| entry.time).collect();
    assert_eq!((refused[0], refused.len()), (7, 1 + full));
    assert!(full > 2 && group.take_error().is_some_and(|error| error.kind() == io::ErrorKind::InvalidInput));
}
