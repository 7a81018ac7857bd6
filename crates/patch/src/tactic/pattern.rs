//! The known and free bytes of a jump's distance, and so where it can lead.

/// The distance from `end` of a jump to `target`, if it fits in 32 bits.
pub(super) fn distance(end: u64, target: u64) -> Option<i32> {
    i32::try_from(i128::from(target) - i128::from(end)).ok()
}

/// The distance of a jump: which bytes are given, and which are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The address after the jump.
    pub(super) end: u64,
    /// The bytes of the distance, lowest first; `None` is free.
    pub(super) bytes: [Option<u8>; 4],
}

impl Pattern {
    /// The number of free lowest bytes: targets come in runs of 256 to the power of it.
    pub(super) fn low(&self) -> u32 {
        self.bytes.iter().take_while(|byte| byte.is_none()).count() as u32
    }

    /// Whether there is one such run: no byte above a given one is free.
    pub(super) fn is_one_run(&self) -> bool {
        self.bytes[self.low() as usize..].iter().all(Option::is_some)
    }

    /// The pattern with the free bytes above the lowest run taken from `choice`.
    pub(super) fn choose(&self, choice: u32) -> Pattern {
        let mut chosen = *self;
        for (byte, choice) in chosen.bytes.iter_mut().zip(choice.to_le_bytes()).skip(self.low() as usize) {
            byte.get_or_insert(choice);
        }
        chosen
    }

    /// The run of a pattern that has one, as first and last address, cut to the address space.
    /// `None` if nothing is left.
    pub(super) fn run(&self) -> Option<(u64, u64)> {
        let low = self.low();
        if low == 4 {
            let first = self.end.saturating_sub(1 << 31);
            return Some((first, self.end.checked_add((1 << 31) - 1)?));
        }
        let mut field = [0; 4];
        for (byte, given) in field.iter_mut().zip(self.bytes) {
            *byte = given.unwrap_or(0);
        }
        let first = i128::from(self.end) + i128::from(i32::from_le_bytes(field));
        let last = first + (1 << (8 * low)) - 1;
        (last >= 0 && last <= i128::from(u64::MAX)).then(|| (first.max(0) as u64, last as u64))
    }

    /// Whether the jump can lead to `target`.
    pub(super) fn leads_to(&self, target: u64) -> bool {
        distance(self.end, target).is_some_and(|distance| {
            self.bytes
                .iter()
                .zip(distance.to_le_bytes())
                .all(|(given, byte)| given.is_none_or(|given| given == byte))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_where_the_given_bytes_lead() {
        let pattern = |bytes| Pattern { end: 0x40_0000, bytes };
        assert_eq!(pattern([Some(0), Some(1), Some(0), Some(0)]).run(), Some((0x40_0100, 0x40_0100)));
        assert_eq!(pattern([None, Some(1), Some(0), Some(0)]).run(), Some((0x40_0100, 0x40_01ff)));
        assert_eq!(pattern([None, None, None, Some(0x7f)]).run(), Some((0x7f40_0000, 0x803f_ffff)));
        // Nothing is below zero; a run that begins there is cut.
        assert_eq!(pattern([None, Some(0xff), Some(0), Some(0x80)]).run(), None);
        assert_eq!(pattern([None, None, None, Some(0xff)]).run(), Some((0, 0x3f_ffff)));
        assert_eq!(pattern([None; 4]).run(), Some((0, 0x803f_ffff)));
    }

    #[test]
    fn bytes_above_a_given_one_are_chosen() {
        let pattern = Pattern { end: 0x10_0000_0000, bytes: [None, Some(0xe9), None, None] };
        assert!((pattern.low(), pattern.is_one_run()) == (1, false));
        let chosen = pattern.choose(0x1234_5678);
        assert_eq!(chosen.bytes, [None, Some(0xe9), Some(0x34), Some(0x12)]);
        let (first, last) = chosen.run().expect("within the address space");
        assert!(pattern.leads_to(first) && pattern.leads_to(last));
        assert!(!pattern.leads_to(last + 1) && !pattern.leads_to(first - 1));
    }
}
