//! Writes the parts of a trained model, padded with zeros to the sizes that the kernels need.

use super::super::quantize::{WORD_BLOCK, pack_matrix, quantize_block, quantize_symmetric};
use super::super::weights::{Config, LayerLayout, Layout, MatrixLayout, NormLayout, Widths, WordFormat};
use super::ImportError;
use super::tensors::{Linear, Norm, Tensors};

/// The layout of a row in the file: `length` values in blocks of `padded` values, of which the first `size` are used.
#[derive(Clone, Copy)]
struct Spread {
    size: usize,
    padded: usize,
    length: usize,
}

impl Spread {
    /// A single block, padded with zeros to `length`.
    fn plain(size: usize, length: usize) -> Self {
        Self { size, padded: length, length }
    }

    fn row(self, row: &[f32]) -> Vec<f32> {
        self.rows(row, 1)
    }

    /// Like `row`, for rows of `width` values instead of single values.
    fn rows(self, rows: &[f32], width: usize) -> Vec<f32> {
        let mut spread = vec![0.0; self.length * width];
        for (block, target) in rows.chunks(self.size * width).zip(spread.chunks_mut(self.padded * width)) {
            target[..block.len()].copy_from_slice(block);
        }
        spread
    }
}

impl Linear {
    fn spread(&self, inputs: Spread, outputs: Spread) -> Self {
        let width = self.weights.len() / self.bias.len();
        let rows: Vec<f32> = self.weights.chunks_exact(width).flat_map(|row| inputs.row(row)).collect();
        Self { weights: outputs.rows(&rows, inputs.length), bias: outputs.row(&self.bias) }
    }

    fn write(&self, layout: &MatrixLayout, file: &mut [u8]) {
        let packed = pack_matrix(&self.weights, layout.inputs);
        file[layout.panels.clone()].copy_from_slice(&packed.panels);
        put(&mut file[layout.scales.clone()], &packed.scales);
        put(&mut file[layout.sums.clone()], &packed.sums);
        put(&mut file[layout.bias.clone()], &self.bias);
    }
}

impl Norm {
    fn write(&self, layout: &NormLayout, file: &mut [u8]) {
        put(&mut file[layout.factors.clone()], &self.factors);
        put(&mut file[layout.offsets.clone()], &self.offsets);
    }
}

/// Writes every tensor to its place, layer by layer, so that most of the model is in memory only once. The first
/// `first_position` position embeddings are unused.
pub(super) fn write(
    tensors: &Tensors<'_>,
    config: &Config,
    first_position: usize,
    layout: &Layout,
    file: &mut [u8],
) -> Result<(), ImportError> {
    let hidden = config.hidden;
    let row = Spread::plain(hidden, config.widths().row);
    write_words(tensors, config, row, layout, file)?;
    let mut positions = tensors.rows("embeddings.position_embeddings.weight", first_position + config.positions, hidden)?;
    positions.drain(..first_position * hidden);
    let kind = tensors.rows("embeddings.token_type_embeddings.weight", 1, hidden)?;
    for row in positions.chunks_exact_mut(hidden) {
        row.iter_mut().zip(&kind).for_each(|(value, kind)| *value += kind);
    }
    let positions: Vec<f32> = positions.chunks_exact(hidden).flat_map(|position| row.row(position)).collect();
    put(&mut file[layout.positions.clone()], &positions);
    tensors.norm("embeddings.LayerNorm", hidden)?.write(&layout.embedding_norm, file);
    for (index, layer) in layout.layers.iter().enumerate() {
        write_layer(tensors, config, index, layer, file)?;
    }
    Ok(())
}

fn write_words(tensors: &Tensors<'_>, config: &Config, row: Spread, layout: &Layout, file: &mut [u8]) -> Result<(), ImportError> {
    let mut scales: Vec<u8> = Vec::with_capacity(layout.word_scales.len());
    let words = &mut file[layout.words.clone()];
    tensors.each_row("embeddings.word_embeddings.weight", config.tokens, config.hidden, |index, word| match config.words {
        WordFormat::Int8 => {
            let (scale, bytes) = quantize_symmetric(word);
            scales.extend(scale.to_le_bytes());
            for (byte, target) in bytes.iter().zip(&mut words[index * row.length..]) {
                *target = byte.cast_unsigned();
            }
        }
        WordFormat::FourBit => {
            let targets = words[index * row.length / 2..].as_chunks_mut::<{ WORD_BLOCK / 2 }>().0;
            for (block, target) in row.row(word).as_chunks::<WORD_BLOCK>().0.iter().zip(targets) {
                let (scale, bytes) = quantize_block(block);
                scales.extend(scale.to_le_bytes());
                *target = bytes;
            }
        }
    })?;
    file[layout.word_scales.clone()].copy_from_slice(&scales);
    Ok(())
}

fn write_layer(tensors: &Tensors<'_>, config: &Config, index: usize, layout: &LayerLayout, file: &mut [u8]) -> Result<(), ImportError> {
    let name = |part: &str| format!("encoder.layer.{index}.{part}");
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let Widths { row, mixed, heads, wide } = config.widths();
    let (row, wide) = (Spread::plain(hidden, row), Spread::plain(intermediate, wide));
    let size = hidden / config.heads;
    let mixed = Spread { size, padded: heads.size, length: mixed };

    let mut attend = Linear { weights: Vec::new(), bias: Vec::new() };
    for part in ["query", "key", "value"] {
        let mut linear = tensors.linear(&name(&format!("attention.self.{part}")), hidden, hidden)?;
        if part == "query" {
            let factor = 1.0 / (size as f32).sqrt();
            linear.weights.iter_mut().chain(&mut linear.bias).for_each(|value| *value *= factor);
        }
        let linear = linear.spread(row, mixed);
        attend.weights.extend(linear.weights);
        attend.bias.extend(linear.bias);
    }
    attend.write(&layout.attend, file);
    tensors.linear(&name("attention.output.dense"), hidden, hidden)?.spread(mixed, row).write(&layout.project, file);
    tensors.norm(&name("attention.output.LayerNorm"), hidden)?.write(&layout.attention_norm, file);
    tensors.linear(&name("intermediate.dense"), intermediate, hidden)?.spread(row, wide).write(&layout.expand, file);
    tensors.linear(&name("output.dense"), hidden, intermediate)?.spread(wide, row).write(&layout.contract, file);
    tensors.norm(&name("output.LayerNorm"), hidden)?.write(&layout.output_norm, file);
    Ok(())
}

fn put(target: &mut [u8], values: &[f32]) {
    for (target, value) in target.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *target = value.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::{Linear, Spread};

    #[test]
    fn blocks_are_spread_with_zeros_between_them() {
        let heads = Spread { size: 2, padded: 3, length: 8 };
        assert_eq!(heads.row(&[1.0, 2.0, 3.0, 4.0]), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0]);
        let linear = Linear { weights: vec![1.0, 2.0, 3.0, 4.0], bias: vec![5.0, 6.0] };
        let one = Spread { size: 1, padded: 2, length: 3 };
        let spread = linear.spread(Spread::plain(2, 3), one);
        assert_eq!(spread.weights, [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
        assert_eq!(spread.bias, [5.0, 0.0, 6.0]);
    }
}
