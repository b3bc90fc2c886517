//! Execution modes that GLSL has no words for.

/// Modes that a device offers, and that kernels are compiled with there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// `RoundingModeRTE` of f32.
    pub rounds_to_even: bool,
    /// `SignedZeroInfNanPreserve` of f32.
    pub preserves_signed_zeros: bool,
}

const OP_MEMORY_MODEL: u32 = 14;
const OP_ENTRY_POINT: u32 = 15;
const OP_EXECUTION_MODE: u32 = 16;
const OP_CAPABILITY: u32 = 17;

/// Capability and mode: `RoundingModeRTE`, `SignedZeroInfNanPreserve`.
const ROUNDS: [u32; 2] = [4467, 4462];
const PRESERVES: [u32; 2] = [4466, 4461];

/// Words of a header.
const HEADER_LEN: usize = 5;

/// A module of one entry point with modes added.
pub fn with_modes(words: &[u32], modes: Modes) -> Vec<u32> {
    let wanted: Vec<[u32; 2]> = [(modes.rounds_to_even, ROUNDS), (modes.preserves_signed_zeros, PRESERVES)]
        .into_iter()
        .filter_map(|(is_wanted, words)| is_wanted.then_some(words))
        .collect();
    let (header, mut rest) = words.split_at(words.len().min(HEADER_LEN));
    let mut out = header.to_vec();
    while let Some(&first) = rest.first() {
        let (len, op) = ((first >> 16) as usize, first & 0xFFFF);
        let (inst, after) = rest.split_at(len.clamp(1, rest.len()));
        if op == OP_MEMORY_MODEL {
            // Capabilities come first of all.
            let at = HEADER_LEN;
            let added = wanted.iter().flat_map(|[capability, _]| [2 << 16 | OP_CAPABILITY, *capability]);
            out.splice(at..at, added);
        }
        out.extend_from_slice(inst);
        if op == OP_ENTRY_POINT
            && let Some(&entry) = inst.get(2)
        {
            out.extend(wanted.iter().flat_map(|[_, mode]| [4 << 16 | OP_EXECUTION_MODE, entry, *mode, 32]));
        }
        rest = after;
    }
    out
}
