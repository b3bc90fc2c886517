//! Shapes that are chosen; `samples` has the arithmetic.

use unisonic_core::kir::legal::legalize;
use unisonic_core::launch::Hardware;

use super::super::fit::misfit;
use super::super::fit::tests::devices;
use super::super::kv::KvLayout;
use super::{Attention, DecodeShape, PrefillShape, attention_decode, attention_prefill};

fn attention(head_len: u32, heads: u32, kv_heads: u32) -> Attention {
    Attention {
        layout: KvLayout { heads: kv_heads, head_len },
        heads,
        kappa: 0.1,
        window: None,
        soft_cap: None,
    }
}

#[test]
fn heads_are_spread_over_a_device() {
    let hardware = Hardware { multiprocessors: 132, ..Hardware::SM_86 };
    let of = |head_len, heads, kv_heads, states| {
        DecodeShape::new(attention(head_len, heads, kv_heads), states, &hardware)
    };
    // Qwen2.5-7B: 28 heads, 4 of them KV heads.
    assert_eq!([1, 8, 16, 32, 64].map(|states| of(128, 28, 4, states).heads), [1, 2, 4, 7, 7]);
    assert_eq!(of(256, 16, 1, 1000), DecodeShape { clusters: 16, heads: 4 });
    assert_eq!(of(64, 9, 9, 1), DecodeShape { clusters: 16, heads: 1 });
    assert_eq!(of(128, 28, 4, u32::MAX).heads, 7);
}

#[test]
fn small_devices_have_fewer_clusters() {
    let least = Hardware::LEAST;
    let of = |head_len, hardware: &Hardware| DecodeShape::new(attention(head_len, 28, 4), 64, hardware);
    assert_eq!(of(128, &least), DecodeShape { clusters: 8, heads: 2 });
    assert_eq!(of(256, &least), DecodeShape { clusters: 8, heads: 1 });
    let large = Hardware { workgroup: 1024, ..least };
    assert_eq!(of(128, &large), DecodeShape { clusters: 16, heads: 1 });

    let of = |head_len, hardware: &Hardware| PrefillShape::new(attention(head_len, 28, 4), hardware);
    let clusters = |kib: u32| {
        let hardware = Hardware { shared_len_bytes: kib * 1024, ..Hardware::SM_86 };
        of(256, &hardware).map(|shape| shape.clusters)
    };
    assert_eq!([64, 63, 32, 16, 15].map(clusters), [Some(4), Some(2), Some(2), Some(1), None]);
    // Seven heads of a row need a place in the 16 of a cluster; without matrices there is a faster way.
    assert_eq!(PrefillShape::new(attention(64, 65, 1), &Hardware::SM_86), None);
    assert_eq!(of(128, &least), None);
}

#[test]
fn heads_of_every_size_fit_every_device() {
    for (number, hardware) in devices().into_iter().enumerate() {
        let head_len = [256, 16, 128, 192, 80][number % 5];
        for head_len in [256, head_len] {
            let attention = attention(head_len, 28, 4);
            let decode =
                attention_decode(attention, DecodeShape::new(attention, 1 << (number % 12), &hardware));
            let prefill =
                PrefillShape::new(attention, &hardware).map(|shape| attention_prefill(attention, shape));
            for template in [Some(decode), prefill].into_iter().flatten() {
                let legal = legalize(&template.kernel, &hardware.caps);
                assert_eq!(misfit(&legal, &hardware), None, "{attention:?}, {hardware:?}");
            }
        }
    }
}
