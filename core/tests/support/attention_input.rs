//! The special keys and values of attention cases, as `tests/data/vectors/attention.json` describes them in words.

/// Changes the keys and values of a case, `[key][head_len]`, where `special` says so.
pub fn make_special(special: Option<&str>, k: &mut [f32], v: &mut [f32], head_len: usize) {
    let n = head_len;
    let pow2 = unisonic_core::numerics::float::pow2;
    let scale_row = |row: &mut [f32], factor: f32| row.iter_mut().for_each(|x| *x *= factor);
    match special.map(|text| &text[..8]) {
        None => {}
        Some("K[3] = 0") => {
            k[3 * n..4 * n].fill(0.0);
            v[5 * n..6 * n].fill(0.0);
            v[64 * n..128 * n].fill(0.0);
            scale_row(&mut k[10 * n..11 * n], 64.0);
            scale_row(&mut v[11 * n..12 * n], pow2(-45));
            scale_row(&mut k[129 * n..130 * n], pow2(-50));
        }
        Some("K row j ") => {
            for (j, row) in k.chunks_mut(n).enumerate() {
                row.fill(if j % 2 == 0 { pow2(55) } else { -pow2(55) });
            }
        }
        Some("row j of") => {
            for row in k.chunks_mut(n).skip(7).step_by(64) {
                scale_row(row, 16.0);
            }
        }
        Some(other) => panic!("no special case {other}"),
    }
}
