//! Statistics of repeated measurements.

/// Nanoseconds per call, one figure per repetition.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// Adds a repetition's figure.
    pub fn add(&mut self, nanoseconds: f64) {
        self.0.push(nanoseconds);
        self.0.sort_by(f64::total_cmp);
    }

    /// The median; of an even number, the mean of the middle two. 0 if there are none.
    pub fn median(&self) -> f64 {
        let count = self.0.len();
        match count {
            0 => 0.0,
            _ => (self.0[(count - 1) / 2] + self.0[count / 2]) / 2.0,
        }
    }

    /// The least, or 0.
    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(0.0)
    }

    /// The greatest, or 0.
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Figures;

    #[test]
    fn the_median_is_the_middle() {
        let mut figures = Figures::default();
        assert_eq!(figures.median(), 0.0);
        for each in [5.0, 1.0, 9.0] {
            figures.add(each);
        }
        assert_eq!((figures.min(), figures.median(), figures.max()), (1.0, 5.0, 9.0));
        figures.add(7.0);
        assert_eq!(figures.median(), 6.0);
    }
}
