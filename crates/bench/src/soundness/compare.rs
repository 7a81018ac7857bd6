//! Counts of hits beside callgrind's counts of the same run.
//!
//! Callgrind simulates a processor of its own, in another place of memory. So both runs get a C library that is told which
//! processor it has and what its caches are, and fixed addresses; callgrind runs twice, the second time with
//! a stack that starts elsewhere. Instructions that run equally often in both are compared; the others depend on
//! addresses, and are counted and left out.

use super::batch::Runner;
use super::callgrind;
use super::drive::{Conditions, run};
use super::random::Random;
use super::sites::{Site, Sites};
use super::workload::Workload;
use crate::build;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::time::Duration;

/// What makes the C library pick the same functions everywhere.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX512ER,-AVX512PF,-AVX2,-AVX,-ERMS,-FSRM,-RTM,-BMI1,-BMI2,-LZCNT,-MOVBE,-FMA,-FMA4,-XSAVE,-XSAVEC,-Prefer_No_VZEROUPPER,-AVX_Fast_Unaligned_Load:glibc.cpu.x86_non_temporal_threshold=0xc0000:glibc.cpu.x86_rep_movsb_threshold=0x800:glibc.cpu.x86_rep_stosb_threshold=0x800:glibc.cpu.x86_data_cache_size=0x8000:glibc.cpu.x86_shared_cache_size=0x100000";

/// What the comparison has shown.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Instructions that callgrind saw run.
    pub ran: usize,
    /// Those whose number of executions depends on addresses.
    pub unsteady: usize,
    /// Instructions compared.
    pub compared: usize,
    /// Those that never ran, of those compared.
    pub never: usize,
    /// Executions of those compared, by callgrind.
    pub executions: u64,
    /// Differences.
    pub different: Vec<String>,
}

fn simulated(
    runner: &Runner,
    workload: &Workload,
    extra: &str,
    limit: Duration,
) -> io::Result<HashMap<u64, u64>> {
    let file = runner.directory.join("callgrind.out");
    let _ = std::fs::remove_file(&file);
    let output = format!("--callgrind-out-file={}", file.display());
    let before = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--quiet", &output].map(Into::into);
    let environment = vec![("GLIBC_TUNABLES", TUNABLES.to_owned()), ("ELSEWHERE", extra.to_owned())];
    let directory = &runner.directory;
    let ran =
        run(workload, &Conditions { before: before.into(), environment, fixed: true, limit, directory })?;
    if ran.code != Some(0) {
        let said: Vec<&str> = ran.stderr.lines().take(3).collect();
        return Err(io::Error::other(format!(
            "under callgrind: {}: {}",
            ran.outcome.status,
            said.join(" / ")
        )));
    }
    callgrind::read(BufReader::with_capacity(1 << 20, File::open(&file)?), &workload.module)
}

/// Compares about `count` sampled instructions whose executions together are at most `budget`; `None` where there is no
/// valgrind or the workload is not deterministic.
///
/// # Errors
/// A run fails.
pub(super) fn compare(
    runner: &Runner,
    workload: &Workload,
    sites: &Sites,
    random: &mut Random,
    count: usize,
    budget: u64,
    limit: Duration,
) -> io::Result<Option<Comparison>> {
    if build::find("valgrind").is_none() || !workload.deterministic {
        return Ok(None);
    }
    let first = simulated(runner, workload, "", limit)?;
    let second = simulated(runner, workload, &"x".repeat(1234), limit)?;
    let mut comparison = Comparison { ran: first.len(), ..Comparison::default() };
    let mut candidates: Vec<(&Site, u64)> = Vec::new();
    for site in &sites.sites {
        let counts = [&first, &second].map(|counts| counts.get(&site.address).copied().unwrap_or(0));
        // Callgrind counts the iterations of a repeated instruction, and a prefix may stand on a line of its own.
        let repeated = site.text.starts_with("rep");
        if counts[0] != counts[1] {
            comparison.unsteady += 1;
        } else if !repeated {
            candidates.push((site, counts[0]));
        }
    }
    random.shuffle(&mut candidates);
    let mut chosen: Vec<(&Site, u64)> = Vec::new();
    let mut never = 0;
    for (site, executions) in candidates {
        let wanted = if executions == 0 { never < count / 10 } else { chosen.len() - never < count };
        if wanted && comparison.executions + executions <= budget {
            comparison.executions += executions;
            never += usize::from(executions == 0);
            chosen.push((site, executions));
        }
    }
    let environment = vec![("GLIBC_TUNABLES", TUNABLES.to_owned()), ("ELSEWHERE", String::new())];
    let directory = &runner.directory;
    let conditions = Conditions { before: Vec::new(), environment, fixed: true, limit, directory };
    let counting = Runner { maxhits: None, ..runner.clone() };
    let only: Vec<&Site> = chosen.iter().map(|(site, _)| *site).collect();
    let shown = counting.probed_under(workload, &only, &conditions)?;
    if let Some(wrong) = shown.wrong {
        return Err(io::Error::other(wrong));
    }
    for ((site, executions), fate) in chosen.iter().zip(&shown.fates) {
        if fate.how == "refused" || fate.how == "never mapped" {
            continue;
        }
        comparison.compared += 1;
        comparison.never += usize::from(*executions == 0);
        if fate.hits != *executions {
            let Site { address, text, .. } = site;
            let line = format!(
                "{address:#x} `{text}` ({}): {} hits, {executions} by callgrind",
                fate.how, fate.hits
            );
            comparison.different.push(line);
        }
    }
    Ok(Some(comparison))
}
