//! Known answers of profile u1 (`tests/data/vectors`, described by its README), every file and every field, bit for bit.
//!
//! Each check runs twice: with subnormals kept, and in a thread that flushes them to zero.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod a16;
mod attention;
mod elementary;
mod json;
mod linear;
mod moe;
mod norm;
mod rope;
mod sampling;
mod w16;

#[path = "../support/attention_input.rs"]
mod attention_input;
#[path = "../support/float_state.rs"]
mod float_state;
#[path = "../support/generator.rs"]
mod generator;

macro_rules! checks {
    ($($name:ident: $check:path;)*) => {
        mod subnormals_kept {
            $(#[test] fn $name() { $check(); })*
        }
        mod subnormals_flushed {
            $(#[test] fn $name() { crate::float_state::with_flush_to_zero(|| $check()); })*
        }
    };
}

checks! {
    constants: crate::elementary::constants;
    i2f: crate::elementary::i2f_samples;
    elementary_sweeps: crate::elementary::sweeps;
    a16: crate::a16::cases;
    linear: crate::linear::all_formats;
    w16: crate::w16::cases;
    norms: crate::norm::norms;
    gates: crate::norm::gates;
    tree256: crate::norm::trees;
    rope_tables: crate::rope::tables;
    rope_rotation: crate::rope::rotations;
    fwht: crate::attention::transforms;
    attention: crate::attention::cases;
    router_dot: crate::moe::router_dots;
    moe: crate::moe::cases;
    philox: crate::sampling::philox;
    gumbel: crate::sampling::gumbels;
    sampling: crate::sampling::draws;
}
