//! Counts records over time, in parts of equal length.

/// Number of parts.
pub(super) const PARTS: usize = 120;

/// A time range divided into parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Axis {
    /// Its start: nanoseconds since 1970.
    pub(crate) start: u64,
    /// Length of a part in nanoseconds; at least 1.
    pub(crate) part: u64,
}

impl Axis {
    /// From one time to another.
    pub(super) fn new(start: u64, end: u64) -> Axis {
        Axis { start, part: (end.saturating_sub(start) / PARTS as u64).saturating_add(1) }
    }

    /// The part that a time is in; times outside the range are in the first or last part.
    pub(super) fn part_of(&self, time: u64) -> usize {
        let place = time.saturating_sub(self.start) / self.part.max(1);
        usize::try_from(place).unwrap_or(PARTS).min(PARTS - 1)
    }
}

/// The count of each part.
#[derive(Clone, Debug)]
pub(crate) struct Timeline(pub(crate) Box<[u64]>);

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline(vec![0; PARTS].into())
    }
}

impl Timeline {
    /// The greatest count.
    pub(crate) fn greatest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// A line of text with a character for each `parts` parts.
    pub(super) fn line(&self, parts: usize) -> String {
        const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let sums: Vec<u64> = self.0.chunks(parts.max(1)).map(|chunk| chunk.iter().sum()).collect();
        let greatest = sums.iter().copied().max().unwrap_or(0);
        let level = |sum: u64| match greatest {
            0 => 0,
            // Keep small values visible.
            greatest => (sum as f64 * 8.0 / greatest as f64).ceil() as usize,
        };
        sums.into_iter().map(|sum| LEVELS[level(sum).min(8)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_part() {
        let axis = Axis::new(1000, 2200);
        assert_eq!(
            (axis.part_of(0), axis.part_of(1000), axis.part_of(2200), axis.part_of(u64::MAX)),
            (0, 0, 109, 119)
        );
        assert_eq!(Axis::new(0, u64::MAX).part_of(u64::MAX), PARTS - 1);
        assert_eq!(Axis::new(5, 5).part_of(5), 0);
    }

    #[test]
    fn a_line_has_a_level_for_each_part() {
        let mut timeline = Timeline::default();
        (timeline.0[0], timeline.0[2], timeline.0[119]) = (1, 8, 4);
        let line = timeline.line(1);
        assert_eq!(line.chars().count(), 120);
        assert!(line.starts_with("▁ █ ") && line.ends_with(" ▄"), "{line}");
    }
}
