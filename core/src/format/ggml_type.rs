//! The tensor element types that GGUF files use (`ggml.h`, `enum ggml_type`).

macro_rules! ggml_types {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $elems:literal, $bytes:literal;)*) => {
        /// How the elements of a tensor are stored. Ids are those of `ggml.h`; gaps are retired or never assigned.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the names the format uses")]
        pub enum GgmlType { $($(#[$doc])* $variant,)* }

        impl GgmlType {
            /// Every known type, by ascending id.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant,)*];

            /// The type with this id in a file, if it is a known one.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            /// The id in a file.
            pub fn id(self) -> u32 { match self { $(Self::$variant => $id,)* } }

            /// The name the format uses, such as `Q4_K`.
            pub fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }

            /// Elements in a block. Rows are whole blocks.
            pub fn block_elems(self) -> u64 { match self { $(Self::$variant => $elems,)* } }

            /// Bytes of a block.
            pub fn block_len_bytes(self) -> u64 { match self { $(Self::$variant => $bytes,)* } }
        }
    };
}

ggml_types! {
    /// IEEE binary32.
    F32 = 0, "F32", 1, 4;
    /// IEEE binary16.
    F16 = 1, "F16", 1, 2;
    /// 4 bit, scale.
    Q4_0 = 2, "Q4_0", 32, 18;
    /// 4 bit, scale and minimum.
    Q4_1 = 3, "Q4_1", 32, 20;
    /// 5 bit, scale.
    Q5_0 = 6, "Q5_0", 32, 22;
    /// 5 bit, scale and minimum.
    Q5_1 = 7, "Q5_1", 32, 24;
    /// 8 bit, scale.
    Q8_0 = 8, "Q8_0", 32, 34;
    /// 8 bit, scale and sum (activations of other runtimes).
    Q8_1 = 9, "Q8_1", 32, 36;
    /// 2 bit, 16 sub-blocks of 16.
    Q2_K = 10, "Q2_K", 256, 84;
    /// 3 bit, 16 sub-blocks of 16.
    Q3_K = 11, "Q3_K", 256, 110;
    /// 4 bit, 8 sub-blocks of 32.
    Q4_K = 12, "Q4_K", 256, 144;
    /// 5 bit, 8 sub-blocks of 32.
    Q5_K = 13, "Q5_K", 256, 176;
    /// 6 bit, 16 sub-blocks of 16.
    Q6_K = 14, "Q6_K", 256, 210;
    /// 8 bit, 256 (activations of other runtimes).
    Q8_K = 15, "Q8_K", 256, 292;
    /// 2.06 bit, grid.
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    /// 2.31 bit, grid.
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    /// 3.06 bit, grid.
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    /// 1.56 bit, grid.
    IQ1_S = 19, "IQ1_S", 256, 50;
    /// 4 bit, 16 fixed levels.
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    /// 3.44 bit, grid.
    IQ3_S = 21, "IQ3_S", 256, 110;
    /// 2.5 bit, grid.
    IQ2_S = 22, "IQ2_S", 256, 82;
    /// 4 bit, 16 fixed levels, 8 sub-blocks of 32.
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    /// 8-bit integer.
    I8 = 24, "I8", 1, 1;
    /// 16-bit integer.
    I16 = 25, "I16", 1, 2;
    /// 32-bit integer.
    I32 = 26, "I32", 1, 4;
    /// 64-bit integer.
    I64 = 27, "I64", 1, 8;
    /// IEEE binary64.
    F64 = 28, "F64", 1, 8;
    /// 1.75 bit, grid.
    IQ1_M = 29, "IQ1_M", 256, 56;
    /// bfloat16.
    BF16 = 30, "BF16", 1, 2;
    /// Ternary, 1.69 bit.
    TQ1_0 = 34, "TQ1_0", 256, 54;
    /// Ternary, 2.06 bit.
    TQ2_0 = 35, "TQ2_0", 256, 66;
    /// 4-bit float, power-of-two scale.
    MXFP4 = 39, "MXFP4", 32, 17;
    /// 4-bit float, a scale of 8 bits (UE4M3) for each 16.
    NVFP4 = 40, "NVFP4", 64, 36;
    /// 1 bit, scale.
    Q1_0 = 41, "Q1_0", 128, 18;
    /// 2 bit, scale.
    Q2_0 = 42, "Q2_0", 64, 18;
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::GgmlType;

    /// `GGML_QUANT_SIZES` of gguf-py 0.19.0: id, name, elements and bytes of a block; Q2_0 from a later version.
    const GGUF_PY: &[(u32, &str, u64, u64)] = &[
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        // gguf-py says 40: f32 scale and sum, as before `block_q8_1` of ggml-common.h went to f16.
        (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
    ];

    #[test]
    fn block_sizes_are_those_of_gguf_py() {
        let ours: Vec<_> =
            GgmlType::ALL.iter().map(|t| (t.id(), t.name(), t.block_elems(), t.block_len_bytes())).collect();
        assert_eq!(ours, GGUF_PY);
        for &ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
        }
    }

    #[test]
    fn retired_and_unassigned_ids_are_unknown() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 255, u32::MAX] {
            assert_eq!(GgmlType::from_id(id), None, "{id}");
        }
    }
}
