//! Signatures of links that this service issues (HMAC-SHA256).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;

/// Length of a signature, in bytes. As short as is safe, because models copy links letter by letter.
const SIGNATURE_BYTES: usize = 16;

/// A key that signs links. Links are valid only as long as it stays the same, even after a restart.
#[derive(Clone)]
pub(crate) struct Signer(SecretSlice<u8>);

impl Signer {
    pub(crate) fn new(key: SecretSlice<u8>) -> Self {
        Self(key)
    }

    /// The signature of a message. The message starts with its purpose, so that a link of one kind is no link of another.
    pub(crate) fn sign(&self, message: &str) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(&self.mac(message)?.finalize().into_bytes()[..SIGNATURE_BYTES]))
    }

    pub(crate) fn verifies(&self, message: &str, signature: &str) -> bool {
        URL_SAFE_NO_PAD.decode(signature).is_ok_and(|signature| {
            signature.len() == SIGNATURE_BYTES && self.mac(message).is_some_and(|mac| mac.verify_truncated_left(&signature).is_ok())
        })
    }

    /// `None` if no signature can be made with this key.
    fn mac(&self, message: &str) -> Option<Hmac<Sha256>> {
        Hmac::<Sha256>::new_from_slice(self.0.expose_secret()).ok().map(|mac| mac.chain_update(message))
    }
}
