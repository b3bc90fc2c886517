//! The end of attention quantises its rows itself, where a step of its own would follow that does nothing else.
//!
//! A superblock is 256 elements, and so are the elements of a workgroup of the merging kernel: it has all that it takes. The
//! values are those that the step would have read, so the bits are the same (docs/numerics.md "A16").

use unisonic_core::plan::{BufferId, Op, Plan};

use crate::kernels::Outputs;
use crate::kernels::of_plan::{PlanTemplates, Template};

/// Moves the end of each attention to the step that quantises its result, if nobody else reads that.
pub fn quantize_in_merge(plan: &Plan, found: &mut PlanTemplates) {
    for step in 0..plan.steps.len() {
        if let Some(template) = quantizing_merge(plan, found, step) {
            let number = found.number(template);
            found.of_step[step].pop();
            found.of_step[step + 1] = vec![number];
        }
    }
    found.drop_unused();
}

/// The template of both steps, if a step is an attention that ends in a kernel of its own and the next quantises its result.
fn quantizing_merge(plan: &Plan, found: &PlanTemplates, step: usize) -> Option<Template> {
    let next = plan.steps.get(step + 1)?;
    let (&Op::Attention { out, .. }, &Op::Quantize { x, .. }) = (&plan.steps[step].op, &next.op) else {
        return None;
    };
    let template = |step: usize| found.of_step[step].last().map(|&number| found.templates[number]);
    match (template(step)?, template(step + 1)?) {
        (Template::AttentionMerge(attention, _), Template::Quantize(form))
            if x == out && !is_read(plan, step + 2, out) =>
        {
            Some(Template::AttentionMerge(attention, Outputs { f32: false, a16: Some(form) }))
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
