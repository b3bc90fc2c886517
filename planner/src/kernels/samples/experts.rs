//! Samples of mixtures of experts.

use unisonic_core::numerics::moe;
use unisonic_core::plan::Denominator;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::region::Regions;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};

use super::super::linear::{ExpertLinear, expert_linear};
use super::super::{Route, add_shared, route, sum_experts};
use super::buffers::Buffers;
use super::data::{bytes, hard_rows, random, rows, word_bytes};
use super::linear::Matrix;
use super::planes::{A16Rows, a16_form};
use super::rows::row_sample;
use super::{DEVICES, Extent, Sample};

/// Experts, and how many are chosen: as in models, all of them, one of one, more than a workgroup has invocations.
const EXPERTS: [(usize, usize); 6] = [(8, 2), (4, 4), (1, 1), (60, 4), (128, 8), (300, 3)];
const WIDTHS: [usize; 6] = [256, 16, 30, 576, 255, 1027];
const ROWS: [usize; 3] = [1, 3, 5];

/// Samples of [`route`]: among the experts are some with equal scores, and a row for which all scores are.
pub fn route_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const DENOMINATORS: [Denominator; 2] = [Denominator::Chosen, Denominator::All];
    let sizes = [EXPERTS.len(), WIDTHS.len(), ROWS.len(), DENOMINATORS.len(), DEVICES.len()];
    Box::new(extent.combinations(sizes).into_iter().map(|[experts, width, count, denominator, device]| {
        let ((experts, chosen), width, count) = (EXPERTS[experts], WIDTHS[width], ROWS[count]);
        let denominator = DENOMINATORS[denominator];
        let mut x = hard_rows(count, width, 1);
        // Scores that differ by little, so that no weight is lost.
        x[..width].iter_mut().for_each(|x| *x *= 1e-4);
        let mut router = rows(experts, width, 2);
        if experts > 2 {
            let (first, last) = router.split_at_mut((experts - 1) * width);
            last.copy_from_slice(&first[width..2 * width]);
        }
        let of_row = |x: &[f32]| {
            let z: Vec<f32> = router.chunks(width).map(|weight| moe::router_dot(x, weight)).collect();
            routes(&moe::route(&z, chosen, denominator, None))
        };
        let out: Vec<f32> = x.chunks(width).flat_map(of_row).collect();
        let buffers = Buffers::default().read(bytes(&x)).read(bytes(&router)).write(bytes(&out));
        let of = Route { width: width as u32, experts: experts as u32, chosen: chosen as u32, denominator };
        row_sample(route(of), format!("{of:?}"), count, buffers, device)
    }))
}

/// Numbers, then weights.
fn routes(routing: &moe::Routing) -> Vec<f32> {
    let numbers = routing.experts.iter().map(|&expert| expert as f32);
    numbers.chain(routing.weights.iter().copied()).collect()
}

/// Routes of `count` rows to experts below `experts`, at random.
fn some_routes(count: usize, experts: usize, slots: usize, seed: u64) -> Vec<f32> {
    let mut next = random(seed);
    let mut of_row = || {
        let numbers: Vec<f32> = (0..slots).map(|_| ((next() >> 33) as usize % experts) as f32).collect();
        let weights = rows(1, slots, next());
        [numbers, weights].concat()
    };
    (0..count).flat_map(|_| of_row()).collect()
}

/// Samples of [`expert_linear`].
pub fn expert_linear_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    /// Values of a result, elements of a row in superblocks.
    const SHAPES: [(usize, usize); 3] = [(64, 1), (16, 3), (80, 2)];
    const SLOTS: [usize; 3] = [2, 1, 3];
    let formats = WeightFormat::ALL;
    let sizes = [formats.len(), SHAPES.len(), SLOTS.len(), ROWS.len(), 2, DEVICES.len()];
    Box::new(extent.combinations(sizes).into_iter().map(move |choice| {
        let [format, shape, slots, count, x_has_slots, device] = choice;
        let (format, (out_width, superblocks), slots) = (formats[format], SHAPES[shape], SLOTS[slots]);
        let (count, x_has_slots, experts, width) = (ROWS[count], x_has_slots == 1, 3, 256 * superblocks);
        let of_x = if x_has_slots { count * slots } else { count };
        let layouts = WeightLayout::new(format, experts * out_width, width)
            .and_then(|weights| Ok((weights, ActivationLayout::new(of_x, width)?)));
        let (weights, layout) = layouts.unwrap_or_else(|error| panic!("samples are small: {error}"));
        let of =
            ExpertLinear { weights, x: layout, width: out_width as u32, slots: slots as u32, x_has_slots };
        let matrix = Matrix::new(weights);
        let x = A16Rows::new(&hard_rows(of_x, width, of_x as u64), width);
        let routes = some_routes(count, experts, slots, 4);
        let x_rows = x.rows();
        let of_slot = |row: usize| {
            let expert = routes[row / slots * 2 * slots + row % slots] as usize;
            let x = &x_rows[if x_has_slots { row } else { row / slots }];
            (0..out_width).map(|n| matrix.times(expert * out_width + n, x, None)).collect::<Vec<_>>()
        };
        let out: Vec<f32> = (0..count * slots).flat_map(of_slot).collect();
        let form = a16_form(of_x, width, Regions::read_by(&[format]));
        let buffers = Buffers::default()
            .read(word_bytes(matrix.words()))
            .read_all(x.regions(form))
            .read(bytes(&routes))
            .write(bytes(&out));
        let what = format!("{format}, {of:?}");
        row_sample(expert_linear(of), what, count * slots, buffers, device)
    }))
}

/// Samples of [`sum_experts`].
pub fn sum_experts_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const SLOTS: [usize; 4] = [2, 1, 3, 8];
    let choices = extent.combinations([WIDTHS.len(), SLOTS.len(), ROWS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, slots, count, device]| {
        let (width, slots, count) = (WIDTHS[width], SLOTS[slots], ROWS[count]);
        let x = hard_rows(count * slots, width, 1);
        let routes = some_routes(count, 8, slots, 2);
        let of_row = |(x, routes): (&[f32], &[f32])| {
            let mut y = vec![0.0; width];
            for (x, &weight) in x.chunks(width).zip(&routes[slots..]) {
                moe::add_expert(&mut y, weight, x);
            }
            y
        };
        let out: Vec<f32> = x.chunks(slots * width).zip(routes.chunks(2 * slots)).flat_map(of_row).collect();
        let buffers = Buffers::default().read(bytes(&x)).read(bytes(&routes)).write(bytes(&out));
        let what = format!("{width}, {slots} slots");
        row_sample(sum_experts(width as u32, slots as u32), what, count, buffers, device)
    }))
}

/// Samples of [`add_shared`].
pub fn add_shared_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let choices = extent.combinations([WIDTHS.len(), WIDTHS.len(), ROWS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[x_width, width, count, device]| {
        let (x_width, width, count) = (WIDTHS[x_width], WIDTHS[width], ROWS[count]);
        let mut x = hard_rows(count, x_width, 1);
        x.iter_mut().for_each(|x| *x *= 1e-3);
        let gate = rows(1, x_width, 2);
        let (a, b) = (hard_rows(count, width, 3), hard_rows(count, width, 4));
        let mut out = a.clone();
        for ((y, x), b) in out.chunks_mut(width).zip(x.chunks(x_width)).zip(b.chunks(width)) {
            moe::add_shared_expert(y, moe::router_dot(x, &gate), b);
        }
        let buffers = Buffers::default().read_all([bytes(&x), bytes(&gate), bytes(&a), bytes(&b)]);
        let template = add_shared(x_width as u32, width as u32);
        row_sample(template, format!("{x_width} and {width}"), count, buffers.write(bytes(&out)), device)
    }))
}
