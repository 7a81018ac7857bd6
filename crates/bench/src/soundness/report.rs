//! The report as Markdown, the last part of docs/soundness.md.

use super::module::Shown;
use super::tally::Tally;
use std::fmt::Write;

/// How the modules were run.
#[derive(Clone, Debug)]
pub struct Head {
    /// The command line.
    pub command: String,
    /// The kernel version.
    pub kernel: String,
    /// The processor.
    pub processor: String,
    /// The least number of sites in a batch.
    pub batch: usize,
    /// The seed.
    pub seed: u64,
    /// Hits after which a probe is removed.
    pub maxhits: Option<u64>,
}

fn percent(all: u64, part: u64) -> String {
    format!("{:.3}%", if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 })
}

/// A reason must not end a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn module(shown: &Shown, text: &mut String) -> std::fmt::Result {
    let Shown { workload, sites, batches, tally, took, .. } = shown;
    let command: Vec<_> = workload.command.iter().map(|word| word.to_string_lossy()).collect();
    let command: Vec<_> = command.iter().map(|word| word.rsplit('/').next().unwrap_or(word)).collect();
    writeln!(text, "### {}: {}\n", workload.name, workload.module.display())?;
    writeln!(text, "Workload: `{}`, {:.1} s unprobed.\n", command.join(" "), shown.unprobed.as_secs_f64())?;
    writeln!(text, "| | |\n|---|---|")?;
    writeln!(text, "| functions, instructions in them | {}, {} |", sites.functions, sites.sites.len())?;
    writeln!(
        text,
        "| not taken apart by objdump; functions where it is out of step | {}; {} |",
        sites.bad, sites.astray
    )?;
    writeln!(text, "| batches run, of all | {} of {} |", batches.0, batches.1)?;
    writeln!(text, "| instructions probed | {} |", shown.probed)?;
    writeln!(text, "| of them hit | {} |", tally.hit)?;
    writeln!(text, "| hits; missed | {}; {} |", tally.hits, tally.missed)?;
    let [least, mean, most] = [took.0, took.1, took.2].map(|time| time.as_secs_f64());
    writeln!(text, "| time of a batch: least, mean, most | {least:.1}, {mean:.1}, {most:.1} s |")?;
    let different =
        if shown.failures.is_empty() { "none".to_owned() } else { format!("**{}**", shown.failures.len()) };
    writeln!(text, "| batches whose output or status differed | {different} |")?;
    for (name, counts) in [("sites", &tally.sites), ("function entries", &tally.entries)] {
        let (all, jump) = Tally::share(counts, "jump");
        writeln!(text, "| {name} by jump | {jump} of {all}: {} |", percent(all, jump))?;
    }
    match &shown.comparison {
        None => {
            writeln!(text, "| counts compared with callgrind's | no: not deterministic, or no valgrind |")?
        }
        Some(Err(error)) => {
            writeln!(text, "| counts compared with callgrind's | **failed**: {} |", cell(error))?
        }
        Some(Ok(found)) => {
            let (compared, never) = (found.compared, found.never);
            let sum = found.executions;
            writeln!(
                text,
                "| counts compared with callgrind's | {compared} ({never} of them 0), sum {sum} |"
            )?;
            writeln!(text, "| of them different | {} |", found.different.len())?;
            writeln!(
                text,
                "| not compared: their count depends on addresses | {} of {} |",
                found.unsteady, found.ran
            )?;
            if found.otherwise_chosen > 0 {
                let count = found.otherwise_chosen;
                writeln!(
                    text,
                    "| not compared: of functions that the C library chooses on one of the two processors only | {count} |"
                )?;
            }
        }
    }
    writeln!(text, "\n| engine, tactic | sites | function entries |\n|---|---:|---:|")?;
    for (how, count) in &tally.sites {
        writeln!(text, "| {} | {count} | {} |", cell(how), tally.entries.get(how).unwrap_or(&0))?;
    }
    if !tally.reasons.is_empty() {
        writeln!(text, "\n| not by jump, because | sites | for example |\n|---|---:|---|")?;
        for ((how, reason), (count, example)) in &tally.reasons {
            writeln!(text, "| {}: {} | {count} | {} |", cell(how), cell(reason), cell(example))?;
        }
    }
    for failure in &shown.failures {
        writeln!(text, "\n**Batch {}**: {}", failure.batch, failure.difference)?;
        match &failure.sites[..] {
            [] => writeln!(text, "It did not fail again.")?,
            sites => sites.iter().try_for_each(|site| writeln!(text, "- {site}"))?,
        }
    }
    if let Some(Ok(found)) = &shown.comparison
        && !found.different.is_empty()
    {
        writeln!(text, "\nCounts that differ:\n")?;
        found.different.iter().take(50).try_for_each(|line| writeln!(text, "- {line}"))?;
    }
    writeln!(text)
}

/// The report of all modules.
pub fn report(head: &Head, all: &[Shown], skipped: &[String]) -> String {
    let mut text = format!(
        "`{}`\n\n{}, {}. Random batches of at least {} sites, seed {}.",
        head.command, head.kernel, head.processor, head.batch, head.seed
    );
    if let Some(maxhits) = head.maxhits {
        text += &format!(" Each probe was taken out after {maxhits} hits.");
    }
    text += "\n\n";
    for shown in all {
        // Writing to a string does not fail.
        let _ = module(shown, &mut text);
    }
    for each in skipped {
        text += &format!("Skipped: {each}\n");
    }
    text
}
