//! Quantises floats to bytes: weights once at import, activations before every multiplication.
//!
//! Weights are symmetric int8 with a factor per output. Activations are asymmetric u8 with a factor and a minimum per row, so
//! that `x ≈ minimum + scale × q`. Then `Σ x·w ≈ scale × Σ q·w + minimum × Σ w`, and the last sum is known at import. The scheme
//! is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference"
//! (2018), with row ranges computed at run time.

use half::f16;

use super::float::{Arithmetic, PANEL, maximum, minimum, tile_bounds};

/// Number of values of a word embedding of four bits that share a factor.
pub(super) const WORD_BLOCK: usize = 32;
/// Number of inputs that a kernel multiplies and adds in one step.
pub(super) const GROUP: usize = 4;
/// Number of bytes of a group of activations of two bytes each.
pub(super) const WIDE_GROUP: usize = 2 * GROUP;
/// The maximum value of a quantised activation. It is the same on all code paths, so they all give the same vectors.
const LEVELS: f32 = 255.0;

/// Rows of activations in kernel order: by tile, then by group of four inputs, then by row. Values are less by [`Arithmetic::OFFSET`],
/// and have the size that [`Arithmetic::WIDE`] says.
#[derive(Default)]
pub(super) struct Quantized {
    pub(super) bytes: Vec<u8>,
    pub(super) scales: Vec<f32>,
    pub(super) minima: Vec<f32>,
    pub(super) width: usize,
    /// Bytes per row.
    pub(super) stride: usize,
    row: Vec<u8>,
}

impl Quantized {
    pub(super) fn rows(&self) -> usize {
        self.scales.len()
    }
}

/// Quantises the rows of `input`, `width` floats each, into `output`.
#[inline(always)]
pub(super) fn quantize_rows<A: Arithmetic>(_: A, input: &[f32], width: usize, output: &mut Quantized) {
    let rows = input.len() / width;
    output.width = width;
    output.scales.clear();
    output.minima.clear();
    output.row.resize(width, 0);
    output.stride = if A::WIDE { 2 * width } else { width };
    output.bytes.resize(rows * output.stride, 0);
    for tile in tile_bounds(rows, A::TILE) {
        let bytes = &mut output.bytes[tile.start * output.stride..tile.end * output.stride];
        for (place, row) in input[tile.start * width..tile.end * width].chunks_exact(width).enumerate() {
            let (scale, low) = quantize_row(row, A::OFFSET, &mut output.row);
            output.scales.push(scale);
            output.minima.push(low);
            let quads = output.row.as_chunks::<GROUP>().0;
            if A::WIDE {
                let groups = bytes.as_chunks_mut::<WIDE_GROUP>().0[place..].iter_mut().step_by(tile.len());
                for (group, quad) in groups.zip(quads) {
                    for (value, byte) in group.as_chunks_mut::<2>().0.iter_mut().zip(quad) {
                        *value = i16::from(byte.cast_signed()).to_le_bytes();
                    }
                }
            } else {
                let groups = bytes.as_chunks_mut::<GROUP>().0[place..].iter_mut().step_by(tile.len());
                groups.zip(quads).for_each(|(group, quad)| *group = *quad);
            }
        }
    }
}

/// Quantises one row and subtracts `offset` from each byte. Returns the factor and the minimum.
#[expect(clippy::cast_possible_truncation, reason = "the value is in the lowest eight bits")]
#[inline(always)]
fn quantize_row(row: &[f32], offset: u8, output: &mut [u8]) -> (f32, f32) {
    /// After adding this number, the lowest bits of the sum contain the nearest integer.
    const ROUND: f32 = 8_388_608.0;
    let low = minimum(row);
    let range = maximum(row) - low;
    let inverse = if range > 0.0 { LEVELS / range } else { 0.0 };
    for (value, byte) in row.iter().zip(output) {
        *byte = (((value - low) * inverse + ROUND).to_bits() as u8).wrapping_sub(offset);
    }
    (range / LEVELS, low)
}

/// A packed matrix, ready to be written to the file.
pub(super) struct PackedMatrix {
    /// Panels of 32 outputs. Within a panel, bytes are ordered by group of four inputs, then by output.
    pub(super) panels: Vec<u8>,
    pub(super) scales: Vec<f32>,
    /// For each output, the sum of its dequantised weights.
    pub(super) sums: Vec<f32>,
}

/// Packs the row-major matrix `weights`, `[outputs, inputs]`. Outputs must be a multiple of 32, inputs of 4.
pub(super) fn pack_matrix(weights: &[f32], inputs: usize) -> PackedMatrix {
    let outputs = weights.len() / inputs;
    let mut packed = PackedMatrix { panels: vec![0; weights.len()], scales: Vec::new(), sums: Vec::new() };
    for (output, row) in weights.chunks_exact(inputs).enumerate().take(outputs) {
        let (scale, bytes) = quantize_symmetric(row);
        packed.scales.push(scale);
        packed.sums.push(scale * bytes.iter().map(|byte| f32::from(*byte)).sum::<f32>());
        let panel = output / PANEL * PANEL * inputs;
        for (input, byte) in bytes.iter().enumerate() {
            let group = panel + input / GROUP * PANEL * GROUP;
            packed.panels[group + output % PANEL * GROUP + input % GROUP] = byte.cast_unsigned();
        }
    }
    packed
}

/// The sum of an output's quantised weights, from the sum of the dequantised ones. Exact: the total is below 2²¹ by the sizes that
/// `Config::check` allows, so the two roundings to 24 bits change the quotient by less than ½. Reading the weights instead would
/// bring all of them into memory at startup.
#[expect(clippy::cast_possible_truncation, reason = "the quotient is an integer below 2²¹ after rounding")]
pub(super) fn quantized_total(sum: f32, scale: f32) -> i32 {
    if scale > 0.0 { (sum / scale).round() as i32 } else { 0 }
}

/// Quantises a block to four bits (`Q4_0` of the GGML library): the value with the largest magnitude becomes -8 times the factor. The
/// first half of the values is in the lower bits. Values that were in this format already keep their exact value.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the values are between 0 and 15")]
pub(super) fn quantize_block(block: &[f32; WORD_BLOCK]) -> (f16, [u8; WORD_BLOCK / 2]) {
    let extreme = block.iter().fold(0.0f32, |extreme, value| if value.abs() > extreme.abs() { *value } else { extreme });
    let scale = f16::from_f32(extreme / -8.0);
    let inverse = if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() };
    let level = |value: f32| (value * inverse + 8.0).round().clamp(0.0, 15.0) as u8;
    let (low, high) = block.split_at(WORD_BLOCK / 2);
    let mut bytes = [0; WORD_BLOCK / 2];
    for (byte, (low, high)) in bytes.iter_mut().zip(low.iter().zip(high)) {
        *byte = level(*low) | level(*high) << 4;
    }
    (scale, bytes)
}

/// The values of a block of four bits, in order.
pub(super) fn block_values(scale: f16, bytes: &[u8; WORD_BLOCK / 2]) -> impl Iterator<Item = f32> {
    let scale = scale.to_f32();
    let low = bytes.iter().map(|byte| byte & 15);
    low.chain(bytes.iter().map(|byte| byte >> 4)).map(move |level| (f32::from(level) - 8.0) * scale)
}

/// Quantises a row symmetrically to ±127. Returns the factor and the bytes.
#[expect(clippy::cast_possible_truncation, reason = "the values are within ±127")]
pub(super) fn quantize_symmetric(row: &[f32]) -> (f32, Vec<i8>) {
    let largest = row.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    (scale, row.iter().map(|value| (value * inverse).round() as i8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_exact_up_to_the_widest_matrix() {
        let widest = 16_384 * 127;
        for scale in [1.0, 0.1, 1.234_567e-3, 7.9e-5, 3.3e-9, 1e-30] {
            for total in (0..widest).step_by(7_919).chain(widest - 1_000..=widest) {
                for total in [total, -total] {
                    assert_eq!(quantized_total(scale * total as f32, scale), total, "{scale}");
                }
            }
        }
        assert_eq!(quantized_total(0.0, 0.0), 0);
    }
}
