//! A pass that fails, as text that runs it again.
//!
//! ```text
//! pass fuse-heads
//! graph llama vocab=259 …
//! …
//! ```
//!
//! The graph is as it was before the pass; what held of it follows from the pass's place in the table.

use super::{Pass, PassError, apply};
use crate::graph::{Contract, Graph, ParseError};

/// The pass and the graph before it. The text is what [`replay`] takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Name of the pass.
    pub pass: String,
    /// Text of the graph.
    pub before: String,
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pass {}\n{}", self.pass, self.before)
    }
}

/// Why a text cannot be run again, or how the pass fails.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It does not begin like one.
    #[error("expected `pass NAME` in the first line, and the graph before the pass in the following lines")]
    Head,
    /// The graph cannot be read.
    #[error("the graph, whose lines are counted from its first: {0}")]
    Graph(#[from] ParseError),
    /// The pass fails, or is not known.
    #[error(transparent)]
    Pass(#[from] PassError),
}

/// Runs the pass of a crash file on its graph. Returns the graph after it.
pub fn replay(text: &str) -> Result<Graph, ReplayError> {
    replay_with(super::PASSES, text)
}

pub(super) fn replay_with(passes: &[Pass], text: &str) -> Result<Graph, ReplayError> {
    let (head, graph) = text.split_once('\n').ok_or(ReplayError::Head)?;
    let name = head.trim_end().strip_prefix("pass ").ok_or(ReplayError::Head)?;
    let mut graph = Graph::parse(graph)?;
    let pass = super::find_in(passes, name)?;
    let mut contract = Contract::default();
    let earlier = passes.iter().take_while(|other| other.name != name);
    earlier.filter(|pass| pass.required).for_each(|pass| (pass.establishes)(&mut contract));
    super::verify(&graph, contract, "reading the crash file")?;
    apply(pass, &mut graph, &mut contract)?;
    Ok(graph)
}
