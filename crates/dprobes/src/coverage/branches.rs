//! Conditional jumps, and what their being taken is proven by.
//!
//! Sites are at instructions, and which way a jump goes is no instruction. But if control comes to
//! a block only by one way, the block's site shows that this way was taken:
//!
//! ```text
//!   jg   B          taken      if B is reached, and whatever else leads to B is not
//!   A: ...          not taken  if B is not reached
//!   B: ...          taken      if the jump is reached and A is not: control has gone somewhere
//! ```
//!
//! Where all of it is reached, as after `if (x) A; B` once A was executed, nothing says whether A
//! was skipped as well. Such a way is undecided.

use std::collections::{BTreeMap, HashSet};

use image::{Block, Image, Leaves};

use super::hit::Hit;

/// A conditional jump.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// Its source line.
    pub(super) line: u64,
    /// The site of its block.
    pub(super) site: u64,
    /// Where it leads: to the instruction behind it, and to its target.
    pub(super) ways: [Way; 2],
}

/// One of the two ways from a conditional jump.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// The block that it leads to.
    to: u64,
    /// The other blocks from which control comes there; `None` if they are not all known.
    others: Option<Vec<u64>>,
}

/// What is known of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The jump is not reached.
    Unreached,
    /// The way was not taken.
    No,
    /// The way was taken.
    Yes,
    /// Both are possible.
    Undecided,
}

impl Branch {
    /// All sites that it is decided by.
    pub(super) fn sites(&self) -> impl Iterator<Item = u64> {
        let of = |way: &Way| [way.to].into_iter().chain(way.others.clone().unwrap_or_default());
        [self.site].into_iter().chain(self.ways.iter().flat_map(of).collect::<Vec<_>>())
    }

    /// Which ways were taken.
    pub(super) fn taken(&self, hit: &dyn Fn(u64) -> Hit) -> [Taken; 2] {
        let [one, other] = &self.ways;
        match hit(self.site) {
            Hit::Missed => [Taken::Unreached; 2],
            Hit::Unmeasured => [Taken::Undecided; 2],
            Hit::Reached => [one.taken(other, hit), other.taken(one, hit)],
        }
    }
}

impl Way {
    /// Whether it was taken, where the jump is reached.
    fn taken(&self, other: &Way, hit: &dyn Fn(u64) -> Hit) -> Taken {
        let is_missed = |site: &u64| hit(*site) == Hit::Missed;
        let is_alone = self.others.as_ref().is_some_and(|others| others.iter().all(is_missed));
        match hit(self.to) {
            Hit::Missed => Taken::No,
            Hit::Reached if is_alone || is_missed(&other.to) => Taken::Yes,
            _ => Taken::Undecided,
        }
    }
}

/// Which blocks lead to which.
pub(super) struct Graph<'a> {
    image: &'a Image,
    /// The blocks from which control comes to an address.
    before: BTreeMap<u64, Vec<u64>>,
    /// Addresses where blocks in closed code begin.
    closed: HashSet<u64>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(image: &'a Image, blocks: &[Block]) -> Graph<'a> {
        let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for block in blocks {
            let (next, target) = match block.leaves {
                Leaves::Falls => (true, None),
                Leaves::Jumps(target) => (false, Some(target)),
                Leaves::Branches(target) => (true, Some(target)),
                Leaves::Elsewhere => (false, None),
            };
            for to in next.then_some(block.end).into_iter().chain(target) {
                before.entry(to).or_default().push(block.start);
            }
        }
        let closed = blocks.iter().filter(|block| block.is_closed).map(|block| block.start);
        Graph { image, before, closed: closed.collect() }
    }

    /// The conditional jump that ends a block, if one does that leads to two places.
    pub(super) fn branch(&self, block: &Block, line: u64) -> Option<Branch> {
        let Leaves::Branches(target) = block.leaves else { return None };
        let way = |to: u64| {
            let is_known = self.closed.contains(&to) && !self.is_entered(to);
            let before = self.before.get(&to).filter(|_| is_known);
            let others =
                before.map(|before| before.iter().copied().filter(|from| *from != block.start).collect());
            Way { to, others }
        };
        (target != block.end).then(|| Branch { line, site: block.start, ways: [way(block.end), way(target)] })
    }

    /// Whether control may come to an address other than by a direct jump or from the instruction
    /// before it.
    fn is_entered(&self, address: u64) -> bool {
        let within = self.image.possible_targets().within(address..address + 1);
        within.is_none_or(|found| !found.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `if (x) A; B`: the jump at 1 leads to 2 (A) and 3 (B), and so does A to B.
    fn skip() -> Branch {
        let way = |to, others: &[u64]| Way { to, others: Some(others.to_vec()) };
        Branch { line: 7, site: 1, ways: [way(2, &[]), way(3, &[2])] }
    }

    fn taken(branch: &Branch, reached: &[u64]) -> [Taken; 2] {
        let hit = |site| if reached.contains(&site) { Hit::Reached } else { Hit::Missed };
        branch.taken(&hit)
    }

    #[test]
    fn a_way_is_taken_only_if_nothing_else_explains_what_is_reached() {
        assert_eq!(taken(&skip(), &[]), [Taken::Unreached; 2]);
        assert_eq!(taken(&skip(), &[1, 2, 3]), [Taken::Yes, Taken::Undecided]);
        assert_eq!(taken(&skip(), &[1, 3]), [Taken::No, Taken::Yes]);
        // A never came to its end.
        assert_eq!(taken(&skip(), &[1, 2]), [Taken::Yes, Taken::No]);
        // Without the way from A: `if (x) A; else B`.
        let mut either = skip();
        either.ways[1].others = Some(Vec::new());
        assert_eq!(taken(&either, &[1, 2, 3]), [Taken::Yes; 2]);
        // Who else comes to B is not known.
        either.ways[1].others = None;
        assert_eq!(taken(&either, &[1, 2, 3]), [Taken::Yes, Taken::Undecided]);
        assert_eq!(taken(&either, &[1, 3]), [Taken::No, Taken::Yes]);
    }

    #[test]
    fn what_was_not_measured_decides_nothing() {
        let hit = |site| if site == 3 { Hit::Unmeasured } else { Hit::Reached };
        assert_eq!(skip().taken(&hit), [Taken::Yes, Taken::Undecided]);
        assert_eq!(skip().taken(&|_| Hit::Unmeasured), [Taken::Undecided; 2]);
    }
}
