//! What does not fit the 32-bit indices of kernels is an error, before any index is computed.

use unisonic_core::kir::abi::MAX_OBJECT_LEN;
use unisonic_core::launch::{GROUP_PAGES, LowerError, Shape};
use unisonic_core::plan::{Limits, Op, Plan};

use crate::kernels::KvLayout;

/// Fails where something has more words than an object of a kernel. `step` is the label of the step that has
/// it.
pub fn check_len(step: &str, what: &str, words: u64, remedy: &str) -> Result<(), LowerError> {
    if words <= u64::from(MAX_OBJECT_LEN) {
        return Ok(());
    }
    Err(LowerError(format!(
        "`{step}`: {what} have {words} words, and kernels number at most {MAX_OBJECT_LEN}; {remedy}"
    )))
}

/// What to do about too many rows.
pub const FEWER_ROWS: &str = "run with fewer rows a batch";

/// Checks what depends on limits alone: what the host writes before a run, and the caches.
pub fn check(plan: &Plan, limits: Limits, pages: u32, largest: Shape) -> Result<(), LowerError> {
    let tables = u64::from(largest.rows) * u64::from(GROUP_PAGES) * u64::from(largest.groups);
    let what = format!("the page tables of {} rows", largest.rows);
    check_len("inputs", &what, tables, "run with fewer rows a batch or fewer KV pages")?;
    check_len("inputs", "the tiles of rows", 2 * u64::from(largest.rows), FEWER_ROWS)?;
    let values = plan.input.map_or(0, |input| plan.row_width(input) as u64 * u64::from(largest.rows));
    check_len("inputs", "the values of the host", values, FEWER_ROWS)?;
    for step in &plan.steps {
        if let Op::WriteKv { layer, .. } = step.op {
            let layer = plan.kv_layers[layer.index()];
            let page = KvLayout { heads: layer.heads, head_len: layer.head_len }.page_len();
            let fewer_pages = format!(
                "at most {} KV pages of {} fit",
                (u64::from(MAX_OBJECT_LEN) / page).saturating_sub(u64::from(pages - limits.kv_pages)),
                limits.kv_pages
            );
            check_len(&step.label, "keys and values", page.saturating_mul(u64::from(pages)), &fewer_pages)?;
        }
    }
    Ok(())
}
