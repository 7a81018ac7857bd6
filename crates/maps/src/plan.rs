//! Plans the maps of a program: how large they are and where.

use std::fmt;

use crate::{Kind, MapInfo, buckets, series};

/// Words between the beginnings of maps: two cache lines.
const ALIGNMENT: usize = 16;

/// The maps need more words than can be addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// The first map that is too large.
    pub map: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "map {} needs more memory than there can be: give it fewer keys", self.map)
    }
}

impl std::error::Error for TooLarge {}

/// Plans the maps of a program: sets their `value` (but for plain maps, whose value is given),
/// `copies`, `place` and `words`, and rounds `key` and `value` up to 8 bytes. Aggregates get a copy
/// for each processor, but for those of maps that evict; where that is more than `budget` words for
/// all maps, the largest maps get fewer, down to one. Returns the number of words that all maps
/// need, which must be zeros when a program begins.
///
/// # Errors
///
/// [`TooLarge`] if a map cannot be addressed even with one copy.
pub fn plan(specs: &mut [MapInfo], processors: usize, budget: usize) -> Result<usize, TooLarge> {
    let processors = u32::try_from(processors).unwrap_or(u32::MAX).max(1);
    for (map, spec) in specs.iter_mut().enumerate() {
        size(spec, processors).ok_or(TooLarge { map })?;
    }
    let mut total: u128 = specs.iter().map(all).sum();
    while total > budget as u128 {
        let Some(largest) = specs.iter_mut().filter(|spec| spec.copies > 1).max_by_key(|spec| all(spec))
        else {
            break;
        };
        total -= all(largest);
        largest.copies /= 2;
        total += all(largest);
    }
    let mut place = 0usize;
    for (map, spec) in specs.iter_mut().enumerate() {
        spec.place = u32::try_from(place).map_err(|_| TooLarge { map })?;
        let size = usize::try_from(all(spec)).map_err(|_| TooLarge { map })?;
        place = place.checked_add(size).ok_or(TooLarge { map })?;
        debug_assert_eq!(place % ALIGNMENT, 0);
    }
    Ok(place)
}

fn all(spec: &MapInfo) -> u128 {
    u128::from(spec.copies) * u128::from(spec.words)
}

fn size(spec: &mut MapInfo, processors: u32) -> Option<()> {
    let kind = spec.kind();
    spec.key = spec.key.checked_next_multiple_of(8)?;
    spec.value = match kind {
        Kind::Plain => spec.value.checked_next_multiple_of(8)?,
        Kind::Stacks => 0,
        _ => u32::try_from(value_words(spec)?.checked_mul(8)?).ok()?,
    };
    let is_one = spec.is_evicting() || matches!(kind, Kind::Plain | Kind::Stacks);
    spec.copies = if is_one { 1 } else { processors };
    spec.words = u32::try_from(spec.copy_words()?).ok()?;
    Some(())
}

/// The words of an aggregate's value.
fn value_words(spec: &MapInfo) -> Option<usize> {
    Some(match spec.kind() {
        Kind::Plain | Kind::Stacks => 0,
        Kind::Count | Kind::Sum => 1,
        Kind::Min | Kind::Max | Kind::Avg | Kind::Stats => 2,
        Kind::Hist => buckets::powers(buckets::bits(spec.a)),
        Kind::Lhist => buckets::linears(spec.a, spec.b, spec.c),
        Kind::Tseries => usize::try_from(spec.b.max(1)).ok()?.checked_mul(series::SLOT)?,
    })
}
