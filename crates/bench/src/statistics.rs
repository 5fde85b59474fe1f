//! What a handful of repeated measurements say.

use serde::Serialize;

/// Repeats of one measurement, in one unit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a measurement.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle one, or the mean of the two in the middle; `None` without samples.
    pub fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            length if length % 2 == 1 => Some(sorted[middle]),
            _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        }
    }

    /// The mean; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// The smallest; `None` without samples.
    pub fn min(&self) -> Option<f64> {
        self.sorted().first().copied()
    }

    /// The largest; `None` without samples.
    pub fn max(&self) -> Option<f64> {
        self.sorted().last().copied()
    }

    /// Median of the ratios to `other`'s samples pair by pair: what interleaved runs are for, since drift hits both.
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        let ratios = self.0.iter().zip(&other.0).filter(|&(_, &below)| below > 0.0).map(|(above, below)| above / below);
        Self(ratios.collect()).median()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(samples(&[3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(samples(&[4.0, 1.0, 2.0, 3.0]).median(), Some(2.5));
        assert_eq!(samples(&[]).median(), None);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The machine got twice as slow half-way: the ratio does not notice.
        let ours = samples(&[1.0, 1.0, 2.0]);
        let theirs = samples(&[2.0, 2.0, 4.0]);
        assert_eq!(ours.ratio_to(&theirs), Some(0.5));
        assert_eq!(ours.ratio_to(&samples(&[])), None);
    }
}
