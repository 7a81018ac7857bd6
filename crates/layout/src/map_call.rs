//! What compiled code asks the agent to do with a map.

use maps::Kind;
use vm::{FRAME_LIMIT, Maps, Op};

/// An instruction on a map that compiled code has the agent carry out. A key, and a value of
/// several words, are in the frame: [`FRAME`](crate::FRAME).
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCall {
    /// The opcode.
    pub op: u32,
    /// The map's number.
    pub map: u32,
    /// The offset of the key.
    pub key: u32,
    /// The processor, of `update`.
    pub processor: u32,
    /// Bytes of the key.
    pub key_length: u64,
    /// The value or, of `store` and `fetch`, its offset.
    pub value: u64,
    /// Bytes of the value, of `store`.
    pub value_length: u64,
}

/// Bytes at an offset of a frame.
fn range(offset: u64, length: u64) -> core::ops::Range<usize> {
    let offset = offset.min(FRAME_LIMIT as u64) as usize;
    offset..offset.saturating_add(length.min(FRAME_LIMIT as u64) as usize)
}

impl MapCall {
    /// Carries it out: what the instruction pushes, or 0. Ranges outside of the frame, and those
    /// that overlap where the instruction forbids it, are taken as empty ones.
    pub fn carry_out(&self, maps: &Maps<'_>, frame: &mut [u8], now: impl FnOnce() -> u64) -> u64 {
        let map = self.map as usize;
        let Some(info) = maps.infos.get(map) else { return 0 };
        let (key, value) = (range(self.key.into(), self.key_length), self.value);
        if self.op == Op::Fetch as u32 {
            let size = range(value, info.value.into());
            // An empty range has nothing in common with any other.
            if key.is_empty() {
                return maps.fetch(map, &[], frame.get_mut(size).unwrap_or_default()).into();
            }
            return match frame.get_disjoint_mut([key, size]) {
                Ok([key, into]) => maps.fetch(map, key, into).into(),
                Err(_) => 0,
            };
        }
        let key = frame.get(key).unwrap_or_default();
        match Op::from_byte(self.op as u8) {
            Some(Op::Update) => {
                let now = if info.kind == Kind::Tseries as u32 { now() } else { 0 };
                maps.update(map, key, value, self.processor, now);
            }
            Some(Op::Store) => {
                let from = frame.get(range(value, self.value_length)).unwrap_or_default();
                maps.store(map, key, from);
            }
            Some(Op::Put) => {
                maps.put(map, key, value);
            }
            Some(Op::Erase) => return maps.erase(map, key).into(),
            Some(Op::Load) => return maps.load(map, key),
            Some(Op::Bump) => return maps.bump(map, key, value),
            Some(Op::Has) => return maps.has(map, key).into(),
            _ => {}
        }
        0
    }
}
