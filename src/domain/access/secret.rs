//! Users' secrets, encrypted with AES-256-GCM.
//!
//! Owner, server and name are authenticated data, so a row moved to another place does not decrypt. Each secret has a new random
//! nonce; a key is safe for 2^32 secrets. The stored key id distinguishes a wrong key from a damaged row and selects the right
//! former key.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretBox, SecretString};
use sha2::{Digest, Sha256};

use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;

pub const KEY_BYTES: usize = 32;
pub const NONCE_BYTES: usize = 12;
const MAX_NAME: usize = 64;
/// A version of the format of the authenticated data.
const CONTEXT: &[u8] = b"toolsieve secret 1";
/// Owns the secret values in the entries of servers. No principal has this id.
const ENTRIES: &str = "entries";
const ID_CONTEXT: &[u8] = b"toolsieve secrets key id";

/// A name of 1 to 64 letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Arc<str>);

impl SecretName {
    pub fn new(name: &str) -> Option<Self> {
        let is_known = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
        ((1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_known)).then(|| Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The owner, the server and the name that identify a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretPlace {
    pub owner: PrincipalId,
    pub server: ServerName,
    pub name: SecretName,
}

impl SecretPlace {
    /// The place of the secret values in a server's entry, which an administrator has stored. No principal owns it.
    pub fn of_entry(server: &ServerName) -> Self {
        Self { owner: PrincipalId::new(ENTRIES), server: server.clone(), name: SecretName("entry".into()) }
    }
}

/// An encrypted secret, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    pub place: SecretPlace,
    /// The id of the key that encrypted it.
    pub key_id: Arc<str>,
    pub nonce: [u8; NONCE_BYTES],
    pub sealed: Vec<u8>,
    pub updated_at: SystemTime,
}

/// An encryption key, ready for use.
#[derive(Clone)]
pub struct SecretKey {
    id: Arc<str>,
    cipher: Aes256Gcm,
}

/// The current encryption key and former ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKeys {
    pub present: SecretKey,
    pub former: Vec<SecretKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretOpenError {
    #[error("it was encrypted with another key, {0}")]
    UnknownKey(Arc<str>),
    #[error("it is damaged or was moved")]
    Damaged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it could not be encrypted")]
pub struct SealError;

impl SecretKey {
    /// Parses a key of 32 bytes in base64, with or without padding, standard or URL-safe. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let engines = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
        let bytes = engines.iter().find_map(|engine| engine.decode(text).ok()).map(|bytes| SecretBox::new(bytes.into_boxed_slice()))?;
        let bytes: &[u8] = bytes.expose_secret();
        // The cipher rejects keys of another length.
        let cipher = Aes256Gcm::new_from_slice(bytes).ok()?;
        let hash = Sha256::new().chain_update(ID_CONTEXT).chain_update(bytes).finalize();
        let id = hash.iter().take(8).fold(0_u64, |id, byte| id << 8 | u64::from(*byte));
        Some(Self { id: format!("{id:016x}").into(), cipher })
    }

    /// Encodes a new key as text.
    pub fn write(bytes: &[u8; KEY_BYTES]) -> SecretString {
        SecretString::from(STANDARD.encode(bytes))
    }

    /// An id that does not reveal the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn open(&self, secret: &SealedSecret) -> Option<SecretString> {
        let payload = Payload { msg: &secret.sealed, aad: &secret.place.authenticated() };
        let value = self.cipher.decrypt(&Nonce::from(secret.nonce), payload).ok()?;
        String::from_utf8(value).ok().map(SecretString::from)
    }
}

impl SecretKeys {
    /// Encrypts a value. `nonce` must be random and must never be reused.
    ///
    /// # Errors
    /// The value is too large, at many gigabytes.
    pub fn seal(
        &self,
        place: SecretPlace,
        value: &SecretString,
        nonce: [u8; NONCE_BYTES],
        updated_at: SystemTime,
    ) -> Result<SealedSecret, SealError> {
        let payload = Payload { msg: value.expose_secret().as_bytes(), aad: &place.authenticated() };
        let sealed = self.present.cipher.encrypt(&Nonce::from(nonce), payload).map_err(|_| SealError)?;
        Ok(SealedSecret { place, key_id: Arc::clone(&self.present.id), nonce, sealed, updated_at })
    }

    pub fn open(&self, secret: &SealedSecret) -> Result<SecretString, SecretOpenError> {
        let keys = std::iter::once(&self.present).chain(&self.former);
        let key = keys.into_iter().find(|key| key.id == secret.key_id);
        let key = key.ok_or_else(|| SecretOpenError::UnknownKey(Arc::clone(&secret.key_id)))?;
        key.open(secret).ok_or(SecretOpenError::Damaged)
    }
}

impl SecretPlace {
    /// The authenticated data. Each part is preceded by its length, so that different places never yield the same bytes.
    fn authenticated(&self) -> Vec<u8> {
        let mut out = CONTEXT.to_vec();
        for part in [self.owner.as_str(), self.server.as_str(), self.name.as_str()] {
            out.extend((part.len() as u64).to_be_bytes());
            out.extend(part.as_bytes());
        }
        out
    }
}

/// Omits the key.
impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SecretKey").finish_non_exhaustive()
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for SecretKey {}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(present: u8, former: &[u8]) -> SecretKeys {
        let key = |byte: u8| SecretKey::parse(SecretKey::write(&[byte; KEY_BYTES]).expose_secret()).unwrap();
        SecretKeys { present: key(present), former: former.iter().map(|byte| key(*byte)).collect() }
    }

    fn place(owner: &str, server: &str, name: &str) -> SecretPlace {
        SecretPlace { owner: PrincipalId::new(owner), server: server.into(), name: SecretName::new(name).unwrap() }
    }

    fn sealed(keys: &SecretKeys, place: SecretPlace) -> SealedSecret {
        keys.seal(place, &SecretString::from("hunter22 ключ"), [7; NONCE_BYTES], SystemTime::now()).unwrap()
    }

    #[test]
    fn only_its_own_key_opens_a_secret_and_only_in_its_place() {
        let keys_1 = keys(1, &[]);
        let secret = sealed(&keys_1, place("user:anna", "git", "token"));
        assert!(!secret.sealed.windows(8).any(|bytes| bytes == b"hunter22"));
        let open = |keys: &SecretKeys, secret: &SealedSecret| keys.open(secret).map(|value| value.expose_secret().to_owned());
        assert_eq!(open(&keys_1, &secret).as_deref(), Ok("hunter22 ключ"));
        assert_eq!(open(&keys(2, &[1]), &secret).as_deref(), Ok("hunter22 ключ"));
        assert_eq!(open(&keys(2, &[3]), &secret), Err(SecretOpenError::UnknownKey(keys_1.present.id().into())));
        for moved in [place("user:bob", "git", "token"), place("user:anna", "hub", "token"), place("user:anna", "git", "other")] {
            assert_eq!(open(&keys_1, &SealedSecret { place: moved, ..secret.clone() }), Err(SecretOpenError::Damaged));
        }
        // The names contain the same letters in total, split differently.
        let one = sealed(&keys_1, place("user:a", "bc", "d"));
        assert_eq!(open(&keys_1, &SealedSecret { place: place("user:ab", "c", "d"), ..one }), Err(SecretOpenError::Damaged));
        let mut damaged = secret;
        damaged.sealed[0] ^= 1;
        assert_eq!(open(&keys_1, &damaged), Err(SecretOpenError::Damaged));
    }

    #[test]
    fn keys_are_32_bytes_in_base64_and_never_printed() {
        let text = SecretKey::write(&[251; KEY_BYTES]);
        let id = SecretKey::parse(text.expose_secret()).unwrap().id().to_owned();
        for other in [text.expose_secret().replace('+', "-").replace('/', "_"), text.expose_secret().trim_end_matches('=').to_owned()] {
            assert_eq!(SecretKey::parse(&format!(" {other}\n")).unwrap().id(), id);
        }
        for wrong in ["", "short", "AAAA", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            assert!(SecretKey::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(id.len(), 16);
        assert_eq!(format!("{:?}", keys(1, &[2])), "SecretKeys { present: SecretKey { .. }, former: [SecretKey { .. }] }");
    }

    #[test]
    fn nobody_owns_the_secrets_of_an_entry() {
        let place = SecretPlace::of_entry(&"git".into());
        assert_eq!(PrincipalId::read(place.owner.as_str()), None);
        assert_eq!(SecretName::new(place.name.as_str()), Some(place.name));
    }

    #[test]
    fn names_can_stand_in_addresses() {
        assert!(["a", "API_KEY", "x.y-z", &"n".repeat(64)].into_iter().all(|name| SecretName::new(name).is_some()));
        assert!(["", "a b", "a/b", "ä", &"n".repeat(65)].into_iter().all(|name| SecretName::new(name).is_none()));
    }
}
