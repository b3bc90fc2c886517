//! The arithmetic of profile u1: a scalar, readable specification that every backend reproduces bit for bit.
//!
//! # Ground rules
//!
//! - Every `+ - *` on floats is one IEEE binary32 operation, rounded to nearest even: never fused, never
//!   reordered. There is no fma, division, square root, float minimum or maximum, and no library function.
//! - Long sums are sums of integers. Every one fits i32 by a stated bound, so any order, tiling or matrix
//!   unit gives the same value.
//! - The few float sums have one fixed order per output element: [`float::tree256`], or a chain that the text
//!   names.
//! - Floats are compared as integers: by pattern ([`float::abs_bits`]) or by [`float::ord`].
//! - A row never depends on its neighbours. Quantisers answer whether their row kept the range contract
//!   ([`range`]); a row that did not has no meaning, and nothing else is touched by it.
//! - Values so small that hardware might flush them to zero are made zero first ([`float::snap`]).
//!
//! `docs/numerics.md` is the normative text. It names for every formula the function here and the test that
//! holds it.
//!
//! # Where to start
//!
//! [`float`] and [`elementary`] are the alphabet. Then follow a row through a layer: [`embedding`], [`norm`],
//! [`a16`] (quantise an activation), [`linear`] (blocks) and [`w16`] (float matrices), [`rope`], [`kv`],
//! [`attention`], [`activation`], [`moe`]; at the end [`sampling_chain`] and
//! [`probability`]. [`exact_v`] is a diagnostic and not part of u1.

pub mod a16;
pub mod activation;
pub mod attention;
pub mod elementary;
pub mod embedding;
pub mod exact_v;
pub mod filters;
pub mod float;
pub mod fwht;
pub mod integer;
pub mod kv;
pub mod linear;
pub mod merge;
pub mod moe;
pub mod norm;
pub mod penalties;
pub mod philox;
pub mod probability;
pub mod range;
pub mod rope;
pub mod sampling;
pub mod sampling_chain;
pub mod w16;
