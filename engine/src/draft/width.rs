//! How many tokens to guess.

use super::{MAX_VERIFY_ROWS, ROW_BUCKETS, StepCosts};

/// By how much guessing has to promise to be faster.
const MARGIN: f64 = 1.03;

/// What a step does anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its rows.
    pub rows: usize,
    /// The tokens that it is sure to choose.
    pub tokens: usize,
}

/// The number of tokens to guess, up to `most`, that promises most tokens a second of the step: with the probability `rate`
/// that a token comes true if all before it did, `d` guesses give `rate + rate^2 + ... + rate^d` more tokens.
pub fn width(rate: f64, most: usize, load: Load, costs: &StepCosts, seconds_per_guess: f64) -> usize {
    let most = most.min(MAX_VERIFY_ROWS - 1);
    let rows_most = costs.most_rows();
    let speed = |width: usize| {
        let gain: f64 = (0..width)
            .scan(1.0, |power, _| {
                *power *= rate;
                Some(*power)
            })
            .sum();
        let seconds = costs.seconds(load.rows + width) + width as f64 * seconds_per_guess;
        (load.tokens as f64 + gain) / seconds
    };
    let mut best = (0, MARGIN * speed(0));
    // Where guesses cost nothing by themselves, those that fill a bucket are the best of it.
    let full = ROW_BUCKETS.iter().filter(|&&bucket| bucket > load.rows && bucket <= rows_most);
    let widths = full.map(|bucket| (bucket - load.rows).min(most));
    for width in widths.flat_map(|width| [width / 2, width]).filter(|&width| width > 0) {
        let speed = speed(width);
        if speed > best.1 {
            best = (width, speed);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row costs 1, more are nearly free up to 16, as on a GPU.
    const GPU: [f64; 7] = [1.0, 1.02, 1.05, 1.1, 1.2, 2.0, 3.8];
    const ALONE: Load = Load { rows: 1, tokens: 1 };

    #[test]
    fn the_width_follows_rate_and_cost() {
        let costs = StepCosts::known(GPU);
        let at = |rate| width(rate, 63, ALONE, &costs, 0.0);
        assert_eq!(at(0.0), 0);
        assert_eq!(at(0.02), 0, "less than the margin");
        assert_eq!(at(0.3), 3);
        assert_eq!(at(0.9), 15);
        assert_eq!(at(1.0), 63);
        assert_eq!(width(1.0, 10, ALONE, &costs, 0.0), 10);
        assert_eq!(width(1.0, 0, ALONE, &costs, 0.0), 0);
        assert_eq!(width(1.0, 63, ALONE, &costs, 2.0), 0, "guesses that are dearer than steps");
        let linear = StepCosts::known([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!(width(0.99, 63, ALONE, &linear, 0.0), 0, "rows are not cheaper together");
    }

    #[test]
    fn neighbours_leave_less_room() {
        let costs = StepCosts::known(GPU);
        let beside = |rows, rate| width(rate, 63, Load { rows, tokens: rows }, &costs, 0.0);
        assert_eq!(beside(8, 0.9), 8, "what is left of the bucket of 16");
        assert_eq!(beside(16, 0.5), 0);
        assert_eq!(beside(64, 1.0), 0);
    }

    #[test]
    fn buckets_are_tried_one_after_the_other() {
        let mut costs = StepCosts::expected(1_000_000);
        let mut seen = Vec::new();
        for _ in 0..8 {
            let width = width(0.999, 63, ALONE, &costs, 0.0);
            seen.push(width);
            costs.record(1 + width, 1e-5);
        }
        assert_eq!(seen, [1, 3, 7, 15, 31, 63, 63, 63]);
    }
}
