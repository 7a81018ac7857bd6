//! Selection of records.

use super::encode::Point;

/// Which records are wanted. [`Filter::default`] accepts all. A record must meet all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Not before this time: nanoseconds since 1970.
    pub from: Option<u64>,
    /// Not after this time: nanoseconds since 1970.
    pub to: Option<u64>,
    /// Only of these processes; empty for all.
    pub pids: Vec<u32>,
    /// Only of these threads; empty for all.
    pub tids: Vec<u32>,
    /// Only of these probes, by program and number; empty for all.
    pub probes: Vec<(u32, u32)>,
    /// Only with these major and minor codes; empty for all.
    pub codes: Vec<(u32, u32)>,
}

impl Filter {
    /// Sorts the lists, which may be long and are searched for each thread and point.
    pub(super) fn ready(mut self) -> Filter {
        self.pids.sort_unstable();
        self.tids.sort_unstable();
        self.probes.sort_unstable();
        self.codes.sort_unstable();
        self
    }

    /// Whether a block whose records have these times may have wanted ones.
    pub(super) fn wants_times(&self, least: u64, greatest: u64) -> bool {
        self.from.is_none_or(|from| greatest >= from) && self.to.is_none_or(|to| least <= to)
    }

    #[inline]
    pub(super) fn wants_time(&self, time: u64) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time <= to)
    }

    pub(super) fn wants_point(&self, point: &Point) -> bool {
        let among = |list: &[(u32, u32)], own| list.is_empty() || list.binary_search(&own).is_ok();
        among(&self.probes, (point.program, point.probe)) && among(&self.codes, (point.major, point.minor))
    }

    pub(super) fn wants_thread(&self, pid: u32, tid: u32) -> bool {
        let among = |list: &[u32], own| list.is_empty() || list.binary_search(&own).is_ok();
        among(&self.pids, pid) && among(&self.tids, tid)
    }
}
