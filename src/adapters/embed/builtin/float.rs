//! The float32 operations, written once for all instruction sets.
//!
//! Everything here is `#[inline(always)]` and without branches in loops. So it is compiled and vectorised separately in
//! each caller in `kernels.rs` that enables an instruction set.
//!
//! Products are rounded before they are added, on every path. A fused multiply-add would be faster by a few per cent, but only on
//! processors that have it, and vectors would depend on the processor: a last bit can move an activation to the next of 256 levels.

use std::ops::Range;

/// Number of outputs in a panel of packed weights.
pub(super) const PANEL: usize = 32;
const LANES: usize = 16;

/// An instruction set. A value of an implementing type proves that the processor supports it.
pub(super) trait Arithmetic: Copy {
    /// Maximum number of rows of activations per kernel call.
    const TILE: usize;
    /// What `multiply` expects to be subtracted from quantised activations: 0, or 128 if its bytes are signed.
    const OFFSET: u8 = 0;
    /// Whether `multiply` expects quantised activations as signed values of two bytes.
    const WIDE: bool = false;

    /// Multiplies `R` rows of activations by one panel of weights, both packed. `ahead`: prefetches the panel that follows in memory,
    /// if that is useful.
    fn multiply<const R: usize>(self, panel: &[[u8; 128]], rows: &[u8], ahead: bool, output: &mut [[i32; PANEL]; R]);

    /// Multiplies `R` rows by 16 columns.
    fn product<const R: usize>(self, factors: Factors<'_>, output: &mut [[f32; 16]; R]);
}

/// Two matrices. Their rows are `left_stride` and `right_stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    pub(super) left: &'a [f32],
    pub(super) left_stride: usize,
    pub(super) right: &'a [f32],
    pub(super) right_stride: usize,
    /// The number of values in a row of `left`, and of rows in `right`.
    pub(super) depth: usize,
}

impl<'a> Factors<'a> {
    /// The first rows of `left`.
    #[inline(always)]
    pub(super) fn rows<const R: usize>(self) -> [&'a [f32]; R] {
        std::array::from_fn(|row| &self.left[row * self.left_stride..][..self.depth])
    }

    #[cfg(target_arch = "x86_64")]
    /// `right` up to its last row, from which only the first 16 values are left. Panics if it is shorter.
    #[inline(always)]
    pub(super) fn columns(self) -> &'a [f32] {
        &self.right[..self.depth.saturating_sub(1).saturating_mul(self.right_stride).saturating_add(LANES)]
    }
}

/// Splits `rows` into tiles of nearly equal size, with at most `tile` rows each. Equal sizes matter: a tile of one row would
/// waste most of its loads.
pub(super) fn tile_bounds(rows: usize, tile: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(tile).max(1);
    let bound = move |index: usize| index * (rows / count) + index.min(rows % count);
    (0..count).map(move |index| bound(index)..bound(index + 1)).filter(|range| !range.is_empty())
}

#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// Reduces `row` lane by lane with `step`, then across the lanes with `join`.
#[inline(always)]
fn fold(row: &[f32], start: f32, step: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = step(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, *value);
    }
    lanes.into_iter().fold(start, join)
}

#[inline(always)]
pub(super) fn maximum(row: &[f32]) -> f32 {
    fold(row, f32::MIN, larger, larger)
}

#[inline(always)]
pub(super) fn minimum(row: &[f32]) -> f32 {
    fold(row, f32::MAX, smaller, smaller)
}

#[inline(always)]
pub(super) fn sum(row: &[f32]) -> f32 {
    fold(row, 0.0, |a, b| a + b, |a, b| a + b)
}

/// The exponential of `x ≤ 0`, with a relative error of at most 2e-7. It combines `2^n` from the exponent bits with a polynomial
/// (the Taylor series of `e^(f ln 2)`, |f| ≤ ½). Below -87, the result is `e^-87`.
#[inline(always)]
pub(super) fn exponential(x: f32) -> f32 {
    /// Adding this number rounds to the nearest integer, which the lowest bits of the sum contain.
    const ROUND: f32 = 12_582_912.0;
    const TERMS: [f32; 6] = [1.540_353e-4, 1.333_355_8e-3, 9.618_13e-3, 5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2];
    let power = larger(x, -87.0) * std::f32::consts::LOG2_E;
    let shifted = power + ROUND;
    let fraction = power - (shifted - ROUND);
    let mut value = TERMS[0];
    for term in &TERMS[1..] {
        value = value * fraction + *term;
    }
    value = value * fraction + 1.0;
    f32::from_bits(value.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// GELU, `x Φ(x)` (Hendrycks and Gimpel, 2016), with an error of at most 4e-5. `Φ(x) - ½` is approximated on ±4.5 by an odd
/// polynomial that minimises the largest error of the product. The result is quantised to steps of about 0.02 anyway.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    const TERMS: [f32; 9] = [
        3.036_323_3e-11,
        -3.314_575_3e-9,
        1.590_965_5e-7,
        -4.451_666_6e-6,
        8.142_443e-5,
        -1.037_586_4e-3,
        9.585_185e-3,
        -6.598_462e-2,
        0.398_712_6,
    ];
    let bounded = smaller(larger(x, -4.5), 4.5);
    let square = bounded * bounded;
    let mut value = TERMS[0];
    for term in &TERMS[1..] {
        value = value * square + *term;
    }
    x * smaller(larger(value * bounded + 0.5, 0.0), 1.0)
}

/// Replaces every row of `values` with the layer norm (Ba et al., 2016) of its sum with the same row of `added`, which may be
/// empty. Rows are `stride` apart and as wide as `factors`; the gaps between them stay unchanged.
#[inline(always)]
pub(super) fn normalize_rows<A: Arithmetic>(
    _: A,
    values: &mut [f32],
    added: &[f32],
    stride: usize,
    factors: &[f32],
    offsets: &[f32],
    epsilon: f32,
) {
    let width = factors.len();
    let mut others = added.chunks_exact(stride);
    for row in values.chunks_exact_mut(stride) {
        let row = &mut row[..width];
        if let Some(other) = others.next() {
            for (value, other) in row.iter_mut().zip(other) {
                *value += other;
            }
        }
        let mean = sum(row) / width as f32;
        for value in row.iter_mut() {
            *value -= mean;
        }
        let variance = fold(row, 0.0, |sum, x| x * x + sum, |a, b| a + b) / width as f32;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for ((value, factor), offset) in row.iter_mut().zip(factors).zip(offsets) {
            *value = *value * scale * *factor + *offset;
        }
    }
}

/// Turns scores into unnormalised softmax weights. Returns the reciprocal of their sum.
#[inline(always)]
pub(super) fn soften(scores: &mut [f32]) -> f32 {
    let highest = maximum(scores);
    for score in scores.iter_mut() {
        *score = exponential(*score - highest);
    }
    1.0 / sum(scores)
}
