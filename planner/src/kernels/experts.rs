//! Mixtures of experts: which experts a row takes, and the sum of what they make (`core::numerics::moe`).
//!
//! Routes are rows of f32: the numbers of the chosen experts, ascending and as exact floats, then their weights.

use unisonic_core::kir::build::{Build, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::float::{LOG2E, pow2};
use unisonic_core::plan::Denominator;

use super::elementary::{exp2, is_below, ord, recip, rne, sigmoid, snap};
use super::reduce::{CLUSTER, cluster_tree256, lane_sum, tree256};
use super::rowwise::{elementwise, vector_len};
use super::{GridKernel, ROW_LANES};

/// What a router does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Values of a row.
    pub width: u32,
    /// How many experts there are, at most 1024.
    pub experts: u32,
    /// How many of them a row takes.
    pub chosen: u32,
    /// Which weights add up to 1.
    pub denominator: Denominator,
}

/// Clusters of a workgroup that works on rows.
const CLUSTERS: u32 = ROW_LANES / CLUSTER;

/// Scores all experts, chooses the best and weighs them (`core::numerics::moe::{router_dot, route}`), one workgroup a row.
///
/// Buffers: `x`, rows of `width` f32; `router`, a row an expert; `out`, routes. Reads the router once a row; per element and
/// expert three operations, and per pair of experts two comparisons.
pub fn route(of: Route) -> GridKernel {
    let kernel: Kernel = kernel("route", ROW_LANES, |k| {
        let Route { width, experts, chosen, denominator } = of;
        let (x, router) = (k.read("x", Scalar::F32), k.read("router", Scalar::F32));
        let out = k.write("out", Scalar::F32);
        let scores = k.shared("scores", Scalar::F32, experts);
        let ranks = k.shared("ranks", Scalar::U32, experts);
        let best = k.shared("best", Scalar::F32, 1);
        let weights = k.shared("weights", Scalar::F32, chosen);
        let scratch = (denominator == Denominator::All).then(|| k.shared("scratch", Scalar::F32, ROW_LANES));
        let (row, lane) = (k.group_id(), k.local_id());
        let (cluster, first) = (lane / CLUSTER, row * width);

        // Every cluster goes through as many turns; past the last expert it is the last once more, not stored.
        k.each(k.u32(0), k.u32(experts), CLUSTERS, |turn| {
            let expert = turn + cluster;
            let from = expert.min(k.u32(experts - 1)) * width;
            let score = cluster_tree256(k, width, |column| {
                snap(k, x.load(first + column) * router.load(from + column))
            });
            let is_mine = expert.lt(k.u32(experts)) & (lane & (CLUSTER - 1)).eq(k.u32(0));
            k.when(is_mine, || scores.store(expert, score));
        });
        k.barrier();

        // Of each expert, how many come before it: those with a higher score, and equal ones with a lower number.
        let mine: Vec<Expert<'_>> =
            (0..experts.div_ceil(ROW_LANES)).map(|turn| Expert::new(k, of, turn)).collect();
        for expert in &mine {
            let score = ord(scores.load(expert.at));
            let rank = count(k, experts, |other| {
                let of_other = ord(scores.load(other));
                score.lt(of_other) | (of_other.eq(score) & other.lt(expert.at))
            });
            k.when(expert.exists, || ranks.store(expert.at, rank));
            k.when(expert.exists & rank.eq(k.u32(0)), || best.store(k.u32(0), scores.load(expert.at)));
        }
        k.barrier();

        let best = best.load(k.u32(0));
        let mut of_lane = k.f32(0.0);
        let weighed: Vec<_> = mine
            .iter()
            .map(|expert| {
                let weight = exp2(k, (scores.load(expert.at) - best) * k.f32(LOG2E));
                let weight = is_below(k, weight, pow2(-32)).select(k.f32(0.0), weight);
                of_lane = of_lane + expert.exists.select(weight, k.f32(0.0));
                let is_chosen = expert.exists & ranks.load(expert.at).lt(k.u32(chosen));
                let slot =
                    count(k, experts, |other| ranks.load(other).lt(k.u32(chosen)) & other.lt(expert.at));
                k.when(is_chosen, || weights.store(slot, weight));
                (expert, weight, slot, is_chosen)
            })
            .collect();
        let denominator = match scratch {
            Some(scratch) => tree256(k, scratch, of_lane),
            None => {
                k.barrier();
                let slots = [k.u32(0), k.u32(chosen)];
                let [sum] =
                    k.fold(slots[0], slots[1], 1, [k.f32(0.0)], |slot, [sum]| [sum + weights.load(slot)]);
                sum
            }
        };
        let inverse = recip(k, denominator);
        for (expert, weight, slot, is_chosen) in weighed {
            k.when(is_chosen, || {
                let at = row * (2 * chosen) + slot;
                out.store(at, expert.at.cast(Scalar::I32).to_f32());
                out.store(at + chosen, weight * inverse);
            });
        }
    });
    GridKernel::rows(kernel, 1)
}

/// An expert that an invocation has.
struct Expert<'k> {
    /// Its number; past the last, the last.
    at: V<'k>,
    exists: V<'k>,
}

impl<'k> Expert<'k> {
    fn new(k: &'k Build, of: Route, turn: u32) -> Self {
        let number = k.local_id() + turn * ROW_LANES;
        Self { at: number.min(k.u32(of.experts - 1)), exists: number.lt(k.u32(of.experts)) }
    }
}

/// For how many of the experts something holds.
fn count<'k>(k: &'k Build, experts: u32, holds: impl Fn(V<'k>) -> V<'k>) -> V<'k> {
    let add = |other, [sum]: [V<'k>; 1]| [sum + holds(other).select(k.u32(1), k.u32(0))];
    let [sum] = k.fold(k.u32(0), k.u32(experts), 1, [k.u32(0)], add);
    sum
}

/// The number of a chosen expert in its row's routes, at most `last`.
pub fn expert_number<'k>(k: &'k Build, route: V<'k>, last: u32) -> V<'k> {
    rne(k, route).cast(Scalar::U32).min(k.u32(last))
}

/// A value in as many words as a vector has.
fn wide<'k>(k: &'k Build, value: V<'k>, vector: u8) -> V<'k> {
    match vector {
        4 => k.vector([value; 4]),
        2 => k.vector([value; 2]),
        _ => value,
    }
}

/// `y = +0; y = y + snap(w_j*o_j)` over the slots j of a row (`core::numerics::moe::add_expert`).
///
/// Buffers: `x`, rows of `width` f32, `slots` for each row of the batch; `routes`; `out`, rows of `width`. Reads 4 bytes an
/// element and slot and writes 4 an element; three operations an element and slot.
pub fn sum_experts(width: u32, slots: u32) -> GridKernel {
    elementwise("sum_experts", width, |k| {
        let (x, routes) = (k.read("x", Scalar::F32), k.read("routes", Scalar::F32));
        let out = k.write("out", Scalar::F32);
        Box::new(move |at| {
            let zero = wide(k, k.f32(0.0), at.vector);
            let [sum] = k.fold(k.u32(0), k.u32(slots), 1, [zero], |slot, [sum]| {
                let weight = routes.load(at.row * (2 * slots) + slot + slots);
                let output = x.load_vector((at.row * slots + slot) * width + at.column, at.vector);
                [sum + snap(k, wide(k, weight, at.vector) * output)]
            });
            out.store(at.row * width + at.column, sum);
        })
    })
}

/// `out = a + snap(sigmoid(g)*b)`, g the dot product of x and the gate (`core::numerics::moe::{router_dot,
/// add_shared_expert}`), one workgroup a row.
///
/// Buffers: `x`, rows of `x_width` f32; `gate`, one row; `a`, `b` and `out`, rows of `width`. Reads 8 bytes an element of x, the
/// gate from a cache, and 8 of the result, and writes 4.
pub fn add_shared(x_width: u32, width: u32) -> GridKernel {
    let kernel: Kernel = kernel("add_shared", ROW_LANES, |k| {
        let [x, gate, a, b] = ["x", "gate", "a", "b"].map(|name| k.read(name, Scalar::F32));
        let out = k.write("out", Scalar::F32);
        let scratch = k.shared("scratch", Scalar::F32, ROW_LANES);
        let (row, lane) = (k.group_id(), k.local_id());
        let product = |column| snap(k, x.load(row * x_width + column) * gate.load(column));
        let score = tree256(k, scratch, lane_sum(k, x_width, product, |x| x));
        let vector = vector_len(width);
        let weight = wide(k, sigmoid(k, score), vector);
        let part_len = ROW_LANES * u32::from(vector);
        k.each(k.u32(0), k.u32(width), part_len, |first| {
            let column = first + lane * u32::from(vector);
            k.when(column.lt(k.u32(width)), || {
                let at = row * width + column;
                let scaled = snap(k, weight * b.load_vector(at, vector));
                out.store(at, a.load_vector(at, vector) + scaled);
            });
        });
    });
    GridKernel::rows(kernel, 1)
}
