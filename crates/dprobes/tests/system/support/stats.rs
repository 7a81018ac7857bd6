//! The counts of a run, as `--stats` writes them (docs/stats.md).

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The whole file.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stats {
    pub(crate) probes: Vec<Probe>,
    pub(crate) locals: Vec<u64>,
    pub(crate) globals: Vec<u64>,
    #[serde(default)]
    pub(crate) users: Vec<User>,
    #[allow(dead_code, reason = "only tests of the kernel engine read it")]
    pub(crate) processes: Option<Vec<Process>>,
    #[allow(dead_code, reason = "only tests of the kernel engine read it")]
    pub(crate) unassigned: Option<Vec<u64>>,
    pub(crate) holds: Holds,
    pub(crate) nonsense: u64,
    pub(crate) copied: u64,
    pub(crate) targets: Vec<Taken>,
}

/// What became of the records of a target.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "that it has these members is what is checked")]
pub(crate) struct Taken {
    pub(crate) target: String,
    pub(crate) written: u64,
    pub(crate) lost: u64,
}

/// The counts of one user's processes, if there are several users.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) hits: Vec<u64>,
    pub(crate) locals: Vec<u64>,
    pub(crate) globals: Vec<u64>,
}

/// The hits of one process, if they are counted so.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "only tests of the kernel engine read it")]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) hits: Vec<u64>,
}

/// How long processes were held.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holds {
    pub(crate) count: usize,
    pub(crate) least: u64,
    pub(crate) median: u64,
    pub(crate) greatest: u64,
}

/// One probepoint.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    pub(crate) module: String,
    pub(crate) point: String,
    pub(crate) address: Option<String>,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) engine: String,
    pub(crate) tactic: Option<String>,
    pub(crate) why_trapped: Option<String>,
    #[serde(default)]
    pub(crate) sites: Sites,
    pub(crate) hits: u64,
    pub(crate) runs: u64,
    pub(crate) ignored: u64,
    pub(crate) missed: u64,
    pub(crate) logged: u64,
    pub(crate) dropped: u64,
    pub(crate) state: String,
    pub(crate) places: Option<Vec<Place>>,
}

/// How many of a probe's sites fire by jump, by trap, and by the kernel.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sites {
    pub(crate) jump: BTreeMap<String, usize>,
    pub(crate) trap: BTreeMap<String, usize>,
    #[serde(default)]
    pub(crate) kernel: BTreeMap<String, usize>,
}

/// A function in which a probe has sites.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    pub(crate) module: String,
    pub(crate) function: String,
    pub(crate) sites: usize,
    pub(crate) hits: u64,
}

impl Stats {
    /// Reads the file and checks what holds in every run: hits = runs + ignored + missed. If a
    /// process has forged records, there may be more records than runs.
    pub(crate) fn read(path: &Path) -> Option<Stats> {
        let forged = super::FORGED.get();
        let text = std::fs::read_to_string(path).ok()?;
        let stats: Stats = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("the stats are not as documented: {error}\n{text}"));
        assert!(stats.targets.iter().all(|taken| !taken.target.is_empty()), "{text}");
        for probe in &stats.probes {
            assert_eq!(
                probe.hits,
                probe.runs + probe.ignored + probe.missed,
                "a hit is unaccounted for: {probe:?}"
            );
            assert!(
                forged || probe.logged + probe.dropped <= probe.runs,
                "more records than runs: {probe:?}"
            );
            let engine = match (&probe.tactic, &probe.why_trapped) {
                (None, None) if probe.engine == "kernel" => "kernel",
                (Some(_), Some(_)) => "jump+trap",
                (Some(_), None) => "jump",
                (None, _) => "trap",
            };
            assert_eq!(probe.engine, engine, "{probe:?}");
            assert_eq!(probe.sites.jump.is_empty(), probe.tactic.is_none(), "{probe:?}");
            assert!(probe.why_trapped.is_none() || !probe.sites.trap.is_empty(), "{probe:?}");
            if let Some(places) = &probe.places {
                let sum = places.iter().map(|place| place.hits).fold(0, u64::saturating_add);
                assert!(forged || sum == probe.hits, "{probe:?}");
                let named =
                    |place: &Place| !place.module.is_empty() && !place.function.is_empty() && place.sites > 0;
                assert!(places.iter().all(named), "{probe:?}");
            }
            assert!(
                !probe.module.is_empty() && !probe.point.is_empty() && !probe.state.is_empty(),
                "{probe:?}"
            );
            // A probe whose module was never loaded has no address, and the kernel's probes are in files.
            assert!(
                probe.hits == 0 || probe.address.is_some() || !probe.sites.kernel.is_empty(),
                "{probe:?}"
            );
        }
        let holds = &stats.holds;
        assert!(holds.least <= holds.median && holds.median <= holds.greatest, "{holds:?}");
        // Threads are held for jumps, even if no jump fits in the end.
        assert!(holds.count > 0 || stats.probes.iter().all(|probe| probe.tactic.is_none()), "{stats:?}");
        Some(stats)
    }

    fn sum(&self, minor: u32, count: impl Fn(&Probe) -> u64) -> u64 {
        let rows: Vec<u64> = self.probes.iter().filter(|probe| probe.minor == minor).map(count).collect();
        assert!(!rows.is_empty(), "no probepoint with minor {minor} in {self:?}");
        rows.iter().sum()
    }

    /// Hits of the probepoints with this minor code.
    pub(crate) fn hits(&self, minor: u32) -> u64 {
        self.sum(minor, |probe| probe.hits)
    }

    /// Handler runs.
    pub(crate) fn runs(&self, minor: u32) -> u64 {
        self.sum(minor, |probe| probe.runs)
    }

    /// Hits skipped by `ignore`.
    pub(crate) fn ignored(&self, minor: u32) -> u64 {
        self.sum(minor, |probe| probe.ignored)
    }

    /// Records written.
    pub(crate) fn logged(&self, minor: u32) -> u64 {
        self.sum(minor, |probe| probe.logged)
    }
}
