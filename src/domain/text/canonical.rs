//! The canonical byte form of JSON values, and its hash.
//!
//! The same tool may arrive with its keys in a different order, depending on protocol version or release. A hash over the
//! original bytes would then report a changed tool.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of a value's canonical form, or of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of_text(text: &str) -> Self {
        Self::of_bytes(text.as_bytes())
    }

    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Parses 64 hexadecimal digits.
    pub fn of_hex(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * position..2 * position + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first digits of the hexadecimal form, for short names.
    pub fn digits(&self, count: usize) -> String {
        let mut digits = self.to_string();
        digits.truncate(count);
        digits
    }

    /// The first eight bytes as a number, for identifiers of 64 bits.
    pub fn prefix(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({self})")
    }
}

/// The hash of a JSON value, independent of key order.
pub fn fingerprint(value: &Value) -> Fingerprint {
    let mut bytes = Vec::with_capacity(1024);
    write_canonical(value, &mut bytes);
    Fingerprint::of_bytes(&bytes)
}

/// The hash of an object with these members, without building it.
pub fn fingerprint_of_object(mut members: Vec<(&str, &Value)>) -> Fingerprint {
    let mut bytes = Vec::with_capacity(1024);
    write_object(&mut members, &mut bytes);
    Fingerprint::of_bytes(&bytes)
}

fn write_object(members: &mut [(&str, &Value)], out: &mut Vec<u8>) {
    members.sort_unstable_by_key(|(name, _)| *name);
    out.push(b'{');
    for (position, (name, value)) in members.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_scalar(*name, out);
        out.push(b':');
        write_canonical(value, out);
    }
    out.push(b'}');
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut members: Vec<(&str, &Value)> = map.iter().map(|(name, value)| (name.as_str(), value)).collect();
            write_object(&mut members, out);
        }
        Value::Array(items) => {
            out.push(b'[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_canonical(item, out);
            }
            out.push(b']');
        }
        scalar => write_scalar(scalar, out),
    }
}

fn write_scalar(scalar: impl Serialize, out: &mut Vec<u8>) {
    // Writing a string, a number or a constant into a Vec can't fail.
    let written = serde_json::to_writer(&mut *out, &scalar);
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Fingerprint, fingerprint, fingerprint_of_object};

    #[test]
    fn key_order_does_not_matter_and_array_order_does() {
        let one = json!({"a": 1, "b": {"c": [1, 2], "d": null}});
        let two: serde_json::Value = serde_json::from_str(r#"{"b": {"d": null, "c": [1, 2]}, "a": 1}"#).unwrap();
        assert_eq!(fingerprint(&one), fingerprint(&two));
        assert_ne!(fingerprint(&json!([1, 2])), fingerprint(&json!([2, 1])));
        assert_ne!(fingerprint(&json!("1")), fingerprint(&json!(1)));
        let (first, second) = (&one["a"], &one["b"]);
        assert_eq!(fingerprint_of_object(vec![("b", second), ("a", first)]), fingerprint(&one));
        assert_eq!(fingerprint_of_object(Vec::new()), fingerprint(&json!({})));
    }

    #[test]
    fn the_bytes_never_change() {
        // Fingerprints are stored: by another form, all tools of an installation would look changed.
        let value = json!({"z": ["\u{1F600}\"\\\n", -0.0, 2.5, u64::MAX], "a": {"é": null, "B": true}, "": 0.1});
        assert_eq!(
            fingerprint(&value),
            Fingerprint::of_text(r#"{"":0.1,"a":{"B":true,"é":null},"z":["😀\"\\\n",-0.0,2.5,18446744073709551615]}"#)
        );
    }

    #[test]
    fn what_was_written_in_digits_is_read_again() {
        let hash = Fingerprint::of_text("a key");
        assert_eq!(Fingerprint::of_hex(&hash.to_string()), Some(hash));
        assert_eq!(Fingerprint::of_hex(&hash.to_string().to_uppercase()), Some(hash));
        for wrong in ["", "ab", &"g".repeat(64), &"é".repeat(32), &format!("+1{}", "0".repeat(62)), &"0".repeat(66)] {
            assert_eq!(Fingerprint::of_hex(wrong), None, "{wrong}");
        }
    }
}
