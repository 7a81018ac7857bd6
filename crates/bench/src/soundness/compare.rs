//! Compares counts of hits with callgrind's counts of the same run.
//!
//! Callgrind simulates a processor of its own, at other memory addresses. So both runs tell the C
//! library which processor and caches it has, and use fixed addresses; where it still chooses other
//! functions in the two (see `choices`), those are left out. Callgrind runs twice, the second time
//! with another stack address. Only instructions with equal counts in both runs are compared; the
//! others depend on addresses, and are counted and left out, as are those whose hits differ between
//! probed runs at different addresses. Both runs must write the same output, since valgrind does
//! not compute everything as the processor does.

use super::batch::{Fate, Runner};
use super::drive::{Conditions, run};
use super::outcome::Outcome;
use super::random::Random;
use super::sites::{Site, Sites};
use super::workload::Workload;
use super::{callgrind, choices};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Duration;

/// Makes the C library choose the same functions everywhere, whatever the processor's features,
/// maker and model.
const TUNABLES: &str = "glibc.cpu.hwcaps=-Fast_Unaligned_Load,-Fast_Unaligned_Copy,-Fast_Copy_Backward,-Fast_Rep_String,-Slow_BSF,-Slow_SSE4_2,-Prefer_PMINUB_for_stringop,-Prefer_ERMS,-Prefer_FSRM,-Prefer_No_AVX512_Probing,-SSSE3,-SSE4_1,-SSE4_2,-POPCNT,-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX512ER,-AVX512PF,-AVX2,-AVX,-ERMS,-FSRM,-RTM,-BMI1,-BMI2,-LZCNT,-MOVBE,-FMA,-FMA4,-XSAVE,-XSAVEC,-Prefer_No_VZEROUPPER,-AVX_Fast_Unaligned_Load:glibc.cpu.x86_non_temporal_threshold=0xc0000:glibc.cpu.x86_rep_movsb_threshold=0x800:glibc.cpu.x86_rep_stosb_threshold=0x800:glibc.cpu.x86_data_cache_size=0x8000:glibc.cpu.x86_shared_cache_size=0x100000";

/// The results of the comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Instructions that ran under callgrind.
    pub ran: usize,
    /// Those whose execution counts depend on addresses.
    pub unsteady: usize,
    /// Instructions of functions that the C library chooses on only one of the two processors.
    pub otherwise_chosen: usize,
    /// Compared instructions.
    pub compared: usize,
    /// Compared instructions that never ran.
    pub never: usize,
    /// Executions of the compared instructions, by callgrind.
    pub executions: u64,
    /// Descriptions of the differences.
    pub different: Vec<String>,
}

/// The library that valgrind preloads: with it, startup and exit are the same without valgrind.
fn preloaded() -> Option<(&'static str, String)> {
    let name = "vgpreload_core-amd64-linux.so";
    let places = ["/usr/libexec/valgrind", "/usr/lib/x86_64-linux-gnu/valgrind", "/usr/lib/valgrind"];
    let library = places.iter().map(|place| format!("{place}/{name}")).find(|path| Path::new(path).exists());
    library.map(|path| ("LD_PRELOAD", path))
}

fn simulated(
    runner: &Runner,
    workload: &Workload,
    extra: &str,
    limit: Duration,
) -> io::Result<(HashMap<u64, u64>, Outcome)> {
    let file = runner.directory.join("callgrind.out");
    let _ = std::fs::remove_file(&file);
    let output = format!("--callgrind-out-file={}", file.display());
    let before = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--skip-plt=no", "--quiet", &output]
        .map(Into::into);
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
    let counts = callgrind::read(BufReader::with_capacity(1 << 20, File::open(&file)?), &workload.module)?;
    Ok((counts, ran.outcome))
}

/// Compares about `count` sampled instructions with at most `budget` executions together; `None`
/// without valgrind, or if the workload is not deterministic.
///
/// # Errors
/// If a run fails.
pub(super) fn compare(
    runner: &Runner,
    workload: &Workload,
    sites: &Sites,
    random: &mut Random,
    count: usize,
    budget: u64,
    limit: Duration,
) -> io::Result<Option<Comparison>> {
    if testing::find_program("valgrind").is_none() || !workload.deterministic {
        return Ok(None);
    }
    let mut workload = workload.clone();
    workload.command.extend(workload.simulated.iter().cloned());
    workload.input = workload.simulated_input.take().or(workload.input);
    let workload = &workload;
    let (first, outcome) = simulated(runner, workload, "", limit)?;
    let (second, _) = simulated(runner, workload, &"x".repeat(1234), limit)?;
    let mut comparison = Comparison { ran: first.len(), ..Comparison::default() };
    let mut candidates: Vec<(&Site, u64)> = Vec::new();
    let not_shared = choices::not_shared(workload, sites, TUNABLES, &runner.directory)?;
    for site in &sites.sites {
        let counts = [&first, &second].map(|counts| counts.get(&site.address).copied().unwrap_or(0));
        // Callgrind counts each iteration of a repeated instruction; for `apart` see there.
        let otherwise = site.text.starts_with("rep") || site.apart;
        if not_shared.iter().any(|function| function.contains(&site.address)) {
            comparison.otherwise_chosen += 1;
        } else if counts[0] != counts[1] {
            comparison.unsteady += 1;
        } else if !otherwise {
            candidates.push((site, counts[0]));
        }
    }
    random.shuffle(&mut candidates);
    let mut chosen: Vec<(&Site, u64)> = Vec::new();
    let mut never = 0;
    for (site, executions) in candidates {
        let wanted = if executions == 0 { never < count / 10 } else { chosen.len() - never < count };
        // No single instruction may use up the budget of many.
        if wanted && executions <= budget / 50 && comparison.executions + executions <= budget {
            comparison.executions += executions;
            never += usize::from(executions == 0);
            chosen.push((site, executions));
        }
    }
    let mut environment = vec![("GLIBC_TUNABLES", TUNABLES.to_owned()), ("ELSEWHERE", String::new())];
    environment.extend(preloaded());
    let directory = &runner.directory;
    let conditions = Conditions { before: Vec::new(), environment, fixed: true, limit, directory };
    let counting = Runner { maxhits: None, ..runner.clone() };
    let only: Vec<&Site> = chosen.iter().map(|(site, _)| *site).collect();
    let shown = counting.probed_under(workload, &only, &conditions)?;
    if let Some(wrong) = shown.wrong {
        return Err(io::Error::other(wrong));
    }
    if let Some(difference) = outcome.difference(&shown.ran.outcome) {
        return Err(io::Error::other(format!(
            "the probed run does not do what the simulated one does: {difference}"
        )));
    }
    let mut different: Vec<(&Site, u64, &Fate)> = Vec::new();
    for ((site, executions), fate) in chosen.iter().zip(&shown.fates) {
        if fate.how == "refused" || fate.how == "never mapped" {
            continue;
        }
        comparison.compared += 1;
        comparison.never += usize::from(*executions == 0);
        if fate.hits != *executions {
            different.push((site, *executions, fate));
        }
    }
    let unsteady = unsteady(&counting, workload, &different, limit)?;
    for ((site, executions, fate), unsteady) in different.into_iter().zip(unsteady) {
        if unsteady {
            comparison.compared -= 1;
            comparison.unsteady += 1;
        } else {
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

/// The sites whose hits change when the program is loaded at other addresses.
fn unsteady(
    runner: &Runner,
    workload: &Workload,
    different: &[(&Site, u64, &Fate)],
    limit: Duration,
) -> io::Result<Vec<bool>> {
    let mut unsteady = vec![false; different.len()];
    let sites: Vec<&Site> = different.iter().map(|(site, ..)| *site).collect();
    for run in 1..=if sites.is_empty() { 0 } else { 4 } {
        let mut environment =
            vec![("GLIBC_TUNABLES", TUNABLES.to_owned()), ("ELSEWHERE", "x".repeat(run * 531))];
        environment.extend(preloaded());
        let directory = &runner.directory;
        let conditions = Conditions { before: Vec::new(), environment, fixed: false, limit, directory };
        let shown = runner.probed_under(workload, &sites, &conditions)?;
        for (place, fate) in shown.fates.iter().enumerate() {
            unsteady[place] |= fate.hits != different[place].2.hits;
        }
    }
    Ok(unsteady)
}
