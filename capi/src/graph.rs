//! Graphs: models as programs.
//!
//! A graph is built node by node or read from its text form. Rules are checked as it grows; `graph_node` has the nodes,
//! `graph_weights` where weights come from, `program` what runs a graph on a device.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard};

use unisonic_engine::graph::GraphError;
use unisonic_planner::graph::{
    Graph as Nodes, GraphBuilder, ParseError, RopeScaling, RopeSpec, ValueId, Violations,
};
use unisonic_planner::{PlanError, PlanOptions, plan_graph};

use unisonic_core::plan::{KvLayer, RopeStyle};
use unisonic_engine::EngineError;

use crate::buffer::{Buffer, unisonic_buffer};
use crate::entry::entry;
use crate::error::{Error, Result, unisonic_error};
use crate::graph_node::{self, unisonic_node, unisonic_weight};
use crate::graph_weights::{Weights, unisonic_weights};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::locks::try_lock;
use crate::options::{self, SizeTagged};
use crate::status::unisonic_status;

/// A model as operations on rows. One thread at a time builds it: UNISONIC_STATUS_BUSY for others.
pub struct unisonic_graph {
    _opaque: (),
}

/// Pairs of RoPE lie side by side (llama).
pub const UNISONIC_ROPE_INTERLEAVED: u32 = 1;
/// Pairs of RoPE lie half a head apart (qwen, gemma, phi).
pub const UNISONIC_ROPE_HALF_SPLIT: u32 = 2;

/// A position table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_rope_options {
    /// sizeof(unisonic_rope_options).
    pub struct_size: usize,
    /// The base of the frequencies.
    pub base: f64,
    /// Positions are divided by it; 0: 1.
    pub linear_factor: f64,
    /// The factor of YaRN; 0: no YaRN. Not together with `linear_factor`.
    pub yarn_factor: f64,
    /// Cosine and sine are multiplied by it; 0: 1.
    pub attention_factor: f64,
    /// Divisors of the frequencies, one a pair; without a name: none.
    pub factors: unisonic_weight,
    /// UNISONIC_ROPE_INTERLEAVED or UNISONIC_ROPE_HALF_SPLIT.
    pub style: u32,
    /// Values of a head that turn; even.
    pub rotary_len: u32,
    /// The context of training, for YaRN.
    pub original_context_len: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_rope_options {
    const NAME: &'static str = "unisonic_rope_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a graph.
pub(crate) struct Graph(Mutex<State>);

/// A graph that grows, and what it gives.
struct State {
    builder: GraphBuilder,
    output: Option<ValueId>,
}

impl Object for Graph {
    type Handle = unisonic_graph;
    const NAME: &'static str = "graph";
}

impl Graph {
    fn new(builder: GraphBuilder, output: Option<ValueId>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { builder, output })))
    }

    fn begin(&self) -> Result<MutexGuard<'_, State>> {
        try_lock(&self.0, "the graph is used by another thread; one at a time builds a graph")
    }

    /// What it is so far, held to all rules.
    pub(crate) fn finished(&self) -> Result<Nodes> {
        let state = self.begin()?;
        let output = state.output.ok_or_else(|| {
            Error::new(
                unisonic_status::Graph,
                "the graph has no output: say it with unisonic_graph_set_output",
            )
        })?;
        Ok(state.builder.clone().finish(output)?)
    }
}

impl From<Violations> for Error {
    fn from(error: Violations) -> Self {
        Self::new(unisonic_status::Graph, error.to_string())
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Self::new(unisonic_status::Graph, error.to_string())
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        match error {
            GraphError::Engine(EngineError::Plan(error)) => error.into(),
            GraphError::Engine(error) => error.into(),
            GraphError::Rows { .. } | GraphError::Tensor { .. } => Self::argument(error.to_string()),
        }
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Self::new(unisonic_status::Graph, error.to_string())
    }
}

/// An empty graph, for token ids below `vocab_len` and sequences of at most `context_len` rows. `name` is for messages and without
/// spaces. Free it with unisonic_graph_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_new(
    library: *mut unisonic_library,
    name: *const c_char,
    name_len: usize,
    vocab_len: u32,
    context_len: u32,
    graph: *mut *mut unisonic_graph,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let graph = options::out(graph, "graph")?;
            let library = entry.object::<Library>(library)?;
            let name = options::text(name, name_len, "name")?;
            handle::write(graph, &library, Graph::new(GraphBuilder::new(name, vocab_len, context_len), None))
        })
    }
}

/// A graph from its text form, as unisonic_graph_print writes it, held to all rules. It can grow further.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_parse(
    library: *mut unisonic_library,
    text: *const c_char,
    text_len: usize,
    graph: *mut *mut unisonic_graph,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let graph = options::out(graph, "graph")?;
            let library = entry.object::<Library>(library)?;
            let read = Nodes::parse(options::text(text, text_len, "text")?)?;
            let output = read.output;
            handle::write(graph, &library, Graph::new(GraphBuilder::of(read)?, Some(output)))
        })
    }
}

/// The text form of a graph that is whole, into a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_print(
    graph: *mut unisonic_graph,
    text: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let text = options::out(text, "text")?;
            let (graph, library) = entry.object_of::<Graph>(graph)?;
            Buffer::of_bytes(graph.finished()?.to_string().into_bytes()).write(text, &library)
        })
    }
}

/// Adds a position table; its number for nodes goes to `rope`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_add_rope(
    graph: *mut unisonic_graph,
    rope_options: *const unisonic_rope_options,
    rope: *mut u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let graph = entry.object::<Graph>(graph)?;
            let spec = rope_spec(&options::read(rope_options)?)?;
            options::write_value(rope, graph.begin()?.builder.rope_table(spec).0, "rope")
        })
    }
}

/// # Safety
/// The name of the factors is a text.
unsafe fn rope_spec(given: &unisonic_rope_options) -> Result<RopeSpec> {
    options::reserved(given.reserved)?;
    let or_one = |factor: f64| if factor == 0.0 { 1.0 } else { factor };
    let scaling = match (given.linear_factor != 0.0, given.yarn_factor != 0.0) {
        (false, false) => RopeScaling::None,
        (true, false) => RopeScaling::Linear { factor: given.linear_factor },
        (false, true) => {
            RopeScaling::Yarn { factor: given.yarn_factor, original_context_len: given.original_context_len }
        }
        (true, true) => return Err(Error::argument("linear_factor and yarn_factor exclude each other")),
    };
    Ok(RopeSpec {
        style: match given.style {
            UNISONIC_ROPE_INTERLEAVED => RopeStyle::Interleaved,
            UNISONIC_ROPE_HALF_SPLIT => RopeStyle::HalfSplit,
            other => return Err(Error::argument(format!("style is {other}, which is none"))),
        },
        rotary_len: given.rotary_len,
        base: given.base,
        scaling,
        attention_factor: or_one(given.attention_factor),
        // SAFETY: the caller says so.
        factors: unsafe { graph_node::weight(&given.factors, "factors") }?,
    })
}

/// Adds a cache of keys and values of `heads` heads with `head_len` values each; its number for nodes goes to `kv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_add_kv(
    graph: *mut unisonic_graph,
    heads: u32,
    head_len: u32,
    kv: *mut u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let graph = entry.object::<Graph>(graph)?;
            options::write_value(kv, graph.begin()?.builder.kv_layer(KvLayer { heads, head_len }).0, "kv")
        })
    }
}

/// Adds a node; the number of its result goes to `value`. UNISONIC_STATUS_GRAPH, with the node and the rule that it breaks, leaves the
/// graph as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_add_node(
    graph: *mut unisonic_graph,
    node: *const unisonic_node,
    value: *mut u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let graph = entry.object::<Graph>(graph)?;
            let given = options::read(node)?;
            let mut state = graph.begin()?;
            options::write_value(value, graph_node::add(&mut state.builder, &given)?.0, "value")
        })
    }
}

/// Values of a row of value `value`; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_value_width(graph: *mut unisonic_graph, value: u32) -> u32 {
    // SAFETY: the promises of the header.
    crate::entry::answer(0, |entry| unsafe {
        let graph = entry.object::<Graph>(graph)?;
        let ty = graph.begin()?.builder.ty(ValueId(value));
        Ok(ty.map_or(0, |ty| ty.element.width()))
    })
}

/// Says what the graph gives: floats of output rows, those that UNISONIC_OP_SELECT_OUTPUTS or what comes after it makes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_set_output(
    graph: *mut unisonic_graph,
    value: u32,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let graph = entry.object::<Graph>(graph)?;
            let mut state = graph.begin()?;
            if state.builder.ty(ValueId(value)).is_none() {
                return Err(Error::argument(format!("there is no value {value}")));
            }
            state.output = Some(ValueId(value));
            Ok(())
        })
    }
}

/// Checks all rules and limits: UNISONIC_STATUS_GRAPH with every broken one and the node that it is in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_verify(
    graph: *mut unisonic_graph,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { entry(error, |entry| entry.object::<Graph>(graph)?.finished().map(drop)) }
}

/// What a device would be given for the graph, as text for people, into a buffer. `passes_off` names passes of the planner that are
/// left out, separated by commas: that changes the speed and no bit of a result. `unisonic passes` lists them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_plan(
    graph: *mut unisonic_graph,
    weights: *mut unisonic_weights,
    passes_off: *const c_char,
    passes_off_len: usize,
    text: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let text = options::out(text, "text")?;
            let (graph, library) = entry.object_of::<Graph>(graph)?;
            let weights = entry.object::<Weights>(weights)?;
            let passes_off = names(options::text(passes_off, passes_off_len, "passes_off")?);
            let plan_options = PlanOptions { passes_off, ..PlanOptions::default() };
            let nodes = graph.finished()?;
            let plan =
                weights.with(|tensors| Ok(plan_graph(nodes, tensors.infos(), tensors, &plan_options)?))?;
            Buffer::of_bytes(plan.to_string().into_bytes()).write(text, &library)
        })
    }
}

/// Names that are separated by commas.
pub(crate) fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Frees a graph; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_graph_free(graph: *mut unisonic_graph) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Graph>(graph) }
}
