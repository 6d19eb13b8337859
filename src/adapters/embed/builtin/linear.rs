//! A linear layer over quantised rows: multiplies all panels by all tiles and converts the sums to floats.

use super::{
    float::{Arithmetic, PANEL, gelu, larger, tile_bounds},
    quantize::{GROUP, Quantized},
};

/// The largest number of rows in a tile of any instruction set.
const LARGEST_TILE: usize = 12;

/// A packed matrix with its scales, sums and biases. `panels` is borrowed from the weights file.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub(super) panels: &'a [u8],
    pub(super) scales: &'a [f32],
    pub(super) sums: &'a [f32],
    /// For each output, the sum of its quantised weights.
    pub(super) totals: &'a [i32],
    pub(super) bias: &'a [f32],
}

/// The activation function after the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Activation {
    None,
    #[default]
    Gelu,
    Relu,
}

/// Computes `output = activation(input × matrixᵀ + bias)`. `output` is row-major, with one column per output of `matrix`.
#[inline(always)]
pub(super) fn linear<A: Arithmetic>(arithmetic: A, input: &Quantized, matrix: Matrix<'_>, activation: Activation, output: &mut [f32]) {
    let outputs = matrix.scales.len();
    let mut sums = [[0; PANEL]; LARGEST_TILE];
    for (index, panel) in matrix.panels.chunks_exact(input.width * PANEL).enumerate() {
        let panel = panel.as_chunks::<{ PANEL * GROUP }>().0;
        let columns = index * PANEL..(index + 1) * PANEL;
        let epilogue = Epilogue {
            scales: &matrix.scales[columns.clone()],
            sums: &matrix.sums[columns.clone()],
            totals: &matrix.totals[columns.clone()],
            bias: &matrix.bias[columns.clone()],
            activation,
        };
        // With an address that follows from the number of the tile, the compiler would compute it again in every step of a kernel's loop.
        let mut rest = input.bytes.as_slice();
        for tile in tile_bounds(input.rows(), A::TILE) {
            let rows;
            (rows, rest) = rest.split_at(tile.len() * input.stride);
            // The first tile prefetches the next panel for all of them.
            let is_first = tile.start == 0;
            let scales = &input.scales[tile.clone()];
            let minima = &input.minima[tile.clone()];
            let output = &mut output[tile.start * outputs + columns.start..];
            macro_rules! step {
                ($rows:literal) => {{
                    if let Some(sums) = sums.first_chunk_mut::<$rows>() {
                        arithmetic.multiply(panel, rows, is_first, sums);
                        epilogue.write::<A>(sums, scales, minima, output, outputs);
                    }
                }};
            }
            match tile.len() {
                1 => step!(1),
                2 => step!(2),
                3 if A::TILE >= 3 => step!(3),
                4 if A::TILE >= 4 => step!(4),
                5 if A::TILE >= 5 => step!(5),
                6 if A::TILE >= 6 => step!(6),
                7 if A::TILE >= 7 => step!(7),
                8 if A::TILE >= 8 => step!(8),
                9 if A::TILE >= 9 => step!(9),
                10 if A::TILE >= 10 => step!(10),
                11 if A::TILE >= 11 => step!(11),
                12 if A::TILE >= 12 => step!(12),
                _ => unreachable!("a tile has at most {} rows", A::TILE),
            }
        }
    }
}

/// Converts the integer sums of one panel to floats.
struct Epilogue<'a> {
    scales: &'a [f32],
    sums: &'a [f32],
    totals: &'a [i32],
    bias: &'a [f32],
    activation: Activation,
}

impl Epilogue<'_> {
    #[inline(always)]
    fn write<A: Arithmetic>(&self, integers: &[[i32; PANEL]], scales: &[f32], minima: &[f32], output: &mut [f32], stride: usize) {
        let (factors, sums, bias) = (&self.scales[..PANEL], &self.sums[..PANEL], &self.bias[..PANEL]);
        let totals = &self.totals[..PANEL];
        for (((integers, scale), low), row) in integers.iter().zip(scales).zip(minima).zip(output.chunks_mut(stride)) {
            let row = &mut row[..PANEL];
            for column in 0..PANEL {
                let offset = *low * sums[column] + bias[column];
                let integer = integers[column] + i32::from(A::OFFSET) * totals[column];
                row[column] = integer as f32 * (scale * factors[column]) + offset;
            }
            match self.activation {
                Activation::None => {}
                Activation::Gelu => row.iter_mut().for_each(|value| *value = gelu(*value)),
                Activation::Relu => row.iter_mut().for_each(|value| *value = larger(*value, 0.0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        kernels::{Kernel, Processor},
        quantize::{pack_matrix, quantized_total},
    };
    use super::*;

    const INPUTS: usize = 384;

    /// Weights that quantise to themselves, because each output has one of 127.
    fn weight(output: usize, input: usize) -> i16 {
        match output % 5 {
            0 => 127,
            2 if input.is_multiple_of(2) => 127,
            1 | 2 => -127,
            3 if input > 0 => 0,
            _ if input == 0 => 127,
            _ => i16::try_from((output * 31 + input * 97) % 255).unwrap() - 127,
        }
    }

    /// Activations that quantise to themselves, because each row has 0 and 255.
    fn activation(row: usize, input: usize) -> u8 {
        if input < 2 {
            return [0, 255][input];
        }
        match row % 4 {
            0 => 255,
            1 => 0,
            2 => 127 + u8::from(input.is_multiple_of(3)),
            _ => u8::try_from((row * 57 + input * 101) % 256).unwrap(),
        }
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "the sums are integers below 2²⁴, which float32 holds exactly")]
    fn sums_are_exact_at_the_ends_of_the_ranges_on_every_code_path() {
        let weights: Vec<f32> = (0..2 * PANEL * INPUTS).map(|at| f32::from(weight(at / INPUTS, at % INPUTS))).collect();
        let packed = pack_matrix(&weights, INPUTS);
        let totals: Vec<i32> = packed.sums.iter().zip(&packed.scales).map(|(sum, scale)| quantized_total(*sum, *scale)).collect();
        let bias = [0.0; 2 * PANEL];
        let matrix = Matrix { panels: &packed.panels, scales: &packed.scales, sums: &packed.sums, totals: &totals, bias: &bias };
        for kernel in Kernel::available() {
            let processor = Processor::new(kernel).unwrap();
            for rows in 1..=25 {
                let input: Vec<f32> = (0..rows * INPUTS).map(|at| f32::from(activation(at / INPUTS, at % INPUTS))).collect();
                let mut quantized = Quantized::default();
                processor.quantize_rows(&input, INPUTS, &mut quantized);
                let mut output = vec![f32::NAN; rows * 2 * PANEL];
                processor.linear(&quantized, matrix, Activation::None, &mut output);
                for (at, found) in output.iter().enumerate() {
                    let (row, column) = (at / (2 * PANEL), at % (2 * PANEL));
                    let product = |input| i32::from(activation(row, input)) * i32::from(weight(column, input));
                    let expected = (0..INPUTS).map(product).sum::<i32>();
                    assert_eq!(*found, expected as f32, "{kernel:?}, row {row} of {rows}, output {column}");
                }
            }
        }
    }
}
