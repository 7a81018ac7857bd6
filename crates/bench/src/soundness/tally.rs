//! The results of a module's batches.

use super::batch::Fate;
use super::sites::Site;
use std::collections::BTreeMap;

/// Sites by result.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of sites by engine and tactic.
    pub sites: BTreeMap<String, u64>,
    /// The number of function entries by engine and tactic.
    pub entries: BTreeMap<String, u64>,
    /// Reasons for traps and refusals, with count and example.
    pub reasons: BTreeMap<(String, String), (u64, String)>,
    /// The number of hits.
    pub hits: u64,
    /// The number of sites that were hit.
    pub hit: u64,
    /// Hits whose handler could not run.
    pub missed: u64,
}

/// A batch, or part of one, that the program noticed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The number of the batch.
    pub batch: usize,
    /// The difference.
    pub difference: String,
    /// The smallest part that still fails; empty if it did not fail again.
    pub sites: Vec<String>,
}

/// A reason without numbers: its kind.
fn kind(reason: &str) -> String {
    let mut kind = String::new();
    let mut words = reason.split(' ').map(|word| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let number = bare.starts_with("0x") || !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit());
        if number { word.replace(bare, "N") } else { word.to_owned() }
    });
    // An instruction in back quotes belongs to the example, too.
    let mut quoted = false;
    for word in words.by_ref() {
        let ticks = word.matches('`').count();
        if !quoted && ticks == 0 {
            kind += &word;
            kind.push(' ');
        } else if !quoted {
            kind += "`...` ";
        }
        quoted ^= ticks % 2 == 1;
    }
    kind.trim_end().to_owned()
}

impl Tally {
    /// Adds a batch.
    pub fn add(&mut self, sites: &[&Site], fates: &[Fate]) {
        for (site, fate) in sites.iter().zip(fates) {
            *self.sites.entry(fate.how.clone()).or_default() += 1;
            if site.entry {
                *self.entries.entry(fate.how.clone()).or_default() += 1;
            }
            if let Some(reason) = &fate.reason {
                let example = || (0, format!("{:#x} `{}`", site.address, site.text));
                self.reasons.entry((fate.how.clone(), kind(reason))).or_insert_with(example).0 += 1;
            }
            self.hits += fate.hits;
            self.hit += u64::from(fate.hits > 0);
            self.missed += fate.missed;
        }
    }

    /// The number of all sites, and of those whose engine and tactic begin with `start`.
    pub fn share(counts: &BTreeMap<String, u64>, start: &str) -> (u64, u64) {
        let part = counts.iter().filter(|(how, _)| how.starts_with(start)).map(|(_, count)| count).sum();
        (counts.values().sum(), part)
    }
}

#[cfg(test)]
mod tests {
    use super::{Tally, kind};
    use crate::soundness::{Fate, Site};

    #[test]
    fn reasons_of_one_kind() {
        let one = kind(
            "0x28000 is inside the instruction at 0x27ffd, `mov -0xB0(%rbp),%rax`; the nearest are 0x27ffd",
        );
        let other = kind("0x1 is inside the instruction at 0x0, `nop`; the nearest are 0x0");
        assert_eq!(one, other);
        assert_ne!(kind("far jumps"), kind("near jumps"));
    }

    #[test]
    fn shares() {
        let site = |entry| Site { address: 1, offset: 1, text: "nop".into(), entry, apart: false };
        let fate = |how: &str, hits| Fate { how: how.into(), hits, ..Fate::default() };
        let mut tally = Tally::default();
        let (a, b) = (site(true), site(false));
        tally.add(&[&a, &b, &b], &[fate("jump, plain", 2), fate("jump, punned", 0), fate("trap", 1)]);
        assert_eq!(Tally::share(&tally.sites, "jump"), (3, 2));
        assert_eq!(Tally::share(&tally.entries, "jump"), (1, 1));
        assert_eq!((tally.hits, tally.hit), (3, 2));
    }
}
