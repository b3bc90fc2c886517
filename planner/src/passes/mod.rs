//! Passes: rewrites of the graph, as rows of one table.
//!
//! [`PASSES`] is the order. Each row says what the pass does, whether a plan can be made without it, and which passes
//! must come before it; [`check_table`] holds the table to that. [`run`] applies them and verifies the graph after
//! each. Switching optional ones off changes speed and never a bit of a result, because each only joins operations
//! whose meaning stays what it was. Passes over the launches of a GPU are in another table,
//! [`LAUNCH_PASSES`], and are switched off by name like these.
//!
//! One file a pass, with the graph before and after in its test. A pass that breaks a graph or panics gives an
//! error with a [`Crash`], which [`replay`] runs again.

mod crash;
mod dead_code;
mod early_dead_code;
mod fuse_gate_quantize;
mod fuse_heads;
mod fuse_norm_quantize;
mod fuse_norm_residual;
mod fuse_residual;
mod hoist_select_outputs;
mod quantize_activations;
mod quantize_heads;
mod rewrite;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use crash::{Crash, ReplayError, replay};

use crate::graph::{Contract, Graph, Violations};
use crate::launches::LAUNCH_PASSES;

/// One row of the table.
pub struct Pass {
    /// As in options and dumps.
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    /// Whether a plan needs it. The others run unless they are switched off.
    pub required: bool,
    /// Passes that must come before it in the table.
    pub after: &'static [&'static str],
    /// What holds from here on.
    establishes: fn(&mut Contract),
    /// The rewrite.
    run: fn(&mut Graph),
}

/// All passes in their order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "early-dead-code",
        doc: "removes operations that nothing uses, before others count uses",
        required: false,
        after: &[],
        establishes: |_| (),
        run: early_dead_code::run,
    },
    Pass {
        name: "hoist-select-outputs",
        doc: "computes what only the output rows need for the output rows only",
        required: false,
        after: &["early-dead-code"],
        establishes: |_| (),
        run: hoist_select_outputs::run,
    },
    Pass {
        name: "quantize-activations",
        doc: "quantises what linear layers read, once for all readers",
        required: true,
        after: &["hoist-select-outputs"],
        establishes: |contract| contract.quantized_activations = true,
        run: quantize_activations::run,
    },
    Pass {
        name: "quantize-heads",
        doc: "quantises the queries that attention reads",
        required: true,
        after: &[],
        establishes: |contract| contract.quantized_heads = true,
        run: quantize_heads::run,
    },
    Pass {
        name: "fuse-norm-residual",
        doc: "joins a norm and the addition of its result to a residual",
        required: false,
        after: &["hoist-select-outputs"],
        establishes: |_| (),
        run: fuse_norm_residual::run,
    },
    Pass {
        name: "fuse-residual",
        doc: "joins a linear layer and the addition of its result to a residual",
        required: false,
        after: &["hoist-select-outputs"],
        establishes: |_| (),
        run: fuse_residual::run,
    },
    Pass {
        name: "fuse-norm-quantize",
        doc: "lets a norm quantise its own result",
        required: false,
        after: &["quantize-activations", "fuse-norm-residual"],
        establishes: |_| (),
        run: fuse_norm_quantize::run,
    },
    Pass {
        name: "fuse-gate-quantize",
        doc: "lets a gate quantise its own result",
        required: false,
        after: &["quantize-activations"],
        establishes: |_| (),
        run: fuse_gate_quantize::run,
    },
    Pass {
        name: "fuse-heads",
        doc: "joins norm and RoPE of heads with quantising the query and with writing the cache",
        required: false,
        after: &["quantize-heads"],
        establishes: |_| (),
        run: fuse_heads::run,
    },
    Pass {
        name: "dead-code",
        doc: "removes results and operations that nothing uses",
        required: false,
        after: &["fuse-norm-quantize", "fuse-gate-quantize"],
        establishes: |_| (),
        run: dead_code::run,
    },
];

/// Why passes could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// A name in the options that no pass has.
    #[error("there is no pass `{name}`; passes are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// A required pass switched off.
    #[error("pass `{name}` cannot be switched off: there is no plan without it")]
    Required {
        /// The name.
        name: String,
    },
    /// The table contradicts itself.
    #[error("the pass table is wrong: {reason}; this is a bug of the planner")]
    Table {
        /// What should have held.
        reason: String,
    },
    /// A graph that breaks rules.
    #[error("after {after}: {violations}\nthis is a bug of the planner")]
    Broken {
        /// The pass, or what built the graph.
        after: String,
        /// The rules.
        violations: Violations,
        /// What runs the pass again; none if it was no pass.
        crash: Option<Box<Crash>>,
    },
    /// A pass that did not come to an end.
    #[error("pass `{name}` panicked; this is a bug of the planner")]
    Panicked {
        /// The pass.
        name: String,
        /// What runs it again.
        crash: Option<Box<Crash>>,
    },
}

impl PassError {
    /// What runs the pass again that failed.
    pub fn crash(&self) -> Option<&Crash> {
        match self {
            PassError::Broken { crash, .. } | PassError::Panicked { crash, .. } => crash.as_deref(),
            _ => None,
        }
    }

    fn with_crash(mut self, pass: &Pass, before: &Graph) -> Self {
        if let PassError::Broken { crash, .. } | PassError::Panicked { crash, .. } = &mut self {
            *crash = Some(Box::new(Crash { pass: pass.name.to_owned(), before: before.to_string() }));
        }
        self
    }
}

/// Is told a name and the text of a graph: first `build`, then each pass that changed it.
pub type Dump<'a> = dyn Fn(&str, &str) + 'a;

/// Which passes run, and who watches.
#[derive(Clone, Copy, Default)]
pub struct Schedule<'a> {
    /// Optional passes to leave out; those over launches say nothing here.
    pub off: &'a [String],
    /// The last pass to run.
    pub stop_after: Option<&'a str>,
    /// Who watches.
    pub dump: Option<&'a Dump<'a>>,
}

/// Runs the passes on a graph as built. Returns what the last of them has established.
pub fn run(graph: &mut Graph, schedule: &Schedule<'_>) -> Result<Contract, PassError> {
    check_schedule(schedule)?;
    run_table(PASSES, graph, schedule)
}

fn run_table(passes: &[Pass], graph: &mut Graph, schedule: &Schedule<'_>) -> Result<Contract, PassError> {
    check_table(passes)?;
    let mut contract = Contract::default();
    verify(graph, contract, "building the graph")?;
    dump(graph, schedule, "build");
    for pass in passes {
        if runs(pass, schedule) {
            let before = graph.clone();
            apply(pass, graph, &mut contract).map_err(|error| error.with_crash(pass, &before))?;
            if before != *graph {
                dump(graph, schedule, pass.name);
            }
        }
        if schedule.stop_after == Some(pass.name) {
            break;
        }
    }
    Ok(contract)
}

/// Runs a pass, verifies the graph and numbers its values.
fn apply(pass: &Pass, graph: &mut Graph, contract: &mut Contract) -> Result<(), PassError> {
    // Of a graph that a panic has left half way, nothing is read any more.
    let ended = catch_unwind(AssertUnwindSafe(|| (pass.run)(graph)));
    ended.map_err(|_| PassError::Panicked { name: pass.name.to_owned(), crash: None })?;
    (pass.establishes)(contract);
    verify(graph, *contract, &format!("pass `{}`", pass.name))?;
    graph.renumber();
    Ok(())
}

fn runs(pass: &Pass, schedule: &Schedule<'_>) -> bool {
    !schedule.off.iter().any(|name| name == pass.name)
}

fn verify(graph: &Graph, contract: Contract, after: &str) -> Result<(), PassError> {
    let broken = |violations| PassError::Broken { after: after.to_owned(), violations, crash: None };
    graph.verify(contract).map_err(broken)
}

fn dump(graph: &Graph, schedule: &Schedule<'_>, name: &str) {
    if let Some(dump) = schedule.dump {
        dump(name, &graph.to_string());
    }
}

/// Names are unique, and what a pass comes after stands before it.
pub fn check_table(passes: &[Pass]) -> Result<(), PassError> {
    for (index, pass) in passes.iter().enumerate() {
        let earlier = &passes[..index];
        if earlier.iter().any(|other| other.name == pass.name) {
            return Err(PassError::Table { reason: format!("two passes are called `{}`", pass.name) });
        }
        if let Some(missing) =
            pass.after.iter().find(|name| !earlier.iter().any(|other| other.name == **name))
        {
            let reason =
                format!("`{}` must come after `{missing}`, which does not stand before it", pass.name);
            return Err(PassError::Table { reason });
        }
    }
    Ok(())
}

fn check_schedule(schedule: &Schedule<'_>) -> Result<(), PassError> {
    schedule.off.iter().try_for_each(|name| check_off(name))?;
    schedule.stop_after.map_or(Ok(()), |name| find(name).map(|_| ()))
}

/// Whether a pass of that name exists, over graphs or launches, and can be switched off.
pub fn check_off(name: &str) -> Result<(), PassError> {
    if LAUNCH_PASSES.iter().any(|pass| pass.name == name) {
        return Ok(());
    }
    if find(name)?.required {
        return Err(PassError::Required { name: name.to_owned() });
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Pass, PassError> {
    find_in(PASSES, name)
}

fn find_in<'a>(passes: &'a [Pass], name: &str) -> Result<&'a Pass, PassError> {
    passes.iter().find(|pass| pass.name == name).ok_or_else(|| {
        let of_launches = LAUNCH_PASSES.iter().map(|pass| pass.name);
        let known: Vec<_> = passes.iter().map(|pass| pass.name).chain(of_launches).collect();
        PassError::Unknown { name: name.to_owned(), known: known.join(", ") }
    })
}
