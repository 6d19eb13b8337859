//! Verifies the token in which Open WebUI names the user on whose behalf it calls: a JWT signed with HS256 (RFC 7519, RFC 7515).
//!
//! The parser is a few lines long and uses a MAC that is a dependency anyway. JWT libraries support every algorithm, which has
//! caused vulnerabilities in the past.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::Sha256;

use crate::domain::access::principal::User;

/// The issuer that Open WebUI sets.
const ISSUER: &str = "open-webui";
/// Allowed clock skew.
const LEEWAY: Duration = Duration::from_secs(30);
/// Maximum length of a token: room for 512 groups of 256 bytes, encoded.
const MAX_BYTES: usize = 192 << 10;

#[derive(Deserialize)]
struct Header {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    email: Option<String>,
    name: Option<String>,
    groups: Option<BTreeSet<String>>,
    iss: String,
    exp: u64,
    nbf: Option<u64>,
}

/// The user in a valid token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SignedUser {
    pub user: User,
    /// Whether the token contains the user's groups. Those of Open WebUI don't.
    pub has_groups: bool,
}

/// The user in a token; `None` unless the token is entirely valid.
pub(crate) fn read(token: &str, secret: &SecretString, now: SystemTime) -> Option<SignedUser> {
    if token.len() > MAX_BYTES {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    if header.alg != "HS256" {
        return None;
    }
    let mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?.chain_update(signed);
    // `verify_slice` compares in constant time.
    mac.verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let is_over = claims.exp.saturating_add(LEEWAY.as_secs()) <= now;
    let is_early = claims.nbf.is_some_and(|start| start > now.saturating_add(LEEWAY.as_secs()));
    if is_over || is_early || claims.iss != ISSUER || claims.sub.is_empty() {
        return None;
    }
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let has_groups = claims.groups.is_some();
    let groups = claims.groups.unwrap_or_default();
    Some(SignedUser { user: User { id: claims.sub, email: given(claims.email), name: given(claims.name), groups }, has_groups })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use secrecy::SecretString;

    use super::{Hmac, KeyInit, Mac, Sha256, SignedUser, URL_SAFE_NO_PAD, read};
    use base64::Engine as _;

    /// Created with `PyJWT` 2.13.0, as Open WebUI does: secret `a-secret`, exp 2000000000.
    const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1LTEiLCJlbWFpbCI6ImFubmFAZXhhbXBsZS5vcmciLCJuYW1lIjoiQW5uYSIsInJvbGUiOiJ1c2VyIiwiaXNzIjoib3Blbi13ZWJ1aSIsImlhdCI6MTk5OTk5OTcwMCwiZXhwIjoyMDAwMDAwMDAwfQ.J6biRya3iAwzLtf9hGUSd0h1YreoJ8uHmXjlMaPMSBE";

    fn sign(header: &str, claims: &str, secret: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(&signed).finalize();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.into_bytes()))
    }

    #[test]
    fn a_token_of_open_webui_is_believed_until_its_end() {
        let secret = SecretString::from("a-secret");
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let SignedUser { user, has_groups } = read(TOKEN, &secret, at(1_999_999_999)).unwrap();
        assert!(!has_groups && user.groups.is_empty());
        assert_eq!((user.id.as_str(), user.email.as_deref(), user.name.as_deref()), ("u-1", Some("anna@example.org"), Some("Anna")));
        assert_eq!(read(TOKEN, &secret, at(2_000_000_031)), None);
        assert_eq!(read(TOKEN, &SecretString::from("another"), at(1_999_999_999)), None);
        assert_eq!(read(&TOKEN[..TOKEN.len() - 1], &secret, at(1_999_999_999)), None);
    }

    #[test]
    fn everything_but_hs256_with_all_claims_is_refused() {
        let (secret, now) = (SecretString::from("s"), SystemTime::now());
        let good = r#"{"sub":"u","iss":"open-webui","exp":9999999999,"groups":["a"]}"#;
        let header = r#"{"alg":"HS256","typ":"JWT"}"#;
        assert!(read(&sign(header, good, "s"), &secret, now).is_some_and(|signed| signed.has_groups && signed.user.groups.contains("a")));
        for (header, claims) in [
            (r#"{"alg":"none"}"#, good),
            (r#"{"alg":"HS512"}"#, good),
            (header, r#"{"sub":"u","iss":"open-webui"}"#),
            (header, r#"{"sub":"u","iss":"other","exp":9999999999}"#),
            (header, r#"{"sub":"","iss":"open-webui","exp":9999999999}"#),
            (header, r#"{"sub":"u","iss":"open-webui","exp":9999999999,"nbf":9999999999}"#),
            (header, r#"{"sub":"u","iss":"open-webui","exp":1}"#),
        ] {
            assert_eq!(read(&sign(header, claims, "s"), &secret, now), None, "{header} {claims}");
        }
        let unsigned = format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(good));
        for token in ["", ".", "..", "a.b.c", unsigned.as_str()] {
            assert_eq!(read(token, &secret, now), None, "{token}");
        }
    }
}
