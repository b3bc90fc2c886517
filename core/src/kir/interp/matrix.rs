//! Products of matrices whose elements are spread over a cluster of 32 invocations, as PTX `mma.sync` spreads
//! them.
//!
//! Invocation `4g + t` of the cluster (g 0-7, t 0-3) holds
//! - of A, a word of four bytes k = 4t .. 4t+3 each: row g, row g+8; with 32 columns then both again for k =
//!   16+4t ..;
//! - of B, column g: k = 4t .. 4t+3; with 32 rows then k = 16+4t ..;
//! - of the sum: (row g, column 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).

use super::super::op::MATRIX_CLUSTER;

const CLUSTER: usize = MATRIX_CLUSTER as usize;

/// `out = c + a b` of each cluster. `halves` is 1 for 16 products an element, 2 for 32.
pub fn multiply(halves: usize, [a, b, c]: [&[u32]; 3], out: &mut [u32]) {
    let a = a.chunks_exact(CLUSTER * 2 * halves);
    let b = b.chunks_exact(CLUSTER * halves);
    let (c, out) = (c.chunks_exact(CLUSTER * 4), out.chunks_exact_mut(CLUSTER * 4));
    for (((a, b), c), out) in a.zip(b).zip(c).zip(out) {
        let (rows, columns) = (rows(halves, a), columns(halves, b));
        for (lane, (c, out)) in c.chunks_exact(4).zip(out.chunks_exact_mut(4)).enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            for (word, (out, &c)) in out.iter_mut().zip(c).enumerate() {
                let (row, column) = (&rows[g + word / 2 * 8], &columns[2 * t + word % 2]);
                let dot: i32 = row.iter().zip(column).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
                *out = (c as i32).wrapping_add(dot) as u32;
            }
        }
    }
}

/// The 16 rows of A; with 16 columns the others stay 0.
fn rows(halves: usize, words: &[u32]) -> [[i8; 32]; 16] {
    let mut rows = [[0; 32]; 16];
    for (lane, words) in words.chunks_exact(2 * halves).enumerate() {
        for (number, word) in words.iter().enumerate() {
            let (row, k) = (lane / 4 + number % 2 * 8, number / 2 * 16 + lane % 4 * 4);
            rows[row][k..k + 4].copy_from_slice(&word.to_le_bytes().map(|byte| byte as i8));
        }
    }
    rows
}

/// The 8 columns of B.
fn columns(halves: usize, words: &[u32]) -> [[i8; 32]; 8] {
    let mut columns = [[0; 32]; 8];
    for (lane, words) in words.chunks_exact(halves).enumerate() {
        for (half, word) in words.iter().enumerate() {
            let k = half * 16 + lane % 4 * 4;
            columns[lane / 4][k..k + 4].copy_from_slice(&word.to_le_bytes().map(|byte| byte as i8));
        }
    }
    columns
}
