//! What running a plan costs: bytes of the operands of profile u1 and multiplications of linear layers, counted from
//! the plan alone. Speeds are compared with it.

use super::{Buffer, BufferId, BufferKind, Encoding, KvLayer, Op, Plan, Rows, Weight};
use crate::numerics::w16::{w16_plane_len, w16_scales_len};

impl Weight {
    /// Bytes of a row as an operand of profile u1: a row of blocks as the file holds it; a W16 row as two planes of one
    /// byte an element, padded to a multiple of 32, and an f32 scale for each 32; a vector as f32 values.
    ///
    /// A device may lay a weight out in another way, and so read more or fewer bytes.
    pub fn operand_row_len_bytes(&self) -> u64 {
        let cols = self.cols as usize;
        let len_bytes = match self.encoding {
            Encoding::Block(_) => self.row_len_bytes(),
            Encoding::W16(_) => 2 * w16_plane_len(cols) + 4 * w16_scales_len(cols),
            Encoding::F32(_) | Encoding::Router(_) => 4 * cols,
        };
        len_bytes as u64
    }
}

impl KvLayer {
    /// Bytes of one token: for each head a key of two int8 planes and an f32 scale, a value of one plane and a scale
    /// (docs/numerics.md "KV cache and attention").
    pub fn token_len_bytes(&self) -> u64 {
        u64::from(self.heads) * (3 * u64::from(self.head_len) + 8)
    }
}

impl Plan {
    /// Bytes that a token takes in the KV caches of all layers.
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.kv_layers.iter().map(KvLayer::token_len_bytes).sum()
    }

    /// Bytes of the operands that decoding one token of one sequence reads at `position`, the number of tokens before
    /// it:
    ///
    /// - each weight of a step once for each step that reads it, whole, except the embedding table, of which one row
    ///   is read. A table that is the head as well (tied) is read whole by the head, and one row by the look-up. Of the
    ///   matrices of experts those of the chosen ones are read.
    /// - keys and values of each attention step: of `position + 1` tokens, or of the window where that is less.
    ///
    /// Activations and position tables are not counted: they stay in caches. `bytes / memory bandwidth` is the time in
    /// which memory delivers the operands; weights that stay in a cache may come faster.
    pub fn bytes_read_per_token(&self, position: u32) -> u64 {
        self.steps.iter().map(|step| self.step_bytes(&step.op, u64::from(position) + 1)).sum()
    }

    /// Multiplications of all linear layers for a batch of `rows` rows of which `outputs` give logits. Attention, whose
    /// work grows with the depth, is not counted.
    pub fn linear_macs(&self, rows: u64, outputs: u64) -> u64 {
        let macs = |op: &Op| match *op {
            Op::Linear { weight, .. } => {
                let Weight { rows: height, cols, .. } = self.weights[weight.index()];
                let times = match self.rows_of(op) {
                    Rows::All => rows,
                    Rows::Outputs => outputs,
                };
                u64::from(height) * u64::from(cols) * times
            }
            Op::ExpertLinear { weight, out, .. } => {
                let times = match self.rows_of(op) {
                    Rows::All => rows,
                    Rows::Outputs => outputs,
                };
                let cols = u64::from(self.weights[weight.index()].cols);
                self.expert_rows(out) * cols * times
            }
            _ => 0,
        };
        self.steps.iter().map(|step| macs(&step.op)).sum()
    }

    /// Rows of the matrices of the chosen experts.
    fn expert_rows(&self, out: BufferId) -> u64 {
        let Buffer { slots, kind, .. } = self.buffers[out.index()];
        match kind {
            BufferKind::F32 { width } => u64::from(slots) * u64::from(width),
            BufferKind::A16 { .. } | BufferKind::Q16 { .. } => 0,
        }
    }

    fn step_bytes(&self, op: &Op, visible_tokens: u64) -> u64 {
        let whole = |id: super::WeightId| {
            let weight = &self.weights[id.index()];
            u64::from(weight.rows) * weight.operand_row_len_bytes()
        };
        match *op {
            Op::Embed { table, .. } | Op::EmbedPositions { table, .. } => {
                self.weights[table.index()].operand_row_len_bytes()
            }
            Op::ExpertLinear { weight, out, .. } => {
                self.expert_rows(out) * self.weights[weight.index()].operand_row_len_bytes()
            }
            Op::Route { router: weight, .. } | Op::AddShared { gate: weight, .. } => whole(weight),
            Op::LayerNorm { weight, bias, .. } => whole(weight) + whole(bias),
            Op::Linear { weight, bias, .. } => whole(weight) + bias.map_or(0, whole),
            Op::RmsNorm { weight, .. } => whole(weight),
            Op::HeadNorm { weight, .. } => weight.map_or(0, whole),
            Op::PrepareQuery { norm, .. } | Op::WriteKv { norm, .. } => {
                norm.map_or(0, |norm| whole(norm.weight))
            }
            Op::Scale { scale, .. } => whole(scale),
            Op::Attention { layer, window, .. } => {
                let tokens = window.map_or(visible_tokens, |window| visible_tokens.min(u64::from(window)));
                tokens * self.kv_layers[layer.index()].token_len_bytes()
            }
            Op::Quantize { .. }
            | Op::Rope { .. }
            | Op::Gate { .. }
            | Op::Gelu { .. }
            | Op::SumExperts { .. }
            | Op::Add { .. }
            | Op::SelectOutputs { .. }
            | Op::SoftCap { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FloatSource, KvLayerId, Step, WeightId};
    use super::*;
    use crate::format::blocks::BlockFormat;

    fn weight(encoding: Encoding, rows: u32, cols: u32) -> Weight {
        Weight { tensor: "w".into(), encoding, rows, cols, part: None }
    }

    /// Tied embeddings of 10 tokens, a norm, one attention step and a head; what a plan does in between is left out.
    fn plan(window: Option<u32>) -> Plan {
        let buffer = |rows| Buffer::new(rows, BufferKind::F32 { width: 64 });
        let (x, y, norm) = (BufferId(0), BufferId(1), WeightId(1));
        let linear = |weight, out, head| Op::Linear { x, weight, bias: None, add: None, out, head };
        let ops = [
            Op::Embed { table: WeightId(0), scale: None, out: x },
            Op::RmsNorm { x, weight: norm, eps: 1e-5, add: None, out: Some(x), quantized: None },
            linear(WeightId(2), x, false),
            Op::Attention { q: x, layer: KvLayerId(0), kappa: 1.0, window, soft_cap: None, out: x },
            linear(WeightId(0), y, true),
        ];
        Plan {
            architecture: "test".into(),
            vocab_len: 10,
            context_len: 100,
            weights: vec![
                weight(Encoding::Block(BlockFormat::Q8_0), 10, 64),
                weight(Encoding::F32(FloatSource::F16), 1, 64),
                weight(Encoding::W16(FloatSource::F16), 64, 40),
            ],
            buffers: vec![buffer(Rows::All), buffer(Rows::Outputs)],
            rope_tables: vec![],
            kv_layers: vec![KvLayer { heads: 2, head_len: 16 }],
            input: None,
            steps: ops.into_iter().map(|op| Step { label: String::new(), op }).collect(),
            logits: y,
        }
    }

    #[test]
    fn a_decoded_token_reads_all_weights_and_what_attention_sees() {
        // Q8_0: 34 bytes a block, two blocks a row. W16 rows of 40: planes of 64, two scales.
        let (row, norm, matrix) = (68, 64 * 4, 64 * (2 * 64 + 2 * 4));
        let weights = row + norm + matrix + 10 * row;
        // K16: 2 * 16 + 4, V8: 16 + 4 bytes a head.
        let kv = 2 * (36 + 20);
        assert_eq!(plan(None).kv_bytes_per_token(), kv);
        assert_eq!(plan(None).bytes_read_per_token(0), weights + kv);
        assert_eq!(plan(None).bytes_read_per_token(99), weights + 100 * kv);
        assert_eq!(plan(Some(32)).bytes_read_per_token(99), weights + 32 * kv);
        assert_eq!(plan(Some(32)).bytes_read_per_token(30), weights + 31 * kv);
    }

    #[test]
    fn the_head_multiplies_output_rows_only() {
        assert_eq!(plan(None).linear_macs(5, 1), 5 * 64 * 40 + 10 * 64);
    }
}
