//! The layers of the encoder, over concatenated texts, and their buffers.

use half::f16;

use super::{
    attention::AttentionScratch,
    kernels::Processor,
    linear::{Activation, Matrix},
    quantize::{Quantized, WORD_BLOCK, block_values, quantized_total},
    weights::{MatrixLayout, NormLayout, Pooling, Weights, Widths, WordFormat},
};

/// Rows per block in the wide part of a layer, chosen so that its values fit in the L2 cache.
const BLOCK: usize = 96;

/// The scales, sums and biases of a matrix, aligned for the kernels.
struct MatrixVectors {
    scales: Vec<f32>,
    sums: Vec<f32>,
    totals: Vec<i32>,
    bias: Vec<f32>,
}

struct NormVectors {
    factors: Vec<f32>,
    offsets: Vec<f32>,
}

struct LayerVectors {
    attend: MatrixVectors,
    project: MatrixVectors,
    attention_norm: NormVectors,
    expand: MatrixVectors,
    contract: MatrixVectors,
    output_norm: NormVectors,
}

/// A BERT encoder (Devlin et al., 2019) that uses a weights file.
pub(super) struct Model {
    pub(super) weights: Weights,
    embedding_norm: NormVectors,
    layers: Vec<LayerVectors>,
}

/// Buffers that passes reuse; about 2.6 MB after a text of 256 tokens.
#[derive(Default)]
pub(super) struct Scratch {
    rows: Vec<f32>,
    projected: Vec<f32>,
    mixed: Vec<f32>,
    wide: Vec<f32>,
    quantized: Quantized,
    attention: AttentionScratch,
}

impl Model {
    pub(super) fn new(weights: Weights) -> Self {
        let matrix = |layout: &MatrixLayout| {
            let (scales, sums) = (weights.floats(&layout.scales), weights.floats(&layout.sums));
            let totals = sums.iter().zip(&scales).map(|(sum, scale)| quantized_total(*sum, *scale)).collect();
            MatrixVectors { scales, sums, totals, bias: weights.floats(&layout.bias) }
        };
        let norm = |layout: &NormLayout| NormVectors { factors: weights.floats(&layout.factors), offsets: weights.floats(&layout.offsets) };
        let layers = weights.layout.layers.iter();
        let layers = layers.map(|layer| LayerVectors {
            attend: matrix(&layer.attend),
            project: matrix(&layer.project),
            attention_norm: norm(&layer.attention_norm),
            expand: matrix(&layer.expand),
            contract: matrix(&layer.contract),
            output_norm: norm(&layer.output_norm),
        });
        Self { layers: layers.collect(), embedding_norm: norm(&weights.layout.embedding_norm), weights }
    }

    /// Encodes concatenated texts: `ids` contains their tokens, `lengths` the number of tokens of each. Appends one unit vector
    /// per text to `output`. A text's vector does not depend on its neighbours.
    pub(super) fn forward(&self, processor: Processor, ids: &[u32], lengths: &[usize], scratch: &mut Scratch, output: &mut Vec<Vec<f32>>) {
        let config = &self.weights.config;
        let epsilon = config.epsilon;
        let Widths { row: width, mixed: mixed_width, heads, wide: wide_width } = config.widths();
        self.embed(ids, lengths, &mut scratch.rows);
        let norm = &self.embedding_norm;
        processor.normalize_rows(&mut scratch.rows, &[], width, &norm.factors, &norm.offsets, epsilon);
        let rows = ids.len();
        scratch.projected.resize(rows * (3 * mixed_width).max(width), 0.0);
        scratch.mixed.resize(rows * mixed_width, 0.0);
        scratch.wide.resize(rows.min(BLOCK) * wide_width, 0.0);
        for (layer, layout) in self.layers.iter().zip(&self.weights.layout.layers) {
            let Scratch { rows, projected, mixed, wide, quantized, attention } = scratch;
            processor.quantize_rows(rows, width, quantized);
            processor.linear(quantized, self.matrix(&layout.attend, &layer.attend), Activation::None, projected);
            let mut start = 0;
            for length in lengths {
                let text = &projected[start * 3 * mixed_width..(start + length) * 3 * mixed_width];
                let mixed = &mut mixed[start * mixed_width..(start + length) * mixed_width];
                processor.attend(text, mixed_width, heads, attention, mixed);
                start += length;
            }
            // Reuse this memory, because the projected values are no longer needed.
            let result = &mut projected[..rows.len()];
            processor.quantize_rows(mixed, mixed_width, quantized);
            processor.linear(quantized, self.matrix(&layout.project, &layer.project), Activation::None, result);
            let norm = &layer.attention_norm;
            processor.normalize_rows(rows, result, width, &norm.factors, &norm.offsets, epsilon);
            for rows in rows.chunks_mut(BLOCK * width) {
                let wide = &mut wide[..rows.len() / width * wide_width];
                let result = &mut projected[..rows.len()];
                processor.quantize_rows(rows, width, quantized);
                processor.linear(quantized, self.matrix(&layout.expand, &layer.expand), config.activation, wide);
                processor.quantize_rows(wide, wide_width, quantized);
                let contract = self.matrix(&layout.contract, &layer.contract);
                processor.linear(quantized, contract, Activation::None, result);
                let norm = &layer.output_norm;
                processor.normalize_rows(rows, result, width, &norm.factors, &norm.offsets, epsilon);
            }
        }
        let mut rest = scratch.rows.as_slice();
        for length in lengths {
            let (text, others) = rest.split_at(length * width);
            output.push(pool(text, width, config.hidden, config.pooling));
            rest = others;
        }
    }

    fn matrix<'a>(&'a self, layout: &MatrixLayout, vectors: &'a MatrixVectors) -> Matrix<'a> {
        let MatrixVectors { scales, sums, totals, bias } = vectors;
        Matrix { panels: &self.weights.bytes[layout.panels.clone()], scales, sums, totals, bias }
    }

    /// Adds the word, position and token type embeddings. The layer norm follows later.
    fn embed(&self, ids: &[u32], lengths: &[usize], rows: &mut Vec<f32>) {
        let width = self.weights.config.widths().row;
        let layout = &self.weights.layout;
        let words = &self.weights.bytes[layout.words.clone()];
        let tokens = self.weights.config.tokens;
        let positions = self.weights.chunks(&layout.positions);
        rows.clear();
        let places = lengths.iter().flat_map(|length| 0..*length);
        for (id, place) in ids.iter().zip(places) {
            // Ids come from a table in the file, which may be damaged if its checksum was not verified.
            let id = (*id as usize).min(tokens - 1);
            let position = positions[place * width..(place + 1) * width].iter().map(|position| f32::from_le_bytes(*position));
            match self.weights.config.words {
                WordFormat::Int8 => {
                    let scale = f32::from_le_bytes(self.weights.chunks(&layout.word_scales)[id]);
                    let word = &words[id * width..(id + 1) * width];
                    rows.extend(word.iter().zip(position).map(|(word, position)| f32::from(word.cast_signed()) * scale + position));
                }
                WordFormat::FourBit => {
                    let blocks = width / WORD_BLOCK;
                    let scales = self.weights.bytes[layout.word_scales.clone()].as_chunks::<2>().0;
                    let levels = words.as_chunks::<{ WORD_BLOCK / 2 }>().0;
                    let of_word = id * blocks..(id + 1) * blocks;
                    let values = scales[of_word.clone()].iter().zip(&levels[of_word]);
                    let values = values.flat_map(|(scale, levels)| block_values(f16::from_le_bytes(*scale), levels));
                    rows.extend(values.zip(position).map(|(value, position)| value + position));
                }
            }
        }
    }
}

/// Pools one text's rows into a unit vector. Rows are `width` apart and contain `hidden` values.
fn pool(rows: &[f32], width: usize, hidden: usize, pooling: Pooling) -> Vec<f32> {
    let mut vector = rows[..hidden].to_vec();
    let mut fold = |step: fn(&mut f32, f32)| {
        for row in rows[width..].chunks_exact(width) {
            vector.iter_mut().zip(row).for_each(|(into, value)| step(into, *value));
        }
    };
    match pooling {
        // The sum is enough, because the vector is normalised afterwards.
        Pooling::Mean => fold(|sum, value| *sum += value),
        Pooling::Max => fold(|largest, value| *largest = largest.max(value)),
        Pooling::First => {}
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
    for value in &mut vector {
        *value *= factor;
    }
    vector
}
