//! What of a device changes the code.

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::record_len_bytes;
use unisonic_core::kir::legal::Caps;
use unisonic_core::kir::op::MATRIX_CLUSTER;

/// What of a device changes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Invocations of a subgroup: what the pipeline will require. 1 if there is nothing to exchange with.
    pub subgroup_size: u32,
    /// Whether packed dot products can be had (`shaderIntegerDotProduct`).
    pub integer_dot: bool,
    /// Whether rounding to nearest even can be declared for f32 (`shaderRoundingModeRTEFloat32`).
    pub rounds_to_even: bool,
    /// Whether the preservation of signed zeros, infinities and NaN can be declared for f32
    /// (`shaderSignedZeroInfNanPreserveFloat32`).
    pub preserves_signed_zeros: bool,
    /// Shared memory of a workgroup (`maxComputeSharedMemorySize`): whether there is room to stage matrices.
    pub max_shared_len_bytes: u32,
    /// The longest record of a launch that comes as push constants; of a longer one its address does. At most
    /// `maxPushConstantsSize`.
    pub max_pushed_len_bytes: u32,
    /// Whether the driver's compiler may know constants of f32. One that takes 0 + x for x does not compute as specified:
    /// there constants come about at run time, from [`super::emit`]'s sum with a number that is 0 in every launch.
    pub knows_constants: bool,
    /// Which words make a cooperative matrix, where the device multiplies them: `VK_KHR_cooperative_matrix`
    /// with s8 x s8 + s32 -> s32 of 16x8x32, subgroups of 32, and a probe ([`super::matrix_probe`]) that
    /// found this.
    pub matrix: Option<MatrixOrder>,
}

impl Target {
    /// Whether the record of a kernel's launches comes as push constants.
    pub fn pushes_record(&self, kernel: &Kernel) -> bool {
        record_len_bytes(kernel) <= self.max_pushed_len_bytes
    }

    /// What a kernel may hold: the legaliser's question.
    ///
    /// Halves are taken out of words by integer operations, though [`super::emit`] knows SPIR-V's own
    /// instruction: the specification lets it flush subnormal halves, and Mesa 22.3 makes 0 of a constant's.
    pub fn caps(&self) -> Caps {
        let has_matrices = self.matrix.is_some() && self.subgroup_size == MATRIX_CLUSTER;
        Caps {
            subgroup: self.subgroup_size,
            dot4: self.integer_dot,
            mma16: false,
            mma32: has_matrices,
            load_b: has_matrices,
            half: false,
            copy_async: false,
            vector: 4,
        }
    }
}

/// Which word of A each four components of a cooperative matrix are; B and the accumulator have the words in
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixOrder([u8; 4]);

impl MatrixOrder {
    /// Components 4i .. 4i+3 are word `words[i]`; none if a word is missing.
    pub fn new(words: [u8; 4]) -> Option<Self> {
        (0..4).all(|word| words.contains(&word)).then_some(Self(words))
    }

    /// The word of each four components.
    pub fn words(self) -> [u8; 4] {
        self.0
    }
}
