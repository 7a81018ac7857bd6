//! Instructions on maps that compiled code has the agent carry out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::Bench;
use crate::script_pieces::{TIMES, maps};
use dprobes_agent::image::Entry;
use layout::MapCall;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use vm::{FRAME_LIMIT, Maps, Op, Program};

/// A call: usually one that compiled code makes, sometimes any.
fn call() -> impl Strategy<Value = MapCall> {
    use Op::{Bump, Erase, Fetch, Has, Load, Nop, Put, Store, Update};
    let op = select(vec![Update, Update, Fetch, Store, Erase, Load, Put, Bump, Has, Nop]);
    let offset = prop_oneof![8 => (0..5_u64).prop_map(|word| 8 * word), 1 => 0..40_u64, 1 => any::<u64>()];
    let length = prop_oneof![6 => Just(8), 2 => Just(0), 2 => 0..24_u64, 1 => any::<u64>()];
    let value = prop_oneof![4 => (0..5_u64).prop_map(|word| 8 * word), 1 => any::<u64>()];
    (op, 0..23_u32, offset, length.clone(), value, length).prop_map(
        |(op, map, key, key_length, value, value_length)| MapCall {
            op: op as u32,
            map,
            processor: 0,
            key: key as u32,
            key_length,
            value,
            value_length,
        },
    )
}

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn the_agent_carries_out_what_it_is_asked_for() {
    let bench = Bench::new();
    let (infos, count) = maps();
    let calls = vec((call(), vec(0..3_u8, 48)), 1..24);
    proptest!(ProptestConfig::with_cases(1000), |(calls in calls, processor in 0..6_u32, backwards: bool)| {
        let mut bench = bench.clone();
        let (own, agents) = (words(count), words(count));
        let own = Maps { infos: &infos, words: &own };
        let program = Program { maps: Maps { infos: &infos, words: &agents }, ..Program::default() };
        let info = bench.describe(&program, 0);
        bench.set_clock(TIMES.map(Some));
        let info = bench.begin(&info);
        for (call, bytes) in calls {
            let call = MapCall { processor, ..call };
            let mut frame = [0; FRAME_LIMIT];
            frame[..48].copy_from_slice(&bytes);
            let (asked, theirs) = bench.map_call();
            *asked = call;
            theirs.copy_from_slice(&frame);
            let expected = call.carry_out(&own, &mut frame, || TIMES[0]);
            let flags = if backwards { 0xc03 } else { 0 };
            prop_assert_eq!(bench.call_with_everything(Entry::Map, info, flags).0, expected);
            prop_assert!(bench.map_call().1 == frame, "the frames differ");
        }
        bench.take_variables(&program);
        for (one, other) in own.words.iter().zip(&agents) {
            prop_assert_eq!(one.load(Relaxed), other.load(Relaxed));
        }
    });
}

#[test]
fn a_call_that_cannot_be_ended_gives_zero() {
    let mut bench = Bench::new();
    let (infos, count) = maps();
    let words = words(count);
    let program = Program { maps: Maps { infos: &infos, words: &words }, ..Program::default() };
    let good = bench.describe(&program, 0);
    let mut bad = good;
    // Nothing is there: the agent faults, and is sent to `dprobes_give_up`.
    bad.maps = 0x1000;
    let load = MapCall { op: Op::Bump as u32, map: 11, value: 5, ..MapCall::default() };
    for (info, expected) in [(bad, 0), (good, 0), (bad, 0), (good, 5)] {
        let info = bench.begin(&info);
        *bench.map_call().0 = load;
        assert_eq!(bench.call_with_everything(Entry::Map, info, 0x400).0, expected);
    }
}
