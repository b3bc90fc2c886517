//! What becomes of the sums of a row: bias, residual, range.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::numerics::range::LOGIT_LIMIT;

use super::super::elementary::{is_below, snap};

/// What a linear layer does beside multiplying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// A vector that is added before the result is snapped.
    pub bias: bool,
    /// A residual that the result is added to.
    pub add: Option<Residual>,
    /// Whether the result obeys the range contract of the head.
    pub checks_range: bool,
}

/// Where a residual is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residual {
    /// In a buffer of its own, which the kernel only reads.
    Buffer,
    /// In the buffer of the result.
    InPlace,
}

/// Buffers of the epilogue.
#[derive(Clone, Copy)]
pub struct Output<'k> {
    k: &'k Build,
    epilogue: Epilogue,
    weight_rows: u32,
    rows: u32,
    bias: Option<Mem<'k>>,
    add: Option<Mem<'k>>,
    out: Mem<'k>,
    flags: Option<Mem<'k>>,
}

impl Epilogue {
    /// Words of a row in the buffer `flags` ([`Output::declare`]).
    pub(super) fn flags_a_row(self, weight_rows: u32) -> u32 {
        if self.checks_range { 2 * weight_rows.div_ceil(16) } else { 0 }
    }
}

impl<'k> Output<'k> {
    /// Declares them, behind the operands: `bias` (f32, one a weight row), `add` and `out` (f32, `[row][weight row]`), `flags`
    /// (u32, `[row][weight rows / 16, rounded up][2]`: 1 where one of 8 results is out of range, else 0).
    pub fn declare(k: &'k Build, epilogue: Epilogue, weight_rows: u32, rows: u32) -> Self {
        let bias = epilogue.bias.then(|| k.read("bias", Scalar::F32));
        let add = (epilogue.add == Some(Residual::Buffer)).then(|| k.read("add", Scalar::F32));
        let out = match epilogue.add {
            Some(Residual::InPlace) => k.read_write("out", Scalar::F32),
            _ => k.write("out", Scalar::F32),
        };
        let flags = epilogue.checks_range.then(|| k.write("flags", Scalar::U32));
        Self { k, epilogue, weight_rows, rows, bias, add, out, flags }
    }

    /// A result of the invocation, which exists if weight row and row do and `holds`.
    pub fn at(&self, weight_row: V<'k>, row: V<'k>, holds: V<'k>) -> At<'k> {
        let (k, n) = (self.k, self.k.u32(self.weight_rows));
        let no = k.constant(Scalar::Bool.into(), 0);
        let exists = weight_row.lt(n).select(row.lt(k.u32(self.rows)), no).select(holds, no);
        let at_bias = weight_row.min(n - 1);
        let at = row.min(k.u32(self.rows - 1)) * self.weight_rows + at_bias;
        At { weight_row, row, holds, exists, at_bias, at }
    }

    /// Elements that are added to a result where it exists: of the bias before it is snapped, of the residual after that.
    pub fn addends(&self, at: &At<'k>) -> Vec<(Mem<'k>, V<'k>)> {
        let residual = match self.epilogue.add {
            Some(Residual::Buffer) => self.add,
            Some(Residual::InPlace) => Some(self.out),
            None => None,
        };
        let bias = self.bias.map(|bias| (bias, at.at_bias));
        bias.into_iter().chain(residual.map(|residual| (residual, at.at))).collect()
    }

    /// Them, loaded.
    pub fn load_addends(&self, at: &At<'k>) -> Vec<V<'k>> {
        let load = |(from, element): (Mem<'k>, V<'k>)| {
            let [loaded] = self.k.choose(at.exists, || [from.load(element)], || [self.k.f32(0.0)]);
            loaded
        };
        self.addends(at).into_iter().map(load).collect()
    }

    /// `out = [add +] snap(acc [+ bias])` of a result, if it exists, with the values of [`Self::addends`].
    ///
    /// All invocations of a workgroup come here together. Runs of `8*together` of them have 8 weight rows of each of
    /// `together` rows, the row running faster; nobody's number is used for anything else.
    pub fn finish(&self, acc: V<'k>, at: &At<'k>, together: u32, addends: &[V<'k>]) {
        let k = self.k;
        let At { weight_row, row, holds, exists, at, .. } = *at;
        let no = k.constant(Scalar::Bool.into(), 0);
        let (bias, residual) = addends.split_at(usize::from(self.bias.is_some()));
        let acc = bias.iter().fold(acc, |acc, &bias| acc + bias);
        let y = snap(k, acc);
        if let Some(flags) = self.flags {
            let is_out = exists.select(is_below(k, y, LOGIT_LIMIT).select(k.u32(0), k.u32(1)), k.u32(0));
            let mut any = is_out;
            for h in [1, 2, 4] {
                any = any | any.shuffle_xor(32, h * together);
            }
            let is_first = (weight_row & 7).eq(k.u32(0));
            let flags_a_row = self.epilogue.flags_a_row(self.weight_rows);
            // Eight rows of which none exists have a flag too.
            let has_row = row.lt(k.u32(self.rows)).select(holds, no);
            let has_flag = weight_row.lt(k.u32(8 * flags_a_row)).select(has_row, no);
            k.when(is_first.select(has_flag, no), || {
                flags.store(row * flags_a_row + (weight_row >> 3), any);
            });
        }
        let sum = residual.iter().fold(y, |y, &residual| residual + y);
        k.when(exists, || self.out.store(at, sum));
    }
}

/// Where a result is.
#[derive(Clone, Copy)]
pub struct At<'k> {
    weight_row: V<'k>,
    row: V<'k>,
    /// Whether it is this invocation that has it.
    holds: V<'k>,
    /// Whether there is such a result.
    pub exists: V<'k>,
    /// Element of the bias; of what exists if the weight row does not.
    at_bias: V<'k>,
    /// Element of the result.
    pub at: V<'k>,
}
