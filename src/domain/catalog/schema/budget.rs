//! Limits the size of one tool's published schema and the work to build it.

use serde_json::Value;

/// Maximum number of schemas inlined per tool. Protects against references that multiply each other.
const MAX_SCHEMAS: usize = 5_000;
/// Maximum size of copied keywords and property names, in bytes. Protects against a long text behind many references.
const MAX_BYTES: usize = 256 * 1024;
/// Maximum number of visited keywords, properties and alternatives. Protects against long lists behind many references.
const MAX_STEPS: usize = 500_000;

pub(super) struct Budget {
    schemas: usize,
    bytes: usize,
    steps: usize,
    exhausted: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { schemas: MAX_SCHEMAS, bytes: MAX_BYTES, steps: MAX_STEPS, exhausted: false }
    }
}

impl Budget {
    /// Whether a limit is reached. Every further schema is then cut short.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    pub(super) fn exhaust(&mut self) {
        self.exhausted = true;
    }

    /// Charges one schema to the budget. Returns `false` if none is left.
    pub(super) fn schema(&mut self) -> bool {
        match self.schemas.checked_sub(1) {
            Some(left) => self.schemas = left,
            None => self.exhausted = true,
        }
        !self.exhausted
    }

    pub(super) fn step(&mut self, steps: usize) {
        match self.steps.checked_sub(steps) {
            Some(left) => self.steps = left,
            None => self.exhausted = true,
        }
    }

    /// Charges this number of bytes to the budget. Returns whether they fit.
    pub(super) fn afford(&mut self, bytes: usize) -> bool {
        take(&mut self.bytes, bytes)
    }

    /// Charges the size of a keyword and its value. Returns whether they fit.
    pub(super) fn afford_value(&mut self, keyword: &str, value: &Value) -> bool {
        let mut left = self.bytes;
        let fits = take(&mut left, keyword.len() + 4) && take_value(&mut left, value);
        // Charge for reading too: a list that never fits is read again for every reference to it.
        self.step((self.bytes - left) / 16);
        if fits {
            self.bytes = left;
        }
        fits
    }
}

fn take(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// Subtracts the approximate length of the value as JSON. Returns `false` if it exceeds what is left.
fn take_value(left: &mut usize, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => take(left, 5),
        Value::Number(_) => take(left, 8),
        Value::String(text) => take(left, text.len() + 3),
        Value::Array(items) => take(left, 2) && items.iter().all(|item| take_value(left, item)),
        Value::Object(object) => take(left, 2) && object.iter().all(|(name, value)| take(left, name.len() + 4) && take_value(left, value)),
    }
}

/// Whether the value as JSON is at most about `bytes` bytes long.
pub(super) fn is_small(value: &Value, mut bytes: usize) -> bool {
    take_value(&mut bytes, value)
}
