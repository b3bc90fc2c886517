//! The kernels of a plan: which templates its steps need, for a number of rows.
//!
//! Steps that differ only in their weights share a kernel, so a model of 28 layers has some twenty. Start
//! reading at [`plan_templates`].

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::legal::legalize;
use unisonic_core::launch::{Hardware, Shape};
use unisonic_core::plan::{
    self, BufferId, BufferKind, Encoding, FloatSource, KvLayerId, Op, Plan, RopeTableId, Step, WeightId,
};
use unisonic_core::planes::LayoutError;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::region::Regions;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};

use super::attention::{
    Attention, DecodeShape, MergeShape, MergedRows, PrefillShape, attention_decode, attention_merge,
    attention_prefill,
};
use super::fit::misfit;
use super::grid::GridKernel;
use super::heads::MAX_HEAD_LEN;
use super::linear::{Epilogue, ExpertLinear, Residual, expert_linear, linear};
use super::{
    A16Form, Gate, HeadNorm, HeadShape, KvLayout, LayerNorm, Lookup, Outputs, PrepareQuery, RmsNorm, Rope,
    Route, SuperblockShape, WriteKv, add, add_shared, embed_blocks, embed_floats, gate, gelu, head_norm,
    layer_norm, prepare_query, quantize_a16, rms_norm, rope, route, scale, select_rows, soft_cap,
    sum_experts, write_kv,
};

/// A template with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Template {
    /// [`embed_blocks`]: format, width, which row.
    EmbedBlocks(BlockFormat, u32, Lookup),
    /// [`embed_floats`]: source, width, which row.
    EmbedFloats(FloatSource, u32, Lookup),
    /// [`layer_norm`].
    LayerNorm(LayerNorm),
    /// [`rms_norm`].
    RmsNorm(RmsNorm),
    /// [`quantize_a16`].
    Quantize(A16Form),
    /// [`linear`].
    Linear(WeightLayout, ActivationLayout, Epilogue),
    /// [`head_norm`].
    HeadNorm(HeadNorm),
    /// [`rope`]: heads, values a head.
    Rope(u32, u32, Rope),
    /// [`prepare_query`].
    PrepareQuery(PrepareQuery),
    /// [`write_kv`].
    WriteKv(WriteKv),
    /// [`attention_decode`]: rows times groups.
    AttentionDecode(Attention, u32),
    /// [`attention_merge`].
    AttentionMerge(Attention, Outputs, MergeShape),
    /// [`attention_prefill`]: its shape says how many rows a tile has.
    AttentionPrefill(Attention, PrefillShape),
    /// [`gate`].
    Gate(Gate),
    /// [`gelu`]: width.
    Gelu(u32, Outputs),
    /// [`route`].
    Route(Route),
    /// [`expert_linear`].
    ExpertLinear(ExpertLinear),
    /// [`sum_experts`]: width, slots.
    SumExperts(u32, u32),
    /// [`add_shared`]: width of what the gate reads, width.
    AddShared(u32, u32),
    /// [`add`]: width.
    Add(u32),
    /// [`scale`]: width.
    Scale(u32),
    /// [`select_rows`]: width.
    SelectRows(u32),
    /// [`soft_cap`]: width, bound.
    SoftCap(u32, f32),
}

/// Rows from which many rows of a sequence attend together.
pub const PREFILL_ROWS: u32 = 17;

impl Template {
    /// The kernel for a device, legal there, with the tuning that was measured to be good.
    pub fn kernel(&self, hardware: &Hardware) -> GridKernel {
        let template = self.tuned(hardware);
        let kernel = legalize(&template.kernel, &hardware.caps);
        debug_assert_eq!(misfit(&kernel, hardware), None, "{self:?}, {hardware:?}");
        GridKernel { kernel, ..template }
    }

    /// Most rows of a tile, for a kernel that takes tiles.
    pub fn rows_a_tile(&self) -> Option<u32> {
        match *self {
            Template::AttentionPrefill(attention, shape) => Some(shape.rows_a_tile(attention)),
            _ => None,
        }
    }

    fn tuned(&self, hardware: &Hardware) -> GridKernel {
        let (of_heads, of_superblocks) = (HeadShape::default(), SuperblockShape::default());
        match *self {
            Template::EmbedBlocks(format, width, of) => embed_blocks(format, width, of),
            Template::EmbedFloats(source, width, of) => embed_floats(source, width, of),
            Template::LayerNorm(norm) => layer_norm(norm),
            Template::Route(of) => route(of),
            Template::ExpertLinear(of) => expert_linear(of),
            Template::SumExperts(width, slots) => sum_experts(width, slots),
            Template::AddShared(x_width, width) => add_shared(x_width, width),
            Template::Gelu(width, outputs) => gelu(width, outputs, of_superblocks),
            Template::RmsNorm(norm) => rms_norm(norm),
            Template::Quantize(form) => quantize_a16(form, of_superblocks),
            Template::Linear(weights, x, epilogue) => linear(weights, x, epilogue, hardware),
            Template::HeadNorm(norm) => head_norm(norm, of_heads),
            Template::Rope(heads, head_len, of) => rope(heads, head_len, of, of_heads),
            Template::PrepareQuery(query) => prepare_query(query, of_heads),
            Template::WriteKv(write) => write_kv(write, of_heads),
            Template::AttentionDecode(attention, states) => {
                attention_decode(attention, DecodeShape::new(attention, states, hardware))
            }
            Template::AttentionMerge(attention, outputs, shape) => attention_merge(attention, outputs, shape),
            Template::AttentionPrefill(attention, shape) => attention_prefill(attention, shape),
            Template::Gate(of) => gate(of, of_superblocks),
            Template::Add(width) => add(width),
            Template::Scale(width) => scale(width),
            Template::SelectRows(width) => select_rows(width),
            Template::SoftCap(width, cap) => soft_cap(width, cap),
        }
    }
}

/// Kernels of a plan for batches of a number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanTemplates {
    /// Each once, in the order of first use.
    pub templates: Vec<Template>,
    /// For each step, the templates that run one after the other, as indices.
    pub of_step: Vec<Vec<usize>>,
}

impl PlanTemplates {
    /// The index of a template, which is added if it is new.
    pub fn number(&mut self, template: Template) -> usize {
        let known = self.templates.iter().position(|other| *other == template);
        known.unwrap_or_else(|| {
            self.templates.push(template);
            self.templates.len() - 1
        })
    }

    /// Leaves the templates of steps, in the order of first use.
    pub fn drop_unused(&mut self) {
        let all = std::mem::take(&mut self.templates);
        let mut of_step = std::mem::take(&mut self.of_step);
        for number in of_step.iter_mut().flatten() {
            *number = self.number(all[*number]);
        }
        self.of_step = of_step;
    }
}

/// The templates that a plan needs for batches of a shape on a device; none for steps that compute no rows.
pub fn plan_templates(
    plan: &Plan,
    shape: Shape,
    hardware: &Hardware,
) -> Result<PlanTemplates, TemplateError> {
    let mut found = PlanTemplates { templates: vec![], of_step: vec![] };
    for (number, step) in plan.steps.iter().enumerate() {
        if shape.count(plan.rows_of(&step.op)) == 0 {
            found.of_step.push(vec![]);
            continue;
        }
        let reader = Reader { plan, shape, hardware, later: &plan.steps[number + 1..], label: &step.label };
        let of_step = reader.templates(&step.op)?;
        let of_step = of_step.into_iter().map(|template| found.number(template)).collect();
        found.of_step.push(of_step);
    }
    Ok(found)
}

/// How a GPU holds a matrix of a plan.
pub fn weight_layout(plan: &Plan, weight: WeightId) -> Result<WeightLayout, LayoutError> {
    let of_plan = &plan.weights[weight.index()];
    WeightLayout::new(weight_format(plan, weight), of_plan.rows as usize, of_plan.cols as usize)
}

/// The format of a matrix of a plan on a GPU.
fn weight_format(plan: &Plan, weight: WeightId) -> WeightFormat {
    match plan.weights[weight.index()].encoding {
        Encoding::Block(format) => WeightFormat::Block(format),
        Encoding::W16(_) | Encoding::F32(_) | Encoding::Router(_) => WeightFormat::W16,
    }
}

/// The regions of an A16 buffer that some steps of a plan read.
pub fn regions_read<'a>(plan: &Plan, buffer: BufferId, steps: impl Iterator<Item = &'a Step>) -> Regions {
    steps.fold(Regions::LEAST, |regions, step| match step.op {
        Op::Linear { x, weight, .. } | Op::ExpertLinear { x, weight, .. } if x == buffer => {
            regions.and_read_by(weight_format(plan, weight))
        }
        _ => regions,
    })
}

/// Why there are no kernels for a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A matrix or rows that have no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Experts that no kernel takes.
    #[error("`{label}`: experts with results of {width} values; kernels take multiples of 16")]
    ExpertLen {
        /// The step.
        label: String,
        /// Values of a result.
        width: u32,
    },
    /// Heads that no kernel takes.
    #[error("`{label}`: heads of {head_len} values; kernels take multiples of 16 up to {MAX_HEAD_LEN}")]
    HeadLen {
        /// The step.
        label: String,
        /// Values a head.
        head_len: u32,
    },
}

/// Reads a step.
struct Reader<'a> {
    plan: &'a Plan,
    shape: Shape,
    hardware: &'a Hardware,
    /// The steps after it.
    later: &'a [Step],
    label: &'a str,
}

impl Reader<'_> {
    fn templates(&self, op: &Op) -> Result<Vec<Template>, TemplateError> {
        Ok(vec![match *op {
            Op::Embed { table, scale, out } => self.embed(table, out, Lookup::Token(scale)),
            Op::EmbedPositions { table, out } => {
                let last = self.plan.weights[table.index()].rows.saturating_sub(1);
                self.embed(table, out, Lookup::Position(last))
            }
            Op::LayerNorm { x, eps, out, quantized, .. } => {
                let outputs = self.outputs(out, quantized)?;
                Template::LayerNorm(LayerNorm { width: self.width(x), eps, outputs })
            }
            Op::Gelu { x, out, quantized } => Template::Gelu(self.width(x), self.outputs(out, quantized)?),
            Op::Route { x, router, denominator, out } => Template::Route(Route {
                width: self.width(x),
                experts: self.plan.weights[router.index()].rows,
                chosen: self.width(out) / 2,
                denominator,
            }),
            Op::ExpertLinear { x, weight, out, .. } => {
                let width = self.width(out);
                if !width.is_multiple_of(16) {
                    return Err(TemplateError::ExpertLen { label: self.label.to_owned(), width });
                }
                Template::ExpertLinear(ExpertLinear {
                    weights: weight_layout(self.plan, weight)?,
                    x: self.activations(x)?,
                    width,
                    slots: self.plan.buffers[out.index()].slots,
                    x_has_slots: self.plan.buffers[x.index()].slots > 1,
                })
            }
            Op::SumExperts { x, out, .. } => {
                Template::SumExperts(self.width(out), self.plan.buffers[x.index()].slots)
            }
            Op::AddShared { x, out, .. } => Template::AddShared(self.width(x), self.width(out)),
            Op::RmsNorm { x, eps, add, out, quantized, .. } => {
                let outputs = self.outputs(out, quantized)?;
                Template::RmsNorm(RmsNorm { width: self.width(x), eps, add: add.is_some(), outputs })
            }
            Op::Quantize { out, .. } => Template::Quantize(self.a16(out)?),
            Op::Linear { x, weight, bias, add, out, head } => {
                let residual = add.map(|add| if add == out { Residual::InPlace } else { Residual::Buffer });
                let epilogue = Epilogue { bias: bias.is_some(), add: residual, checks_range: head };
                Template::Linear(weight_layout(self.plan, weight)?, self.activations(x)?, epilogue)
            }
            Op::HeadNorm { x, weight, head_len, eps, .. } => {
                self.check_head_len(head_len)?;
                let heads = self.width(x) / head_len;
                Template::HeadNorm(HeadNorm { heads, head_len, eps, weighted: weight.is_some() })
            }
            Op::Rope { x, rope, head_len, .. } => {
                Template::Rope(self.width(x) / head_len, head_len, self.rope(rope))
            }
            Op::PrepareQuery { norm, rope, out, .. } => {
                let (heads, head_len) = self.heads(out);
                self.check_head_len(head_len)?;
                Template::PrepareQuery(PrepareQuery {
                    heads,
                    head_len,
                    norm_eps: eps(norm),
                    rope: rope.map(|rope| self.rope(rope)),
                })
            }
            Op::WriteKv { norm, rope, value_eps, layer, .. } => Template::WriteKv(WriteKv {
                layout: self.kv_layout(layer)?,
                norm_eps: eps(norm),
                rope: rope.map(|rope| self.rope(rope)),
                value_eps,
            }),
            Op::Attention { q, layer, kappa, window, soft_cap, out } => {
                let (layout, heads) = (self.kv_layout(layer)?, self.heads(q).0);
                let attention = Attention { layout, heads, kappa, window, soft_cap };
                return self.attention(attention, self.rows(q), out);
            }
            Op::Gate { activation, gate, up, out, quantized, .. } => Template::Gate(Gate {
                activation,
                width: self.width(gate),
                up_width: self.width(up),
                outputs: self.outputs(out, quantized)?,
            }),
            Op::Add { out, .. } => Template::Add(self.width(out)),
            Op::Scale { out, .. } => Template::Scale(self.width(out)),
            // The slots of a row are chosen together.
            Op::SelectOutputs { out, .. } => {
                Template::SelectRows(self.width(out) * self.plan.buffers[out.index()].slots)
            }
            Op::SoftCap { cap, out, .. } => Template::SoftCap(self.width(out), cap),
        }])
    }

    /// Many rows attend in tiles, few each by groups of chunks whose states are merged.
    fn attention(
        &self,
        attention: Attention,
        rows: u32,
        out: BufferId,
    ) -> Result<Vec<Template>, TemplateError> {
        let shape = PrefillShape::new(attention, self.hardware);
        if let Some(shape) = shape.filter(|_| rows >= PREFILL_ROWS) {
            return Ok(vec![Template::AttentionPrefill(attention, shape)]);
        }
        let states = rows.saturating_mul(self.shape.groups);
        let shape = MergeShape { rows: MergedRows::All, one_group: self.shape.groups == 1 };
        let merge = Template::AttentionMerge(attention, self.outputs(Some(out), None)?, shape);
        Ok(vec![Template::AttentionDecode(attention, states), merge])
    }

    fn embed(&self, table: WeightId, out: BufferId, of: Lookup) -> Template {
        match self.plan.weights[table.index()].encoding {
            Encoding::Block(format) => Template::EmbedBlocks(format, self.width(out), of),
            Encoding::W16(source) | Encoding::F32(source) | Encoding::Router(source) => {
                Template::EmbedFloats(source, self.width(out), of)
            }
        }
    }

    fn kv_layout(&self, layer: KvLayerId) -> Result<KvLayout, TemplateError> {
        let layer = self.plan.kv_layers[layer.index()];
        self.check_head_len(layer.head_len)?;
        Ok(KvLayout { heads: layer.heads, head_len: layer.head_len })
    }

    fn width(&self, buffer: BufferId) -> u32 {
        match self.plan.buffers[buffer.index()].kind {
            BufferKind::F32 { width } | BufferKind::A16 { width } => width,
            BufferKind::Q16 { heads, head_len } => heads * head_len,
        }
    }

    fn heads(&self, buffer: BufferId) -> (u32, u32) {
        match self.plan.buffers[buffer.index()].kind {
            BufferKind::Q16 { heads, head_len } => (heads, head_len),
            BufferKind::F32 { width } | BufferKind::A16 { width } => (1, width),
        }
    }

    fn rope(&self, table: RopeTableId) -> Rope {
        let table = &self.plan.rope_tables[table.index()];
        Rope { style: table.style, pairs: table.inverse_frequencies.len() as u32 }
    }

    fn rows(&self, buffer: BufferId) -> u32 {
        let buffer = &self.plan.buffers[buffer.index()];
        self.shape.count(buffer.rows).saturating_mul(buffer.slots)
    }

    fn activations(&self, buffer: BufferId) -> Result<ActivationLayout, LayoutError> {
        ActivationLayout::new(self.rows(buffer) as usize, self.width(buffer) as usize)
    }

    fn outputs(&self, out: Option<BufferId>, quantized: Option<BufferId>) -> Result<Outputs, LayoutError> {
        let a16 = quantized.map(|quantized| self.a16(quantized)).transpose()?;
        Ok(Outputs { f32: out.is_some(), a16 })
    }

    /// What the weights need that read a buffer which the step writes, up to the next step that does.
    fn a16(&self, buffer: BufferId) -> Result<A16Form, LayoutError> {
        let layout = self.activations(buffer)?;
        let readers = self.later.iter().take_while(|step| !writes(&step.op, buffer));
        let regions = regions_read(self.plan, buffer, readers);
        Ok(A16Form { width: layout.width(), tile_rows: layout.tile_rows(), regions })
    }

    fn check_head_len(&self, head_len: u32) -> Result<(), TemplateError> {
        match head_len.is_multiple_of(16) && (16..=MAX_HEAD_LEN).contains(&head_len) {
            true => Ok(()),
            false => Err(TemplateError::HeadLen { label: self.label.to_owned(), head_len }),
        }
    }
}

/// Whether an operation writes a buffer.
pub fn writes(op: &Op, buffer: BufferId) -> bool {
    op.result() == Some(buffer) || op.quantized() == Some(buffer)
}

fn eps(norm: Option<plan::HeadNorm>) -> Option<f32> {
    norm.map(|norm| norm.eps)
}

#[cfg(test)]
#[path = "of_plan_tests.rs"]
mod tests;
