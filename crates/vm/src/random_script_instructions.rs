//! Random instructions on the frame and on maps, for the tests of properties: what they pop is
//! pushed before, so that most do something.

use maps::MapInfo;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties::interesting;
use crate::{Constants, Effects, Op, Operand, TABLE, Word};

/// Two literals, `a` and nothing.
pub(crate) const CONSTANTS: Constants<'static> =
    Constants(b"\x02\0\0\0\0\0\0\0\0\0\0\0\x1c\0\0\0\x01\0\0\0\x1d\0\0\0\0\0\0\0a");

/// A map of each kind with keys, and one of some kinds without; and how many words they need.
pub(crate) fn maps() -> (Vec<MapInfo>, usize) {
    let map = |number: u32| MapInfo {
        kind: number % 11,
        signed: number % 2,
        key: if number < 11 { 16 } else { 0 },
        value: 16,
        entries: 1,
        a: 1,
        b: 10,
        c: 2,
        ..MapInfo::default()
    };
    let mut maps: Vec<MapInfo> = (0..16).map(map).collect();
    let words = maps::plan(&mut maps, 2, usize::MAX).expect("they are small");
    (maps, words)
}

/// Pushes, and then one of these instructions.
pub(crate) fn with_operands(word: Word) -> impl Strategy<Value = Vec<u8>> {
    let uses = Effects::USES_FRAME.and(Effects::USES_MAPS);
    let rows: Vec<_> = TABLE.iter().filter(|row| row.effects.intersects(uses)).collect();
    let value = prop_oneof![
        4 => (0..5_u64).prop_map(|words| 8 * words),
        2 => 0..20_u64,
        1 => interesting(word),
    ];
    (proptest::sample::select(rows), vec(value, 4), 0..17_u16).prop_map(move |(row, values, number)| {
        let mut bytes = Vec::new();
        for value in &values[..row.pops.unwrap_or(0).into()] {
            bytes.push(Op::Push as u8);
            bytes.extend(&value.to_le_bytes()[..word.bytes()]);
        }
        bytes.push(row.op as u8);
        if row.operand == Operand::U16 {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    })
}
