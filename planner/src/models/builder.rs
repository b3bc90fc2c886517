//! What the architectures share: blocks of operations with their tensors.

use unisonic_core::plan::{Activation, KvLayer, KvLayerId, RopeStyle, RopeTableId, Rows};

use super::Model;
use super::hyper::Hyper;
use super::tensors::Tensors;
use crate::error::PlanError;
use crate::graph::limits::MAX_VOCAB_LEN;
use crate::graph::{Element, Graph, Node, Op, RopeSpec, Shape, Type, ValueId, WeightRef};

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Position table, if positions enter here.
    pub rope: Option<RopeTableId>,
    /// See [`unisonic_core::numerics::attention::default_kappa`].
    pub kappa: f32,
    /// Sliding window.
    pub window: Option<u32>,
    /// Soft cap of the scores.
    pub soft_cap: Option<f32>,
    /// Whether query and key heads are normed before RoPE.
    pub head_norm: bool,
    /// Whether the projections of q, k and v must have biases; elsewhere a bias is used where the file has one.
    pub bias: bool,
    /// Whether the output projection must have one too.
    pub output_bias: bool,
}

/// Builds the graph of one model.
pub struct Builder<'a> {
    hyper: &'a Hyper,
    tensors: &'a Tensors<'a>,
    layer_norm: bool,
    graph: Graph,
}

impl<'a> Builder<'a> {
    /// A graph without operations.
    pub fn new(model: &'a Model<'a>) -> Result<Self, PlanError> {
        let graph = Graph {
            architecture: model.architecture.to_owned(),
            vocab_len: vocab_len(model)?,
            context_len: model.hyper.context_len,
            rope_tables: Vec::new(),
            kv_layers: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            output: ValueId(0),
        };
        Ok(Builder { hyper: &model.hyper, tensors: model.tensors, layer_norm: model.layer_norm, graph })
    }

    /// Adds a position table.
    pub fn rope_table(&mut self, spec: RopeSpec) -> RopeTableId {
        self.graph.rope_tables.push(spec);
        RopeTableId((self.graph.rope_tables.len() - 1) as u32)
    }

    /// The table that the metadata describes.
    pub fn rope_spec(&self, style: RopeStyle) -> RopeSpec {
        RopeSpec {
            style,
            rotary_len: self.hyper.rotary_len,
            base: self.hyper.rope_base,
            scaling: self.hyper.rope_scaling,
            attention_factor: self.hyper.attention_factor,
            factors: None,
        }
    }

    /// Factors of RoPE, where the file has them.
    pub fn rope_factors(&self, name: &str) -> Result<Option<WeightRef>, PlanError> {
        let pairs = self.hyper.rotary_len / 2;
        self.tensors.has(name).then(|| self.tensors.f32_vector(name, pairs)).transpose()
    }

    /// Token embeddings, times `scale` if any.
    pub fn embed(&mut self, scale: Option<f32>) -> Result<ValueId, PlanError> {
        let tokens = self.push("tokens", Op::Tokens, &[], Type::new(Rows::All, Element::U32));
        let table = self.token_embeddings()?;
        let ty = Type::f32(Rows::All, self.hyper.embedding_len);
        Ok(self.push("token_embd", Op::Embed { table, scale }, &[tokens], ty))
    }

    /// Adds learned embeddings of positions, one for each of the context.
    pub fn add_positions(&mut self, x: ValueId) -> Result<ValueId, PlanError> {
        let shape = Shape::Matrix { rows: self.graph.context_len, cols: self.hyper.embedding_len };
        let table = self.tensors.weight("position_embd.weight", shape)?;
        let (tokens, ty) = (self.tokens(), self.graph.ty(x));
        let positions = self.push("position_embd", Op::EmbedPositions { table }, &[tokens], ty);
        Ok(self.add("embd", x, positions))
    }

    /// The norm of the architecture with the weight `label.weight`, and `label.bias` of a LayerNorm.
    pub fn norm(&mut self, label: &str, x: ValueId) -> Result<ValueId, PlanError> {
        self.norm_with_eps(label, x, self.hyper.eps)
    }

    /// The same with another epsilon.
    pub fn norm_with_eps(&mut self, label: &str, x: ValueId, eps: f32) -> Result<ValueId, PlanError> {
        let shape = Shape::Vector(self.hyper.embedding_len);
        let weight = self.tensors.weight(&format!("{label}.weight"), shape)?;
        let op = match self.layer_norm {
            true => {
                let bias = self.tensors.weight(&format!("{label}.bias"), shape)?;
                Op::LayerNorm { weight, bias, eps }
            }
            false => Op::RmsNorm { weight, eps },
        };
        Ok(self.push(label, op, &[x], self.graph.ty(x)))
    }

    /// Sum of a residual and what a block made.
    pub fn add(&mut self, label: &str, residual: ValueId, x: ValueId) -> ValueId {
        self.push(label, Op::Add, &[residual, x], self.graph.ty(residual))
    }

    /// q, k and v projections, the cache, attention and the output projection of layer `layer`.
    pub fn attention(&mut self, layer: u32, x: ValueId, how: &Attention) -> Result<ValueId, PlanError> {
        let &Hyper { heads, kv_heads, head_len, embedding_len, .. } = self.hyper;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let lens = [heads, kv_heads, kv_heads].map(|heads| heads * head_len);
        let fused = name("attn_qkv");
        let [q, k, v] = match self.tensors.has(&format!("{fused}.weight")) {
            true => self.linear_parts(&fused, x, lens, ["attn_q", "attn_k", "attn_v"].map(name), how.bias)?,
            false => [
                self.linear(&name("attn_q"), x, lens[0], how.bias)?,
                self.linear(&name("attn_k"), x, lens[1], how.bias)?,
                self.linear(&name("attn_v"), x, lens[2], how.bias)?,
            ],
        };
        let q = self.heads(layer, "q", q, head_len, how)?;
        let k = self.heads(layer, "k", k, head_len, how)?;
        let kv = self.write_kv(layer, k, v, KvLayer { heads: kv_heads, head_len });
        let attended = self.attend(layer, q, kv, how);
        self.linear(&name("attn_output"), attended, embedding_len, how.output_bias)
    }

    /// A cache for layer `layer`, into which k and v are written.
    pub(super) fn write_kv(&mut self, layer: u32, k: ValueId, v: ValueId, cache: KvLayer) -> KvLayerId {
        self.graph.kv_layers.push(cache);
        let kv = KvLayerId((self.graph.kv_layers.len() - 1) as u32);
        let write = Op::WriteKv { norm: None, rope: None, value_eps: None, layer: kv };
        let label = format!("blk.{layer}.attention.kv");
        self.graph.nodes.push(Node { label, op: write, inputs: vec![k, v], results: vec![] });
        kv
    }

    /// Attention of q over a cache.
    pub(super) fn attend(&mut self, layer: u32, q: ValueId, kv: KvLayerId, how: &Attention) -> ValueId {
        let Attention { kappa, window, soft_cap, .. } = *how;
        let attend = Op::Attention { layer: kv, kappa, window, soft_cap };
        self.push(&format!("blk.{layer}.attention"), attend, &[q], self.graph.ty(q))
    }

    /// Norm (if any) and RoPE of the heads of q or k.
    pub(super) fn heads(
        &mut self,
        layer: u32,
        part: &str,
        x: ValueId,
        head_len: u32,
        how: &Attention,
    ) -> Result<ValueId, PlanError> {
        let (mut x, ty) = (x, self.graph.ty(x));
        if how.head_norm {
            x = self.head_norm(&format!("blk.{layer}.attn_{part}_norm"), x, head_len, self.hyper.eps)?;
        }
        let Some(table) = how.rope else { return Ok(x) };
        let label = format!("blk.{layer}.attn_{part}_rope");
        Ok(self.push(&label, Op::Rope { table, head_len }, &[x], ty))
    }

    /// RMSNorm over each head with the weight `label.weight`.
    pub(super) fn head_norm(
        &mut self,
        label: &str,
        x: ValueId,
        head_len: u32,
        eps: f32,
    ) -> Result<ValueId, PlanError> {
        let weight = Some(self.tensors.weight(&format!("{label}.weight"), Shape::Vector(head_len))?);
        Ok(self.push(label, Op::HeadNorm { head_len, weight, eps }, &[x], self.graph.ty(x)))
    }

    /// Gated feed-forward block.
    pub fn feed_forward(
        &mut self,
        layer: u32,
        x: ValueId,
        activation: Activation,
    ) -> Result<ValueId, PlanError> {
        let lens = &self.hyper.feed_forward_lens;
        let feed_forward_len = lens.get(layer as usize).copied().unwrap_or(self.hyper.feed_forward_len);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let gate = self.linear(&name("ffn_gate"), x, feed_forward_len, false)?;
        let up = self.linear(&name("ffn_up"), x, feed_forward_len, false)?;
        self.gated(layer, [gate, up], activation)
    }

    /// The same with gate and up, in this order, in one tensor `ffn_up`.
    pub fn fused_feed_forward(
        &mut self,
        layer: u32,
        x: ValueId,
        activation: Activation,
    ) -> Result<ValueId, PlanError> {
        let feed_forward_len = self.hyper.feed_forward_len;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let labels = ["ffn_gate", "ffn_up"].map(name);
        let [gate, up] = self.linear_parts(&name("ffn_up"), x, [feed_forward_len; 2], labels, false)?;
        self.gated(layer, [gate, up], activation)
    }

    fn gated(
        &mut self,
        layer: u32,
        [gate, up]: [ValueId; 2],
        activation: Activation,
    ) -> Result<ValueId, PlanError> {
        let label = format!("blk.{layer}.ffn_act");
        let gate_op = Op::Gate { activation, part: 0 };
        let gated = self.push(&label, gate_op, &[gate, up], self.graph.ty(gate));
        self.linear(&format!("blk.{layer}.ffn_down"), gated, self.hyper.embedding_len, false)
    }

    /// Feed-forward block with GELU and without a gate, with biases.
    pub fn ungated_feed_forward(&mut self, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
        let &Hyper { feed_forward_len, embedding_len, .. } = self.hyper;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let up = self.linear(&name("ffn_up"), x, feed_forward_len, true)?;
        let act = self.push(&name("ffn_act"), Op::Gelu, &[up], self.graph.ty(up));
        self.linear(&name("ffn_down"), act, embedding_len, true)
    }

    /// Layers that share a tensor `label.weight`, and `label.bias` where required or there: `lens` rows of it each.
    fn linear_parts<const N: usize>(
        &mut self,
        label: &str,
        x: ValueId,
        lens: [u32; N],
        labels: [String; N],
        bias: bool,
    ) -> Result<[ValueId; N], PlanError> {
        let x_type = self.graph.ty(x);
        let rows = lens.iter().sum();
        let matrix = Shape::Matrix { rows, cols: x_type.element.width() };
        let bias_name = format!("{label}.bias");
        let has_bias = bias || self.tensors.has(&bias_name);
        let mut results = [x; N];
        let mut first = 0;
        for ((result, len), label_of_part) in results.iter_mut().zip(lens).zip(labels) {
            let weight = self.tensors.part(&format!("{label}.weight"), matrix, first, len)?;
            let of_part = || self.tensors.part(&bias_name, Shape::Vector(rows), first, len);
            let bias = has_bias.then(of_part).transpose()?;
            let op = Op::Linear { weight, bias, head: false };
            *result = self.push(&label_of_part, op, &[x], Type::f32(x_type.rows, len));
            first += len;
        }
        Ok(results)
    }

    /// Final norm and head over the output rows; the head is the embedding table where the file has no `output.weight`.
    pub fn finish(mut self, x: ValueId, soft_cap: Option<f32>) -> Result<Graph, PlanError> {
        let selected_type = Type::f32(Rows::Outputs, self.hyper.embedding_len);
        let selected = self.push("select_outputs", Op::SelectOutputs, &[x], selected_type);
        let normed = self.norm("output_norm", selected)?;
        let logits_type = Type::f32(Rows::Outputs, self.graph.vocab_len);
        let weight = match self.tensors.has("output.weight") {
            true => self.tensors.weight("output.weight", self.vocab_matrix())?,
            false => self.token_embeddings()?,
        };
        let bias = self.bias("output.bias", self.graph.vocab_len, false)?;
        let mut logits = self.push("output", Op::Linear { weight, bias, head: true }, &[normed], logits_type);
        if let Some(cap) = soft_cap {
            logits = self.push("logit_soft_cap", Op::SoftCap { cap }, &[logits], logits_type);
        }
        self.graph.output = logits;
        Ok(self.graph)
    }

    /// Linear layer with the tensors `label.weight` and, where required or there, `label.bias`.
    pub(super) fn linear(
        &mut self,
        label: &str,
        x: ValueId,
        rows: u32,
        bias: bool,
    ) -> Result<ValueId, PlanError> {
        let x_type = self.graph.ty(x);
        let shape = Shape::Matrix { rows, cols: x_type.element.width() };
        let weight = self.tensors.weight(&format!("{label}.weight"), shape)?;
        let bias = self.bias(&format!("{label}.bias"), rows, bias)?;
        Ok(self.push(label, Op::Linear { weight, bias, head: false }, &[x], Type::f32(x_type.rows, rows)))
    }

    /// Tokens of the vocabulary.
    pub(super) fn vocab_len(&self) -> u32 {
        self.graph.vocab_len
    }

    /// The token ids of the batch, once the graph has embeddings.
    pub(super) fn tokens(&self) -> ValueId {
        self.graph.nodes[0].results[0]
    }

    /// Type of a value.
    pub(super) fn ty(&self, value: ValueId) -> Type {
        self.graph.ty(value)
    }

    /// The tensors of the file.
    pub(super) fn tensors(&self) -> &'a Tensors<'a> {
        self.tensors
    }

    fn bias(&self, name: &str, len: u32, required: bool) -> Result<Option<WeightRef>, PlanError> {
        let wanted = required || self.tensors.has(name);
        wanted.then(|| self.tensors.weight(name, Shape::Vector(len))).transpose()
    }

    fn token_embeddings(&self) -> Result<WeightRef, PlanError> {
        self.tensors.weight("token_embd.weight", self.vocab_matrix())
    }

    fn vocab_matrix(&self) -> Shape {
        Shape::Matrix { rows: self.graph.vocab_len, cols: self.hyper.embedding_len }
    }

    pub(super) fn push(&mut self, label: &str, op: Op, inputs: &[ValueId], ty: Type) -> ValueId {
        let result = self.graph.new_value(ty);
        let label = label.to_owned();
        self.graph.nodes.push(Node { label, op, inputs: inputs.to_vec(), results: vec![result] });
        result
    }
}

/// The vocabulary of the metadata, or the rows of the embedding table where it has none.
fn vocab_len(model: &Model<'_>) -> Result<u32, PlanError> {
    let rows = model.tensors.rows("token_embd.weight").and_then(|rows| u32::try_from(rows).ok());
    let rows = rows.filter(|rows| (1..=MAX_VOCAB_LEN).contains(rows));
    model.hyper.vocab_len.or(rows).ok_or_else(|| {
        let expected =
            format!("1 to {MAX_VOCAB_LEN}, or `tokenizer.ggml.tokens` or `token_embd.weight` in its place");
        model.keys.out_of_range("vocab_size", "absent", expected)
    })
}
