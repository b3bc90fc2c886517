//! What a step takes by its number of rows.

/// Numbers of rows for which costs are kept; a step costs what the next larger one does.
pub const ROW_BUCKETS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Cost of each relative to one row, where nothing is measured. Hopeful, so that it is tried.
const EXPECTED: [f64; 7] = [1.0, 1.1, 1.25, 1.6, 2.4, 4.0, 7.5];
/// Bytes of weights that a device reads in a second, where nothing is measured.
const EXPECTED_BYTES_PER_SECOND: f64 = 5e10;
/// Weight of a measurement against those before it.
const NEW: f64 = 0.25;
/// By how much a bucket that is not used drifts to what is expected of it, so that one slow step is not for ever.
const DRIFT: f64 = 1.0 / 256.0;

/// Seconds of a step for each of [`ROW_BUCKETS`], measured as the steps of an engine go by.
#[derive(Clone, Debug)]
pub struct StepCosts {
    seconds: [Option<f64>; 7],
    /// One row, where nothing is measured.
    expected: f64,
}

impl StepCosts {
    /// Costs of a model with so many bytes of weights.
    pub fn expected(weights_bytes: u64) -> Self {
        let expected = weights_bytes.max(1) as f64 / EXPECTED_BYTES_PER_SECOND;
        Self { seconds: [None; 7], expected }
    }

    /// Costs that are known.
    pub fn known(seconds: [f64; 7]) -> Self {
        Self { seconds: seconds.map(Some), expected: seconds[0] }
    }

    fn bucket(rows: usize) -> usize {
        ROW_BUCKETS.iter().position(|&bucket| rows <= bucket).unwrap_or(ROW_BUCKETS.len() - 1)
    }

    /// Seconds of a step: beyond the last bucket in proportion to its rows.
    pub fn seconds(&self, rows: usize) -> f64 {
        let beyond = rows.max(64) as f64 / 64.0;
        self.of_bucket(Self::bucket(rows)) * beyond
    }

    fn of_bucket(&self, bucket: usize) -> f64 {
        self.seconds[bucket].unwrap_or_else(|| {
            // The nearest that is measured, the smaller one of equals.
            let measured = (0..7).filter_map(|near| Some((near, self.seconds[near]?)));
            match measured.min_by_key(|(near, _)| near.abs_diff(bucket)) {
                Some((near, seconds)) => seconds * EXPECTED[bucket] / EXPECTED[near],
                None => self.expected * EXPECTED[bucket],
            }
        })
    }

    /// Most rows that may be tried: those of the bucket above all that are measured.
    pub fn most_rows(&self) -> usize {
        let next = self.seconds.iter().rposition(Option::is_some).map_or(1, |last| last + 1);
        ROW_BUCKETS[next.min(ROW_BUCKETS.len() - 1)]
    }

    /// Notes what a step took.
    pub fn record(&mut self, rows: usize, seconds: f64) {
        // Longer ones are not decoding.
        if rows == 0 || rows > 64 || !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        let bucket = Self::bucket(rows);
        let before = self.of_bucket(bucket);
        // The first may have paid for memory and code that is used for the first time: half of it is believed.
        let weight = match self.seconds[bucket] {
            Some(_) => NEW,
            None => 0.5,
        };
        // Nothing at all is known before the very first.
        let first = self.seconds.iter().all(Option::is_none);
        let now = if first { seconds } else { before + weight * (seconds - before) };
        for (other, cost) in self.seconds.iter_mut().enumerate().filter(|(other, _)| *other != bucket) {
            if let Some(cost) = cost {
                *cost += DRIFT * (now * EXPECTED[other] / EXPECTED[bucket] - *cost);
            }
        }
        self.seconds[bucket] = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_is_expected_of_the_nearest() {
        let mut costs = StepCosts::expected(50_000_000_000);
        assert_eq!((costs.seconds(1), costs.seconds(64), costs.most_rows()), (1.0, 7.5, 2));
        costs.record(1, 2.0);
        assert_eq!((costs.seconds(1), costs.seconds(3), costs.most_rows()), (2.0, 2.5, 2));
        costs.record(2, 4.2);
        assert!((costs.seconds(2) - 3.2).abs() < 1e-9, "half of the first is believed");
        assert_eq!(costs.most_rows(), 4);
        assert!(costs.seconds(4) > 3.5);
        assert_eq!(costs.seconds(128).to_bits(), (2.0 * costs.seconds(64)).to_bits());
    }

    #[test]
    fn a_slow_step_is_forgotten() {
        let mut costs = StepCosts::expected(1);
        costs.record(1, 1.0);
        costs.record(2, 100.0);
        assert!(costs.seconds(2) > 50.0);
        (0..2000).for_each(|_| costs.record(1, 1.0));
        assert!(costs.seconds(2) < 1.2, "{}", costs.seconds(2));
    }

    #[test]
    fn nonsense_is_not_recorded() {
        let mut costs = StepCosts::known([1.0; 7]);
        for (rows, seconds) in [(0, 5.0), (65, 5.0), (1, f64::NAN), (1, -1.0), (1, f64::INFINITY)] {
            costs.record(rows, seconds);
        }
        assert!([1, 2, 64].iter().all(|&rows| costs.seconds(rows).to_bits() == 1.0_f64.to_bits()));
    }
}
