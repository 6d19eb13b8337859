//! The signals behind a decision of the gate, for explanations.

use serde::Serialize;

/// A signal with its weight. The sum of `value · weight` over all signals is the gate's margin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WeighedSignal {
    pub name: String,
    pub value: f32,
    pub weight: f32,
}

impl WeighedSignal {
    pub(super) fn new(name: impl Into<String>, value: f32, weight: f32) -> Self {
        Self { name: name.into(), value, weight }
    }

    /// Signals with their names, which follow `prefix`.
    pub(super) fn all<const N: usize>(prefix: &str, names: [&str; N], values: [f32; N], weights: [f32; N]) -> impl Iterator<Item = Self> {
        let weighed = names.into_iter().zip(values).zip(weights);
        weighed.map(move |((name, value), weight)| Self::new(format!("{prefix}{name}"), value, weight))
    }

    /// A signal whose value is already weighted, such as the product of two vectors.
    pub(super) fn sum(name: &str, value: f32) -> Self {
        Self::new(name, value, 1.0)
    }

    /// The two constants of a classifier.
    pub(super) fn constants(bias: f32, threshold: f32) -> [Self; 2] {
        [Self::sum("bias", bias), Self::new("threshold", threshold, -1.0)]
    }
}
