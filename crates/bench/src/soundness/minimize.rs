//! Finds the smallest part of a batch that still fails.

/// Delta debugging (Zeller and Hildebrandt, 2002): a part of `all` that fails, none of whose tried
/// parts fails. Stops after `runs` calls of `fails` with the current part.
pub(super) fn minimize<T: Clone>(all: &[T], mut runs: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut current = all.to_vec();
    let mut parts = 2;
    while current.len() > 1 {
        let size = current.len().div_ceil(parts);
        let pieces: Vec<Vec<T>> = current.chunks(size).map(<[T]>::to_vec).collect();
        let without = |skipped: usize| -> Vec<T> {
            let kept = pieces.iter().enumerate().filter(|(place, _)| *place != skipped);
            kept.flat_map(|(_, piece)| piece.clone()).collect()
        };
        // First single pieces; then all but a piece, which is the same if there are two.
        let rest = if pieces.len() > 2 { pieces.len() } else { 0 };
        let candidates = pieces.iter().cloned().map(|piece| (piece, 2));
        let candidates =
            candidates.chain((0..rest).map(|skipped| (without(skipped), parts.saturating_sub(1).max(2))));
        let mut found = None;
        for (candidate, next) in candidates {
            if runs == 0 {
                return current;
            }
            runs -= 1;
            if fails(&candidate) {
                found = Some((candidate, next));
                break;
            }
        }
        match found {
            Some((smaller, next)) => (current, parts) = (smaller, next),
            None if parts >= current.len() => break,
            None => parts = (parts * 2).min(current.len()),
        }
    }
    current
}

#[cfg(test)]
mod tests {
    use super::minimize;

    #[test]
    fn one_or_several_culprits() {
        let all: Vec<u32> = (0..10_000).collect();
        assert_eq!(minimize(&all, 1000, |part| part.contains(&7777)), [7777]);
        let both = |part: &[u32]| part.contains(&12) && part.contains(&9000);
        assert_eq!(minimize(&all, 1000, both), [12, 9000]);
        // Out of runs: the result still fails.
        let some = minimize(&all, 12, both);
        assert!(some.len() < all.len() && both(&some));
    }
}
