//! The server setting `oauth`: where the server's tokens come from. People sign in with mcpo, and the service uses
//! mcpo's stored tokens.

use std::path::PathBuf;

use serde_json::Value;
use url::Url;

use crate::settings::entry::Entry;
use crate::settings::json_text::child;

const KEYS: [&str; 7] = ["server_url", "storage_type", "callback_port", "use_loopback", "client_metadata", "issuer", "private_addresses"];

/// OAuth settings of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthSettings {
    /// The URL from which the authorization server is discovered.
    pub server_url: Url,
    /// mcpo's token folder; `None` if there is none.
    pub tokens: Option<PathBuf>,
    /// The server's name in mcpo.
    pub stored_as: String,
    /// The only authorization server that may receive the refresh token. `None` means the one that the MCP server names
    /// when a token is first renewed.
    pub issuer: Option<String>,
    /// Whether the authorization server may have a private address. `None` means only if the MCP server has one too.
    pub private_addresses: Option<bool>,
}

impl OAuthSettings {
    /// Parses the setting. Returns `None` if it is missing or invalid.
    pub(super) fn read(entry: &mut Entry<'_, '_>, server: &str) -> Option<Self> {
        const KEY: &str = "oauth";
        let path = child(entry.path(), KEY);
        let keys = entry.object(KEY)?;
        entry.check_known(&path, &keys, &KEYS);
        let text = |entry: &mut Entry<'_, '_>, name: &str| match keys.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => entry.replaced(&child(&path, name), text),
            Some(_) => entry.wrong_kind(&child(&path, name), "a text in quotes"),
        };
        let Some(url) = text(entry, "server_url") else {
            entry.problem(&path, "`server_url` is missing", "add the address of the MCP server to sign in to");
            return None;
        };
        let Some(server_url) = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
            entry.problem(&child(&path, "server_url"), "not an http or https address", "write it as https://host/path");
            return None;
        };
        let storage = text(entry, "storage_type");
        let tokens = match storage.as_deref() {
            Some("memory") => {
                let remedy = "let mcpo sign in once with \"storage_type\": \"file\", or give a token in `headers`";
                entry.warning(&child(&path, "storage_type"), "tokens in mcpo's memory can't be taken over", remedy);
                None
            }
            _ => entry.variable("HOME").map(|home| PathBuf::from(home).join(".mcpo/tokens")),
        };
        let issuer = text(entry, "issuer");
        if issuer.as_ref().is_some_and(|issuer| Url::parse(issuer).is_err()) {
            entry.problem(&child(&path, "issuer"), "not an address", "write it as https://host/path, as the authorisation server does");
        }
        let private_addresses = match keys.get("private_addresses") {
            None | Some(Value::Null) => None,
            Some(value) => entry.switch_of(&child(&path, "private_addresses"), value),
        };
        Some(Self { server_url, tokens, stored_as: server.to_owned(), issuer, private_addresses })
    }
}
