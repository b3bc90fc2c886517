//! What the tests of this crate share.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod gpu;
pub mod ptxas;

use std::path::{Path, PathBuf};

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::cases;
use unisonic_core::kir::join::{Segment, join};
use unisonic_core::kir::legal::{is_legal, legalize};
use unisonic_core::kir::random::random_kernel;
use unisonic_core::kir::{Kernel, parse, verify};
use unisonic_core::launch::Hardware;
use unisonic_core::plan::{Activation, Denominator, RopeStyle};
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::region::Regions;
use unisonic_core::planes::weight::{WeightFormat, WeightLayout};
use unisonic_cuda::ptx::{Target, emit};
use unisonic_planner::kernels::linear::{Epilogue, ExpertLinear, Residual};
use unisonic_planner::kernels::of_plan::Template;
use unisonic_planner::kernels::{
    A16Form, Attention, Gate, KvLayout, LayerNorm, Lookup, MergeShape, MergedRows, Outputs, PrefillShape,
    PrepareQuery, RmsNorm, Rope, Route, WriteKv,
};

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

/// The kernels of a decode step and of prefill, in shapes of Qwen2.5-7B, with the tuning that they have by
/// default: those whose registers are watched.
pub fn templates() -> Vec<(String, Kernel)> {
    let (mut templates, heads, head_len) = (Vec::new(), 28, 128);
    for format in WeightFormat::ALL {
        let name = match format {
            WeightFormat::Block(format) => format.name(),
            WeightFormat::W16 => "W16",
        };
        templates.push((format!("linear {name} 1"), linear(format, 1)));
    }
    for format in [BlockFormat::Q4_K, BlockFormat::Q6_K, BlockFormat::Q8_0] {
        for rows in [4, 16, 512] {
            templates.push((
                format!("linear {} {rows}", format.name()),
                linear(WeightFormat::Block(format), rows),
            ));
        }
    }
    let bias = Epilogue { bias: true, ..Epilogue::default() };
    let residual = Epilogue { add: Some(Residual::Buffer), ..Epilogue::default() };
    for (name, epilogue) in [("bias", bias), ("residual", residual)] {
        for (format, rows) in
            [(BlockFormat::Q4_K, 1), (BlockFormat::Q6_K, 1), (BlockFormat::Q4_K, 4), (BlockFormat::Q4_K, 16)]
        {
            let template = linear_with(WeightFormat::Block(format), rows, epilogue);
            templates.push((format!("linear {} {rows} {name}", format.name()), template));
        }
    }
    let regions = Regions::read_by(&[WeightFormat::Block(BlockFormat::Q4_K)]);
    let form = A16Form { width: 3584, tile_rows: 1, regions };
    let (a16, f32) = (Outputs { f32: false, a16: Some(form) }, Outputs { f32: true, a16: None });
    let layout = KvLayout { heads: 4, head_len };
    let attention = Attention { layout, heads, kappa: 0.127, window: None, soft_cap: None };
    let prefill = PrefillShape::new(attention, &Hardware::SM_86).unwrap();
    let prefill = Template::AttentionPrefill(attention, prefill);
    let merge = MergeShape { rows: MergedRows::All, one_group: false };
    let rope = Some(Rope { style: RopeStyle::HalfSplit, pairs: head_len / 2 });
    let norm = RmsNorm { width: 3584, eps: 1e-6, add: false, outputs: a16 };
    let gate = Gate { activation: Activation::Silu, width: 3584, up_width: 3584, outputs: a16 };
    let experts = Route { width: 2048, experts: 128, chosen: 8, denominator: Denominator::Chosen };
    let query = PrepareQuery { heads, head_len, norm_eps: None, rope };
    templates.extend([
        ("embed Q4_K".to_owned(), Template::EmbedBlocks(BlockFormat::Q4_K, 3584, Lookup::Token(None))),
        ("rms_norm to A16".to_owned(), Template::RmsNorm(norm)),
        ("gate to A16".to_owned(), Template::Gate(gate)),
        ("scale".to_owned(), Template::Scale(3584)),
        (
            "layer_norm to A16".to_owned(),
            Template::LayerNorm(LayerNorm { width: 3584, eps: 1e-5, outputs: a16 }),
        ),
        ("route".to_owned(), Template::Route(experts)),
        ("expert_linear Q4_K".to_owned(), expert_linear(WeightFormat::Block(BlockFormat::Q4_K))),
        ("expert_linear Q6_K".to_owned(), expert_linear(WeightFormat::Block(BlockFormat::Q6_K))),
        ("sum_experts".to_owned(), Template::SumExperts(2048, 8)),
        ("add_shared".to_owned(), Template::AddShared(2048, 2048)),
        ("quantize_a16".to_owned(), Template::Quantize(form)),
        ("prepare_query".to_owned(), Template::PrepareQuery(query)),
        ("write_kv".to_owned(), Template::WriteKv(WriteKv { layout, norm_eps: None, rope, value_eps: None })),
        ("attention_decode".to_owned(), Template::AttentionDecode(attention, 1)),
        ("attention_merge".to_owned(), Template::AttentionMerge(attention, f32, merge)),
        ("attention_prefill".to_owned(), prefill),
    ]);
    let kernel = |template: Template| template.kernel(&Hardware::SM_86).kernel;
    let matrices = |formats: &[BlockFormat], rows: usize| {
        formats.iter().map(|&format| kernel(linear(WeightFormat::Block(format), rows))).collect()
    };
    let heads = [
        Template::WriteKv(WriteKv { layout, norm_eps: None, rope, value_eps: None }),
        Template::PrepareQuery(query),
    ];
    use BlockFormat::{Q4_K, Q6_K};
    let joined: [(&str, Vec<Kernel>); 6] = [
        ("linear Q4_K Q4_K Q6_K 1", matrices(&[Q4_K, Q4_K, Q6_K], 1)),
        ("linear Q4_K Q4_K 1", matrices(&[Q4_K; 2], 1)),
        ("linear Q4_K Q4_K 4", matrices(&[Q4_K; 2], 4)),
        ("linear Q4_K Q4_K Q6_K 16", matrices(&[Q4_K, Q4_K, Q6_K], 16)),
        ("linear Q4_K Q4_K Q6_K 64", matrices(&[Q4_K, Q4_K, Q6_K], 64)),
        ("write_kv prepare_query", heads.map(kernel).to_vec()),
    ];
    let alone = templates.into_iter().map(|(name, template)| (name, kernel(template)));
    let joined = joined.map(|(name, kernels)| (format!("joined {name}"), side_by_side(&kernels)));
    alone.chain(joined).collect()
}

/// Kernels in one launch, on buffers of their own.
fn side_by_side(kernels: &[Kernel]) -> Kernel {
    let buffers: Vec<Vec<u32>> = (0..)
        .zip(kernels)
        .map(|(number, kernel)| (0..addressed(kernel).count() as u32).map(|i| 100 * number + i).collect())
        .collect();
    let segments =
        kernels.iter().zip(&buffers).map(|(kernel, buffers)| Segment { kernel, workgroups: 10, buffers });
    join(&segments.collect::<Vec<_>>()).kernel
}

/// Layers of 8 of 128 experts.
fn expert_linear(format: WeightFormat) -> Template {
    let weights = WeightLayout::new(format, 128 * 768, 2048).unwrap();
    let x = ActivationLayout::new(1, 2048).unwrap();
    Template::ExpertLinear(ExpertLinear { weights, x, width: 768, slots: 8, x_has_slots: false })
}

/// A linear layer as wide as the model.
fn linear(format: WeightFormat, rows: usize) -> Template {
    linear_with(format, rows, Epilogue::default())
}

fn linear_with(format: WeightFormat, rows: usize, epilogue: Epilogue) -> Template {
    let weights = WeightLayout::new(format, 18944, 3584).unwrap();
    Template::Linear(weights, ActivationLayout::new(rows, 3584).unwrap(), epilogue)
}

/// All kernels that tests emit for a target beside the filetests: each operation, random ones, and the
/// templates that the target runs as they are.
pub fn kernels(target: Target) -> Vec<Kernel> {
    let random = (0..16).map(|seed| Kernel { name: format!("random_{seed}"), ..random_kernel(seed, 40).0 });
    let named = |(name, kernel): (String, Kernel)| Kernel { name: name.replace(' ', "_"), ..kernel };
    let templates = templates().into_iter().map(named).filter(|kernel| is_legal(kernel, &target.caps()));
    cases::all().into_iter().map(|case| case.kernel).chain(random).chain(templates).collect()
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
