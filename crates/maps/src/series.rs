//! A series: numbers of the last intervals of time, in a ring.
//!
//! ```text
//!     slot of interval n: n % intervals
//!     slot:  n + 1, or 0 | number | count, time, or "is set"
//! ```
//!
//! The first update of a newer interval takes the slot over. While it sets the slot to 0, the top
//! bit of the first word is set.

use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use crate::table::TRIES;
use crate::value::{self, Pair};
use crate::{Kind, MapInfo};

/// Words of a slot.
pub(crate) const SLOT: usize = 3;
const RESETTING: u64 = 1 << 63;

/// The aggregation of a series.
pub(crate) fn aggregation(info: &MapInfo) -> Kind {
    u32::try_from(info.c).ok().and_then(Kind::from_number).unwrap_or(Kind::Plain)
}

/// The length of an interval in nanoseconds.
pub(crate) fn interval(info: &MapInfo) -> u64 {
    info.a.max(1) as u64
}

/// Adds a number to the interval of a time. False: the interval is no longer in the ring, or
/// another thread holds its slot for too long.
pub(crate) fn add(info: &MapInfo, slots: &[AtomicU64], number: u64, now: u64) -> bool {
    let epoch = (now / interval(info)).min(RESETTING - 2);
    let Some([mark, pair @ ..]) = slot(slots, epoch) else { return false };
    let wanted = epoch + 1;
    for _ in 0..TRIES {
        let seen = mark.load(Acquire);
        if seen == wanted {
            return value::add_pair(aggregation(info), info, pair, number, now);
        }
        if seen & !RESETTING > wanted {
            return false;
        }
        let takes = seen & !RESETTING < wanted;
        if takes && mark.compare_exchange(seen, wanted | RESETTING, AcqRel, Relaxed).is_ok() {
            fence(Release);
            pair.iter().for_each(|word| word.store(0, Relaxed));
            // Fails if an even newer interval has taken the slot over.
            let _ = mark.compare_exchange(wanted | RESETTING, wanted, Release, Relaxed);
        } else {
            spin_loop();
        }
    }
    false
}

/// The slot that an interval has.
fn slot(slots: &[AtomicU64], epoch: u64) -> Option<&[AtomicU64; SLOT]> {
    let (slots, _) = slots.as_chunks::<SLOT>();
    slots.get(usize::try_from(epoch.checked_rem(slots.len() as u64)?).ok()?)
}

/// What a series has for an interval.
pub(crate) fn get(slots: &[AtomicU64], epoch: u64) -> Option<Pair> {
    let [mark, first, second] = slot(slots, epoch)?;
    if mark.load(Acquire) != epoch.checked_add(1)? {
        return None;
    }
    let pair = Pair(first.load(Relaxed), second.load(Relaxed));
    fence(Acquire);
    // Else a newer interval has taken the slot over meanwhile.
    (mark.load(Relaxed) == epoch + 1).then_some(pair)
}

/// The newest interval that a series has a number for.
pub(crate) fn newest(slots: &[AtomicU64]) -> Option<u64> {
    let (slots, _) = slots.as_chunks::<SLOT>();
    let epochs = slots.iter().enumerate().filter_map(|(place, slot)| {
        let mark = slot[0].load(Relaxed);
        let epoch = mark.checked_sub(1).filter(|_| mark & RESETTING == 0)?;
        (epoch % slots.len() as u64 == place as u64).then_some(epoch)
    });
    epochs.max()
}
