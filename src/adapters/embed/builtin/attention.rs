//! Scaled dot-product attention in float32 (Vaswani et al., "Attention Is All You Need", 2017). The query weights already
//! contain the factor `1/√d`.

use super::float::{Arithmetic, Factors, soften};

/// Columns per step of the inner product, kept in registers.
pub(super) const COLUMNS: usize = 16;
/// Maximum number of rows per step, kept in registers.
const ROWS: usize = 6;

/// Buffers that calls reuse.
#[derive(Default)]
pub(super) struct AttentionScratch {
    /// The transposed keys of one head: `[head size, tokens rounded up to 16]`.
    keys: Vec<f32>,
    /// The scores of one step: `[6, tokens rounded up to 16]`.
    scores: Vec<f32>,
}

/// The number and the size of the attention heads in a row.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// Number of values per head, a multiple of 16.
    pub(super) size: usize,
}

/// Computes the attention of one text. `projected` is `[tokens, 3 × width]`: queries, keys and values side by side. `output` is
/// `[tokens, width]`. The heads are adjacent within `width`; padding after them is not changed.
#[inline(always)]
pub(super) fn attend<A: Arithmetic>(
    arithmetic: A,
    projected: &[f32],
    width: usize,
    heads: Heads,
    scratch: &mut AttentionScratch,
    output: &mut [f32],
) {
    let stride = 3 * width;
    let size = heads.size;
    let tokens = output.len() / width;
    let padded = tokens.next_multiple_of(COLUMNS);
    scratch.keys.resize(size * padded, 0.0);
    scratch.scores.resize(ROWS * padded, 0.0);
    for head in 0..heads.count {
        let queries = &projected[head * size..];
        let values = &projected[2 * width + head * size..];
        transpose(&projected[width + head * size..], stride, tokens, padded, &mut scratch.keys);
        let mut first = 0;
        while first < tokens {
            let rows = ROWS.min(tokens - first);
            let queries = &queries[first * stride..];
            let output = &mut output[first * width + head * size..];
            let head = Head { queries, keys: &scratch.keys, values, stride, size, tokens, padded, width };
            // Each number of rows has its own function, so that its sums stay in registers.
            match rows {
                1 => head.rows::<A, 1>(arithmetic, &mut scratch.scores, output),
                2 => head.rows::<A, 2>(arithmetic, &mut scratch.scores, output),
                3 => head.rows::<A, 3>(arithmetic, &mut scratch.scores, output),
                4 => head.rows::<A, 4>(arithmetic, &mut scratch.scores, output),
                5 => head.rows::<A, 5>(arithmetic, &mut scratch.scores, output),
                _ => head.rows::<A, ROWS>(arithmetic, &mut scratch.scores, output),
            }
            first += rows;
        }
    }
}

/// Writes `keys[d][token]` from rows that are `stride` apart. Columns from `tokens` on are not changed.
#[inline(always)]
fn transpose(rows: &[f32], stride: usize, tokens: usize, padded: usize, keys: &mut [f32]) {
    for (token, row) in rows.chunks(stride).take(tokens).enumerate() {
        for (key, value) in keys.chunks_exact_mut(padded).zip(row) {
            key[token] = *value;
        }
    }
}

/// One attention head of one text, starting at some query.
struct Head<'a> {
    queries: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    stride: usize,
    size: usize,
    tokens: usize,
    padded: usize,
    width: usize,
}

impl Head<'_> {
    #[inline(always)]
    fn rows<A: Arithmetic, const R: usize>(&self, arithmetic: A, scores: &mut [f32], output: &mut [f32]) {
        let mut sums = [[0.0; COLUMNS]; R];
        for column in (0..self.padded).step_by(COLUMNS) {
            let keys = &self.keys[column..];
            let factors =
                Factors { left: self.queries, left_stride: self.stride, right: keys, right_stride: self.padded, depth: self.size };
            arithmetic.product(factors, &mut sums);
            for (row, sums) in scores.chunks_exact_mut(self.padded).zip(&sums) {
                row[column..column + COLUMNS].copy_from_slice(sums);
            }
        }
        let mut reciprocals = [0.0; R];
        for (row, reciprocal) in scores.chunks_exact_mut(self.padded).zip(&mut reciprocals) {
            row[self.tokens..].fill(f32::MIN);
            *reciprocal = soften(row);
        }
        for column in (0..self.size).step_by(COLUMNS) {
            let values = &self.values[column..];
            let factors = Factors { left: scores, left_stride: self.padded, right: values, right_stride: self.stride, depth: self.tokens };
            arithmetic.product(factors, &mut sums);
            for ((row, sums), reciprocal) in output.chunks_mut(self.width).zip(&sums).zip(reciprocals) {
                for (value, sum) in row[column..column + COLUMNS].iter_mut().zip(sums) {
                    *value = sum * reciprocal;
                }
            }
        }
    }
}
