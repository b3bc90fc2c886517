//! How often guesses come true.

/// How sure a guess is, as one of a few classes: [`Acceptance`] measures what each is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(usize);

/// Lengths of matches from which on each class counts.
const MATCH_LENS: [usize; 8] = [1, 2, 3, 4, 6, 9, 17, 33];
/// Share of guessed tokens that come true, before anything was measured.
const EXPECTED: [f64; 9] = [0.1, 0.2, 0.35, 0.5, 0.6, 0.75, 0.85, 0.95, 0.9];
/// How many measured tokens that expectation is worth.
const EXPECTED_WEIGHT: f64 = 4.0;
/// What remains of older measurements after each new one.
const MEMORY: f64 = 0.95;

impl Confidence {
    /// Of a guess by a sequence of this length that occurred before.
    pub fn of_match_len(len: usize) -> Self {
        Self(MATCH_LENS.iter().rposition(|&least| len >= least).unwrap_or(0))
    }

    /// Of a guess by a model.
    pub const MODEL: Self = Self(5);

    /// Of what a grammar leaves no choice about but how it is cut into tokens.
    pub const FORCED: Self = Self(8);
}

/// What drafting did, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// Steps that chose at least one token.
    pub steps: u64,
    /// Tokens that were guessed and run.
    pub drafted: u64,
    /// Tokens of these that came true.
    pub accepted: u64,
}

/// Measured share of guessed tokens that come true, for each class of confidence: recent guesses count most.
#[derive(Clone, Debug, Default)]
pub struct Acceptance {
    accepted: [f64; 9],
    checked: [f64; 9],
    /// Sums since the beginning.
    pub stats: DraftStats,
}

impl Acceptance {
    /// Probability that the next guessed token comes true if all before it did.
    pub fn rate(&self, confidence: Confidence) -> f64 {
        let class = confidence.0;
        (self.accepted[class] + EXPECTED_WEIGHT * EXPECTED[class]) / (self.checked[class] + EXPECTED_WEIGHT)
    }

    /// Notes a guess of `drafted` tokens of which the first `accepted` came true.
    pub fn record(&mut self, confidence: Confidence, drafted: usize, accepted: usize) {
        let class = confidence.0;
        // The first that did not come true was checked as well; those after it say nothing.
        let checked = drafted.min(accepted + 1);
        self.accepted[class] = MEMORY * self.accepted[class] + accepted as f64;
        self.checked[class] = MEMORY * self.checked[class] + checked as f64;
        self.stats.drafted += drafted as u64;
        self.stats.accepted += accepted as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_of_growing_length() {
        let classes: Vec<usize> =
            [1, 2, 3, 5, 6, 16, 17, 32, 33, 1000].map(|len| Confidence::of_match_len(len).0).into();
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6, 6, 7, 7]);
    }

    #[test]
    fn rates_follow_what_is_measured_in_their_class() {
        let mut acceptance = Acceptance::default();
        let (sure, unsure) = (Confidence::of_match_len(40), Confidence::of_match_len(1));
        assert_eq!(acceptance.rate(sure).to_bits(), 0.95_f64.to_bits());
        for _ in 0..50 {
            acceptance.record(sure, 8, 0);
            acceptance.record(unsure, 8, 8);
        }
        assert!(acceptance.rate(sure) < 0.2, "{}", acceptance.rate(sure));
        assert!(acceptance.rate(unsure) > 0.9, "{}", acceptance.rate(unsure));
        assert_eq!(acceptance.stats, DraftStats { steps: 0, drafted: 800, accepted: 400 });
    }
}
