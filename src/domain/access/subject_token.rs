//! What a user's token says of itself, without verification: the authorization server that exchanges it (RFC 8693) verifies it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::domain::text::canonical::{Fingerprint, fingerprint};

/// Claims that differ between tokens of the same person with the same rights (RFC 7519, section 4.1).
const CHANGING: [&str; 4] = ["exp", "iat", "jti", "nbf"];

/// What distinguishes a token from tokens of other persons or with other rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubjectToken {
    /// Of the claims, if the token is a JWT that names its issuer and its subject. Otherwise of the token.
    pub identity: Fingerprint,
    /// The end of its validity, if it says so.
    pub expires_at: Option<SystemTime>,
}

impl SubjectToken {
    pub(crate) fn read(token: &str) -> Self {
        let Some(mut claims) = claims(token) else {
            return Self { identity: Fingerprint::of_text(token), expires_at: None };
        };
        let seconds = claims.get("exp").and_then(Value::as_f64).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let expires_at = seconds.and_then(|seconds| UNIX_EPOCH.checked_add(seconds));
        for name in CHANGING {
            claims.remove(name);
        }
        Self { identity: fingerprint(&Value::Object(claims)), expires_at }
    }
}

/// The claims of a signed JWT that names its issuer and its subject.
fn claims(token: &str) -> Option<Map<String, Value>> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let claims: Map<String, Value> = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let names = |name: &str| claims.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    (names("iss") && names("sub")).then_some(claims)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::SubjectToken;

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn read(claims: &Value) -> SubjectToken {
        SubjectToken::read(&token(claims))
    }

    #[test]
    fn a_renewed_token_of_the_same_person_has_the_same_identity() {
        let first = read(&json!({"iss": "i", "sub": "anna", "role": "user", "iat": 1, "exp": 300, "jti": "a"}));
        let next = read(&json!({"jti": "b", "sub": "anna", "role": "user", "iss": "i", "iat": 2, "nbf": 2, "exp": 301.5}));
        assert_eq!(first.identity, next.identity);
        assert_eq!(first.expires_at, Some(UNIX_EPOCH + Duration::from_mins(5)));
        assert_eq!(next.expires_at, Some(UNIX_EPOCH + Duration::from_millis(301_500)));
        for other in [
            json!({"iss": "i", "sub": "bob", "role": "user"}),
            json!({"iss": "j", "sub": "anna", "role": "user"}),
            json!({"iss": "i", "sub": "anna", "role": "admin"}),
            json!({"iss": "i", "sub": "anna", "role": "user", "scope": "write"}),
        ] {
            assert_ne!(first.identity, read(&other).identity, "{other}");
        }
    }

    #[test]
    fn a_token_that_names_nobody_has_an_identity_of_its_own() {
        let unnamed = json!({"iss": "i", "exp": 300});
        let odd = ["opaque", "a.b", "a.b.c", "a.b.c.d", "..", "e30.W10.e30", "e30.bnVsbA.e30", ""].map(str::to_owned);
        for text in odd.into_iter().chain([token(&unnamed), token(&json!({"iss": "i", "sub": ""})), token(&json!({"iss": 1, "sub": "a"}))])
        {
            let (one, other) = (SubjectToken::read(&text), SubjectToken::read(&format!("{text}x")));
            assert_ne!(one.identity, other.identity, "{text}");
            assert_eq!(one.expires_at, None, "{text}");
        }
        for odd in [json!(-1), json!("soon"), json!(1e300)] {
            assert_eq!(read(&json!({"iss": "i", "sub": "a", "exp": odd})).expires_at, None);
        }
    }
}
