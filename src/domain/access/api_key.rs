//! API keys: format, stored form and verification.
//!
//! A key is `tsk_<id>_<secret>`. The id identifies the key's record and is not secret. Only the SHA-256 of the whole key is
//! stored. A slow hash would add no protection, because the secret has 256 random bits.
//!
//! A file can define keys too. Such a key may be any text.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::domain::access::management::ManagedBy;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;

/// Prefix of every key, by which people and secret scanners recognise it.
pub const PREFIX: &str = "tsk_";
pub const ID_BYTES: usize = 6;
pub const SECRET_BYTES: usize = 32;
/// Prefix of the ids of keys in files. No stored id starts with it, because stored ids are hexadecimal.
const FILE_PREFIX: &str = "file-";
/// Maximum length of a key's name, in bytes.
pub const MAX_NAME: usize = 64;

/// Identifies a key in lists and URLs; not secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Arc<str>);

impl KeyId {
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Formats the bytes as hexadecimal digits.
    pub fn of_bytes(bytes: [u8; ID_BYTES]) -> Self {
        let mut text = String::with_capacity(2 * ID_BYTES);
        for byte in bytes {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self::new(text)
    }

    /// The id of a key in a file.
    pub fn of_file(name: &str) -> Self {
        Self::new(format!("{FILE_PREFIX}{name}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

named! {
    /// What a key may do beside calling tools, or in place of it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum KeyRole {
        /// Reads the admin routes and the console. Its list of servers is empty, so it sees and calls no tools.
        Viewer = "viewer",
    }
}

/// The properties of a key that its author chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyProperties {
    pub name: String,
    /// The remaining fields have the same meaning as in [`ApiKey`].
    pub servers: Option<BTreeSet<ServerName>>,
    pub toolsets: Option<BTreeSet<ToolsetName>>,
    pub groups: BTreeSet<String>,
    pub trusted: bool,
    pub role: Option<KeyRole>,
    pub expires_at: Option<SystemTime>,
}

impl KeyProperties {
    /// The record of a key that was never used.
    pub fn record(self, id: KeyId, hash: Fingerprint, created_at: SystemTime) -> ApiKey {
        let Self { name, servers, toolsets, groups, trusted, role, expires_at } = self;
        let (revoked_at, last_used_at) = (None, None);
        ApiKey { id, name, hash, servers, toolsets, groups, trusted, role, created_at, expires_at, revoked_at, last_used_at }
    }
}

/// A key that a file defines. `Debug` omits the hash.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyDefinition {
    pub properties: KeyProperties,
    /// SHA-256 of the whole key.
    pub hash: Fingerprint,
}

impl fmt::Debug for KeyDefinition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A weak key can be guessed from its hash.
        let Self { properties, hash: _ } = self;
        formatter.debug_tuple("KeyDefinition").field(properties).finish()
    }
}

impl KeyDefinition {
    /// The record of the key. A file doesn't say when it was created.
    pub fn record(&self) -> ApiKey {
        self.properties.clone().record(KeyId::of_file(&self.properties.name), self.hash, SystemTime::UNIX_EPOCH)
    }
}

/// The record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    /// The name, unique among keys that are not revoked. The principal of the key is `key:NAME`.
    pub name: String,
    /// SHA-256 of the whole key.
    pub hash: Fingerprint,
    /// The servers that the key may use; `None` for all.
    pub servers: Option<BTreeSet<ServerName>>,
    /// The toolsets that the key may use; `None` for all tools, including those in no toolset.
    pub toolsets: Option<BTreeSet<ToolsetName>>,
    /// The groups of callers with this key. Unless empty, they also limit the groups of a trusted key's users.
    pub groups: BTreeSet<String>,
    /// Whether the key may state for which user it acts.
    pub trusted: bool,
    /// `None` for a key that only calls tools.
    pub role: Option<KeyRole>,
    pub created_at: SystemTime,
    pub expires_at: Option<SystemTime>,
    pub revoked_at: Option<SystemTime>,
    /// Time of the last use, rounded to the hour.
    pub last_used_at: Option<SystemTime>,
}

/// The key that authenticated a caller. It contains the hash, because the key may have been rotated since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Presented {
    pub id: KeyId,
    /// The hash of the whole key, like [`ApiKey::hash`].
    pub hash: Fingerprint,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum KeyState {
        Active = "active",
        Expired = "expired",
        Revoked = "revoked",
        /// Stored, but a file defines a key with the same name or the same secret.
        Overridden = "overridden",
    }
}

impl ApiKey {
    pub fn state(&self, now: SystemTime) -> KeyState {
        if self.revoked_at.is_some() {
            KeyState::Revoked
        } else if self.expires_at.is_some_and(|end| end <= now) {
            KeyState::Expired
        } else {
            KeyState::Active
        }
    }

    pub fn managed_by(&self) -> ManagedBy {
        if self.id.as_str().starts_with(FILE_PREFIX) { ManagedBy::File } else { ManagedBy::Api }
    }

    /// Whether the presented hash matches this key and the key is still valid. Compares in constant time.
    pub fn admits(&self, presented: Fingerprint, now: SystemTime) -> bool {
        let same: bool = presented.as_bytes().ct_eq(self.hash.as_bytes()).into();
        same && self.state(now) == KeyState::Active
    }
}

/// Formats a whole key, which is shown once and never stored.
pub fn compose(id: &KeyId, secret: &[u8; SECRET_BYTES]) -> SecretString {
    format!("{PREFIX}{}_{}", id.as_str(), URL_SAFE_NO_PAD.encode(secret)).into()
}

pub fn hash(key: &SecretString) -> Fingerprint {
    Fingerprint::of_text(key.expose_secret())
}

/// The id in a key of our format; `None` for any other text.
pub fn id_of(presented: &str) -> Option<KeyId> {
    let rest = presented.strip_prefix(PREFIX)?;
    Some(KeyId::new(rest.split_once('_').map_or(rest, |(id, _)| id)))
}

/// Validates the name and the limits of a key.
///
/// # Errors
/// The invalid property, and the reason.
pub fn check(
    name: &str,
    servers: Option<&BTreeSet<ServerName>>,
    toolsets: Option<&BTreeSet<ToolsetName>>,
    groups: &BTreeSet<String>,
) -> Result<(), (&'static str, &'static str)> {
    check_name(name).map_err(|reason| ("name", reason))?;
    if servers.is_some_and(BTreeSet::is_empty) {
        return Err(("servers", "servers is empty: leave it out for all, or name some"));
    }
    if toolsets.is_some_and(BTreeSet::is_empty) {
        return Err(("toolsets", "toolsets is empty: leave it out for all tools, or name some"));
    }
    if groups.iter().any(|group| group.trim().is_empty()) {
        return Err(("groups", "a group has no name: remove it"));
    }
    Ok(())
}

/// Validates that a key with a role has none of the properties of keys that call tools.
///
/// # Errors
/// The first such property, and the reason.
pub fn check_role(role: Option<KeyRole>, given: &[(&'static str, bool)]) -> Result<(), (&'static str, &'static str)> {
    match (role, given.iter().find(|(_, is_given)| *is_given)) {
        (Some(KeyRole::Viewer), Some((name, _))) => {
            Err((name, "a viewer's key calls no tools: leave out servers, toolsets, groups and trusted"))
        }
        _ => Ok(()),
    }
}

/// The servers of a key with this role. A viewer's list is empty, also for versions of the service that don't know roles.
pub fn servers_of_role(role: Option<KeyRole>, servers: Option<BTreeSet<ServerName>>) -> Option<BTreeSet<ServerName>> {
    match role {
        Some(KeyRole::Viewer) => Some(BTreeSet::new()),
        None => servers,
    }
}

/// Validates the name of a key.
///
/// # Errors
/// The reason why it is invalid.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_fine = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_fine) {
        return Err("name is 1 to 64 letters, digits, dots, hyphens and underscores");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, SystemTime};

    use secrecy::ExposeSecret;

    use super::{ApiKey, Fingerprint, KeyDefinition, KeyId, KeyProperties, KeyState, ManagedBy, check, check_name, compose, hash, id_of};

    #[test]
    fn a_key_admits_itself_alone_and_in_its_time() {
        let id = KeyId::of_bytes([0, 1, 2, 3, 4, 255]);
        let secret = compose(&id, &[7; 32]);
        let text = secret.expose_secret();
        assert_eq!(text.len(), 4 + 12 + 1 + 43);
        assert_eq!(id_of(text).as_ref().map(KeyId::as_str), Some("0001020304ff"));
        let now = SystemTime::now();
        let expires_at = Some(now + Duration::from_secs(1));
        let properties = KeyProperties { name: "ci".into(), expires_at, ..KeyProperties::default() };
        let key = properties.record(id.clone(), hash(&secret), now);
        assert!(key.admits(hash(&secret), now));
        for wrong in [&text[..text.len() - 1], "", "tsk_0001020304ff_", compose(&id, &[8; 32]).expose_secret()] {
            assert!(!key.admits(Fingerprint::of_text(wrong), now), "{wrong}");
        }
        assert_eq!(key.state(now + Duration::from_secs(1)), KeyState::Expired);
        assert!(!ApiKey { revoked_at: Some(now), ..key }.admits(hash(&secret), now));
        assert_eq!(id_of("sk-foreign"), None);
    }

    #[test]
    fn a_key_of_a_file_is_recognized_and_its_hash_is_not_printed() {
        let hash = Fingerprint::of_text("any text");
        let groups = BTreeSet::from(["builders".to_owned()]);
        let properties = KeyProperties { name: "ci".into(), groups, trusted: true, ..KeyProperties::default() };
        let definition = KeyDefinition { properties, hash };
        assert!(!format!("{definition:?}").contains(&hash.to_string()[..8]));
        let key = definition.record();
        assert_eq!((key.id.as_str(), key.managed_by(), key.trusted), ("file-ci", ManagedBy::File, true));
        assert!(key.admits(hash, SystemTime::now()));
        let stored = ApiKey { id: KeyId::of_bytes([255; 6]), ..key };
        assert_eq!(stored.managed_by(), ManagedBy::Api);
    }

    #[test]
    fn empty_limits_are_refused() {
        let (none, staff) = (BTreeSet::new(), BTreeSet::from(["staff".to_owned()]));
        assert_eq!(check("a", None, None, &staff), Ok(()));
        assert_eq!(check("a b", None, None, &none).unwrap_err().0, "name");
        assert_eq!(check("a", Some(&BTreeSet::new()), None, &none).unwrap_err().0, "servers");
        assert_eq!(check("a", None, Some(&BTreeSet::new()), &none).unwrap_err().0, "toolsets");
        assert_eq!(check("a", None, None, &BTreeSet::from([" ".to_owned()])).unwrap_err().0, "groups");
    }

    #[test]
    fn names_fit_into_addresses_and_patterns() {
        assert!(check_name("open-webui.prod_1").is_ok());
        for name in ["", "a b", "a*", "ä", &"x".repeat(65)] {
            let reason = check_name(name).unwrap_err();
            assert!(!reason.ends_with('.'), "{name}: whoever shows it ends the sentence: {reason}");
        }
    }
}
