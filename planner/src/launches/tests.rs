//! What backends rely on, over the plans of every architecture.

use expect_test::expect;
use unisonic_core::kir::abi::{MAX_OBJECT_LEN, record_len_bytes};
use unisonic_core::launch::Area;

use super::*;
use crate::kernels::samples::Extent;
use crate::models::samples;

const LIMITS: Limits = Limits { kv_pages: 20, max_rows: 40, max_outputs: 3 };

fn shapes() -> impl Iterator<Item = Shape> {
    let all = [(1, 1, 1), (1, 0, 1), (4, 3, 2), (16, 1, 2), (32, 0, 1), (40, 2, 2)];
    all.into_iter().map(|(rows, outputs, groups)| Shape { rows, outputs, groups })
}

/// Places begin where addresses may, lie in their area, and no launch writes what it reads by another name.
#[test]
fn launches_stay_in_their_places() {
    for sample in samples::all() {
        let plan = Arc::new(sample.plan());
        for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
            let lowered = Lowering::default().lower(plan.clone(), LIMITS, hardware).expect(sample.name);
            let memory = lowered.memory();
            let wanted = [Wanted::Logits, Wanted::Tokens];
            for (shape, wanted) in shapes().flat_map(|shape| wanted.map(|wanted| (shape, wanted))) {
                let found = lowered.launches(shape, wanted).expect(sample.name);
                for launch in &found.launches {
                    let kernel = &found.kernels[launch.kernel as usize];
                    assert!(record_len_bytes(kernel) > 0);
                    for place in &launch.places {
                        let len_bytes = match place.area {
                            Area::Image(image) => memory.images[image as usize].len_bytes(&plan),
                            Area::Cache(layer) => {
                                memory.page_len_bytes[layer as usize] * u64::from(memory.pages)
                            }
                            Area::Arena => memory.arena_len_bytes,
                            Area::Inputs => memory.inputs_len_bytes,
                        };
                        assert!(place.offset_bytes.is_multiple_of(ALIGN_BYTES), "{}", sample.name);
                        assert!(
                            place.offset_bytes + place.len_bytes <= len_bytes,
                            "{}: {place:?}",
                            sample.name
                        );
                    }
                }
                assert_eq!(found.logits.is_some(), shape.outputs > 0 && wanted == Wanted::Logits);
                assert_eq!(found.picked.is_some(), shape.outputs > 0 && wanted == Wanted::Tokens);
            }
        }
    }
}

#[test]
fn shapes_beyond_the_largest_are_refused() {
    let sample = &samples::all()[0];
    let lowered =
        Lowering::default().lower(Arc::new(sample.plan()), LIMITS, Hardware::SM_86).expect("lowered");
    for shape in [
        Shape { rows: 41, outputs: 1, groups: 1 },
        Shape { rows: 4, outputs: 4, groups: 1 },
        Shape { rows: 4, outputs: 1, groups: 3 },
        Shape { rows: 0, outputs: 0, groups: 1 },
    ] {
        assert!(lowered.launches(shape, Wanted::Logits).is_err(), "{shape:?}");
    }
}

/// Label of the first step, kernel and workgroups of each launch.
fn listing(sample: &samples::Sample, passes: LaunchPasses, shape: Shape) -> String {
    let plan = Arc::new(sample.plan());
    let lowered = Lowering { passes, ..Lowering::default() }.lower(plan.clone(), LIMITS, Hardware::SM_86);
    let lowered = lowered.expect(sample.name);
    let found = lowered.launches(shape, Wanted::Logits).expect(sample.name);
    let line = |launch: &Launch| {
        let (step, kernel) =
            (&plan.steps[launch.step as usize].label, &found.kernels[launch.kernel as usize]);
        format!("{step}: {} {:?}\n", kernel.name, launch.workgroups)
    };
    found.launches.iter().map(line).collect()
}

/// What a step of generating is.
#[test]
fn launches_of_a_decode_step() {
    let shape = Shape { rows: 1, outputs: 1, groups: 1 };
    expect![[r#"
        token_embd: embed Fixed(1)
        blk.0.attn_norm: rms_norm Fixed(1)
        blk.0.attn_q: linear_split_k_x3 Fixed(32)
        blk.0.attention.kv: write_kv_and_prepare_query Fixed(3)
        blk.0.attention: attention_decode Fixed(4)
        blk.0.attention.quantize: attention_merge Fixed(1)
        blk.0.attn_output: linear_split_k Fixed(16)
        blk.0.ffn_norm: rms_norm Fixed(1)
        blk.0.ffn_gate: linear_split_k_x2 Fixed(64)
        blk.0.ffn_act: gate Fixed(1)
        blk.0.ffn_down: linear_split_k Fixed(16)
        blk.1.attn_norm: rms_norm Fixed(1)
        blk.1.attn_q: linear_split_k_x3 Fixed(32)
        blk.1.attention.kv: write_kv_and_prepare_query Fixed(3)
        blk.1.attention: attention_decode Fixed(4)
        blk.1.attention.outputs.quantize: attention_merge_and_select_rows Fixed(2)
        blk.1.attn_output: linear_split_k Fixed(16)
        blk.1.ffn_norm: rms_norm Fixed(1)
        blk.1.ffn_gate: linear_split_k_x2 Fixed(64)
        blk.1.ffn_act: gate Fixed(1)
        blk.1.ffn_down: linear_split_k Fixed(16)
        output_norm: rms_norm Fixed(1)
        output: linear_split_k Fixed(17)
        output: found_flags Fixed(2)
    "#]]
    .assert_eq(&listing(&samples::qwen2(), LaunchPasses::default(), shape));
}

/// Whatever limits ask for: an error, or objects and grids that 32 bits number. Nothing wraps, which tests would see.
#[test]
fn what_32_bits_do_not_number_is_an_error() {
    let plan = Arc::new(samples::llama().plan());
    let sizes = [1, 512, 1 << 16, 1 << 20, 1 << 23, 1 << 26, 1 << 30, u32::MAX];
    let mut lowered = 0;
    for [rows, pages, outputs] in Extent::Pairs.combinations([sizes.len(); 3]) {
        let limits = Limits { kv_pages: sizes[pages], max_rows: sizes[rows], max_outputs: sizes[outputs] };
        for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
            let Ok(found) = Lowering::default().lower(plan.clone(), limits, hardware) else { continue };
            lowered += 1;
            for launch in found
                .launches(found.memory().largest, Wanted::Logits)
                .into_iter()
                .flat_map(|found| found.launches)
            {
                let words = launch.places.iter().map(|place| place.len_bytes / 4).max();
                assert!(words <= Some(u64::from(MAX_OBJECT_LEN)), "{limits:?}: {launch:?}");
            }
        }
    }
    assert!(lowered > 4, "{lowered}");
}

/// The message has the step, what is too large, the limit, and what to do.
#[test]
fn what_is_too_large_is_named() {
    let told = |kv_pages: u32, max_rows: u32, max_outputs: u32| {
        let limits = Limits { kv_pages, max_rows, max_outputs };
        match Lowering::default().lower(Arc::new(samples::llama().plan()), limits, Hardware::SM_86) {
            Ok(_) => panic!("{limits:?} have room"),
            Err(error) => error.to_string(),
        }
    };
    // Rows of 256 values and more; logits of 259.
    for (error, expected) in [
        (told(1, 1 << 24, 1), ["`token_embd`", "16777216 rows of 256 elements"]),
        (told(1, 1 << 22, 1), ["`blk.0.", "4194304 rows of 512 elements"]),
    ] {
        assert!(expected.iter().chain([&"2147483647"]).all(|part| error.contains(part)), "{error}");
    }
    // A page has 2 heads of 48*64 + 128 words.
    let error = told(400_000, 1, 1);
    for part in ["`blk.0.", "keys and values have 2560006400 words", "at most 335543 KV pages of 400000 fit"]
    {
        assert!(error.contains(part), "{error}");
    }
    let fits = Limits { kv_pages: 335_543, max_rows: 1, max_outputs: 1 };
    assert!(Lowering::default().lower(Arc::new(samples::llama().plan()), fits, Hardware::SM_86).is_ok());
}
