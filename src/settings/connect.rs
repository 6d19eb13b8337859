//! The server setting `auth`: the service signs in to the server with OAuth 2.1, for each user, once for all users, or as a program.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use url::Url;

use crate::settings::entry::Entry;
use crate::settings::exchange::TokenExchange;
use crate::settings::finding::{Findings, Location};
use crate::settings::http::HttpSettings;
use crate::settings::json_text::{child, item};
use crate::settings::secrets::SecretSettings;
use crate::settings::servers::{ServerSettings, TransportSettings};
use crate::settings::values::Reader;

const KEY: &str = "auth";
const OAUTH: &str = "oauth";
const SERVERS: &str = "mcpServers";
const SET_KEY: &str = "set it; `toolsieve secrets new-key` prints one";
const SET_URL: &str = "set it to the address at which browsers reach the service";
const KEYS: [&str; 10] =
    ["type", "for", "client_id", "client_secret", "scopes", "parameters", "issuer", "resource", "private_addresses", "exchange"];
/// Parameters of an authorization request that the service sets itself.
const OURS: [&str; 8] =
    ["response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "resource"];
const EXAMPLE: &str = "\"oauth\", or {\"type\": \"oauth\", \"for\": \"user\"}";

/// Whose token a server receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenFor {
    /// Each user signs in.
    #[default]
    User,
    /// An administrator signs in once for all users.
    All,
    /// Nobody signs in: the service gets a token with its own client credentials.
    Machine,
}

/// How the service signs in to an HTTP server.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    pub token_for: TokenFor,
    /// The server's URL.
    pub server_url: Url,
    /// The id of a client that was registered by hand. `None`: the service registers itself.
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// The scopes to request. If empty, those that the server names.
    pub scopes: Vec<String>,
    /// Additional parameters of the authorization request, such as `access_type`.
    pub parameters: IndexMap<String, String>,
    /// The only authorization server that may be used. `None` means the one that the MCP server names.
    pub issuer: Option<String>,
    /// The resource indicator (RFC 8707). `None` means the one in the server's metadata, or its URL.
    pub resource: Option<String>,
    /// Whether the authorization server may have a private address. `None` means only if the MCP server has one too.
    pub private_addresses: Option<bool>,
    /// How users' own tokens are exchanged. `None`: people sign in.
    pub exchange: Option<TokenExchange>,
}

impl PartialEq for ConnectSettings {
    fn eq(&self, other: &Self) -> bool {
        // Names every field, so that a new field can't be forgotten here.
        let Self { token_for, server_url, client_id, client_secret, scopes, parameters, issuer, resource, private_addresses, exchange } =
            self;
        let secret = |secret: &Option<SecretString>| secret.as_ref().map(|secret| secret.expose_secret().to_owned());
        *token_for == other.token_for
            && *server_url == other.server_url
            && *client_id == other.client_id
            && secret(client_secret) == secret(&other.client_secret)
            && *scopes == other.scopes
            && *parameters == other.parameters
            && *issuer == other.issuer
            && *resource == other.resource
            && *private_addresses == other.private_addresses
            && *exchange == other.exchange
    }
}

impl Eq for ConnectSettings {}

impl ConnectSettings {
    /// Parses the setting. Returns `None` if it is missing or invalid.
    pub(super) fn read(entry: &mut Entry<'_, '_>, transport: Option<&TransportSettings>) -> Option<Self> {
        let path = child(entry.path(), KEY);
        let keys = match entry.get(KEY)? {
            Value::String(kind) => Map::from_iter([("type".to_owned(), Value::String(kind.clone()))]),
            Value::Object(keys) => keys.clone(),
            _ => return entry.wrong_kind(&path, EXAMPLE),
        };
        entry.check_known(&path, &keys, &KEYS);
        if keys.get("type").and_then(Value::as_str) != Some(OAUTH) {
            return entry.wrong_kind(&path, EXAMPLE);
        }
        let Some(TransportSettings::StreamableHttp { url, headers } | TransportSettings::Sse { url, headers }) = transport else {
            if transport.is_some() {
                entry.problem(&path, "a local program can't be signed in to", "remove `auth` here, or give the program a token in `env`");
            }
            return None;
        };
        if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            entry.problem(&path, "conflicts with the header `Authorization`", "remove one of the two");
        }
        if entry.get(OAUTH).is_some() {
            entry.problem(&path, "conflicts with `oauth`, which uses tokens of mcpo", "remove one of the two");
        }
        let token_for = token_for(entry, &path, &keys)?;
        let text = |entry: &mut Entry<'_, '_>, name: &str| match keys.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => entry.replaced(&child(&path, name), text),
            Some(_) => entry.wrong_kind(&child(&path, name), "a text in quotes"),
        };
        let (client_id, client_secret) = (text(entry, "client_id"), text(entry, "client_secret"));
        let (issuer, resource) = (text(entry, "issuer"), text(entry, "resource"));
        // A value that can't be read is a problem of its own, and isn't missing as well.
        let lacks = |name: &str, value: Option<&str>| value.map_or_else(|| keys.get(name).is_none_or(Value::is_null), str::is_empty);
        let lacks_id = lacks("client_id", client_id.as_deref());
        let lacks_secret = lacks("client_secret", client_secret.as_deref());
        let lacks_issuer = issuer.is_none() && lacks("issuer", None);
        let client_id = client_id.filter(|id| !id.is_empty());
        let client_secret = client_secret.filter(|secret| !secret.is_empty()).map(SecretString::from);
        if client_secret.is_some() && lacks_id {
            entry.problem(&path, "`client_secret` without `client_id`", "add the id of the same client");
        }
        if token_for == TokenFor::Machine && lacks_secret {
            let remedy = "add `client_id` and `client_secret` of a client that may use client credentials";
            entry.problem(&path, "a machine needs a client with a secret", remedy);
        }
        for (name, value) in [("issuer", &issuer), ("resource", &resource)] {
            if value.as_ref().is_some_and(|value| Url::parse(value).is_err()) {
                entry.problem(&child(&path, name), "not an address", "write it as https://host/path, exactly as its owner writes it");
            }
        }
        let scopes = scopes(entry, &path, &keys)?;
        let parameters = parameters(entry, &path, &keys)?;
        let private_addresses = match keys.get("private_addresses") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(allowed)) => Some(*allowed),
            Some(_) => return entry.wrong_kind(&child(&path, "private_addresses"), "true or false"),
        };
        let exchange = TokenExchange::read(entry, &path, &keys);
        let mut server_url = url.clone();
        server_url.set_fragment(None);
        let read =
            Self { token_for, server_url, client_id, client_secret, scopes, parameters, issuer, resource, private_addresses, exchange };
        read.check_exchange(entry, &path, lacks_id || lacks_secret, lacks_issuer);
        Some(read)
    }

    /// Checks the settings that an exchange of tokens depends on. A value that is given but can't be read isn't lacking.
    fn check_exchange(&self, entry: &mut Entry<'_, '_>, path: &str, lacks_client: bool, lacks_issuer: bool) {
        if self.exchange.is_none() {
            return;
        }
        if self.token_for != TokenFor::User {
            entry.problem(&child(path, "for"), "conflicts with `exchange`, by which each user has a token", "remove one of the two");
        }
        if lacks_client {
            let remedy = "add `client_id` and `client_secret` of a client that may exchange tokens";
            entry.problem(path, "`exchange` needs a client with a secret", remedy);
        }
        if lacks_issuer {
            let remedy = "add the authorization server to which users' tokens are sent";
            entry.problem(path, "`exchange` needs `issuer`, so that no server can ask for users' tokens", remedy);
        }
        if !self.parameters.is_empty() {
            entry.warning(&child(path, "parameters"), "has no effect with `exchange`: nobody signs in", "remove it");
        }
    }

    /// Checks the settings that sign-ins depend on.
    pub(super) fn check(servers: &[ServerSettings], http: &HttpSettings, secrets: &SecretSettings, reader: &mut Reader<'_>) {
        let names: Vec<&str> = servers.iter().filter(|server| signs_in(server)).map(|server| server.name.as_str()).collect();
        if names.is_empty() {
            return;
        }
        let names = names.join(", ");
        if secrets.keys.is_none() {
            let message = format!("not set, but these servers have `auth`, whose tokens must be encrypted: {names}");
            reader.problem("secrets.key", message, SET_KEY);
        }
        let is_needed = servers.iter().any(needs_people);
        match &http.public_url {
            None if is_needed => {
                let message = format!("not set, but people sign in to these servers and must come back to the service: {names}");
                reader.problem("http.public_url", message, SET_URL);
            }
            Some(url) if is_needed && url.scheme() != "https" && !is_loopback(url) => reader.warning(
                "http.public_url",
                "without https, and people sign in to servers: others in the network can read their session, and many authorization \
                 servers refuse such an address",
                "put a proxy with TLS in front, or set http.tls_certificate",
            ),
            _ => {}
        }
    }

    /// Like [`Self::check`], for servers that are added at run time.
    pub(super) fn check_added(servers: &[ServerSettings], http: &HttpSettings, secrets: &SecretSettings, findings: &mut Findings) {
        for server in servers.iter().filter(|server| signs_in(server)) {
            let path = child(&child(SERVERS, server.name.as_str()), KEY);
            let place = || Location { key: Some(path.clone()), ..Location::default() };
            if secrets.keys.is_none() {
                findings.problem(place(), "secrets.key is not set, and tokens must be encrypted", SET_KEY);
            }
            if http.public_url.is_none() && needs_people(server) {
                findings.problem(place(), "http.public_url is not set, and people who sign in must come back to the service", SET_URL);
            }
        }
    }
}

/// Whether there are tokens to store. Exchanged ones stay in memory.
fn signs_in(server: &ServerSettings) -> bool {
    server.remote.connect.as_ref().is_some_and(|connect| connect.exchange.is_none())
}

/// Whether people sign in to the server.
fn needs_people(server: &ServerSettings) -> bool {
    server.remote.connect.as_ref().is_some_and(|connect| connect.token_for != TokenFor::Machine && connect.exchange.is_none())
}

/// Whether the host of a URL is this machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn token_for(entry: &mut Entry<'_, '_>, path: &str, keys: &Map<String, Value>) -> Option<TokenFor> {
    match keys.get("for") {
        None | Some(Value::Null) => Some(TokenFor::User),
        Some(value) => match value.as_str() {
            Some("user") => Some(TokenFor::User),
            Some("all") => Some(TokenFor::All),
            Some("machine") => Some(TokenFor::Machine),
            _ => entry.wrong_kind(&child(path, "for"), "\"user\", \"all\" or \"machine\""),
        },
    }
}

/// Reads scopes: a list, or one text with spaces as in the protocol.
fn scopes(entry: &mut Entry<'_, '_>, path: &str, keys: &Map<String, Value>) -> Option<Vec<String>> {
    const EXPECTED: &str = "a list of scopes, such as [\"read\", \"offline_access\"]";
    let path = child(path, "scopes");
    let texts: Vec<String> = match keys.get("scopes") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => entry.replaced(&path, text)?.split_whitespace().map(str::to_owned).collect(),
        Some(Value::Array(items)) => {
            let mut texts = Vec::new();
            for (at, value) in items.iter().enumerate() {
                let Some(text) = value.as_str() else { return entry.wrong_kind(&item(&path, at), EXPECTED) };
                texts.push(entry.replaced(&item(&path, at), text)?);
            }
            texts
        }
        Some(_) => return entry.wrong_kind(&path, EXPECTED),
    };
    // RFC 6749, section 3.3.
    let is_scope = |text: &String| !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'));
    if !texts.iter().all(is_scope) {
        return entry.wrong_kind(&path, EXPECTED);
    }
    let mut known = BTreeSet::new();
    Some(texts.into_iter().filter(|text| known.insert(text.clone())).collect())
}

fn parameters(entry: &mut Entry<'_, '_>, path: &str, keys: &Map<String, Value>) -> Option<IndexMap<String, String>> {
    const EXPECTED: &str = "an object of texts, such as {\"access_type\": \"offline\"}";
    let path = child(path, "parameters");
    let given = match keys.get("parameters") {
        None | Some(Value::Null) => return Some(IndexMap::new()),
        Some(Value::Object(given)) => given,
        Some(_) => return entry.wrong_kind(&path, EXPECTED),
    };
    let mut parameters = IndexMap::new();
    for (name, value) in given {
        let path = child(&path, name);
        if OURS.contains(&name.as_str()) {
            entry.problem(&path, "the service sets this parameter itself", "remove it; there are keys for the client, scopes and resource");
            return None;
        }
        let Some(text) = value.as_str() else { return entry.wrong_kind(&path, EXPECTED) };
        parameters.insert(name.clone(), entry.replaced(&path, text)?);
    }
    Some(parameters)
}
