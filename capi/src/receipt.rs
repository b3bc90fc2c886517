//! Recomputing receipts.

use std::ffi::c_char;

use unisonic_engine::receipt::{Difference, Receipt, Verdict, verify};

use crate::entry::entry;
use crate::error::unisonic_error;
use crate::model::{Model, unisonic_model};
use crate::options::{self, SizeTagged};
use crate::sampler;
use crate::status::unisonic_status;

/// What recomputing a receipt came to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_verdict {
    /// sizeof(unisonic_verdict).
    pub struct_size: usize,
    /// Index of the first token of the answer that differs, from 0; 0 if none does.
    pub step: u64,
    /// Position of that token in its sequence.
    pub position: u64,
    /// 1 if all tokens, and the bits of all logits that they were chosen from, are the receipt's; otherwise
    /// 0.
    pub equal: u32,
    /// The token in the receipt.
    pub expected: u32,
    /// The token that is chosen here.
    pub found: u32,
    /// 1 if the logits differ there.
    pub logits_differ: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are numbers.
unsafe impl SizeTagged for unisonic_verdict {
    const NAME: &'static str = "unisonic_verdict";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// Recomputes a receipt (JSON), into `verdict`, whose struct_size is set. That something differs is no
/// failure; UNISONIC_STATUS_MISMATCH is for a receipt that is damaged, or of another model or arithmetic.
/// Reads the model's file once, for its digest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_receipt_verify(
    model: *mut unisonic_model,
    receipt: *const c_char,
    receipt_len: usize,
    verdict: *mut unisonic_verdict,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let model = entry.object::<Model>(model)?;
            let receipt = Receipt::from_json(options::text(receipt, receipt_len, "receipt")?)?;
            let digest = model.digest()?;
            let mut turn = model.turn(None)?;
            receipt.check(digest, &turn.engine().device().profile)?;
            model.check(&receipt.prompt_ids, "prompt_ids of the receipt")?;
            model.check(&receipt.output_ids, "output_ids of the receipt")?;
            let (start, constraint) = match &receipt.answer {
                Some(answer) => (answer.start, Some(&answer.constraint)),
                None => (receipt.prompt_ids.len(), None),
            };
            let mut sampler = sampler::sampler(&receipt.sampler, constraint, &model, start, true)?;
            let found = verify(turn.engine_mut(), &receipt, &mut *sampler, &mut |_| {})?;
            let equal = unisonic_verdict {
                struct_size: size_of::<unisonic_verdict>(),
                step: 0,
                position: 0,
                equal: 1,
                expected: 0,
                found: 0,
                logits_differ: 0,
            };
            let found = match found {
                Verdict::Equal => equal,
                Verdict::Differs(Difference { step, position, expected, found, logits_differ }) => {
                    unisonic_verdict {
                        step: step as u64,
                        position: position as u64,
                        equal: 0,
                        expected,
                        found,
                        logits_differ: u32::from(logits_differ),
                        ..equal
                    }
                }
            };
            options::write(verdict, &found)
        })
    }
}
