//! Median and spread of repeated measurements.

/// Median and quartiles. Half of the measurements lie between the quartiles; of five measurements or more, neither the
/// slowest nor the fastest has a part in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
}

impl Summary {
    /// Of at least one measurement; NaN otherwise.
    ///
    /// A quantile p of n sorted values lies at position `p * (n - 1)`, counted from 0, linear between neighbours
    /// (type 7 of Hyndman and Fan, 1996: the default of R and NumPy).
    pub fn of(measurements: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = measurements.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let quantile = |p| quantile(&sorted, p).unwrap_or(f64::NAN);
        Self { q1: quantile(0.25), median: quantile(0.5), q3: quantile(0.75) }
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
        let summary = Summary::of([5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(summary, Summary { q1: 2.0, median: 3.0, q3: 4.0 });
    }

    #[test]
    fn an_even_number_is_interpolated() {
        let summary = Summary::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(summary, Summary { q1: 1.75, median: 2.5, q3: 3.25 });
    }

    #[test]
    fn one_is_itself_and_of_none_there_is_no_number() {
        assert_eq!(Summary::of([7.0]), Summary { q1: 7.0, median: 7.0, q3: 7.0 });
        assert!(Summary::of([]).median.is_nan());
    }

    #[test]
    fn an_outlier_moves_nothing() {
        let summary = Summary::of([1.0, 2.0, 3.0, 4.0, 900.0]);
        assert_eq!(summary, Summary { q1: 2.0, median: 3.0, q3: 4.0 });
    }
}
