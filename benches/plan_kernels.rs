//! How long the kernels of a 7B model take to build, legalise and emit, on one core.
//!
//! `cargo bench --bench plan_kernels`. The plan is that of Qwen2.5-7B in Q4_K_M (Q6_K in the value and down projections of
//! half the layers and in the head), made of metadata alone. Building is all of lowering for a number of rows: kernels, also
//! those that are joined, and places; it is for the device that the code is for, and timed for CUDA. The bar is 100 ms for one number of rows and one device.
//!
//! Before that: how long the plan itself takes, from metadata and tensor table to steps, with all passes and the verifier after each. The
//! bar is 50 ms, and 5 ms for it to be worth no cache.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use unisonic_core::format::{GgmlType, Metadata, Strings, TensorInfo, Value};
use unisonic_core::kir::Kernel;
use unisonic_core::kir::legal::legalize;
use unisonic_core::launch::{Hardware, Launches, Lower, Shape, Wanted};
use unisonic_core::plan::{Limits, MemoryWeights, Plan};
use unisonic_cuda::ptx;
use unisonic_planner::launches::Lowering;
use unisonic_vulkan::spirv;

const LAYERS: u32 = 28;
const EMBEDDING: u64 = 3584;
const FEED_FORWARD: u64 = 18_944;
const HEADS: u64 = 28;
const KV_HEADS: u64 = 4;
const HEAD_LEN: u64 = 128;
const VOCAB: u64 = 152_064;
const RUNS: usize = 7;

fn main() {
    let (metadata, tensors) = model();
    let planned = || {
        let options = unisonic_planner::PlanOptions::default();
        unisonic_planner::plan(&metadata, &tensors, &MemoryWeights::default(), &options).expect("a plan")
    };
    let plan_ms = median_ms(|| {
        black_box(planned());
    });
    let plan = Arc::new(planned());
    println!("{} tensors, {} steps: planned in {plan_ms:.2} ms\n", tensors.len(), plan.steps.len());
    let vulkan = spirv::Target {
        subgroup_size: 32,
        integer_dot: true,
        rounds_to_even: true,
        preserves_signed_zeros: true,
        max_shared_len_bytes: 48 * 1024,
        max_pushed_len_bytes: 128,
        knows_constants: true,
        matrix: None,
    };
    let matrices = spirv::Target { matrix: spirv::MatrixOrder::new([0, 2, 1, 3]), ..vulkan };
    print!("{:>5}{:>10}{:>9}{:>10}{:>14}", "rows", "launches", "kernels", "build ms", "PTX ms");
    println!("{:>14}{:>14}{:>14}", "SPIR-V ms", "no matrix ms", "PTX KiB");
    for rows in [1, 4, 16, 64, 512] {
        let Launches { kernels, launches, .. } = build(&plan, rows, Hardware::SM_86);
        let build_ms = median_ms(|| {
            black_box(build(&plan, rows, Hardware::SM_86));
        });
        let mut ptx_len_bytes = 0;
        let ptx_ms = median_ms(|| ptx_len_bytes = kernels.iter().map(|kernel| ptx_of(kernel).len()).sum());
        let [matrix_ms, dot_ms] = [matrices, vulkan].map(|target| {
            let hardware = Hardware { caps: target.caps(), ..Hardware::COOPERATIVE };
            let Launches { kernels, .. } = build(&plan, rows, hardware);
            median_ms(|| {
                for kernel in &kernels {
                    black_box(spirv::emit(&legalize(kernel, &target.caps()), &target));
                }
            })
        });
        let (launches, count) = (launches.len(), kernels.len());
        print!(
            "{rows:>5}{launches:>10}{count:>9}{build_ms:>10.1}{ptx_ms:>14.1}{matrix_ms:>14.1}{dot_ms:>14.1}"
        );
        println!("{:>14}", ptx_len_bytes / 1024);
    }
}

fn build(plan: &Arc<Plan>, rows: u32, hardware: Hardware) -> Launches {
    let limits = Limits { kv_pages: 16, max_rows: rows, max_outputs: rows };
    let lowered =
        Lowering::default().lower(plan.clone(), limits, hardware).expect("the plan's shapes have layouts");
    lowered
        .launches(Shape { rows, outputs: rows, groups: 1 }, Wanted::Logits)
        .expect("the shape is within the limits")
}

fn ptx_of(kernel: &Kernel) -> String {
    let target = ptx::Target::Sm86;
    ptx::emit(&legalize(kernel, &target.caps()), target)
}

/// The median of some runs.
fn median_ms(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn model() -> (Metadata, Vec<TensorInfo>) {
    let mut metadata = Metadata::default();
    let mut set = |key: &str, value: Value| assert!(metadata.insert(key, value), "{key}");
    set("general.architecture", Value::String("qwen2".to_owned()));
    set("qwen2.context_length", Value::U32(32_768));
    set("qwen2.embedding_length", Value::U32(EMBEDDING as u32));
    set("qwen2.block_count", Value::U32(LAYERS));
    set("qwen2.feed_forward_length", Value::U32(FEED_FORWARD as u32));
    set("qwen2.attention.head_count", Value::U32(HEADS as u32));
    set("qwen2.attention.head_count_kv", Value::U32(KV_HEADS as u32));
    set("qwen2.attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    set("qwen2.rope.freq_base", Value::F32(1e6));
    let tokens = (0..VOCAB).map(|id| id.to_string()).collect::<Strings>();
    set("tokenizer.ggml.tokens", Value::Strings(tokens));

    let mut tensors = vec![
        tensor("token_embd.weight", GgmlType::Q4_K, &[EMBEDDING, VOCAB]),
        tensor("output.weight", GgmlType::Q6_K, &[EMBEDDING, VOCAB]),
        tensor("output_norm.weight", GgmlType::F32, &[EMBEDDING]),
    ];
    let (q, kv) = (HEADS * HEAD_LEN, KV_HEADS * HEAD_LEN);
    for layer in 0..LAYERS {
        let larger = if layer % 2 == 0 { GgmlType::Q6_K } else { GgmlType::Q4_K };
        for (part, ty, dims) in [
            ("attn_norm.weight", GgmlType::F32, vec![EMBEDDING]),
            ("attn_q.weight", GgmlType::Q4_K, vec![EMBEDDING, q]),
            ("attn_q.bias", GgmlType::F32, vec![q]),
            ("attn_k.weight", GgmlType::Q4_K, vec![EMBEDDING, kv]),
            ("attn_k.bias", GgmlType::F32, vec![kv]),
            ("attn_v.weight", larger, vec![EMBEDDING, kv]),
            ("attn_v.bias", GgmlType::F32, vec![kv]),
            ("attn_output.weight", GgmlType::Q4_K, vec![q, EMBEDDING]),
            ("ffn_norm.weight", GgmlType::F32, vec![EMBEDDING]),
            ("ffn_gate.weight", GgmlType::Q4_K, vec![EMBEDDING, FEED_FORWARD]),
            ("ffn_up.weight", GgmlType::Q4_K, vec![EMBEDDING, FEED_FORWARD]),
            ("ffn_down.weight", larger, vec![FEED_FORWARD, EMBEDDING]),
        ] {
            tensors.push(tensor(&format!("blk.{layer}.{part}"), ty, &dims));
        }
    }
    (metadata, tensors)
}

fn tensor(name: &str, ty: GgmlType, dims: &[u64]) -> TensorInfo {
    let (name, dims) = (name.to_owned(), dims.to_vec());
    TensorInfo { name, ty, dims, shard: 0, offset_bytes: 0, len_bytes: 0 }
}
