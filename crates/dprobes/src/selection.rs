//! Options that select the records of a trace.

use clap::Args;
use image::Pattern;
use trace::store::{Filter, Info, Lookup};

use crate::Failure;
use crate::arguments::{Moment, moment};

/// Selects the records that are read.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only records from this time on: from the start of the trace (1.5s, 500ms, 2m), a date and
    /// time in UTC, or @SECONDS since 1970
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Moment>,
    /// Only records up to this time
    #[arg(long, alias = "to-time", value_name = "TIME", value_parser = moment)]
    until: Option<Moment>,
    /// Only records of these processes
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only records of these threads
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Only records of these probes: a probepoint as `dprobes show --info` shows it, with or
    /// without its module (patterns with * ? [ ]), or MAJOR,MINOR; may be given several times
    #[arg(long, value_name = "PROBE")]
    probe: Vec<String>,
}

impl Selection {
    /// Whether no option selects records.
    pub(crate) fn is_everything(&self) -> bool {
        let Selection { from, until, pid, tid, probe } = self;
        from.is_none() && until.is_none() && pid.is_empty() && tid.is_empty() && probe.is_empty()
    }

    /// Converts the selection to a filter for the records of a trace.
    ///
    /// # Errors
    /// A name matches no probe of the trace, or probes are given both by name and by codes.
    pub(crate) fn filter(&self, info: &Info) -> Result<Filter, Failure> {
        let start = info.about.start;
        let mut filter = Filter {
            from: self.from.map(|moment| moment.time(start)),
            to: self.until.map(|moment| moment.time(start)),
            pids: self.pid.clone(),
            tids: self.tid.clone(),
            ..Filter::default()
        };
        for probe in &self.probe {
            match codes(probe) {
                Some(codes) => filter.codes.push(codes),
                None => filter.probes.extend(named(probe, info)?),
            }
        }
        if !filter.codes.is_empty() && !filter.probes.is_empty() {
            return Err(Failure::new(
                "--probe takes probepoints, or codes as MAJOR,MINOR, but not some of both",
            ));
        }
        Ok(filter)
    }
}

/// Parses `MAJOR,MINOR`.
fn codes(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(',')?;
    Some((major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

/// The probes that a name or pattern means: a probepoint, or a module and a probepoint.
///
/// # Errors
/// No probe has this name.
pub(crate) fn named(text: &str, info: &Info) -> Result<Vec<(u32, u32)>, Failure> {
    let pattern = Pattern::new(text).ok().filter(|_| Pattern::is_one(text));
    let is_it = |name: &str| name == text || pattern.as_ref().is_some_and(|pattern| pattern.matches(name));
    let lookup = Lookup::new(info);
    let meant = info.probes.iter().filter(|probe| is_it(&probe.point) || is_it(&lookup.probe_name(probe)));
    let meant: Vec<(u32, u32)> = meant.map(|probe| (probe.program, probe.number)).collect();
    match meant.is_empty() {
        true => Err(Failure::new(format!(
            "no probe `{text}` is in it; `dprobes show --info` shows those that are"
        ))),
        false => Ok(meant),
    }
}
