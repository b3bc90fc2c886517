//! The end of attention quantises its rows itself, where steps of their own would follow that do nothing
//! else: a choice of the output rows, in the last layer, and A16.
//!
//! A superblock is 256 elements, and so are the elements of a workgroup of the merging kernel: it has all
//! that it takes. The values are those that the steps would have read, so the bits are the same
//! (docs/numerics.md "Activations: A16").

use unisonic_core::plan::{BufferId, Op, Plan};

use crate::kernels::of_plan::{PlanTemplates, Template};
use crate::kernels::{MergeShape, MergedRows, Outputs};

/// Moves the end of each attention to the step that quantises its result, if nobody else reads that.
pub fn quantize_in_merge(plan: &Plan, found: &mut PlanTemplates) {
    for step in 0..plan.steps.len() {
        let Some((quantize, rows)) = quantizing_step(plan, step) else { continue };
        let template = |step: usize| found.of_step[step].last().map(|&number| found.templates[number]);
        let (Some(Template::AttentionMerge(attention, _, shape)), Some(Template::Quantize(form))) =
            (template(step), template(quantize))
        else {
            continue;
        };
        let outputs = Outputs { f32: false, a16: Some(form) };
        let number = found.number(Template::AttentionMerge(attention, outputs, MergeShape { rows, ..shape }));
        found.of_step[step].pop();
        found.of_step[step + 1..quantize].iter_mut().for_each(Vec::clear);
        found.of_step[quantize] = vec![number];
    }
    found.drop_unused();
}

/// The step that quantises the result of an attention, and which rows of it.
fn quantizing_step(plan: &Plan, step: usize) -> Option<(usize, MergedRows)> {
    let op = |step: usize| plan.steps.get(step).map(|step| &step.op);
    let &Op::Attention { out, .. } = op(step)? else { return None };
    let is_last_read = |step: usize, buffer: BufferId| !is_read(plan, step + 1, buffer);
    match *op(step + 1)? {
        Op::Quantize { x, .. } if x == out && is_last_read(step + 1, out) => {
            Some((step + 1, MergedRows::All))
        }
        Op::SelectOutputs { x, out: selected } if x == out && is_last_read(step + 1, out) => {
            match *op(step + 2)? {
                Op::Quantize { x, .. } if x == selected && is_last_read(step + 2, selected) => {
                    Some((step + 2, MergedRows::Selected))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether what a buffer holds before a step is read by it or later.
fn is_read(plan: &Plan, step: usize, buffer: BufferId) -> bool {
    for step in &plan.steps[step..] {
        if step.op.operands().contains(&buffer) {
            return true;
        }
        if step.op.result() == Some(buffer) {
            return false;
        }
    }
    plan.logits == buffer
}
