//! Message vectors in one byte per dimension.

/// A unit vector, quantised to bytes with one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageVector {
    values: Box<[i8]>,
    scale: f32,
}

impl MessageVector {
    /// `None` for a vector that has no direction.
    pub fn of(vector: &[f32]) -> Option<Self> {
        let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        if !(largest.is_finite() && largest > 0.0 && vector.iter().all(|value| value.is_finite())) {
            return None;
        }
        let scale = largest / f32::from(i8::MAX);
        Some(Self { values: vector.iter().map(|value| quantised(value / scale)).collect(), scale })
    }

    /// The scale, then the bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.scale.to_le_bytes().into_iter().chain(self.values.iter().map(|value| value.to_le_bytes()[0])).collect()
    }

    /// The inverse of [`Self::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (scale, values) = bytes.split_first_chunk::<4>()?;
        let scale = f32::from_le_bytes(*scale);
        let is_sound = scale.is_finite() && scale > 0.0 && !values.is_empty();
        is_sound.then(|| Self { values: values.iter().map(|value| i8::from_le_bytes([*value])).collect(), scale })
    }

    pub(super) fn of_parts(values: Box<[i8]>, scale: f32) -> Self {
        Self { values, scale }
    }

    pub fn dimension(&self) -> usize {
        self.values.len()
    }

    pub(super) fn values(&self) -> &[i8] {
        &self.values
    }

    pub(super) fn scale(&self) -> f32 {
        self.scale
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the quotient is between -127 and 127")]
fn quantised(value: f32) -> i8 {
    value.round() as i8
}

/// A vector that is compared with many others, see [`dot`].
pub(super) fn widened(values: &[i8]) -> Vec<i16> {
    values.iter().map(|value| i16::from(*value)).collect()
}

/// The dot product. Written so that compilers vectorise it: processors multiply 16-bit numbers and add neighbouring products at once.
pub(super) fn dot(one: &[i8], other: &[i16]) -> i32 {
    one.iter().zip(other).map(|(one, other)| i32::from(i16::from(*one)) * i32::from(*other)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MessageVector, dot, widened};

    proptest! {
        #[test]
        fn cosines_survive_the_quantisation(
            one in prop::collection::vec(-1.0_f32..1.0, 64),
            other in prop::collection::vec(-1.0_f32..1.0, 64),
        ) {
            let unit = |vector: &[f32]| {
                let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
                vector.iter().map(|value| value / length.max(1e-6)).collect::<Vec<f32>>()
            };
            let (one, other) = (unit(&one), unit(&other));
            let exact: f32 = one.iter().zip(&other).map(|(one, other)| one * other).sum();
            if let (Some(one), Some(other)) = (MessageVector::of(&one), MessageVector::of(&other)) {
                let near = dot(one.values(), &widened(other.values())) as f32 * one.scale() * other.scale();
                prop_assert!((near - exact).abs() < 0.02, "{near} {exact}");
                prop_assert_eq!(MessageVector::from_bytes(&one.to_bytes()), Some(one));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(vector) = MessageVector::from_bytes(&bytes) {
                prop_assert_eq!(vector.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn vectors_without_a_direction_are_refused() {
        for vector in [&[][..], &[0.0, 0.0], &[f32::NAN, 1.0], &[f32::INFINITY]] {
            assert_eq!(MessageVector::of(vector), None);
        }
    }
}
