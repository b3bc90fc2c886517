//! What devices rely on: every step's operands have the kinds, widths and rows that its operation needs.
//!
//! A plan is plain data, so it can be wrong; a device that writes memory by its numbers must not believe it.
//! Every device calls [`Plan::check`] when it loads a plan.

use super::{
    BufferId, BufferKind, Encoding, HeadNorm, KvLayerId, Op, Plan, RopeTableId, Rows, Weight, WeightId,
};

/// A plan that cannot be run: a mistake of whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan is wrong in step `{step}`: {what}")]
pub struct PlanFault {
    /// Label of the step; `logits` for the plan's result, `input` for what the host gives.
    pub step: String,
    /// What does not hold.
    pub what: String,
}

type Check<T = ()> = Result<T, String>;

/// Which rows, and how many slots of each ([`super::Buffer::slots`]).
type Lines = (Rows, u32);

impl Plan {
    /// Checks what running relies on.
    pub fn check(&self) -> Result<(), PlanFault> {
        for step in &self.steps {
            let faults = Operands { plan: self }.check(&step.op);
            faults.map_err(|what| PlanFault { step: step.label.clone(), what })?;
        }
        let logits = Operands { plan: self }
            .f32(self.logits)
            .and_then(|(lines, _)| same("logits", lines, (Rows::Outputs, 1)));
        logits.map_err(|what| PlanFault { step: "logits".into(), what })?;
        self.check_input().map_err(|what| PlanFault { step: "input".into(), what })
    }

    /// What the host gives has a buffer of its own.
    fn check_input(&self) -> Check {
        let Some(input) = self.input else { return Ok(()) };
        let (lines, _) = Operands { plan: self }.f32(input)?;
        same("the input", lines, (Rows::All, 1))?;
        let writer = self
            .steps
            .iter()
            .find(|step| step.op.result() == Some(input) || step.op.quantized() == Some(input));
        writer.map_or(Ok(()), |step| Err(format!("`{}` writes what the host gives", step.label)))
    }
}

/// Looks operands up and compares them.
struct Operands<'a> {
    plan: &'a Plan,
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Check {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?}, but must be {expected:?}")) }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

impl Operands<'_> {
    fn kind(&self, id: BufferId) -> Check<(Lines, BufferKind)> {
        let buffer =
            self.plan.buffers.get(id.index()).ok_or_else(|| format!("there is no buffer {}", id.0))?;
        require(buffer.slots > 0, || format!("buffer {} has no slots", id.0))?;
        Ok(((buffer.rows, buffer.slots), buffer.kind))
    }

    /// f32 rows of one slot.
    fn single(&self, id: BufferId) -> Check<(Rows, u32)> {
        let ((rows, slots), width) = self.f32(id)?;
        same("slots", slots, 1).map(|()| (rows, width))
    }

    fn f32(&self, id: BufferId) -> Check<(Lines, u32)> {
        match self.kind(id)? {
            (rows, BufferKind::F32 { width }) if width > 0 => Ok((rows, width)),
            other => Err(format!("buffer {} is {other:?}, but must hold f32 values", id.0)),
        }
    }

    fn a16(&self, id: BufferId) -> Check<(Lines, u32)> {
        match self.kind(id)? {
            (rows, BufferKind::A16 { width }) if width > 0 => Ok((rows, width)),
            other => Err(format!("buffer {} is {other:?}, but must be A16", id.0)),
        }
    }

    fn q16(&self, id: BufferId) -> Check<(Rows, u32, u32)> {
        match self.kind(id)? {
            ((rows, 1), BufferKind::Q16 { heads, head_len })
                if heads.checked_mul(head_len).is_some_and(|n| n > 0) =>
            {
                Ok((rows, heads, head_len))
            }
            other => Err(format!("buffer {} is {other:?}, but must be Q16", id.0)),
        }
    }

    fn weight(&self, id: WeightId) -> Check<&Weight> {
        self.plan.weights.get(id.index()).ok_or_else(|| format!("there is no weight {}", id.0))
    }

    fn matrix(&self, id: WeightId) -> Check<(u32, u32)> {
        let weight = self.weight(id)?;
        let whole = match weight.encoding {
            Encoding::F32(_) | Encoding::Router(_) => false,
            Encoding::W16(_) => true,
            Encoding::Block(format) => (weight.cols as usize).is_multiple_of(format.elems()),
        };
        require(whole && weight.rows > 0 && weight.cols > 0, || {
            format!("`{}` must be a matrix of whole blocks", weight.tensor)
        })?;
        Ok((weight.rows, weight.cols))
    }

    fn vector(&self, id: WeightId, len: u32) -> Check {
        let weight = self.weight(id)?;
        let fits = matches!(weight.encoding, Encoding::F32(_)) && (weight.rows, weight.cols) == (1, len);
        require(fits, || format!("`{}` must be a vector of {len}", weight.tensor))
    }

    /// A router of that width: how many experts it scores.
    fn router(&self, id: WeightId, width: u32) -> Check<u32> {
        let weight = self.weight(id)?;
        let fits = matches!(weight.encoding, Encoding::Router(_)) && weight.rows > 0 && weight.cols == width;
        require(fits, || format!("`{}` must be a router of rows of {width}", weight.tensor))?;
        Ok(weight.rows)
    }

    /// How many experts a result of `Op::Route` chooses of each row.
    fn routes(&self, id: BufferId, rows: Rows) -> Check<u32> {
        let (found, width) = self.single(id)?;
        same("the rows of the routes", found, rows)?;
        require(width.is_multiple_of(2), || format!("routes of {width} values are no pairs"))?;
        Ok(width / 2)
    }

    /// The results must be like the operand in rows and width, and none of the buffers that are read.
    fn results(
        &self,
        like: (Lines, u32),
        out: Option<BufferId>,
        quantized: Option<BufferId>,
        reads: &[BufferId],
    ) -> Check {
        require(out.is_some() || quantized.is_some(), || "there is no result".into())?;
        if let Some(out) = out {
            same("the result", self.f32(out)?, like)?;
        }
        if let Some(quantized) = quantized {
            same("the quantised result", self.a16(quantized)?, like)?;
        }
        let reads_result = reads.iter().any(|&read| out == Some(read) || quantized == Some(read));
        require(!reads_result, || "the step writes a buffer that it reads".into())
    }

    fn rope(&self, table: Option<RopeTableId>, head_len: u32) -> Check {
        let Some(table) = table else { return Ok(()) };
        let found = self.plan.rope_tables.get(table.index());
        let pairs =
            found.ok_or_else(|| format!("there is no RoPE table {}", table.0))?.inverse_frequencies.len();
        require(2 * pairs <= head_len as usize, || {
            format!("{pairs} RoPE pairs do not fit a head of {head_len}")
        })
    }

    fn head(&self, norm: Option<HeadNorm>, rope: Option<RopeTableId>, head_len: u32) -> Check {
        norm.map_or(Ok(()), |norm| self.vector(norm.weight, head_len))?;
        self.rope(rope, head_len)
    }

    fn kv(&self, layer: KvLayerId) -> Check<(u32, u32)> {
        match self.plan.kv_layers.get(layer.index()) {
            Some(kv) if kv.heads.checked_mul(kv.head_len).is_some_and(|n| n > 0) => {
                Ok((kv.heads, kv.head_len))
            }
            other => Err(format!("KV layer {} is {other:?}", layer.0)),
        }
    }

    /// Matrices of experts: so many rows each as the result has values.
    fn experts(&self, x: BufferId, routes: BufferId, weight: WeightId, out: BufferId) -> Check {
        let ((x_lines, x_width), (lines, width)) = (self.a16(x)?, self.f32(out)?);
        let (rows, cols) = self.matrix(weight)?;
        same("the width of x", x_width, cols)?;
        same("the chosen experts", self.routes(routes, lines.0)?, lines.1)?;
        let same_rows = x_lines == lines || x_lines == (lines.0, 1);
        require(same_rows, || format!("x is {x_lines:?} for a result of {lines:?}"))?;
        // Which of them there are is for devices to see to: numbers are data.
        require(rows.is_multiple_of(width), || {
            format!("{rows} rows of matrices are not those of experts with {width} values each")
        })?;
        require(out != routes, || "the step writes a buffer that it reads".into())
    }

    fn check(&self, op: &Op) -> Check {
        match *op {
            Op::Embed { table, out, .. } => {
                let ((rows, cols), found) = (self.matrix(table)?, self.single(out)?);
                same("the width of the result", found.1, cols)?;
                require(rows >= self.plan.vocab_len, || {
                    format!("{rows} rows for {} tokens", self.plan.vocab_len)
                })
            }
            Op::EmbedPositions { table, out } => {
                same("the width of the result", self.single(out)?.1, self.matrix(table)?.1)
            }
            Op::LayerNorm { x, weight, bias, out, quantized, .. } => {
                let like = self.f32(x)?;
                self.vector(weight, like.1)?;
                self.vector(bias, like.1)?;
                self.results(like, out, quantized, &[x])
            }
            Op::Gelu { x, out, quantized } => self.results(self.f32(x)?, out, quantized, &[x]),
            Op::Route { x, router, out, .. } => {
                let (rows, width) = self.single(x)?;
                let (experts, chosen) = (self.router(router, width)?, self.routes(out, rows)?);
                require((1..=experts).contains(&chosen), || format!("{chosen} of {experts} experts"))?;
                require(out != x, || "the step writes a buffer that it reads".into())
            }
            Op::ExpertLinear { x, routes, weight, out } => self.experts(x, routes, weight, out),
            Op::SumExperts { x, routes, out } => {
                let ((rows, slots), width) = self.f32(x)?;
                same("the chosen experts", self.routes(routes, rows)?, slots)?;
                self.results(((rows, 1), width), Some(out), None, &[x, routes])
            }
            Op::AddShared { x, gate, a, b, out } => {
                let ((rows, width), like) = (self.single(x)?, self.f32(a)?);
                same("the scores of the gate", self.router(gate, width)?, 1)?;
                same("a", like.0, (rows, 1))?;
                same("b", self.f32(b)?, like)?;
                self.results(like, Some(out), None, &[x, a, b])
            }
            Op::RmsNorm { x, weight, add, out, quantized, .. } => {
                let like = self.f32(x)?;
                self.vector(weight, like.1)?;
                add.map_or(Ok(()), |add| same("the residual", self.f32(add)?, like))?;
                self.results(like, out, quantized, &[x, add.unwrap_or(x)])
            }
            Op::Quantize { x, out } => self.results(self.f32(x)?, None, Some(out), &[x]),
            Op::Linear { x, weight, bias, add, out, .. } => {
                let ((x_rows, x_width), (rows, cols)) = (self.a16(x)?, self.matrix(weight)?);
                same("the width of x", x_width, cols)?;
                bias.map_or(Ok(()), |bias| self.vector(bias, rows))?;
                let like = (x_rows, rows);
                add.map_or(Ok(()), |add| same("the residual", self.f32(add)?, like))?;
                self.results(like, Some(out), None, &[x, add.unwrap_or(x)])
            }
            Op::HeadNorm { x, weight, head_len, out, .. } => {
                let like = self.f32(x)?;
                weight.map_or(Ok(()), |weight| self.vector(weight, head_len))?;
                require(head_len > 0 && like.1.is_multiple_of(head_len), || {
                    format!("heads of {head_len} do not fill {}", like.1)
                })?;
                self.results(like, Some(out), None, &[x])
            }
            Op::Rope { x, rope, head_len, out } => {
                let like = self.f32(x)?;
                let whole = head_len > 0 && like.1.is_multiple_of(head_len);
                require(whole, || format!("heads of {head_len} do not fill {}", like.1))?;
                self.rope(Some(rope), head_len)?;
                self.results(like, Some(out), None, &[x])
            }
            Op::PrepareQuery { q, norm, rope, out } => {
                let (rows, heads, head_len) = self.q16(out)?;
                same("q", self.single(q)?, (rows, heads * head_len))?;
                self.head(norm, rope, head_len)
            }
            Op::WriteKv { k, v, norm, rope, layer, .. } => {
                let (heads, head_len) = self.kv(layer)?;
                same("k", self.single(k)?, (Rows::All, heads * head_len))?;
                same("v", self.single(v)?, (Rows::All, heads * head_len))?;
                self.head(norm, rope, head_len)
            }
            Op::Attention { q, layer, window, out, .. } => {
                let ((rows, heads, head_len), kv) = (self.q16(q)?, self.kv(layer)?);
                same("the head length of the cache", kv.1, head_len)?;
                require(heads.is_multiple_of(kv.0), || {
                    format!("{heads} heads do not share {} KV heads", kv.0)
                })?;
                require(window != Some(0), || "a window of 0 sees nothing".into())?;
                same("the result", self.single(out)?, (rows, heads * head_len))
            }
            Op::Gate { gate, up, part, out, quantized, .. } => {
                let (like, (up_rows, up_width)) = (self.f32(gate)?, self.f32(up)?);
                same("the rows of up", up_rows, like.0)?;
                require(up_width.is_multiple_of(like.1) && part < up_width / like.1, || {
                    format!("rows of {up_width} have no part {part} of {}", like.1)
                })?;
                self.results(like, out, quantized, &[gate, up])
            }
            Op::Add { a, b, out } => {
                let like = self.f32(a)?;
                same("b", self.f32(b)?, like)?;
                self.results(like, Some(out), None, &[a, b])
            }
            Op::Scale { x, scale, out } => {
                self.vector(scale, 1)?;
                self.results(self.f32(x)?, Some(out), None, &[x])
            }
            Op::SelectOutputs { x, out } => {
                let ((rows, slots), width) = self.f32(x)?;
                same("the rows of x", rows, Rows::All)?;
                self.results(((Rows::Outputs, slots), width), Some(out), None, &[x])
            }
            Op::SoftCap { x, out, .. } => self.results(self.f32(x)?, Some(out), None, &[x]),
        }
    }
}
