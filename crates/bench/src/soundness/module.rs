//! One module from end to end.

use super::batch::Runner;
use super::compare::{Comparison, compare};
use super::drive::Ran;
use super::minimize::minimize;
use super::outcome::Outcome;
use super::random::Random;
use super::sites::{Site, Sites};
use super::tally::{Failure, Tally};
use super::workload::Workload;
use std::io;
use std::time::{Duration, Instant};

/// What is to be done with a module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sites in a batch, at least.
    pub batch: usize,
    /// Batches to run, if not all; the first ones of the random order.
    pub batches: Option<usize>,
    /// Where the random order begins.
    pub seed: u64,
    /// Instructions to compare with callgrind, and how many executions they may have together.
    pub sample: (usize, u64),
    /// Runs that may be spent on finding the smallest part of a batch that fails.
    pub runs: usize,
}

/// What a module has shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The module.
    pub workload: Workload,
    /// Its instructions and functions.
    pub sites: Sites,
    /// Batches run, and how many all of them are.
    pub batches: (usize, usize),
    /// Sites in the batches run.
    pub probed: usize,
    /// What became of them.
    pub tally: Tally,
    /// Batches that the program could tell.
    pub failures: Vec<Failure>,
    /// How long the unprobed workload takes.
    pub unprobed: Duration,
    /// How long a batch took at least, in the mean, at most.
    pub took: (Duration, Duration, Duration),
    /// Hits beside callgrind's counts: nothing where that cannot be, or why it failed.
    pub comparison: Option<Result<Comparison, String>>,
}

impl Shown {
    /// Whether the program could not tell.
    pub fn sound(&self) -> bool {
        let equal = match &self.comparison {
            Some(Ok(comparison)) => comparison.different.is_empty(),
            Some(Err(_)) => false,
            None => true,
        };
        self.failures.is_empty() && equal
    }
}

/// The unprobed run: what it writes, which two runs must agree on.
fn reference(runner: &Runner, workload: &Workload) -> io::Result<Ran> {
    let limit = Duration::from_secs(600);
    let first = runner.unprobed(workload, limit)?;
    let second = runner.unprobed(workload, limit)?;
    if let Some(difference) = first.outcome.difference(&second.outcome) {
        return Err(io::Error::other(format!("two unprobed runs differ: {difference}")));
    }
    if first.code != Some(0) {
        return Err(io::Error::other(format!(
            "the unprobed run ends with {}: {}",
            first.outcome.status,
            first.stderr.trim()
        )));
    }
    Ok(first)
}

/// Runs a module's batches. `tell` gets a line about each.
///
/// # Errors
/// The workload does not run unprobed, or dprobes cannot be run. A program that can tell is no error.
pub fn run(
    runner: &Runner,
    workload: Workload,
    plan: &Plan,
    mut tell: impl FnMut(&str),
) -> io::Result<Shown> {
    let name = workload.name;
    let unprobed = reference(runner, &workload)?;
    let sites = Sites::of(&workload.module)?;
    let mut random = Random::new(plan.seed);
    let all = random.batches(sites.sites.len(), plan.batch);
    let wanted = plan.batches.unwrap_or(all.len()).min(all.len());
    tell(&format!(
        "{name}: {}: {} instructions of {} functions, {wanted} of {} batches; unprobed {:.1} s",
        workload.module.display(),
        sites.sites.len(),
        sites.functions,
        all.len(),
        unprobed.took.as_secs_f64()
    ));
    // A stop costs thousands of times what an instruction does.
    let limit = Duration::from_secs(300) + unprobed.took * 50;
    let (mut tally, mut failures, mut times) = (Tally::default(), Vec::new(), Vec::new());
    let mut probed = 0;
    for (number, batch) in all.iter().take(wanted).enumerate() {
        let batch: Vec<&Site> = batch.iter().map(|index| &sites.sites[*index]).collect();
        let began = Instant::now();
        let shown = runner.probed(&workload, &batch, limit)?;
        times.push(began.elapsed());
        probed += batch.len();
        tally.add(&batch, &shown.fates);
        let difference = shown.difference(&unprobed.outcome);
        let said = difference.as_deref().unwrap_or("nothing to tell");
        tell(&format!(
            "{name}: batch {} of {wanted}, {:.1} s: {said}",
            number + 1,
            began.elapsed().as_secs_f64()
        ));
        if let Some(difference) = difference {
            let sites = smallest(runner, &workload, &batch, &unprobed.outcome, limit, plan.runs, &mut tell)?;
            failures.push(Failure { batch: number + 1, difference, sites });
        }
    }
    let (count, budget) = plan.sample;
    let comparison = match compare(runner, &workload, &sites, &mut random, count, budget, limit) {
        Ok(comparison) => comparison.map(Ok),
        Err(error) => Some(Err(error.to_string())),
    };
    if let Some(comparison) = &comparison {
        tell(&match comparison {
            Ok(found) => {
                format!("{name}: {} counts compared, {} differ", found.compared, found.different.len())
            }
            Err(error) => format!("{name}: counts not compared: {error}"),
        });
    }
    let mean = times.iter().sum::<Duration>() / times.len().max(1) as u32;
    let least = times.iter().min().copied().unwrap_or_default();
    let most = times.iter().max().copied().unwrap_or_default();
    Ok(Shown {
        workload,
        batches: (wanted, all.len()),
        probed,
        tally,
        failures,
        unprobed: unprobed.took,
        took: (least, mean, most),
        comparison,
        sites,
    })
}

/// The smallest part of a batch that still fails, told; nothing where it does not fail again.
fn smallest(
    runner: &Runner,
    workload: &Workload,
    batch: &[&Site],
    unprobed: &Outcome,
    limit: Duration,
    runs: usize,
    tell: &mut impl FnMut(&str),
) -> io::Result<Vec<String>> {
    let mut trouble = None;
    let mut fails = |part: &[&Site]| match runner.probed(workload, part, limit) {
        // A part of a batch may leave alone what the batch did not: that a module was never probed is no failure of it.
        Ok(shown) => {
            let difference = unprobed.difference(&shown.ran.outcome).or(shown.wrong);
            tell(&format!("  {} sites: {}", part.len(), difference.as_deref().unwrap_or("nothing to tell")));
            difference.is_some()
        }
        Err(error) => {
            trouble = Some(error);
            false
        }
    };
    if !(0..3).any(|_| fails(batch)) {
        return Ok(Vec::new());
    }
    let smallest = minimize(batch, runs, fails);
    if let Some(error) = trouble {
        return Err(error);
    }
    let shown = runner.probed(workload, &smallest, limit)?;
    let how = |place: usize| shown.fates.get(place).map_or("unknown", |fate| fate.how.as_str());
    let lines = smallest.iter().enumerate().take(100);
    Ok(lines.map(|(place, site)| format!("{:#x} `{}` by {}", site.address, site.text, how(place))).collect())
}
