//! What the tests of this crate share.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod gpu;
pub mod operations;
pub mod ptxas;

use std::path::{Path, PathBuf};

use unisonic_core::kir::legal::{is_legal, legalize};
use unisonic_core::kir::random::random_kernel;
use unisonic_core::kir::{Kernel, parse, verify};
use unisonic_cuda::ptx::{Target, emit};

/// A path of this crate.
pub fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files of `tests/ptx`, in the order of their names.
pub fn filetests() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path("tests/ptx")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} files", files.len());
    files
}

/// A kernel of the text form that verifies.
pub fn read(source: &str) -> Kernel {
    let kernel = parse(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    assert_eq!(verify(&kernel), [], "{kernel}");
    kernel
}

/// The kernels of templates, in shapes of Qwen2.5-7B.
pub fn templates() -> Vec<(String, Kernel)> {
    use unisonic_core::format::blocks::BlockFormat;
    use unisonic_core::planes::activation::{ActivationLayout, Digits};
    use unisonic_core::planes::weight::{WeightFormat, WeightLayout};
    use unisonic_planner::kernels::linear::{Epilogue, SplitK, Tiled, split_k, tiled};
    use unisonic_planner::kernels::{A16Form, Outputs, RmsNorm, SuperblockShape, quantize_a16, rms_norm};

    let (rows, width) = (18944, 3584);
    let form = A16Form { width: width as u32, tile_rows: 1, digits: Some(Digits::Eight), sums: false };
    let outputs = Outputs { f32: true, a16: Some(form) };
    let norm = RmsNorm { width: width as u32, eps: 1e-5, add: false, outputs };
    let mut kernels = vec![
        ("rms_norm".to_owned(), rms_norm(norm).kernel),
        ("quantize_a16".to_owned(), quantize_a16(form, SuperblockShape::default()).kernel),
    ];
    for (name, format) in
        [("Q4_K", BlockFormat::Q4_K), ("Q6_K", BlockFormat::Q6_K), ("Q8_0", BlockFormat::Q8_0)]
    {
        let weights = WeightLayout::new(WeightFormat::Block(format), rows, width).unwrap();
        let [one, many] = [1, 512].map(|rows| ActivationLayout::new(rows, width).unwrap());
        let few = split_k(weights, one, Epilogue::default(), SplitK::new(weights, one));
        let many = tiled(weights, many, Epilogue::default(), Tiled::new(weights, many));
        kernels.extend(
            [("linear_split_k", few), ("linear_tiled", many)]
                .map(|(template, linear)| (format!("{template} {name}"), linear.kernel)),
        );
    }
    kernels
}

/// All kernels that tests emit for a target beside the filetests: each operation, random ones, and the templates that
/// the target runs as they are.
pub fn kernels(target: Target) -> Vec<Kernel> {
    let random = (0..16).map(|seed| Kernel { name: format!("random_{seed}"), ..random_kernel(seed, 40).0 });
    let named = |(name, kernel): (String, Kernel)| Kernel { name: name.replace(' ', "_"), ..kernel };
    let is_legal = |kernel: &Kernel| is_legal(&kernel.body, kernel, &target.caps());
    let templates = templates().into_iter().map(named).filter(is_legal);
    operations::kernels().into_iter().chain(random).chain(templates).collect()
}

/// What a target is given of a kernel.
pub fn emit_legal(kernel: &Kernel, target: Target) -> String {
    let kernel = legalize(kernel, &target.caps());
    assert_eq!(verify(&kernel), [], "{kernel}");
    emit(&kernel, target)
}

/// The target of `;! test ptx TARGET`.
pub fn target(source: &str) -> Target {
    let name = source.lines().find_map(|line| line.strip_prefix(";! test ptx "));
    name.and_then(|name| Target::from_name(name.trim())).expect("a line `;! test ptx sm_86`")
}
