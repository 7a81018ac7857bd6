//! What was reached: of each source file its lines, functions and branches, over all modules.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::branches::Taken;
use super::hit::Hit;
use super::plan::{Plan, SourceFile};

/// What was reached, by the paths of source files.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) files: BTreeMap<String, File>,
    /// Sites that could not be probed.
    pub(super) unmeasured: u64,
}

/// What was reached of one source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    /// For each line, whether it was reached.
    pub(super) lines: BTreeMap<u64, bool>,
    /// For each function, by line and name, whether it was called.
    pub(super) functions: BTreeMap<(u64, String), bool>,
    /// For each line the conditional jumps, each with its two ways.
    pub(super) branches: BTreeMap<u64, Vec<[Taken; 2]>>,
    /// Conditional jumps of which nothing is proven.
    pub(super) unproven: u64,
}

/// How many of something were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) reached: u64,
    pub(super) all: u64,
}

impl Part {
    fn of(states: impl Iterator<Item = bool>) -> Part {
        states.fold(Part::default(), |part, is_reached| Part {
            reached: part.reached + u64::from(is_reached),
            all: part.all + 1,
        })
    }

    /// How much of it, in percent; 100 of nothing.
    pub(super) fn percent(self) -> f64 {
        if self.all == 0 { 100.0 } else { self.reached as f64 * 100.0 / self.all as f64 }
    }
}

impl AddAssign for Part {
    fn add_assign(&mut self, other: Part) {
        self.reached += other.reached;
        self.all += other.all;
    }
}

impl Measured {
    /// Adds a module. The same source line in several modules is reached if it is in one.
    pub(super) fn add(&mut self, plan: &Plan, hits: &[Hit]) {
        let hit = |site: u64| {
            let place = plan.sites.binary_search(&site).ok();
            place.and_then(|place| hits.get(place).copied()).unwrap_or(Hit::Unmeasured)
        };
        self.unmeasured += hits.iter().filter(|hit| **hit == Hit::Unmeasured).count() as u64;
        for (path, source) in &plan.files {
            self.files.entry(path.clone()).or_default().add(source, &hit);
        }
        self.files.retain(|_, file| !file.lines.is_empty());
    }
}

impl File {
    fn add(&mut self, source: &SourceFile, hit: &dyn Fn(u64) -> Hit) {
        for (&line, sites) in &source.lines {
            let is_reached = sites.iter().any(|site| hit(*site) == Hit::Reached);
            if is_reached || sites.iter().any(|site| hit(*site) == Hit::Missed) {
                *self.lines.entry(line).or_default() |= is_reached;
            }
        }
        for function in source.functions.values().filter(|function| hit(function.site) != Hit::Unmeasured) {
            let entry = self.functions.entry((function.line, function.name.clone()));
            *entry.or_default() |= hit(function.site) == Hit::Reached;
        }
        for branch in source.branches.values() {
            self.branches.entry(branch.line).or_default().push(branch.taken(hit));
        }
        self.unproven += source.unproven;
    }

    /// How many lines were reached.
    pub(super) fn line_part(&self) -> Part {
        Part::of(self.lines.values().copied())
    }

    /// How many functions were called.
    pub(super) fn function_part(&self) -> Part {
        Part::of(self.functions.values().copied())
    }

    /// How many ways of conditional jumps were taken, of those that are decided.
    pub(super) fn branch_part(&self) -> Part {
        let decided = self.ways().filter(|taken| *taken != Taken::Undecided);
        Part::of(decided.map(|taken| taken == Taken::Yes))
    }

    /// How many ways are undecided.
    pub(super) fn undecided(&self) -> u64 {
        let undecided = self.ways().filter(|taken| *taken == Taken::Undecided).count() as u64;
        undecided + 2 * self.unproven
    }

    fn ways(&self) -> impl Iterator<Item = Taken> {
        self.branches.values().flatten().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Function;
    use super::*;

    fn plan(lines: &[(u64, &[u64])]) -> Plan {
        let mut file = SourceFile::default();
        let mut sites = Vec::new();
        for (line, of_line) in lines {
            file.lines.insert(*line, of_line.iter().copied().collect());
            sites.extend(*of_line);
        }
        sites.sort_unstable();
        let main = Function { name: "main".to_owned(), line: 1, site: sites[0] };
        file.functions.insert(sites[0], main);
        Plan { sites, files: [("a.c".to_owned(), file)].into() }
    }

    #[test]
    fn a_line_is_reached_by_any_of_its_sites_in_any_module() {
        use Hit::{Missed, Reached, Unmeasured};
        let plan = plan(&[(1, &[10]), (2, &[20, 30]), (3, &[40]), (4, &[50])]);
        let mut measured = Measured::default();
        measured.add(&plan, &[Missed, Missed, Reached, Missed, Unmeasured]);
        let file = &measured.files["a.c"];
        assert_eq!(file.lines, [(1, false), (2, true), (3, false)].into());
        assert_eq!((file.line_part(), measured.unmeasured), (Part { reached: 1, all: 3 }, 1));
        measured.add(&plan, &[Reached, Missed, Missed, Missed, Missed]);
        let file = &measured.files["a.c"];
        assert_eq!(file.lines, [(1, true), (2, true), (3, false), (4, false)].into());
        assert_eq!(file.functions, [((1, "main".to_owned()), true)].into());
        assert_eq!(file.line_part().percent(), 50.0);
    }
}
