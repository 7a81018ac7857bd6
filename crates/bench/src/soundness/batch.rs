//! One batch: probes its sites while the workload runs.

use super::drive::{Conditions, Ran, run};
use super::outcome::Outcome;
use super::sites::Site;
use super::workload::Workload;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to run batches.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The command `dprobes`.
    pub dprobes: PathBuf,
    /// The engine to use.
    pub engine: String,
    /// Hits after which a probe is removed; `None`: count all.
    pub maxhits: Option<u64>,
    /// A directory for files.
    pub directory: PathBuf,
}

/// The result of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Engine and tactic, as far as dprobes reports them; or that it was refused.
    pub how: String,
    /// Why it was refused or trapped, if reported.
    pub reason: Option<String>,
    /// Counted hits.
    pub hits: u64,
    /// Hits whose handler could not run.
    pub missed: u64,
}

/// The results of a batch.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// The program's run.
    pub(super) ran: Ran,
    /// The result of each site, in their order; empty if there are no counts.
    pub(super) fates: Vec<Fate>,
    /// What is wrong with the counts, if anything.
    pub(super) wrong: Option<String>,
}

/// How often to run a program again without refused sites.
const REFUSALS: usize = 20;

impl Runner {
    /// Runs the workload without probes.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn unprobed(&self, workload: &Workload, limit: Duration) -> io::Result<Ran> {
        run(workload, &self.conditions(Vec::new(), limit))
    }

    fn conditions(&self, before: Vec<std::ffi::OsString>, limit: Duration) -> Conditions<'_> {
        Conditions { before, environment: Vec::new(), fixed: false, limit, directory: &self.directory }
    }

    /// Runs the workload with probes on all these sites, leaving out sites that are refused before
    /// it starts.
    ///
    /// # Errors
    /// If it cannot be started, or dprobes fails other than by refusing sites.
    pub(super) fn probed(&self, workload: &Workload, sites: &[&Site], limit: Duration) -> io::Result<Shown> {
        self.probed_under(workload, sites, &self.conditions(Vec::new(), limit))
    }

    /// As [`Runner::probed`], under given conditions.
    ///
    /// # Errors
    /// As of [`Runner::probed`].
    pub(super) fn probed_under(
        &self,
        workload: &Workload,
        sites: &[&Site],
        conditions: &Conditions,
    ) -> io::Result<Shown> {
        let program = self.directory.join("batch.rpn");
        let stats = self.directory.join("batch.stats");
        let mut refused: HashMap<u64, String> = HashMap::new();
        for _ in 0..REFUSALS {
            let left: Vec<&Site> =
                sites.iter().filter(|site| !refused.contains_key(&site.offset)).copied().collect();
            std::fs::write(&program, self.program(&workload.module, &left))?;
            let _ = std::fs::remove_file(&stats);
            let mut before: Vec<std::ffi::OsString> = vec![self.dprobes.clone().into(), "run".into()];
            before.extend(["-o".into(), "/dev/null".into(), "--stats".into(), stats.clone().into()]);
            before.extend(["--engine".into(), self.engine.clone().into()]);
            before.extend([program.clone().into(), "--".into()]);
            before.extend(conditions.before.iter().cloned());
            let ran = run(workload, &Conditions { before, ..conditions.clone() })?;
            let reasons = reasons(&ran.stderr, &workload.module);
            if ran.code == Some(125) && !stats.exists() {
                let known = refused.len();
                refused.extend(reasons);
                if refused.len() == known || left.is_empty() {
                    let said: Vec<&str> = ran.stderr.lines().take(3).collect();
                    return Err(io::Error::other(format!("dprobes fails: {}", said.join(" / "))));
                }
                continue;
            }
            let (fates, wrong) = match std::fs::read(&stats) {
                Ok(bytes) => fates(&serde_json::from_slice(&bytes)?, sites, &left, &refused, &reasons),
                Err(_) => (Vec::new(), Some("dprobes has left no counts".to_owned())),
            };
            return Ok(Shown { ran, fates, wrong });
        }
        Err(io::Error::other(format!("sites are refused repeatedly: {refused:?}")))
    }

    fn program(&self, module: &Path, sites: &[&Site]) -> String {
        let mut text = format!("name = \"{}\"\nmodtype = user\n", module.display());
        let maxhits = self.maxhits.unwrap_or(u64::MAX);
        let _ = writeln!(text, "maxhits = {maxhits}");
        for site in sites {
            // `abort` ends the handler without a record; only hits are counted.
            let _ = writeln!(text, "offset = {:#x} abort", site.offset);
        }
        text
    }
}

/// dprobes' messages about sites of the module, by offset: lines `MODULE:0xOFFSET: REASON`, or with
/// several offsets.
pub(crate) fn reasons(stderr: &str, module: &Path) -> HashMap<u64, String> {
    let start = format!("{}:0x", module.display());
    let told = stderr.lines().filter_map(|line| {
        let after = &line[line.find(&start)? + start.len()..];
        after.split_once(": ")
    });
    // `OFFSET, OFFSET: REASON`, all but the first with `0x`.
    let each = told.flat_map(|(offsets, reason)| {
        let offsets = offsets.split(", ").map(|offset| offset.strip_prefix("0x").unwrap_or(offset));
        offsets.filter_map(|offset| Some((u64::from_str_radix(offset, 16).ok()?, reason.trim().to_owned())))
    });
    each.collect()
}

/// The result of each site, and what is wrong with the counts.
fn fates(
    stats: &Value,
    sites: &[&Site],
    left: &[&Site],
    refused: &HashMap<u64, String>,
    reasons: &HashMap<u64, String>,
) -> (Vec<Fate>, Option<String>) {
    let probes = stats["probes"].as_array().map_or(&[][..], Vec::as_slice);
    if probes.len() != left.len() {
        return (Vec::new(), Some(format!("{} probes have counts, not {}", probes.len(), left.len())));
    }
    let mut wrong = None;
    let mut next = 0;
    let mut waiting = 0;
    let fates = sites.iter().map(|site| {
        if let Some(reason) = refused.get(&site.offset) {
            return Fate { how: "refused".to_owned(), reason: Some(reason.clone()), ..Fate::default() };
        }
        let probe = &probes[next];
        next += 1;
        let number = |name: &str| probe[name].as_u64().unwrap_or(0);
        let (hits, missed) = (number("hits"), number("missed"));
        if hits != number("runs") + number("ignored") + missed {
            wrong
                .get_or_insert(format!("{:#x}: hits are not runs + ignored + missed: {probe}", site.address));
        }
        let state = probe["state"].as_str().unwrap_or("");
        waiting += usize::from(state == "waiting");
        let reason =
            probe["why_trapped"].as_str().map(str::to_owned).or_else(|| reasons.get(&site.offset).cloned());
        let how = match (state, probe["engine"].as_str().unwrap_or("unknown"), probe["tactic"].as_str()) {
            ("refused", _, _) => "refused".to_owned(),
            ("waiting", _, _) => "never mapped".to_owned(),
            (_, engine, Some(tactic)) => format!("{engine}, {tactic}"),
            (_, engine, None) => engine.to_owned(),
        };
        Fate { how, reason, hits, missed }
    });
    let fates: Vec<Fate> = fates.collect();
    if waiting > 0 && waiting == left.len() {
        wrong.get_or_insert("the module was never probed".to_owned());
    }
    (fates, wrong)
}

impl Shown {
    /// The difference to the unprobed run, if any.
    pub(super) fn difference(&self, unprobed: &Outcome) -> Option<String> {
        unprobed.difference(&self.ran.outcome).or_else(|| self.wrong.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{fates, reasons};
    use crate::soundness::Site;
    use std::collections::HashMap;
    use std::path::Path;

    #[test]
    fn refusals_are_read() {
        let said = "dprobes: error: /usr/bin/x:0x9001: 0x9001 is inside of it\n/usr/bin/x:0x9002: another\nnothing: 0x1";
        let found = reasons(said, Path::new("/usr/bin/x"));
        assert_eq!(found.len(), 2);
        assert_eq!(found[&0x9002], "another");
        let found = reasons("dprobes: error: /usr/bin/x:0x9003, 0x9004: data", Path::new("/usr/bin/x"));
        assert_eq!((found.len(), &*found[&0x9003], &*found[&0x9004]), (2, "data", "data"));
    }

    #[test]
    fn every_site_has_a_fate() {
        let site = |offset| Site { address: offset, offset, text: "nop".into(), entry: false, apart: false };
        let (a, b, c) = (site(1), site(2), site(3));
        let stats = serde_json::json!({"probes": [
            {"engine": "jump", "tactic": "plain", "state": "armed", "hits": 5, "runs": 4, "ignored": 0, "missed": 1},
            {"engine": "trap", "state": "refused", "why_trapped": "far", "hits": 1, "runs": 0, "ignored": 0, "missed": 0},
        ]});
        let refused = HashMap::from([(2, "why".to_owned())]);
        let (found, wrong) = fates(&stats, &[&a, &b, &c], &[&a, &c], &refused, &HashMap::new());
        let found: Vec<_> = found.iter().map(|f| (&*f.how, f.reason.as_deref(), f.hits, f.missed)).collect();
        assert_eq!(
            found,
            [("jump, plain", None, 5, 1), ("refused", Some("why"), 0, 0), ("refused", Some("far"), 1, 0)]
        );
        assert!(wrong.unwrap().starts_with("0x3: hits are not runs"));
    }
}
