//! The tensors of a model, by name.

use safetensors::{Dtype, SafeTensors};

use super::ImportError;

/// A linear layer: weights `[outputs, inputs]`, and one bias per output.
pub(super) struct Linear {
    pub(super) weights: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

/// A layer norm: one factor and one offset per value of a row.
pub(super) struct Norm {
    pub(super) factors: Vec<f32>,
    pub(super) offsets: Vec<f32>,
}

/// The tensors of a file, with or without the prefix `bert.` or `roberta.` in their names.
pub(super) struct Tensors<'a> {
    file: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ImportError> {
        let file = SafeTensors::deserialize(bytes).map_err(ImportError::Tensors)?;
        let has = |prefix: &&str| file.names().iter().any(|name| name.starts_with(prefix));
        let prefix = ["bert.", "roberta."].into_iter().find(has).unwrap_or_default();
        Ok(Self { file, prefix })
    }

    /// Reads a tensor that must have this shape.
    pub(super) fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ImportError> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.file.tensor(&name).map_err(|_| problem(&name, "is missing".to_owned()))?;
        if tensor.shape() != shape {
            return Err(problem(&name, format!("shape {:?}, {shape:?} expected", tensor.shape())));
        }
        numbers(&name, tensor.dtype(), tensor.data())
    }

    /// Reads the first `rows` rows of a tensor.
    pub(super) fn rows(&self, name: &str, rows: usize, width: usize) -> Result<Vec<f32>, ImportError> {
        let mut values = Vec::new();
        self.each_row(name, rows, width, |_, row| values.extend_from_slice(row))?;
        Ok(values)
    }

    /// Passes the first `rows` rows of a tensor to `take` one by one, because large vocabularies need hundreds of megabytes.
    pub(super) fn each_row(&self, name: &str, rows: usize, width: usize, mut take: impl FnMut(usize, &[f32])) -> Result<(), ImportError> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.file.tensor(&name).map_err(|_| problem(&name, "is missing".to_owned()))?;
        let all = tensor.shape().first().copied().unwrap_or(0);
        if all < rows || tensor.shape() != [all, width] {
            return Err(problem(&name, format!("shape {:?}, [{rows}, {width}] expected", tensor.shape())));
        }
        let length = tensor.data().len() / all.max(1);
        for (index, row) in tensor.data().chunks_exact(length.max(1)).take(rows).enumerate() {
            take(index, &numbers(&name, tensor.dtype(), row)?);
        }
        Ok(())
    }

    pub(super) fn linear(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, ImportError> {
        Ok(Linear {
            weights: self.get(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: self.get(&format!("{name}.bias"), &[outputs])?,
        })
    }

    pub(super) fn norm(&self, name: &str, width: usize) -> Result<Norm, ImportError> {
        Ok(Norm { factors: self.get(&format!("{name}.weight"), &[width])?, offsets: self.get(&format!("{name}.bias"), &[width])? })
    }
}

fn problem(name: &str, problem: String) -> ImportError {
    ImportError::Tensor { name: name.to_owned(), problem }
}

/// The numbers of the tensor `name`.
fn numbers(name: &str, kind: Dtype, bytes: &[u8]) -> Result<Vec<f32>, ImportError> {
    let values: Vec<f32> = match kind {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes))).collect(),
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16)).collect(),
        other => return Err(problem(name, format!("type {other:?}, F32, F16 or BF16 expected"))),
    };
    if values.iter().all(|value| value.is_finite()) { Ok(values) } else { Err(problem(name, "contains a non-finite value".to_owned())) }
}

/// Converts an IEEE 754 binary16 number to binary32.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}
