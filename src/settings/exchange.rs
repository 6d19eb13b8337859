//! The member `exchange` of `auth`: the service exchanges the token that comes with a user's request for a token of the server's
//! authorization server (RFC 8693).

use http::HeaderName;
use serde_json::{Map, Value};
use url::Url;

use crate::settings::entry::Entry;
use crate::settings::forwarding;
use crate::settings::json_text::child;

const KEY: &str = "exchange";
const KEYS: [&str; 3] = ["header", "subject_token_type", "audience"];
const EXAMPLE: &str = "an object, such as {\"header\": \"x-user-token\"}";
/// The start of the standard's own types.
const STANDARD: &str = "urn:ietf:params:oauth:token-type:";
/// Those of the standard's types that users' tokens have.
const TYPES: [&str; 3] = ["access_token", "id_token", "jwt"];

/// How the token of a user is exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenExchange {
    /// The header that contains the user's token, in lower case.
    pub header: String,
    /// The type of the user's token, as a URI (RFC 8693, section 3).
    pub subject_token_type: String,
    /// Whom the new token is for, as the authorization server names it. `None`: it knows from the resource indicator.
    pub audience: Option<String>,
}

impl TokenExchange {
    /// Parses the member of `auth`, which is at `path`. Returns `None` if it is missing or invalid.
    pub(super) fn read(entry: &mut Entry<'_, '_>, path: &str, auth: &Map<String, Value>) -> Option<Self> {
        let path = child(path, KEY);
        let keys = match auth.get(KEY)? {
            Value::Null => return None,
            Value::Object(keys) => keys,
            _ => return entry.wrong_kind(&path, EXAMPLE),
        };
        entry.check_known(&path, keys, &KEYS);
        let text = |entry: &mut Entry<'_, '_>, name: &str| match keys.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => entry.replaced(&child(&path, name), text).filter(|text| !text.is_empty()),
            Some(_) => entry.wrong_kind(&child(&path, name), "a text in quotes"),
        };
        let Some(header) = text(entry, "header") else {
            entry.problem(&path, "`header` is missing", "add the name of the header in which requests contain the user's token");
            return None;
        };
        let place = child(&path, "header");
        let Ok(header) = HeaderName::from_bytes(header.as_bytes()) else {
            entry.problem(&place, "not a valid header name", "use letters, digits and hyphens");
            return None;
        };
        if forwarding::is_never_a_token(header.as_str()) {
            let remedy = "name another one, such as x-user-token, and let the application send the user's token there";
            entry.problem(&place, "this header has another purpose", remedy);
            return None;
        }
        let kind = text(entry, "subject_token_type").unwrap_or_else(|| TYPES[0].to_owned());
        let subject_token_type = if TYPES.contains(&kind.as_str()) { format!("{STANDARD}{kind}") } else { kind };
        if Url::parse(&subject_token_type).is_err() {
            return entry.wrong_kind(&child(&path, "subject_token_type"), "\"access_token\", \"id_token\", \"jwt\" or a URI");
        }
        Some(Self { header: header.as_str().to_owned(), subject_token_type, audience: text(entry, "audience") })
    }
}
