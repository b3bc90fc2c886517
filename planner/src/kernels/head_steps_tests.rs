use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::{norm, rope as reference};
use unisonic_core::plan::RopeStyle;

use super::super::kv::tests::Cache;
use super::super::tests::{bits, bytes, floats, launch, launch_groups, rows, word_bytes, words, workgroups};
use super::{HeadShape, KvLayout, PrepareQuery, Rope, WriteKv};

const EPS: f32 = 1e-6;
const HEAD_LENS: [usize; 8] = [32, 64, 80, 96, 112, 128, 256, 512];

/// Rotations of a head of `len`: all of it, a part, pairs that are no whole words.
fn ropes(len: usize) -> Vec<Rope> {
    let (len, half) = (len as u32, RopeStyle::HalfSplit);
    let rope = |style, pairs| Rope { style, pairs };
    vec![
        rope(half, len / 2),
        rope(half, len / 4),
        rope(half, 10),
        rope(RopeStyle::Interleaved, len / 2),
        rope(RopeStyle::Interleaved, 5),
    ]
}

/// Rows of a position table.
fn table(rope: Rope, positions: u32) -> Vec<f32> {
    let inverse = reference::inverse_frequencies(10_000.0, 2 * rope.pairs);
    let mut table = vec![];
    for position in 0..positions {
        let (mut c, mut s) = (vec![0.0; inverse.len()], vec![0.0; inverse.len()]);
        reference::table_row(&inverse, 1.0, position, &mut c, &mut s);
        table.extend(c);
        table.extend(s);
    }
    table
}

/// Heads after norm and rotation, and whether each is in the norm's range.
fn rotated(
    x: &[f32],
    head_len: usize,
    heads: usize,
    weight: Option<&[f32]>,
    rope: Option<(Rope, &[f32])>,
    positions: &[u32],
) -> (Vec<f32>, Vec<bool>) {
    let mut out = x.to_vec();
    let mut in_range = vec![true; x.len() / head_len];
    for (number, (head, y)) in x.chunks(head_len).zip(out.chunks_mut(head_len)).enumerate() {
        if let Some(weight) = weight {
            in_range[number] = norm::rms_norm(head, weight, EPS, y);
        }
        if let Some((rope, table)) = rope {
            let pairs = rope.pairs as usize;
            let row = &table[positions[number / heads] as usize * 2 * pairs..][..2 * pairs];
            reference::rotate(rope.style, y, &row[..pairs], &row[pairs..]);
        }
    }
    (out, in_range)
}

/// Heads that are hard for norms and quantisers.
fn hard_heads(count: usize, head_len: usize, seed: u64) -> Vec<f32> {
    let mut x = rows(count, head_len, seed);
    for (number, head) in x.chunks_mut(head_len).enumerate() {
        match number % 6 {
            1 => head.fill(-0.0),
            2 => head.iter_mut().for_each(|x| *x *= f32::from_bits(0x2980_0000)),
            3 => head[head_len - 1] = f32::from_bits(0x5B80_0000),
            4 => head[head_len / 2] = f32::from_bits(0x7280_0000),
            _ => {}
        }
    }
    x
}

fn flags(in_range: &[bool]) -> Vec<u32> {
    in_range.iter().map(|&fits| u32::from(!fits)).collect()
}

#[test]
fn norms_and_rotations_equal_the_reference() {
    let positions = [7, 0, 3];
    for head_len in HEAD_LENS {
        let heads = 5;
        let (x, weight) = (hard_heads(3 * heads, head_len, 1), rows(1, head_len, 2));
        let (h, len) = (heads as u32, head_len as u32);
        let template = super::head_norm(h, len, EPS, HeadShape::default());
        let buffers = vec![bytes(&x), bytes(&weight), vec![0xEE; 4 * x.len()], vec![0xEE; 60]];
        let found = launch(&template, 3, buffers);
        let (expected, in_range) = rotated(&x, head_len, heads, Some(&weight), None, &positions);
        assert_eq!(bits(&floats(&found[2])), bits(&expected), "{head_len}");
        assert_eq!(words(&found[3]), flags(&in_range), "{head_len}");
        for rope in ropes(head_len) {
            let table = table(rope, 8);
            let template = super::rope(h, len, rope, HeadShape { clusters: 2 });
            let buffers = vec![bytes(&x), bytes(&table), word_bytes(&positions), vec![0xEE; 4 * x.len()]];
            let found = launch(&template, 3, buffers);
            let (expected, _) = rotated(&x, head_len, heads, None, Some((rope, &table)), &positions);
            assert_eq!(bits(&floats(&found[3])), bits(&expected), "{head_len}, {rope:?}");
        }
    }
}

/// With and without a norm and a rotation.
fn variants(head_len: usize) -> Vec<(Option<f32>, Option<Rope>)> {
    let ropes = ropes(head_len);
    vec![(None, None), (Some(EPS), Some(ropes[0])), (None, Some(ropes[3])), (Some(EPS), Some(ropes[2]))]
}

#[test]
fn queries_equal_the_reference() {
    let positions = [7, 0, 3];
    for head_len in HEAD_LENS {
        let heads = 5;
        let (x, weight) = (hard_heads(3 * heads, head_len, 1), rows(1, head_len, 2));
        for (norm_eps, rope) in variants(head_len) {
            let query = PrepareQuery { heads: heads as u32, head_len: head_len as u32, norm_eps, rope };
            let template = super::prepare_query(query, HeadShape::default());
            let table = rope.map(|rope| table(rope, 8));
            let mut buffers = vec![bytes(&x)];
            buffers.extend(norm_eps.map(|_| bytes(&weight)));
            buffers.extend(table.as_deref().map(bytes));
            buffers.push(word_bytes(&positions));
            let at = buffers.len();
            buffers.extend([vec![0xEE; x.len()], vec![0xEE; x.len()], vec![0xEE; 60], vec![0xEE; 60]]);
            let found = launch(&template, 3, buffers);
            let rope = rope.zip(table.as_deref());
            let (heads, mut in_range) =
                rotated(&x, head_len, heads, norm_eps.map(|_| &weight[..]), rope, &positions);
            for (number, head) in heads.chunks(head_len).enumerate() {
                let (mut high, mut low, mut scale) = (vec![0; head_len], vec![0; head_len], 0.0);
                in_range[number] &= quantize_head_16(head, &mut high, &mut low, &mut scale);
                let plane = |buffer: &[u8]| {
                    buffer[number * head_len..][..head_len].iter().map(|&x| x as i8).collect::<Vec<_>>()
                };
                let what = format!("{head_len}, {query:?}, head {number}");
                assert_eq!((plane(&found[at]), plane(&found[at + 1])), (high, low), "{what}");
                assert_eq!(floats(&found[at + 2])[number].to_bits(), scale.to_bits(), "{what}");
            }
            assert_eq!(words(&found[at + 3]), flags(&in_range), "{head_len}, {query:?}");
        }
    }
}

#[test]
fn keys_and_values_equal_the_reference() {
    // Two sequences; slots of one word of values, of the first and the last of a page, of two pages.
    let (positions, sequences) = ([64, 65, 63, 0, 66], [1, 1, 1, 0, 1]);
    let pages = [3, 9, 9, 1, 2, 9];
    for head_len in HEAD_LENS {
        let heads = 3;
        let layout = KvLayout { heads: heads as u32, head_len: head_len as u32 };
        let (k, v) = (hard_heads(5 * heads, head_len, 1), hard_heads(5 * heads, head_len, 4));
        let weight = rows(1, head_len, 2);
        for (norm_eps, rope) in variants(head_len) {
            let template = super::write_kv(WriteKv { layout, norm_eps, rope }, HeadShape { clusters: 2 });
            let table = rope.map(|rope| table(rope, 67));
            let mut buffers = vec![bytes(&k), bytes(&v)];
            buffers.extend(norm_eps.map(|_| bytes(&weight)));
            buffers.extend(table.as_deref().map(bytes));
            buffers.extend([word_bytes(&positions), word_bytes(&sequences), word_bytes(&pages)]);
            let at = buffers.len();
            let mut cache = Cache::poisoned(layout, 4);
            buffers.extend([cache.bytes.clone(), vec![0xEE; 4 * 2 * heads * 5]]);
            let groups = workgroups(&template, 5);
            let found = launch_groups(&template.kernel, groups, vec![3], buffers);

            let rope = rope.zip(table.as_deref());
            let weight = norm_eps.map(|_| &weight[..]);
            let (keys, in_range) = rotated(&k, head_len, heads, weight, rope, &positions);
            let mut expected_flags = vec![];
            for row in 0..5 {
                let page = pages[sequences[row] as usize * 3 + positions[row] as usize / 64];
                let slot = positions[row] as usize % 64;
                let (mut of_keys, mut of_values) = (vec![], vec![]);
                for head in 0..heads {
                    let number = row * heads + head;
                    let at = number * head_len..(number + 1) * head_len;
                    let (mut high, mut low, mut sk) = (vec![0; head_len], vec![0; head_len], 0.0);
                    let fits = quantize_head_16(&keys[at.clone()], &mut high, &mut low, &mut sk);
                    of_keys.push(fits & in_range[number]);
                    let (mut value, mut sv) = (vec![0; head_len], 0.0);
                    of_values.push(quantize_value_8(&mut v[at].to_vec(), &mut value, &mut sv));
                    cache.write(page as usize, head, slot, &high, &low, sk, &value, sv);
                }
                expected_flags.extend(flags(&of_keys));
                expected_flags.extend(flags(&of_values));
            }
            assert!(found[at] == cache.bytes, "{head_len}, norm {norm_eps:?}, {rope:?}");
            assert_eq!(words(&found[at + 1]), expected_flags, "{head_len}");
        }
    }
}
