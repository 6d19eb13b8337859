//! The tensors of a model, by name.

use safetensors::{Dtype, SafeTensors};

use super::ImportError;
use super::parts::{Linear, Norm};

/// The tensors of a file, with or without the prefix `bert.` in their names.
pub(super) struct Tensors<'a> {
    file: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ImportError> {
        let file = SafeTensors::deserialize(bytes).map_err(ImportError::Tensors)?;
        let prefix = if file.names().iter().any(|name| name.starts_with("bert.")) { "bert." } else { "" };
        Ok(Self { file, prefix })
    }

    /// Reads a tensor that must have this shape.
    pub(super) fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ImportError> {
        let name = format!("{}{name}", self.prefix);
        let problem = |problem: String| ImportError::Tensor { name: name.clone(), problem };
        let tensor = self.file.tensor(&name).map_err(|_| problem("is missing".to_owned()))?;
        if tensor.shape() != shape {
            return Err(problem(format!("shape {:?}, {shape:?} expected", tensor.shape())));
        }
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Dtype::F16 => tensor.data().as_chunks().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes))).collect(),
            Dtype::BF16 => {
                tensor.data().as_chunks().0.iter().map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16)).collect()
            }
            other => return Err(problem(format!("type {other:?}, F32, F16 or BF16 expected"))),
        };
        if values.iter().all(|value| value.is_finite()) { Ok(values) } else { Err(problem("contains a non-finite value".to_owned())) }
    }

    /// Reads the first `rows` rows of a tensor.
    pub(super) fn rows(&self, name: &str, rows: usize, width: usize) -> Result<Vec<f32>, ImportError> {
        let all = self.file.tensor(&format!("{}{name}", self.prefix)).ok();
        let all = all.and_then(|tensor| tensor.shape().first().copied()).unwrap_or(0).max(rows);
        let mut values = self.get(name, &[all, width])?;
        values.truncate(rows * width);
        Ok(values)
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
