//! Encodes values for the store, identically for every database.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::text::canonical::Fingerprint;

/// A day in milliseconds.
pub(super) const DAY: i64 = 24 * 60 * 60 * 1000;

/// Encodes a vector as little-endian 32-bit floats.
pub(super) fn vector_to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Decodes a vector; `None` if the length is not a whole number of floats.
pub(super) fn vector_from_bytes(bytes: &[u8]) -> Option<Arc<[f32]>> {
    let (values, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| values.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

/// Decodes a fingerprint; `None` if the bytes are no SHA-256.
pub(super) fn fingerprint_from_bytes(bytes: &[u8]) -> Option<Fingerprint> {
    bytes.try_into().ok().map(Fingerprint::from_bytes)
}

/// Converts a time to milliseconds since 1970. Clamps values outside the column's range.
pub(super) fn to_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The inverse of [`to_millis`].
pub(super) fn from_millis(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// Converts a count to a column's type. Too large values are clamped.
pub(super) fn signed<N: TryInto<i64>>(count: N) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// The error for a stored value that this service never writes.
pub(super) fn odd(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{fingerprint_from_bytes, from_millis, to_millis, vector_from_bytes, vector_to_bytes};

    #[test]
    fn a_vector_comes_back_bit_by_bit() {
        let vector = [0.1_f32, -0.0, f32::MIN_POSITIVE, f32::MAX];
        assert_eq!(vector_to_bytes(&[1.0]), [0, 0, 0x80, 0x3f]);
        let back = vector_from_bytes(&vector_to_bytes(&vector)).unwrap();
        assert_eq!(back.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), vector.map(f32::to_bits));
        assert!(vector_from_bytes(&[0, 0, 0]).is_none());
    }

    #[test]
    fn odd_values_are_not_taken() {
        assert!(fingerprint_from_bytes(&[0; 31]).is_none());
        assert_eq!(to_millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!((from_millis(1_500), from_millis(-1)), (UNIX_EPOCH + Duration::from_millis(1_500), UNIX_EPOCH));
        assert!(to_millis(SystemTime::now()) > 1_700_000_000_000);
    }
}
