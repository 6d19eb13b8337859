//! Texts of OAuth: challenges in `WWW-Authenticate`, the proof key of a sign-in (RFC 7636), and sets of scopes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// Maximum length of a challenge that is read, in bytes.
const CHALLENGE_LIMIT: usize = 4096;

/// What a server says when it rejects a request for lack of a token or of a permission (RFC 6750, section 3; RFC 9728, section 5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The HTTP status: 401 or 403.
    pub status: u16,
    /// Where the server's metadata are.
    pub resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub scopes: Vec<String>,
    /// Whether the token is valid, but lacks a scope.
    pub lacks_scope: bool,
}

impl Challenge {
    /// Reads the challenge in a response. `None` if another sign-in can't help: the server denies the request itself.
    pub fn read<'a>(status: u16, headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut challenge = Self { status, ..Self::default() };
        for header in headers.into_iter().filter(|header| header.len() <= CHALLENGE_LIMIT) {
            for (name, value) in parameters(header) {
                match name.as_str() {
                    "resource_metadata" => challenge.resource_metadata = Some(value),
                    "scope" => challenge.scopes = scopes(&value),
                    "error" => challenge.lacks_scope = value == "insufficient_scope",
                    _ => {}
                }
            }
        }
        (status == 401 || (status == 403 && challenge.lacks_scope)).then_some(challenge)
    }
}

/// The parameters of a `Bearer` challenge. Other schemes in the same header are skipped.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut is_bearer = false;
    let mut rest = header.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter == '=' || letter == ',' || letter.is_whitespace()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let after = after.trim_start();
        let Some(value) = after.strip_prefix('=') else {
            // A word without a value is the name of a scheme.
            if !word.is_empty() {
                is_bearer = word.eq_ignore_ascii_case("bearer");
            }
            rest = after.trim_start_matches([',', ' ', '\t']);
            continue;
        };
        let (value, after) = value_of(value.trim_start());
        if is_bearer {
            found.push((word.to_ascii_lowercase(), value));
        }
        rest = after.trim_start_matches([',', ' ', '\t']);
    }
    found
}

/// A token or a quoted string, and the rest of the text.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|letter: char| letter == ',' || letter.is_whitespace()).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let (mut value, mut letters) = (String::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

/// The valid scopes in a text (RFC 6749, section 3.3), each once.
pub fn scopes(text: &str) -> Vec<String> {
    let is_scope = |scope: &&str| scope.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'));
    let mut found: Vec<String> = Vec::new();
    for scope in text.split_whitespace().filter(is_scope) {
        if !found.iter().any(|known| known == scope) {
            found.push(scope.to_owned());
        }
    }
    found
}

/// The scopes of both lists, each once.
pub fn union(one: &[String], other: &[String]) -> Vec<String> {
    let more = other.iter().filter(|scope| !one.contains(scope));
    one.iter().chain(more).cloned().collect()
}

/// The challenge for a verifier, by the method `S256`.
pub fn proof_key_challenge(verifier: &SecretString) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose_secret().as_bytes()))
}

/// A random text of 256 bits, which can stand in a URL.
pub fn random_text(bytes: &[u8; 32]) -> SecretString {
    SecretString::from(URL_SAFE_NO_PAD.encode(bytes))
}

/// The hash under which a secret of a URL or a cookie is stored.
pub fn hash_of(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_in_every_spelling() {
        let metadata = "https://mcp.example/.well-known/oauth-protected-resource";
        let expected = |scopes: &[&str]| {
            let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            Some(Challenge { status: 401, resource_metadata: Some(metadata.to_owned()), scopes, lacks_scope: false })
        };
        for (header, scopes) in [
            (format!("Bearer resource_metadata=\"{metadata}\""), &[][..]),
            (format!("bearer realm=\"a, b=\\\"c\\\"\", resource_metadata={metadata}, scope=\"read write read\""), &["read", "write"][..]),
            (format!("Basic realm=\"x\", scope=\"no\", Bearer error=\"invalid_token\", resource_metadata = \"{metadata}\" "), &[][..]),
        ] {
            assert_eq!(Challenge::read(401, [header.as_str()]), expected(scopes), "{header}");
        }
        assert_eq!(Challenge::read(401, []), Some(Challenge { status: 401, ..Challenge::default() }));
        for odd in ["", "Bearer", "Bearer =", "Bearer a=\"", ",,,", "Bearer scope=\"a\\", "é=é", "Bearer scope=é"] {
            assert!(Challenge::read(401, [odd]).is_some_and(|challenge| challenge.scopes.iter().all(|scope| scope.is_ascii())), "{odd}");
        }
    }

    #[test]
    fn a_denial_is_no_challenge_but_a_missing_scope_is() {
        assert_eq!(Challenge::read(403, ["Bearer error=\"access_denied\""]), None);
        assert_eq!(Challenge::read(403, []), None);
        let step_up = Challenge::read(403, ["Bearer error=\"insufficient_scope\", scope=\"admin\""]).unwrap();
        assert!(step_up.lacks_scope && step_up.scopes == ["admin"]);
    }

    #[test]
    fn scopes_are_joined_without_repetition() {
        let one = scopes("read write read \u{7f} \"x\"");
        assert_eq!(one, ["read", "write"]);
        assert_eq!(union(&one, &scopes("admin write")), ["read", "write", "admin"]);
    }

    /// The example in appendix B of RFC 7636.
    #[test]
    fn the_proof_key_is_that_of_the_standard() {
        let verifier = SecretString::from("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(proof_key_challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
