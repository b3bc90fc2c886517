//! Where the weights of a graph come from.

use unisonic_core::format::{GgmlType, TensorInfo};
use unisonic_core::plan::{MemoryWeights, ReadError, WeightSource};

use super::GraphError;

/// Tensors for a graph, by name: those of a file, and f32 tensors of the caller, which go before one of the same name in the
/// file.
#[derive(Default)]
pub struct GraphTensors<'a> {
    infos: Vec<TensorInfo>,
    file: Option<&'a dyn WeightSource>,
    own: MemoryWeights,
}

impl<'a> GraphTensors<'a> {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of a file.
    pub fn of_file(infos: &[TensorInfo], file: &'a dyn WeightSource) -> Self {
        Self { infos: infos.to_vec(), file: Some(file), own: MemoryWeights::default() }
    }

    /// Adds a tensor of the caller. `dims` are in file order: the length of a row first, then the number of rows.
    pub fn add(&mut self, name: &str, dims: &[u64], values: &[f32]) -> Result<(), GraphError> {
        let wrong = |expected: String| GraphError::Tensor {
            tensor: name.to_owned(),
            dims: dims.to_vec(),
            found: values.len(),
            expected,
        };
        if self.own.0.contains_key(name) {
            return Err(wrong("once".to_owned()));
        }
        if !(1..=4).contains(&dims.len()) {
            return Err(wrong("with 1 to 4 dimensions".to_owned()));
        }
        let len = dims.iter().try_fold(1_u64, |len, &dim| len.checked_mul(dim));
        if len != Some(values.len() as u64) || values.is_empty() {
            let len = len.map_or_else(|| "fewer than 2^64".to_owned(), |len| len.max(1).to_string());
            return Err(wrong(format!("with {len} values")));
        }
        self.infos.retain(|info| info.name != name);
        self.infos.push(TensorInfo {
            name: name.to_owned(),
            ty: GgmlType::F32,
            dims: dims.to_vec(),
            shard: 0,
            offset_bytes: 0,
            len_bytes: 4 * values.len() as u64,
        });
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.own.0.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// Their names, types and shapes.
    pub fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn source(&self, tensor: &str) -> &dyn WeightSource {
        match self.file {
            Some(file) if !self.own.0.contains_key(tensor) => file,
            _ => &self.own,
        }
    }
}

impl WeightSource for GraphTensors<'_> {
    fn len_bytes(&self, tensor: &str) -> Result<u64, ReadError> {
        self.source(tensor).len_bytes(tensor)
    }

    fn read_at(&self, tensor: &str, offset_bytes: u64, to: &mut [u8]) -> Result<(), ReadError> {
        self.source(tensor).read_at(tensor, offset_bytes, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_tensors_go_before_those_of_the_file() {
        let mut file = GraphTensors::new();
        file.add("a", &[2], &[1.0, 2.0]).expect("a");
        file.add("b", &[2, 1], &[3.0, 4.0]).expect("b");
        let mut both = GraphTensors::of_file(file.infos(), &file);
        both.add("b", &[1, 3], &[5.0, 6.0, 7.0]).expect("another b");
        let dims: Vec<_> =
            both.infos().iter().map(|info| (info.name.as_str(), info.dims.as_slice())).collect();
        assert_eq!(dims, [("a", &[2_u64][..]), ("b", &[1, 3][..])]);
        assert_eq!(both.read("a").expect("a"), [1.0_f32, 2.0].map(f32::to_le_bytes).concat());
        assert_eq!(both.read("b").expect("b"), [5.0_f32, 6.0, 7.0].map(f32::to_le_bytes).concat());
        assert!(both.read("c").is_err());
    }

    #[test]
    fn a_tensor_that_is_not_its_shape_is_refused() {
        let mut tensors = GraphTensors::new();
        let mut error =
            |dims: &[u64], len| tensors.add("t", dims, &vec![0.0; len]).expect_err("wrong").to_string();
        assert_eq!(
            error(&[2, 3], 5),
            "tensor `t` has 5 values for the dimensions [2, 3], but must be given with 6 values"
        );
        assert!(error(&[u64::MAX, 2], 5).ends_with("with fewer than 2^64 values"));
        assert!(error(&[], 1).ends_with("with 1 to 4 dimensions"));
        assert!(error(&[0], 0).ends_with("with 1 values"));
        tensors.add("t", &[1], &[0.0]).expect("right");
        assert!(
            tensors.add("t", &[1], &[0.0]).expect_err("twice").to_string().ends_with("must be given once")
        );
    }
}
