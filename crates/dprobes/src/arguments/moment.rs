//! Times in a trace, as `--from` takes them.

use std::time::Duration;

/// A time in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// This long after the start of the trace.
    After(Duration),
    /// Nanoseconds since 1970.
    At(u64),
}

impl Moment {
    /// Nanoseconds since 1970; `start` is when the trace began.
    pub(crate) fn time(self, start: u64) -> u64 {
        match self {
            Moment::After(passed) => {
                start.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
            }
            Moment::At(time) => time,
        }
    }
}

/// Reads a time in a trace.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    const HOW: &str =
        "a time is written as 1.5s, 500ms or 2m after the start, as 2026-01-31T12:00:00Z, or as @SECONDS";
    let seconds = |text: &str| {
        let seconds: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let since_1970 =
        |passed: Duration| u64::try_from(passed.as_nanos()).map(Moment::At).map_err(|_| HOW.to_owned());
    if let Some(text) = text.strip_prefix('@') {
        // Parsed as text: seconds with nanoseconds have more digits than an `f64` holds.
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let whole: u64 = whole.parse().map_err(|_| HOW.to_owned())?;
        let part: u32 = format!("{part:0<9}").get(..9).and_then(|part| part.parse().ok()).ok_or(HOW)?;
        return since_1970(Duration::new(whole, part));
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Some(passed) = seconds(text.strip_suffix('s').unwrap_or(text)) {
        return Ok(Moment::After(passed));
    }
    if let Ok(passed) = humantime::parse_duration(text) {
        return Ok(Moment::After(passed));
    }
    let date = humantime::parse_rfc3339_weak(text).map_err(|_| HOW.to_owned())?;
    since_1970(date.duration_since(std::time::UNIX_EPOCH).map_err(|_| HOW.to_owned())?)
}

#[cfg(test)]
mod tests {
    use super::{Moment, moment};
    use std::time::Duration;

    #[test]
    fn a_time_in_a_trace_is_written_in_three_ways() {
        for (text, meant) in [
            ("1.5s", Moment::After(Duration::from_millis(1500))),
            ("+2", Moment::After(Duration::from_secs(2))),
            ("500ms", Moment::After(Duration::from_millis(500))),
            ("@1700000000.000000001", Moment::At(1_700_000_000_000_000_001)),
            ("@1700000000", Moment::At(1_700_000_000_000_000_000)),
            ("1970-01-01T00:00:01.5Z", Moment::At(1_500_000_000)),
            ("1970-01-01 00:01:00", Moment::At(60_000_000_000)),
        ] {
            assert_eq!(moment(text), Ok(meant), "{text}");
        }
        for text in ["", "noon", "-1s", "@", "@1.x", "@99999999999999999999"] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert_eq!(Moment::After(Duration::from_secs(1)).time(5), 1_000_000_005);
    }
}
