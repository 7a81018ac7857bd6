//! Pieces of random programs as scripts are compiled to them: the frame, maps and constants.
#![allow(dead_code, reason = "each test uses its own part")]

use maps::{Kind, MapInfo};
use proptest::prelude::*;
use proptest::sample::select;
use vm::{Clock, FRAME_LIMIT, Op};

use super::programs::{Line, MEMORY, interesting, memory};

/// The thread's id, as programs see it.
pub(crate) const THREAD: u64 = 0x1234;

/// The time by each clock, as programs see it.
pub(crate) const TIMES: [u64; 4] = [5_000_000_000, 3_000_000_000, 6_000_000_000, 1_700_000_000_000_000_000];

/// The time by a clock.
pub(crate) fn time(clock: Clock) -> u64 {
    TIMES[match clock {
        Clock::Monotonic => 0,
        Clock::Elapsed => 1,
        Clock::Boot => 2,
        Clock::Real => 3,
    }]
}

/// Two literals, `hello` and nothing; the name of an attach point, `point`.
pub(crate) const CONSTANTS: &[u8] =
    b"\x02\0\0\0\x01\0\0\0\0\0\0\0\x24\0\0\0\x05\0\0\0\x24\0\0\0\0\0\0\0\x29\0\0\0\x05\0\0\0hellopoint";

/// The number of processors that there can be.
pub(crate) fn processors() -> usize {
    // SAFETY: a call without pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).expect("it is known")
}

/// A count, a sum and a histogram without keys among [`maps`].
const COUNTED: [u64; 3] = [12, 13, 18];

/// A map of each kind, with and without keys, and the number of words that they need.
pub(crate) fn maps() -> (Vec<MapInfo>, usize) {
    let map = |number: u32| MapInfo {
        kind: number % 11,
        signed: number / 11,
        key: if number < 11 { 16 } else { 0 },
        value: 16,
        entries: 1,
        a: match Kind::from_number(number % 11) {
            Some(Kind::Tseries) => 1 << 32,
            _ => i64::from(number < 11),
        },
        b: 10,
        c: 2,
        ..MapInfo::default()
    };
    let mut maps: Vec<MapInfo> = (0..22).map(map).collect();
    let words = ::maps::plan(&mut maps, processors(), usize::MAX).expect("they are small");
    (maps, words)
}

/// Where in the frame: usually near its beginning.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => (0..6_u64).prop_map(|word| 8 * word),
        4 => 0..50_u64,
        1 => (0..40_u64).prop_map(|below| FRAME_LIMIT as u64 - below),
        1 => interesting(),
    ]
}

/// How many bytes.
fn length() -> impl Strategy<Value = u64> {
    prop_oneof![10 => 0..20_u64, 1 => 0..200_u64, 1 => interesting()]
}

/// The length of a key.
fn key() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(8), 4 => Just(0), 2 => Just(16), 1 => 0..20_u64]
}

/// Pushes of values, the last on top, then an instruction.
fn after(values: &[u64], op: Op, operand: u64) -> Vec<Line> {
    values.iter().map(|&value| (Op::Push, value)).chain([(op, operand)]).collect()
}

/// Instructions on the frame.
fn frame() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let address = prop_oneof![
        6 => (0..MEMORY as u64 + 8).prop_map(|offset| memory() + offset),
        1 => interesting(),
    ];
    let by_count = select(vec![FillF, LogF, LogTextF]);
    let reading = select(vec![ReadF, StrF]);
    let comparing = select(vec![CompareF, FindF]);
    prop_oneof![
        4 => (interesting(), offset()).prop_map(|(value, to)| after(&[value], PopF, to)),
        2 => offset().prop_map(|from| after(&[], PushF, from)),
        1 => offset().prop_map(|from| after(&[from], PushF8, 0)),
        2 => (length(), offset(), by_count).prop_map(|(count, at, op)| after(&[count, at], op, 0)),
        1 => (length(), offset(), offset())
            .prop_map(|(count, from, to)| after(&[count, from, to], MoveF, 0)),
        3 => (length(), address, offset(), reading)
            .prop_map(|(count, from, to, op)| after(&[count, from, to], op, 0)),
        1 => (length(), offset(), length(), offset(), comparing)
            .prop_map(|(second, at, first, from, op)| after(&[second, at, first, from], op, 0)),
        1 => (select(vec![0, 1, 2, 1 << 32, 1 << 32 | 1, 3 << 32]), offset())
            .prop_map(|(number, to)| after(&[number, to], TextF, 0)),
    ]
}

/// Instructions on maps.
fn map() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let of_key = select(vec![Erase, Load, Has]);
    let of_value = select(vec![Update, Update, Put, Bump]);
    let op = prop_oneof![
        3 => (interesting(), key(), offset(), of_value)
            .prop_map(|(value, size, at, op)| (vec![value, size, at], op)),
        2 => (key(), offset(), of_key).prop_map(|(size, at, op)| (vec![size, at], op)),
        2 => (offset(), key(), offset()).prop_map(|(to, size, at)| (vec![to, size, at], Fetch)),
        1 => (0..17_u64, offset(), key(), offset())
            .prop_map(|(value, from, size, at)| (vec![value, from, size, at], Store)),
        1 => (offset(), offset(), prop_oneof![0..8_u64, interesting()])
            .prop_map(|(value, key, position)| (vec![value, key, position], Next)),
        1 => Just((vec![], Entries)),
    ];
    // One more than there are.
    let number = prop_oneof![3 => Just(0), 6 => 0..23_u64];
    (op, number).prop_map(|((values, op), number)| after(&values, op, number))
}

/// Instructions on values, and what a handler knows.
fn value() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let pair = select(vec![Eq, Slt, Ult, Quo, Rem, Squo, Srem, Sar]);
    prop_oneof![
        4 => (interesting(), interesting(), pair.clone())
            .prop_map(|(second, first, op)| after(&[second, first], op, 0)),
        2 => pair.prop_map(|op| after(&[], op, 0)),
        1 => (0..5_u64).prop_map(|clock| after(&[], PushNsecs, clock)),
        1 => select(vec![PushTid, PushMinor]).prop_map(|op| after(&[], op, 0)),
    ]
}

/// An instruction on a map with a key of one word, of few, so that entries are found again.
fn with_word() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let of_key = select(vec![Erase, Load, Has]);
    let of_value = select(vec![Update, Update, Update, Put, Bump]);
    let number = prop_oneof![0..4_u64, interesting()];
    let op = prop_oneof![
        4 => (number.clone(), of_value).prop_map(|(value, op)| (vec![value], op)),
        3 => of_key.prop_map(|op| (vec![], op)),
        1 => (0..6_u64).prop_map(|to| (vec![8 * to], Fetch)),
        1 => ((0..3_u64), (0..6_u64)).prop_map(|(words, from)| (vec![8 * words, 8 * from], Store)),
    ];
    let map = prop_oneof![1 => Just(0), 2 => 0..11_u64];
    (0..3_u64, 0..4_u64, op, map).prop_map(|(key, place, (values, op), map)| {
        let operands: Vec<u64> = values.into_iter().chain([8, 8 * place]).collect();
        [vec![(Push, key), (PopF, 8 * place)], after(&operands, op, map)].concat()
    })
}

/// A string that is read, and then is a key or a value, or the end of one.
fn with_text() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let address = (0..MEMORY as u64 + 8).prop_map(|offset| memory() + offset);
    let used = prop_oneof![
        3 => select(vec![Erase, Load, Has]).prop_map(|op| (None, op)),
        4 => (interesting(), select(vec![Update, Put, Bump])).prop_map(|(value, op)| (Some(value), op)),
        1 => (0..10_u64).prop_map(|to| (Some(8 * to), Fetch)),
    ];
    let size = prop_oneof![4 => select(vec![8, 16, 24]), 1 => 0..40_u64];
    let place = (0..6_u64, prop_oneof![3 => Just(0), 1 => 0..3_u64]);
    (size, address, place, used, 0..12_u64).prop_map(|(size, address, (at, before), (value, op), map)| {
        let value = value.into_iter().map(|value| (Push, value)).collect();
        let read = after(&[size, address, 8 * at], StrF, 0);
        let length = vec![(DupImm, 1), (ShrImm, 63), (Add, 0), (Push, 7), (Add, 0), (Push, !7), (And, 0)];
        let length = [length, vec![(Push, 8 * before), (Add, 0)]].concat();
        let start = 8 * at.saturating_sub(before);
        [value, read, length, vec![(Push, start), (op, map)]].concat()
    })
}

/// A string that is read and logged: as long as it is, or not.
fn logged_text() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let address = (0..MEMORY as u64 + 8).prop_map(|offset| memory() + offset);
    let less = prop_oneof![4 => Just(0), 1 => Just(1), 1 => Just(u64::MAX), 1 => 0..9_u64];
    let size = prop_oneof![4 => select(vec![8, 16, 24]), 1 => 0..40_u64];
    (size, address, 0..6_u64, less).prop_map(|(size, address, at, more)| {
        let read = after(&[size, address, 8 * at], StrF, 0);
        let length = vec![(DupImm, 1), (ShrImm, 63), (Add, 0), (Push, more), (Add, 0)];
        [read, length, vec![(Push, 8 * at), (LogTextF, 0)]].concat()
    })
}

/// What compiled code does by itself: words of the frame, mostly whole ones, and comparisons.
pub(crate) fn compiled_piece() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let place = prop_oneof![12 => (0..5_u64).prop_map(|word| 8 * word), 1 => offset()];
    let pair = select(vec![Eq, Slt, Ult, Sar]);
    let by_number = select(vec![Quo, Rem, Squo, Srem]);
    prop_oneof![
        3 => place.clone().prop_map(|to| after(&[], PopF, to)),
        2 => (interesting(), place.clone()).prop_map(|(value, to)| after(&[value], PopF, to)),
        4 => place.prop_map(|from| after(&[], PushF, from)),
        3 => pair.prop_map(|op| after(&[], op, 0)),
        // The dividend is below the divisor, which is popped second.
        1 => (interesting(), by_number)
            .prop_map(|(divisor, op)| vec![(Push, divisor), (Xchg, 0), (op, 0)]),
        1 => Just(after(&[], PushMinor, 0)),
        1 => Just(after(&[], PushTid, 0)),
        1 => (0..4_u64).prop_map(|clock| after(&[], PushNsecs, clock)),
        6 => with_word(),
        4 => with_text(),
        3 => logged_text(),
        3 => (prop_oneof![Just(1), interesting()], select(COUNTED.to_vec()))
            .prop_map(|(value, map)| after(&[value, 0, 0], Update, map)),
        1 => select(COUNTED.to_vec()).prop_map(|map| after(&[0, 0], Update, map)),
    ]
}

/// One of these.
pub(crate) fn script_piece() -> impl Strategy<Value = Vec<Line>> {
    prop_oneof![4 => frame(), 4 => map(), 2 => value()]
}
