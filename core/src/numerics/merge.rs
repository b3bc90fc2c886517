//! Merging the states of attention chunks: first in groups of 16 chunks, then the groups
//! (docs/numerics.md "KV cache and attention").

use super::float::{pow2, snap};

/// Chunks of a group.
pub const GROUP_CHUNKS: usize = 16;

/// What is known of a head after some of its keys: softmax weights summed relative to 2^M, and the weighted sum of the
/// values on the same footing.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// M.
    pub max_exponent: i32,
    /// L.
    pub sum: f32,
    /// O, one a dimension.
    pub output: Vec<f32>,
}

impl State {
    /// Merges the state of later keys into this one.
    ///
    /// ```text
    /// M' > M:  g = M - M' < -32 ? 0 : 2^(M-M');  L = L*g + L';  O = snap(snap(O*g) + O');  M = M'
    /// else:    g = M' - M < -32 ? 0 : 2^(M'-M);  L = L + L'*g;  O = snap(O + snap(O'*g))
    /// ```
    pub fn merge(&mut self, later: &State) {
        if later.max_exponent > self.max_exponent {
            let g = factor(self.max_exponent - later.max_exponent);
            self.sum = self.sum * g + later.sum;
            for (o, &later) in self.output.iter_mut().zip(&later.output) {
                *o = snap(snap(*o * g) + later);
            }
            self.max_exponent = later.max_exponent;
        } else {
            let g = factor(later.max_exponent - self.max_exponent);
            self.sum += later.sum * g;
            for (o, &later) in self.output.iter_mut().zip(&later.output) {
                *o = snap(*o + snap(later * g));
            }
        }
    }

    /// End of a group: `O = snap(O)`.
    fn end_group(&mut self) {
        for o in &mut self.output {
            *o = snap(*o);
        }
    }
}

fn factor(exponent: i32) -> f32 {
    if exponent < -32 { 0.0 } else { pow2(exponent) }
}

/// Merges the chunks of a head, given in ascending order, those without a visible key left out.
///
/// Level 1: the chunks 16g..16g+15 of a group merge in order, from the first that has a visible key, whose state is
/// taken as it is; then `O = snap(O)`. Level 2: the groups merge in order by the same rule.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    group: Option<(usize, State)>,
    total: Option<State>,
}

impl Merger {
    /// No chunk yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the state of chunk `chunk` (its absolute number); chunks come in ascending order.
    pub fn push(&mut self, chunk: usize, state: State) {
        let number = chunk / GROUP_CHUNKS;
        match &mut self.group {
            Some((open, group)) if *open == number => group.merge(&state),
            _ => {
                self.close_group();
                self.group = Some((number, state));
            }
        }
    }

    /// The state of all chunks; none if there was no chunk.
    pub fn finish(mut self) -> Option<State> {
        self.close_group();
        self.total
    }

    fn close_group(&mut self) {
        let Some((_, mut group)) = self.group.take() else { return };
        group.end_group();
        match &mut self.total {
            Some(total) => total.merge(&group),
            None => self.total = Some(group),
        }
    }
}
