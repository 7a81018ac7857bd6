//! Tests one module.

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

/// How to test a module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The least number of sites in a batch.
    pub batch: usize,
    /// The number of batches to run, the first in random order; `None`: all.
    pub batches: Option<usize>,
    /// The seed of the random order.
    pub seed: u64,
    /// How many instructions to compare with callgrind, and the most executions of them together.
    pub sample: (usize, u64),
    /// The most runs to find the smallest failing part of a batch.
    pub runs: usize,
}

/// The results of a module.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The module.
    pub workload: Workload,
    /// Its instructions and functions.
    pub sites: Sites,
    /// Batches run, and batches in all.
    pub batches: (usize, usize),
    /// Sites in the batches that were run.
    pub probed: usize,
    /// Results of the sites.
    pub tally: Tally,
    /// Batches that the program noticed.
    pub failures: Vec<Failure>,
    /// The duration of the unprobed workload.
    pub unprobed: Duration,
    /// The least, mean and greatest duration of a batch.
    pub took: (Duration, Duration, Duration),
    /// The comparison of hits with callgrind's counts: `None` if impossible, or why it failed.
    pub comparison: Option<Result<Comparison, String>>,
}

impl Shown {
    /// Whether the program noticed nothing.
    pub fn sound(&self) -> bool {
        let equal = match &self.comparison {
            Some(Ok(comparison)) => comparison.different.is_empty(),
            Some(Err(_)) => false,
            None => true,
        };
        self.failures.is_empty() && equal
    }
}

/// The unprobed run; two runs must have the same output.
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

/// Runs a module's batches. `tell` receives a line about each.
///
/// # Errors
/// If the workload does not run unprobed, or dprobes cannot be run. A program that notices is not
/// an error.
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
    // A stop costs thousands of times as much as an instruction.
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

/// The smallest part of a batch that still fails, as text; empty if it does not fail again.
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
        // A part of a batch may not load the module, unlike the batch: that it was never probed is
        // not a failure.
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
