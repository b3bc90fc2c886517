//! The tensors of a file, looked up by name and held to the shapes of the architecture.

use std::collections::HashMap;

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::format::{GgmlType, TensorInfo};
use unisonic_core::plan::{Encoding, FloatSource, TensorPart};

use crate::error::PlanError;
use crate::graph::{Graph, Shape, WeightRef};

/// Look-up by name.
pub struct Tensors<'a> {
    architecture: &'a str,
    by_name: HashMap<&'a str, &'a TensorInfo>,
}

impl<'a> Tensors<'a> {
    /// `architecture` is for messages.
    pub fn new(architecture: &'a str, tensors: &'a [TensorInfo]) -> Self {
        Tensors { architecture, by_name: tensors.iter().map(|info| (info.name.as_str(), info)).collect() }
    }

    /// Whether the file has it.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Rows of a matrix in the file, if it is there.
    pub fn rows(&self, name: &str) -> Option<u64> {
        Some(file_shape(self.by_name.get(name)?).0)
    }

    /// A tensor of that shape in a type that the arithmetic knows.
    pub fn weight(&self, name: &str, shape: Shape) -> Result<WeightRef, PlanError> {
        let (rows, cols) = match shape {
            Shape::Vector(len) => (1, len),
            Shape::Matrix { rows, cols } => (rows, cols),
        };
        let info = self.by_name.get(name).ok_or_else(|| PlanError::MissingTensor {
            tensor: name.to_owned(),
            architecture: self.architecture.to_owned(),
            expected: format!("{rows} x {cols}"),
        })?;
        let found = file_shape(info);
        if found != (u64::from(rows), u64::from(cols)) {
            return Err(PlanError::TensorShape {
                tensor: name.to_owned(),
                architecture: self.architecture.to_owned(),
                expected: format!("{rows} x {cols}"),
                found: format!("{} x {}", found.0, found.1),
            });
        }
        encoding(info, shape)?;
        Ok(WeightRef { tensor: name.to_owned(), shape, part: None })
    }

    /// An error if a graph names tensors that are not there in the shape that it says.
    pub fn check(&self, graph: &Graph) -> Result<(), PlanError> {
        let factors = graph.rope_tables.iter().filter_map(|table| table.factors.as_ref());
        let of_nodes =
            graph.nodes.iter().flat_map(|node| node.op.weights().map(|weight| (&*node.label, weight)));
        factors.map(|factors| ("rope", factors)).chain(of_nodes).try_for_each(|(node, weight)| {
            self.misfit(weight).map_or(Ok(()), |found| {
                Err(PlanError::GraphTensor {
                    node: node.to_owned(),
                    tensor: weight.tensor.clone(),
                    expected: weight.shape.to_string(),
                    found,
                })
            })
        })
    }

    /// Why a weight of a graph cannot be had, if so.
    fn misfit(&self, weight: &WeightRef) -> Option<String> {
        let Some(info) = self.by_name.get(weight.tensor.as_str()) else {
            return Some("there is none".to_owned());
        };
        let (rows, cols) = match weight.shape {
            Shape::Vector(len) => (1, u64::from(len)),
            Shape::Matrix { rows, cols } => (u64::from(rows), u64::from(cols)),
        };
        let found = file_shape(info);
        let fits = match weight.part {
            None => found == (rows, cols),
            // Whole rows of a matrix, or values of a vector.
            Some(part) => {
                let of_one = if matches!(weight.shape, Shape::Matrix { .. }) { cols.max(1) } else { 1 };
                let all = found.0.saturating_mul(found.1);
                (found.1 == cols || of_one == 1) && part.first.is_multiple_of(of_one) && part.len == all
            }
        };
        (!fits).then(|| format!("it is [{}x{}]", found.0, found.1))
    }

    /// Rows of a matrix, or values of a vector, of that shape: `len` of them from `first` on.
    pub fn part(&self, name: &str, whole: Shape, first: u32, len: u32) -> Result<WeightRef, PlanError> {
        let weight = self.weight(name, whole)?;
        let (shape, of_one, all) = match whole {
            Shape::Vector(all) => (Shape::Vector(len), 1, all),
            Shape::Matrix { rows, cols } => (Shape::Matrix { rows: len, cols }, u64::from(cols), rows),
        };
        let part = TensorPart { first: u64::from(first) * of_one, len: u64::from(all) * of_one };
        Ok(WeightRef { shape, part: Some(part), ..weight })
    }

    /// The matrices of `experts` experts, one after the other.
    pub fn stack(&self, name: &str, experts: u32, rows: u32, cols: u32) -> Result<WeightRef, PlanError> {
        let all = experts.checked_mul(rows).ok_or_else(|| PlanError::TensorShape {
            tensor: name.to_owned(),
            architecture: self.architecture.to_owned(),
            expected: format!("fewer than 2^32 rows for {experts} experts of {rows}"),
            found: "more".to_owned(),
        })?;
        let weight = self.weight(name, Shape::Matrix { rows: all, cols })?;
        let info = self.by_name[name];
        if info.dims != [u64::from(cols), u64::from(rows), u64::from(experts)] {
            return Err(PlanError::TensorShape {
                tensor: name.to_owned(),
                architecture: self.architecture.to_owned(),
                expected: format!("{experts} matrices of {rows} x {cols}"),
                found: format!("dimensions {:?}", info.dims),
            });
        }
        Ok(weight)
    }

    /// A vector that is read on the host: F32 only.
    pub fn f32_vector(&self, name: &str, len: u32) -> Result<WeightRef, PlanError> {
        let weight = self.weight(name, Shape::Vector(len))?;
        match self.encoding(&weight)? {
            Encoding::F32(FloatSource::F32) => Ok(weight),
            _ => Err(PlanError::TensorType {
                tensor: name.to_owned(),
                found: self.by_name[name].ty,
                supported: GgmlType::F32.name().to_owned(),
            }),
        }
    }

    /// How a weight that [`Tensors::weight`] made enters the arithmetic.
    pub fn encoding(&self, weight: &WeightRef) -> Result<Encoding, PlanError> {
        let info = self.by_name.get(weight.tensor.as_str()).ok_or_else(|| PlanError::MissingTensor {
            tensor: weight.tensor.clone(),
            architecture: self.architecture.to_owned(),
            expected: weight.shape.to_string(),
        })?;
        encoding(info, weight.shape)
    }

    /// An error if the file holds tensors whose names `used` does not know: a variant of the architecture.
    pub fn all_used(&self, used: impl Fn(&str) -> bool) -> Result<(), PlanError> {
        let mut unused: Vec<&str> = self.by_name.keys().copied().filter(|name| !used(name)).collect();
        unused.sort_unstable();
        if unused.is_empty() {
            return Ok(());
        }
        let examples: Vec<String> = unused.iter().take(4).map(|name| format!("`{name}`")).collect();
        Err(PlanError::UnusedTensors {
            architecture: self.architecture.to_owned(),
            count: unused.len(),
            examples: examples.join(", "),
        })
    }
}

/// Rows and columns; dimensions past the first are rows. Products that overflow are no shape that anything expects.
fn file_shape(info: &TensorInfo) -> (u64, u64) {
    let rows = info.dims.iter().skip(1).fold(1u64, |product, &dim| product.saturating_mul(dim));
    (rows, info.dims.first().copied().unwrap_or(0))
}

/// Vectors stay f32, and so do what scores experts, by its name; other float matrices become W16, whatever their size
/// (docs/numerics.md "Linear layer").
fn encoding(info: &TensorInfo, shape: Shape) -> Result<Encoding, PlanError> {
    let encoding = match (shape, float_source(info.ty), BlockFormat::from_ggml(info.ty)) {
        (Shape::Vector(_), Some(source), _) => Some(Encoding::F32(source)),
        (Shape::Matrix { .. }, source, _) if is_router(&info.name) => source.map(Encoding::Router),
        (Shape::Matrix { .. }, Some(source), _) => Some(Encoding::W16(source)),
        (Shape::Matrix { .. }, None, Some(format)) => Some(Encoding::Block(format)),
        (Shape::Vector(_), None, _) | (Shape::Matrix { .. }, None, None) => None,
    };
    encoding.ok_or_else(|| PlanError::TensorType {
        tensor: info.name.clone(),
        found: info.ty,
        supported: supported(shape, is_router(&info.name)),
    })
}

/// Routers and the gates of shared experts.
fn is_router(name: &str) -> bool {
    name.split('.').any(|part| part.starts_with("ffn_gate_inp"))
}

fn supported(shape: Shape, is_router: bool) -> String {
    let usable = |ty: &&GgmlType| {
        let of_blocks = matches!(shape, Shape::Matrix { .. }) && !is_router;
        float_source(**ty).is_some() || of_blocks && BlockFormat::from_ggml(**ty).is_some()
    };
    GgmlType::ALL.iter().filter(usable).map(|ty| ty.name()).collect::<Vec<_>>().join(", ")
}

fn float_source(ty: GgmlType) -> Option<FloatSource> {
    match ty {
        GgmlType::F32 => Some(FloatSource::F32),
        GgmlType::F16 => Some(FloatSource::F16),
        GgmlType::BF16 => Some(FloatSource::BF16),
        _ => None,
    }
}
