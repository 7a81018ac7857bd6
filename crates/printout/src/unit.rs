//! Units of the times in a map, which its name tells.

/// Shows a time in nanoseconds: `1.25 ms`.
pub type Durations = fn(u64) -> String;

/// The unit of a map's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    nanoseconds: u64,
    shown: Durations,
}

impl Unit {
    /// The unit of a map with this name: `@ns` and `@waited_ns` are nanoseconds, `us` microseconds.
    pub(crate) fn of(name: &str, shown: Durations) -> Option<Unit> {
        let nanoseconds = match name.rsplit(['@', '_']).next() {
            Some("ns") => 1,
            Some("us") => 1000,
            _ => return None,
        };
        Some(Unit { nanoseconds, shown })
    }

    /// A number with the unit; none if it is less than 0 or too great to be a time.
    pub(crate) fn text(self, number: i128) -> Option<String> {
        let nanoseconds = number.checked_mul(self.nanoseconds.into())?;
        u64::try_from(nanoseconds).ok().map(self.shown)
    }
}
