//! A device whose arithmetic is a hash: what it says of a row depends on every slot that the row may see and
//! on nothing else, so that a wrong page, slot or token shows, and a thousand sequences take no time.

use std::sync::Arc;

use unisonic_core::numerics::sampling::most_likely;
use unisonic_core::plan::{
    Batch, Device, DeviceError, DeviceInfo, Limits, PAGE_TOKENS, Picks, Plan, Program, Progress, RangeFlag,
    WeightSource,
};

const SLOTS: usize = PAGE_TOKENS as usize;
/// Tokens that it likes to say.
const SAID: u32 = 6;

/// The device.
#[derive(Clone, Copy, Debug)]
pub struct Toy {
    /// Whether it copies pages.
    pub copies: bool,
    /// Rows of this token leave the range of its arithmetic.
    pub out_of_range: Option<u32>,
    /// Whether it picks tokens.
    pub picks: bool,
}

impl Toy {
    pub const NEW: Self = Self { copies: true, out_of_range: None, picks: true };
}

struct Loaded {
    toy: Toy,
    plan: Arc<Plan>,
    info: DeviceInfo,
    limits: Limits,
    pages: Vec<[u64; SLOTS]>,
    logits: Vec<Vec<f32>>,
}

impl Device for Toy {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { id: "toy".into(), name: "hash".into(), profile: "toy".into(), threads: None }
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        _weights: &dyn WeightSource,
        limits: Limits,
        _progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError> {
        // What nobody wrote is noticed.
        let pages = vec![[u64::MAX; SLOTS]; limits.kv_pages as usize];
        Ok(Box::new(Loaded { toy: *self, plan, info: self.info(), limits, pages, logits: Vec::new() }))
    }
}

fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

impl Loaded {
    /// Mostly the tokens follow from the last two, so that guessing works; now and then from all. The last
    /// bits of each logit follow from all.
    fn logits_of(&self, slots: &[u64]) -> Vec<f32> {
        let all = slots.iter().fold(1, |hash, &slot| mix(hash, slot));
        let last = slots.iter().rev().take(2).fold(2, |hash, &slot| mix(hash, slot & 0xffff_ffff));
        let chosen = if all.is_multiple_of(13) { all / 13 } else { last } % u64::from(SAID);
        let logit = |id: u64| {
            let likely = if id == chosen {
                4.0
            } else if id < u64::from(SAID) {
                2.0
            } else {
                0.0
            };
            likely + (mix(all, id) >> 44) as f32 / f32::from(u16::MAX) / 16.0
        };
        (0..u64::from(self.plan.vocab_len)).map(logit).collect()
    }
}

impl Program for Loaded {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError> {
        batch.check(&self.plan, self.limits)?;
        let place = |row: usize, position: usize| {
            let pages = batch.page_tables[batch.sequences[row] as usize];
            (pages[position / SLOTS] as usize, position % SLOTS)
        };
        for row in 0..batch.rows() {
            let (page, slot) = place(row, batch.positions[row] as usize);
            self.pages[page][slot] =
                (u64::from(batch.positions[row]) + 1) << 32 | u64::from(batch.tokens[row]);
        }
        let slots = |row: usize| -> Vec<u64> {
            let places = (0..=batch.positions[row] as usize).map(|position| place(row, position));
            places.map(|(page, slot)| self.pages[page][slot]).collect()
        };
        let logits = batch.outputs.iter().map(|&row| self.logits_of(&slots(row as usize))).collect();
        let flagged = |row: usize| {
            let bad = slots(row).iter().any(|&slot| Some(slot as u32) == self.toy.out_of_range);
            bad.then_some(RangeFlag { row: row as u32, step: 0 })
        };
        let flags = match self.toy.out_of_range {
            Some(_) => (0..batch.rows()).filter_map(flagged).collect(),
            None => Vec::new(),
        };
        self.logits = logits;
        Ok(flags)
    }

    /// Now and then of fewer runs than it may.
    fn pick(&mut self, batch: &Batch<'_>, runs: u32) -> Result<Option<Picks>, DeviceError> {
        if !self.toy.picks || batch.outputs.is_empty() {
            return Ok(None);
        }
        batch.check_runs(runs, &self.plan, self.limits)?;
        let fewer = batch.positions[0].is_multiple_of(5);
        let (mut positions, mut next) = (batch.positions.to_vec(), batch.tokens.to_vec());
        let mut picks = Picks::default();
        for run in 0..if fewer { runs.div_ceil(2) } else { runs } {
            let flags = self.run(&Batch { tokens: &next, positions: &positions, ..*batch })?;
            if run > 0 && !flags.is_empty() {
                break;
            }
            picks.flags.extend(flags);
            let best = self.logits.iter().map(|logits| most_likely(logits).unwrap());
            let best: Vec<u32> = best.collect();
            picks.tokens.extend_from_slice(&best);
            next = best;
            positions.iter_mut().for_each(|position| *position += 1);
        }
        self.logits.clear();
        Ok(Some(picks))
    }

    fn max_runs(&self, rows: usize) -> u32 {
        if self.toy.picks && rows <= 8 { 16 } else { 1 }
    }

    fn logits(&self, output: usize) -> &[f32] {
        &self.logits[output]
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<bool, DeviceError> {
        if self.toy.copies {
            self.pages[to as usize] = self.pages[from as usize];
        }
        Ok(self.toy.copies)
    }

    fn read_page(&mut self, page: u32, to: &mut Vec<u8>) -> Result<bool, DeviceError> {
        if self.toy.copies {
            to.extend(self.pages[page as usize].iter().flat_map(|slot| slot.to_le_bytes()));
        }
        Ok(self.toy.copies)
    }

    fn write_page(&mut self, page: u32, from: &[u8]) -> Result<bool, DeviceError> {
        if !self.toy.copies || from.len() != 8 * SLOTS {
            return Ok(false);
        }
        for (slot, &from) in self.pages[page as usize].iter_mut().zip(from.as_chunks().0) {
            *slot = u64::from_le_bytes(from);
        }
        Ok(true)
    }
}
