//! The launches behind the logits where tokens are wanted ([`Wanted::Tokens`]): they pick the most likely one of each
//! output row and make it the input of the next run.
//!
//! [`Wanted::Tokens`]: unisonic_core::launch::Wanted

use unisonic_core::launch::inputs::{Input, InputLayout};
use unisonic_core::launch::{Area, Launch, LowerError, MAX_RUNS, Picked, Place, Shape};
use unisonic_core::plan::Rows;

use super::arena::{Arena, Part};
use super::limits::{FEWER_ROWS, check_len};
use super::workgroups;
use crate::kernels::argmax::PART_LEN;
use crate::kernels::{GridKernel, argmax_join, argmax_parts};

/// Adds the places of what is handed from launch to launch and to the host.
pub fn add_parts(arena: &mut Arena, vocab_len: u32, largest: Shape) -> Result<(), LowerError> {
    let outputs = u64::from(largest.outputs);
    let best = outputs * u64::from(vocab_len.div_ceil(PART_LEN));
    let picked = outputs * u64::from(MAX_RUNS);
    check_len("picking tokens", "the best logits of parts", best, FEWER_ROWS)?;
    check_len("picking tokens", "the tokens of runs", picked, FEWER_ROWS)?;
    for (part, words) in
        [(Part::BestOrders, best), (Part::BestIds, best), (Part::Picked, picked), (Part::Broken, picked)]
    {
        arena.add(part, 4 * words);
    }
    Ok(())
}

/// What the launches stand on.
pub struct Pick<'a> {
    pub arena: &'a Arena,
    pub inputs: InputLayout,
    pub vocab_len: u32,
    /// Index of the last step, which the launches come after.
    pub step: u32,
    pub logits: Place,
    pub found: Place,
    /// Words of `found` a row.
    pub segments: u32,
}

impl Pick<'_> {
    /// The kernels with their launches, the first as kernel number `number`; and where the tokens lie. None if there is no
    /// place for something.
    pub fn launches(&self, number: u32) -> Option<([(GridKernel, Launch); 2], Picked)> {
        let shape = self.inputs.shape;
        let words = |part, words: u32| {
            let place = self.arena.place(part)?;
            Some(Place { len_bytes: 4 * u64::from(words), ..place })
        };
        let best = shape.outputs * self.vocab_len.div_ceil(PART_LEN);
        let [orders, ids] = [words(Part::BestOrders, best)?, words(Part::BestIds, best)?];
        let runs = shape.outputs * MAX_RUNS;
        let picked = Picked { tokens: words(Part::Picked, runs)?, broken: words(Part::Broken, runs)? };
        let parts =
            self.launch(argmax_parts(self.vocab_len), number, vec![self.logits, orders, ids], vec![])?;
        let input = |input| self.input(input);
        let (all, outputs) = (Rows::All, Rows::Outputs);
        let places = vec![
            orders,
            ids,
            self.found,
            input(Input::Runs),
            input(Input::Positions(all)),
            input(Input::Positions(outputs)),
            input(Input::Tokens(all)),
            input(Input::Tokens(outputs)),
            picked.tokens,
            picked.broken,
        ];
        let params = vec![self.segments, shape.rows, shape.outputs];
        let join = self.launch(argmax_join(self.vocab_len), number + 1, places, params)?;
        Some(([parts, join], picked))
    }

    fn launch(
        &self,
        template: GridKernel,
        kernel: u32,
        places: Vec<Place>,
        params: Vec<u32>,
    ) -> Option<(GridKernel, Launch)> {
        let workgroups = workgroups(template.grid, Rows::Outputs, self.inputs.shape)?;
        Some((template, Launch { step: self.step, kernel, places, params, workgroups }))
    }

    fn input(&self, input: Input) -> Place {
        let len_bytes = 4 * u64::from(self.inputs.len(input));
        Place { area: Area::Inputs, offset_bytes: self.inputs.offset_bytes(input), len_bytes }
    }
}
