//! From a GGUF file's metadata to a [`Plan`].
//!
//! ```text
//! metadata, tensor table ──models──► Graph ──passes──► fused Graph ──lower──► Plan
//! ```
//!
//! The planner reads no file, environment or clock: the same input gives an equal plan. Of tensor data it
//! needs only the factors of position tables.
//!
//! Start reading at [`plan`] (or [`plan_graph`], for graphs of the caller), then [`graph`], `models/llama.rs` and [`passes::PASSES`].

mod error;
pub mod graph;
pub mod kernels;
pub mod launches;
mod lower;
mod models;
pub mod passes;
mod rope;
pub mod tune;

pub use error::PlanError;

use unisonic_core::format::{Metadata, TensorInfo};
use unisonic_core::plan::{Plan, WeightSource};

use graph::{Contract, Graph};
use passes::{Dump, PASSES, Schedule};

/// Switches of planning. None of them changes a bit of what a plan computes.
#[derive(Clone, Default)]
pub struct PlanOptions<'a> {
    /// Optional passes to leave out, by name. Those over launches ([`launches::LAUNCH_PASSES`]) say nothing
    /// here: a plan has no launches yet.
    pub passes_off: Vec<String>,
    /// The last pass to run, by name.
    pub stop_after: Option<String>,
    /// Who watches the passes.
    pub dump: Option<&'a Dump<'a>>,
}

/// Plans a model: builds its graph, runs the passes, lowers.
///
/// Errors name the metadata key or tensor, what was expected and what was found. With
/// [`PlanOptions::stop_after`] before the last required pass the graphs are dumped and the result is
/// [`PlanError::Stopped`].
pub fn plan(
    metadata: &Metadata,
    tensors: &[TensorInfo],
    weights: &dyn WeightSource,
    options: &PlanOptions<'_>,
) -> Result<Plan, PlanError> {
    let graph = build(metadata, tensors)?;
    lowered(graph, tensors, weights, options)
}

/// Plans a graph that the caller has made, over tensors of a file, of its own, or both.
///
/// Everything is checked: the rules and limits of graphs, and that each tensor is there with the shape that the graph
/// says. Operations that lead to no output row and to no KV cache are dropped.
pub fn plan_graph(
    graph: Graph,
    tensors: &[TensorInfo],
    weights: &dyn WeightSource,
    options: &PlanOptions<'_>,
) -> Result<Plan, PlanError> {
    graph.verify(Contract::default())?;
    graph.check_limits()?;
    models::Tensors::new(&graph.architecture, tensors).check(&graph)?;
    lowered(graph, tensors, weights, options)
}

fn lowered(
    mut graph: Graph,
    tensors: &[TensorInfo],
    weights: &dyn WeightSource,
    options: &PlanOptions<'_>,
) -> Result<Plan, PlanError> {
    let stop_after = options.stop_after.as_deref();
    let schedule = Schedule { off: &options.passes_off, stop_after, dump: options.dump };
    let contract = passes::run(&mut graph, &schedule)?;
    check_complete(contract, stop_after)?;
    let tensors = models::Tensors::new(&graph.architecture, tensors);
    lower::lower(&graph, &tensors, weights)
}

/// Builds the graph of a model as its architecture's file has it, before any pass.
pub fn build(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Graph, PlanError> {
    models::build(metadata, tensors)
}

/// Lowering needs what the required passes establish.
fn check_complete(contract: Contract, stop_after: Option<&str>) -> Result<(), PlanError> {
    if contract == (Contract { quantized_activations: true, quantized_heads: true }) {
        return Ok(());
    }
    let stopped = PASSES.iter().position(|pass| Some(pass.name) == stop_after).map_or(0, |index| index + 1);
    let required = PASSES.iter().skip(stopped).find(|pass| pass.required).map_or("", |pass| pass.name);
    Err(PlanError::Stopped { stop_after: stop_after.unwrap_or("build").to_owned(), required })
}
