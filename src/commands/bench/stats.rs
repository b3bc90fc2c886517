//! Median and spread of repeated measurements.

/// Median and quartiles. Half of the measurements lie between the quartiles, which neither the slowest nor the fastest
/// one moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// First quartile.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub high: f64,
}

impl Summary {
    /// Of at least one measurement; none otherwise.
    ///
    /// A quantile p of n sorted values lies at position `p * (n - 1)`, counted from 0, linear between neighbours
    /// (type 7 of Hyndman and Fan, 1996: the default of R and NumPy).
    pub fn of(measurements: &[f64]) -> Option<Self> {
        let mut sorted = measurements.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            low: quantile(&sorted, 0.25)?,
            median: quantile(&sorted, 0.5)?,
            high: quantile(&sorted, 0.75)?,
        })
    }

    /// Of `f` of each measurement, `f` falling: the quartiles change places.
    pub fn falling(self, f: impl Fn(f64) -> f64) -> Self {
        Self { low: f(self.high), median: f(self.median), high: f(self.low) }
    }

    /// Of `factor` times each measurement.
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, median: self.median * factor, high: self.high * factor }
    }
}

fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let position = p * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (position.floor(), position.ceil());
    let (low, high) = (*sorted.get(below as usize)?, *sorted.get(above as usize)?);
    Some(low + (high - low) * (position - below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_has_a_middle() {
        let summary = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(summary, Some(Summary { low: 2.0, median: 3.0, high: 4.0 }));
    }

    #[test]
    fn an_even_number_is_interpolated() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(summary, Some(Summary { low: 1.75, median: 2.5, high: 3.25 }));
    }

    #[test]
    fn one_is_itself_and_none_is_none() {
        assert_eq!(Summary::of(&[7.0]), Some(Summary { low: 7.0, median: 7.0, high: 7.0 }));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn an_outlier_moves_nothing() {
        let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 900.0]);
        assert_eq!(summary, Some(Summary { low: 2.0, median: 3.0, high: 4.0 }));
    }

    #[test]
    fn a_falling_function_swaps_the_quartiles() {
        let seconds = Summary { low: 0.5, median: 1.0, high: 2.0 };
        let rates = seconds.falling(|seconds| 10.0 / seconds);
        assert_eq!(rates, Summary { low: 5.0, median: 10.0, high: 20.0 });
        assert_eq!(seconds.times(2.0), Summary { low: 1.0, median: 2.0, high: 4.0 });
    }
}
