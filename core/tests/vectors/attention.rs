use serde_json::Value;
use unisonic_core::numerics::attention::{
    CHUNK, KvChunk, Q16, attend_chunk, chunk_weights, finish, query_scale, value_weights, visible_in_chunk,
};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::fwht::{fwht, fwht_block, fwht_scales};
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::merge::{GROUP_CHUNKS, Merger, State};

use crate::attention_input::make_special;
use crate::generator::gauss_row;
use crate::json::{
    assert_bits, float, floats, integer, integers, list, load, plane, sha256_floats, sha256_plane, text,
};

pub fn transforms() {
    for case in list(&load("attention")["fwht"]) {
        let head_len = integer(&case["hd"]) as usize;
        assert_eq!(fwht_block(head_len) as i64, integer(&case["B"]));
        let scales = (pow2(-integer(&case["s"]) as i32), pow2(-integer(&case["s2"]) as i32));
        assert_eq!(fwht_scales(head_len), scales);
        let mut head = floats(&case["v"]);
        fwht(&mut head);
        assert_bits(&head, &case["fwht"], "fwht");
    }
}

/// Keys and values of a case, and the cache they are written to. Slots past the last key hold poison.
struct Cache {
    head_len: usize,
    keys: usize,
    k: Vec<f32>,
    v: Vec<f32>,
    key_high: Vec<i8>,
    key_low: Vec<i8>,
    key_scales: Vec<f32>,
    value: Vec<i8>,
    value_scales: Vec<f32>,
    out_of_range: Vec<i64>,
}

impl Cache {
    fn of_case(case: &Value) -> Self {
        let (head_len, keys) = (integer(&case["hd"]) as usize, integer(&case["keys"]) as usize);
        let seed = integer(&case["seed"]) as u64;
        let mut k = gauss_row(seed, keys * head_len);
        let k_scale = float(&case["k_scale"]);
        k.iter_mut().for_each(|k| *k *= k_scale);
        let v = gauss_row(seed + 1, keys * head_len);
        let slots = keys.next_multiple_of(CHUNK);
        let mut cache = Self {
            head_len,
            keys,
            k,
            v,
            key_high: vec![-128; slots * head_len],
            key_low: vec![-128; slots * head_len],
            key_scales: vec![f32::from_bits(0xFFFF_FFFF); slots],
            value: vec![-128; slots * head_len],
            value_scales: vec![f32::from_bits(0x7FC0_0000); slots],
            out_of_range: Vec::new(),
        };
        make_special(case["special"].as_str(), &mut cache.k, &mut cache.v, head_len);
        for j in 0..keys {
            cache.write(j);
        }
        cache
    }

    fn write(&mut self, j: usize) {
        let at = j * self.head_len..(j + 1) * self.head_len;
        let key = quantize_head_16(
            &self.k[at.clone()],
            &mut self.key_high[at.clone()],
            &mut self.key_low[at.clone()],
            &mut self.key_scales[j],
        );
        let mut value = self.v[at.clone()].to_vec();
        let value = quantize_value_8(&mut value, &mut self.value[at], &mut self.value_scales[j]);
        if !(key && value) {
            self.out_of_range.push(j as i64);
        }
    }

    /// The cache as a query sees it that may see nothing else: poison wherever `visible` is false.
    fn poisoned(&self, visible: impl Fn(usize) -> bool) -> Self {
        let mut cache = Self { k: Vec::new(), v: Vec::new(), out_of_range: Vec::new(), ..self.copy() };
        for j in (0..cache.key_scales.len()).filter(|&j| !visible(j)) {
            let at = j * cache.head_len..(j + 1) * cache.head_len;
            for plane in [&mut cache.key_high, &mut cache.key_low, &mut cache.value] {
                plane[at.clone()].fill(-128);
            }
            cache.key_scales[j] = f32::from_bits(0xFFFF_FFFF);
            cache.value_scales[j] = f32::from_bits(0x7FC0_0000);
        }
        cache
    }

    fn copy(&self) -> Self {
        Self {
            head_len: self.head_len,
            keys: self.keys,
            k: self.k.clone(),
            v: self.v.clone(),
            key_high: self.key_high.clone(),
            key_low: self.key_low.clone(),
            key_scales: self.key_scales.clone(),
            value: self.value.clone(),
            value_scales: self.value_scales.clone(),
            out_of_range: self.out_of_range.clone(),
        }
    }

    fn chunk(&self, chunk: usize) -> KvChunk<'_> {
        let slots = chunk * CHUNK..(chunk + 1) * CHUNK;
        let bytes = slots.start * self.head_len..slots.end * self.head_len;
        KvChunk {
            key_high: &self.key_high[bytes.clone()],
            key_low: &self.key_low[bytes.clone()],
            key_scales: &self.key_scales[slots.clone()],
            value: &self.value[bytes],
            value_scales: &self.value_scales[slots],
        }
    }
}

pub fn cases() {
    for case in list(&load("attention")["cases"]) {
        let cache = Cache::of_case(case);
        check_cache(case, &cache);
        for (index, query) in list(&case["queries"]).iter().enumerate() {
            let position = integer(&query["pos"]) as u32;
            let window = case["window"].as_u64().map(|window| window as u32);
            check_query_input(case, query, index);
            let visible = |j: usize| {
                let j = j as i64;
                j <= i64::from(position)
                    && window.is_none_or(|window| i64::from(position) - j < i64::from(window))
            };
            check_query(case, query, window, &cache);
            check_query(case, query, window, &cache.poisoned(visible));
        }
    }
}

fn check_cache(case: &Value, cache: &Cache) {
    let name = text(&case["name"]);
    let (slots, n) = (cache.keys, cache.head_len);
    assert_eq!(sha256_floats(&cache.k), text(&case["k_sha256"]), "{name}: keys");
    assert_eq!(sha256_floats(&cache.v), text(&case["v_sha256"]), "{name}: values");
    assert_eq!(cache.out_of_range, integers(&case["range_rows"]), "{name}: range");
    for (j, row) in case["rows"].as_object().unwrap() {
        let j: usize = j.parse().unwrap();
        check_rows(&format!("{name}, row {j}"), cache, row, j, 1);
    }
    if case.get("k").is_some() {
        check_rows(name, cache, case, 0, slots);
    }
    assert_eq!(sha256_plane(&cache.key_high[..slots * n]), text(&case["kh_sha256"]), "{name}: kh");
    assert_eq!(sha256_plane(&cache.key_low[..slots * n]), text(&case["kl_sha256"]), "{name}: kl");
    assert_eq!(sha256_floats(&cache.key_scales[..slots]), text(&case["sk_sha256"]), "{name}: sk");
    assert_eq!(sha256_plane(&cache.value[..slots * n]), text(&case["vq_sha256"]), "{name}: vq");
    assert_eq!(sha256_floats(&cache.value_scales[..slots]), text(&case["sv_sha256"]), "{name}: sv");
}

fn check_rows(name: &str, cache: &Cache, expected: &Value, first: usize, count: usize) {
    let at = first * cache.head_len..(first + count) * cache.head_len;
    assert_bits(&cache.k[at.clone()], &expected["k"], name);
    assert_bits(&cache.v[at.clone()], &expected["v"], name);
    assert_eq!(cache.key_high[at.clone()], plane(&expected["kh"]), "{name}: kh");
    assert_eq!(cache.key_low[at.clone()], plane(&expected["kl"]), "{name}: kl");
    assert_eq!(cache.value[at], plane(&expected["vq"]), "{name}: vq");
    assert_bits(&cache.key_scales[first..first + count], &expected["sk"], name);
    assert_bits(&cache.value_scales[first..first + count], &expected["sv"], name);
}

/// The query is the one that the generator gives, so the file is what its README says.
fn check_query_input(case: &Value, query: &Value, index: usize) {
    if case["special"].as_str().is_some_and(|special| special.starts_with("K row j")) {
        return;
    }
    let head_len = integer(&case["hd"]) as usize;
    let scale = float(&case["q_scale"]);
    let all = gauss_row(integer(&case["seed"]) as u64 + 2, (index + 1) * head_len);
    let q: Vec<f32> = all[index * head_len..].iter().map(|q| q * scale).collect();
    assert_bits(&q, &query["q"], text(&case["name"]));
}

fn check_query(case: &Value, query: &Value, window: Option<u32>, cache: &Cache) {
    let position = integer(&query["pos"]) as u32;
    let name = format!("{}, position {position}", text(&case["name"]));
    let (kappa, head_len) = (float(&case["kappa"]), cache.head_len);
    let soft_cap = case["softcap"].is_string().then(|| float(&case["softcap"]));

    let (mut high, mut low, mut scale) = (vec![-128; head_len], vec![-128; head_len], f32::NAN);
    assert!(quantize_head_16(&floats(&query["q"]), &mut high, &mut low, &mut scale));
    assert_eq!(high, plane(&query["qh"]), "{name}: qh");
    assert_eq!(low, plane(&query["ql"]), "{name}: ql");
    assert_bits(&[scale], &query["sq"], &name);
    assert_bits(&[query_scale(scale, kappa)], &query["qs"], &name);
    let q = Q16 { high: &high, low: &low, scale };

    let mut all = Merger::new();
    let mut groups: Vec<(i64, Merger)> = Vec::new();
    let mut expected_chunks = list(&query["chunks"]).iter();
    for c in 0..=position as usize / CHUNK {
        let visible = visible_in_chunk(position, window, c as u32);
        if visible.is_empty() {
            continue;
        }
        let chunk = cache.chunk(c);
        let state = attend_chunk(&q, kappa, soft_cap, &chunk, visible.clone());
        let expected =
            expected_chunks.next().unwrap_or_else(|| panic!("{name}: chunk {c} has no visible key"));
        let name = format!("{name}, chunk {c}");
        assert_eq!(c as i64, integer(&expected["c"]), "{name}");
        let weights = chunk_weights(&q, kappa, soft_cap, &chunk.keys(), visible.clone());
        let amax = value_weights(&weights.p, chunk.value_scales, visible).amax;
        check_state(&name, &state, expected, "l");
        assert_bits(&[amax], &expected["a"], &name);
        assert_eq!(sha256_floats(&state.output), text(&expected["o_sha256"]), "{name}: o");
        if groups.is_empty() {
            assert_bits(&state.output, &query["chunk0_o"], &name);
        }
        let group = (c / GROUP_CHUNKS) as i64;
        if groups.last().is_none_or(|last| last.0 != group) {
            groups.push((group, Merger::new()));
        }
        groups.last_mut().unwrap().1.push(c, state.clone());
        all.push(c, state);
    }
    assert!(expected_chunks.next().is_none(), "{name}: more chunks expected");

    let expected_groups = list(&query["groups"]);
    assert_eq!(groups.len(), expected_groups.len(), "{name}: groups");
    for ((group, merger), expected) in groups.into_iter().zip(expected_groups) {
        assert_eq!(group, integer(&expected["g"]), "{name}");
        let state = merger.finish().unwrap();
        check_state(&name, &state, expected, "L");
        assert_bits(&state.output, &expected["O"], &name);
    }
    let state = all.finish().unwrap();
    assert_eq!(i64::from(state.max_exponent), integer(&query["final_M"]), "{name}");
    assert_bits(&[state.sum], &query["final_L"], &name);
    let mut out = vec![f32::NAN; head_len];
    finish(&state, &mut out);
    assert_bits(&out, &query["o"], &name);
}

fn check_state(name: &str, state: &State, expected: &Value, sum: &str) {
    assert_eq!(i64::from(state.max_exponent), integer(&expected["M"]), "{name}: M");
    assert_bits(&[state.sum], &expected[sum], name);
}
