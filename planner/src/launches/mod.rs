//! From a plan to the launches of a GPU: which images, how large the arena, and for each shape of batch the kernels with the
//! places that they run on.
//!
//! Start reading at [`Lowering`]. `images.rs` has what never changes, `arena.rs` where activations lie, `checks.rs` the
//! flags of range contracts, `bind.rs` which place an object of a kernel is, `pick.rs` picks tokens; `switches.rs` lists the passes that make fewer
//! launches: `merge_quantize.rs`, `join.rs`.

mod arena;
mod bind;
mod checks;
mod images;
mod join;
mod limits;
mod merge_quantize;
mod pick;
mod switches;

use std::sync::Arc;

use unisonic_core::kir::abi::{ALIGN_BYTES, addressed};
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::{Kernel, kernel::ObjectId, kernel::Param};
use unisonic_core::launch::inputs::InputLayout;
use unisonic_core::launch::{
    GROUP_PAGES, Hardware, Image, Launch, Launches, Lower, LowerError, Lowered, Memory, Place, Shape, Wanted,
    Workgroups,
};
use unisonic_core::plan::{BufferKind, KvLayer, Limits, Op, PAGE_TOKENS, Plan, Rows};

use crate::kernels::of_plan::{PREFILL_ROWS, PlanTemplates, Template, plan_templates};
use crate::kernels::{Grid, GridKernel, KvLayout, found_flags};
use crate::tune::{Tuning, tuned_kernel};
use arena::{Arena, Part, Region, States, regions};
use bind::Bind;
use checks::{Checks, SEGMENT_WORDS};
use images::Images;
use limits::{FEWER_ROWS, check_len};
use pick::Pick;
pub use switches::{LAUNCH_PASSES, LaunchPass, LaunchPasses};

/// Lowers plans with the templates of [`crate::kernels`].
#[derive(Clone, Debug, Default)]
pub struct Lowering {
    /// Which passes over launches run.
    pub passes: LaunchPasses,
    /// Which forms of kernels were found to be fast on the device.
    pub tuning: Tuning,
}

impl Lower for Lowering {
    fn lower(
        &self,
        plan: Arc<Plan>,
        limits: Limits,
        hardware: Hardware,
    ) -> Result<Box<dyn Lowered>, LowerError> {
        Ok(Box::new(LoweredPlan::new(plan, limits, hardware, self)?))
    }
}

/// A plan, and where everything of it lies.
pub struct LoweredPlan {
    plan: Arc<Plan>,
    hardware: Hardware,
    passes: LaunchPasses,
    tuning: Tuning,
    images: Images,
    arena: Arena,
    checks: Checks,
    memory: Memory,
    /// Number of the image with the table of segments.
    segments: u32,
}

fn error(fault: impl std::fmt::Display) -> LowerError {
    LowerError(fault.to_string())
}

impl LoweredPlan {
    fn new(
        plan: Arc<Plan>,
        limits: Limits,
        hardware: Hardware,
        &Lowering { passes, ref tuning }: &Lowering,
    ) -> Result<Self, LowerError> {
        plan.check().map_err(error)?;
        // Rows that fill a batch up are fewer than its rows, and have pages of their own.
        let spare_pages = limits.max_rows.div_ceil(PAGE_TOKENS).max(1);
        let pages = limits.kv_pages.checked_add(spare_pages).ok_or_else(|| error("too many KV pages"))?;
        let longest_pages = limits.kv_pages.max(spare_pages);
        let positions = longest_pages.checked_mul(PAGE_TOKENS).ok_or_else(|| error("too many positions"))?;
        let groups = longest_pages.div_ceil(GROUP_PAGES);
        let largest =
            Shape { rows: limits.max_rows.max(1), outputs: limits.max_outputs.min(limits.max_rows), groups };

        let mut images = Images::of_plan(&plan, positions)?;
        let mut arena = Arena::of_plan(&plan, largest)?;
        limits::check(&plan, limits, pages, largest)?;
        let templates = |shape| templates(&plan, shape, &hardware, passes);
        arena.add_states(states(&plan, largest, templates)?);
        let checks = checks(&plan, largest, &hardware, templates)?;
        arena.add(Part::Flags, 4 * u64::from(checks.len));
        let table = checks.table();
        let found = (table.len() / SEGMENT_WORDS) as u64 * u64::from(largest.rows);
        check_len("flags", "the range checks of all steps", found, FEWER_ROWS)?;
        arena.add(Part::Found, 4 * found);
        pick::add_parts(&mut arena, plan.vocab_len, largest)?;
        images.add(Image::Words(table));
        let segments = images.list.len() as u32 - 1;
        let page_len_bytes =
            |layer: &KvLayer| 4 * KvLayout { heads: layer.heads, head_len: layer.head_len }.page_len();
        let memory = Memory {
            images: images.list.clone(),
            page_len_bytes: plan.kv_layers.iter().map(page_len_bytes).collect(),
            pages,
            arena_len_bytes: arena.len_bytes,
            // As if tiles were small: room for any.
            inputs_len_bytes: InputLayout {
                shape: largest,
                rows_a_tile: 1,
                values_a_row: values_a_row(&plan),
            }
            .len_bytes()
            .max(ALIGN_BYTES),
            largest,
        };
        let tuning = tuning.clone();
        Ok(Self { plan, hardware, passes, tuning, images, arena, checks, memory, segments })
    }

    /// The launches of a step.
    fn step(
        &self,
        bind: &Bind<'_>,
        kernels: &[GridKernel],
        of_step: &[usize],
    ) -> Result<Vec<Launch>, LowerError> {
        let label = || &self.plan.steps[bind.step as usize].label;
        let of_kernel = |&index: &usize| {
            let GridKernel { kernel, grid, .. } = &kernels[index];
            let lacks = |name: &str| {
                error(format_args!("`{}`: `{}` has no {name} in `{}`", label(), kernel.name, label()))
            };
            let object = |id: ObjectId| {
                let name = &kernel.objects[id.index()].name;
                bind.place(name).ok_or_else(|| lacks(name))
            };
            let param = |param: &Param| bind.param(&param.name).ok_or_else(|| lacks(&param.name));
            let too_many =
                || error(format_args!("`{}`: more than the {} workgroups of a launch", label(), i32::MAX));
            Ok(Launch {
                step: bind.step,
                kernel: index as u32,
                places: addressed(kernel).map(object).collect::<Result<_, LowerError>>()?,
                params: kernel.params.iter().map(param).collect::<Result<_, LowerError>>()?,
                workgroups: bind
                    .grid(*grid)
                    .and_then(|grid| workgroups(grid, bind.rows(), bind.inputs.shape))
                    .ok_or_else(too_many)?,
            })
        };
        of_step.iter().map(of_kernel).collect()
    }

    /// The kernel that looks through the flags and its launch, as kernel number `number`.
    fn found(&self, shape: Shape, number: u32) -> Option<(GridKernel, Launch)> {
        let table = Bind::image(self, self.segments)?;
        let segments = (table.len_bytes / (4 * SEGMENT_WORDS as u64)) as u32;
        let found = self.arena.place(Part::Found)?;
        let found = Place { len_bytes: 4 * u64::from(segments) * u64::from(shape.rows), ..found };
        let template = found_flags(segments, shape.rows);
        let launch = Launch {
            step: self.last_step(),
            kernel: number,
            places: vec![self.arena.place(Part::Flags)?, table, found],
            params: vec![segments, shape.rows, shape.outputs],
            workgroups: workgroups(template.grid, Rows::All, shape)?,
        };
        Some((template, launch))
    }

    fn last_step(&self) -> u32 {
        self.plan.steps.len().saturating_sub(1) as u32
    }
}

impl Lowered for LoweredPlan {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn page_bytes(&self, layer: usize) -> Option<Vec<u32>> {
        let layer = self.plan.kv_layers.get(layer)?;
        Some(KvLayout { heads: layer.heads, head_len: layer.head_len }.bytes())
    }

    fn launches(&self, shape: Shape, wanted: Wanted) -> Result<Launches, LowerError> {
        if !self.memory.largest.holds(shape) || shape.rows == 0 || shape.groups == 0 {
            return Err(error(format_args!("{shape:?} is not within {:?}", self.memory.largest)));
        }
        let PlanTemplates { templates, of_step } = templates(&self.plan, shape, &self.hardware, self.passes)?;
        let table = self.tuning.table();
        let kernels: Vec<GridKernel> =
            templates.iter().map(|template| tuned_kernel(template, &table, &self.hardware)).collect();
        let rows_a_tile = templates.iter().filter_map(Template::rows_a_tile).min();
        let values_a_row = values_a_row(&self.plan);
        let inputs = InputLayout { shape, rows_a_tile: rows_a_tile.unwrap_or(0), values_a_row };
        let mut launches = vec![];
        for (number, (step, of_step)) in self.plan.steps.iter().zip(&of_step).enumerate() {
            let bind = Bind { lowered: self, inputs, step: number as u32, op: &step.op };
            launches.extend(self.step(&bind, &kernels, of_step)?);
        }
        let mut kernels: Vec<Kernel> = kernels.into_iter().map(|kernel| kernel.kernel).collect();
        let found = self.found(shape, kernels.len() as u32);
        let found = found.ok_or_else(|| error("there is no place for flags"))?;
        let (found_place, segments) = (found.1.places[2], found.1.params[0]);
        let mut added = vec![found];
        let (mut logits, mut picked) = (self.logits(shape)?, None);
        if let Some(logits) = logits.take_if(|_| wanted == Wanted::Tokens) {
            let (vocab_len, step, found) = (self.plan.vocab_len, self.last_step(), found_place);
            let pick = Pick { arena: &self.arena, inputs, vocab_len, step, logits, found, segments };
            let of_pick = pick.launches(kernels.len() as u32 + 1);
            let (of_pick, places) = of_pick.ok_or_else(|| error("there is no place for tokens"))?;
            added.extend(of_pick);
            picked = Some(places);
        }
        for (template, launch) in added {
            kernels.push(legalize(&template.kernel, &self.hardware.caps));
            launches.push(launch);
        }
        if self.tuning.is_watched() {
            let template = |launch: &Launch| templates.get(launch.kernel as usize).copied();
            self.tuning.set_watched(launches.iter().filter_map(template).collect());
        } else if self.passes.join {
            join::join_launches(&mut kernels, &mut launches, &self.hardware);
        }
        Ok(Launches {
            kernels,
            launches,
            inputs,
            logits,
            picked,
            found: found_place,
            checked: self.checks.checked(),
        })
    }
}

impl LoweredPlan {
    fn logits(&self, shape: Shape) -> Result<Option<Place>, LowerError> {
        if shape.outputs == 0 {
            return Ok(None);
        }
        let place = self.arena.place(Part::Region(self.plan.logits, Region::Values));
        let of_shape =
            regions(self.plan.buffers[self.plan.logits.index()].kind, shape.outputs).map_err(error)?;
        let len_bytes = of_shape.first().map_or(0, |(_, len_bytes)| *len_bytes);
        place
            .map(|place| Some(Place { len_bytes, ..place }))
            .ok_or_else(|| error("there is no place for logits"))
    }
}

/// Values that the host gives for a row.
fn values_a_row(plan: &Plan) -> u32 {
    plan.input.map_or(0, |input| plan.row_width(input) as u32)
}

/// The templates of a plan for a shape.
fn templates(
    plan: &Plan,
    shape: Shape,
    hardware: &Hardware,
    passes: LaunchPasses,
) -> Result<PlanTemplates, LowerError> {
    let mut found = plan_templates(plan, shape, hardware).map_err(error)?;
    if passes.merge_quantize {
        merge_quantize::quantize_in_merge(plan, &mut found);
    }
    Ok(found)
}

/// Workgroups of a grid; none if there are more than 2^31 - 1.
fn workgroups(grid: Grid, rows: Rows, shape: Shape) -> Option<Workgroups> {
    let count = shape.count(rows);
    let fixed =
        |count: Option<u32>| count.filter(|&count| i32::try_from(count).is_ok()).map(Workgroups::Fixed);
    match grid {
        Grid::Rows(each) => fixed(each.checked_mul(count)),
        Grid::Fixed(all) => fixed(Some(all)),
        Grid::RowGroups(each) => fixed(each.checked_mul(count).and_then(|all| all.checked_mul(shape.groups))),
        // There are at most as many tiles as rows.
        Grid::Tiles(each) => fixed(each.checked_mul(count)).map(|_| Workgroups::PerTile(rows, each)),
    }
}

/// The states that the largest shapes need which make some.
fn states(
    plan: &Plan,
    largest: Shape,
    templates: impl Fn(Shape) -> Result<PlanTemplates, LowerError>,
) -> Result<States, LowerError> {
    let few = Shape { rows: largest.rows.min(PREFILL_ROWS - 1), ..largest };
    let few = Shape { outputs: few.outputs.min(few.rows), ..few };
    let mut states = States::default();
    for shape in [largest, few] {
        let PlanTemplates { templates, of_step } = templates(shape)?;
        for (step, of_step) in plan.steps.iter().zip(of_step) {
            let decodes =
                of_step.iter().any(|&index| matches!(templates[index], Template::AttentionDecode(..)));
            if let (Op::Attention { q, layer, .. }, true) = (&step.op, decodes) {
                let BufferKind::Q16 { heads, .. } = plan.buffers[q.index()].kind else {
                    continue;
                };
                let rows = shape.count(plan.rows_of(&step.op));
                let count = u64::from(rows) * u64::from(heads) * u64::from(shape.groups);
                let head_len = plan.kv_layers[layer.index()].head_len;
                let values = count.saturating_mul(u64::from(head_len));
                let remedy = "run with fewer KV pages or fewer rows a batch";
                check_len(&step.label, "the outputs of all groups of positions", values, remedy)?;
                states = states.max(States { count, values });
            }
        }
    }
    Ok(states)
}

/// The flags of the steps, whose number a row is the same for all shapes.
fn checks(
    plan: &Plan,
    largest: Shape,
    hardware: &Hardware,
    templates: impl Fn(Shape) -> Result<PlanTemplates, LowerError>,
) -> Result<Checks, LowerError> {
    let one = Shape { rows: 1, outputs: largest.outputs.min(1), groups: 1 };
    let PlanTemplates { templates, of_step } = templates(one)?;
    let words: Vec<u32> = templates.iter().map(|template| template.kernel(hardware).flags_a_row).collect();
    let mut checks = Checks::default();
    for ((number, step), of_step) in (0..).zip(&plan.steps).zip(of_step) {
        let rows = plan.rows_of(&step.op);
        for words in of_step.iter().map(|&index| words[index]).filter(|&words| words > 0) {
            let words = words.saturating_mul(plan.slots_of(&step.op));
            let added = checks.add(number, rows, largest.count(rows), words);
            let what = "the flags of range contracts up to this step";
            added.or_else(|len| check_len(&step.label, what, len, FEWER_ROWS))?;
        }
    }
    Ok(checks)
}

#[cfg(test)]
mod tests;
