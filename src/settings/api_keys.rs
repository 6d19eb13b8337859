//! `[[key]]`: named API keys that the settings file defines.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use crate::domain::access::api_key::{self, KeyDefinition, KeyProperties, KeyRole};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::settings::finding::{Findings, suggestion};
use crate::settings::http::OWN_KEY;
use crate::settings::table::Table;
use crate::settings::values::{Values, secret};
use crate::settings::weak_key::weakness;
use crate::settings::{ServerSettings, StartSettings};

const FIELDS: [&str; 9] = ["name", "sha256", "file", "groups", "servers", "toolsets", "trusted", "role", "expires_at"];
/// Fields that people may expect to contain the key itself.
const PLAIN: [&str; 4] = ["key", "secret", "token", "value"];
const REMEDY: &str = "write a key as described at [[key]] in the commented defaults";

/// Reads all keys. Reports keys with the same name or the same secret.
pub(super) fn read(values: &Values, start: &StartSettings, servers: &[ServerSettings], findings: &mut Findings) -> Vec<KeyDefinition> {
    let mut keys: Vec<KeyDefinition> = Vec::new();
    for (number, (value, place)) in (1..).zip(&values.api_keys) {
        // `None` if a variable or a file is missing, which is already reported.
        let Some(value) = value else { continue };
        let Some(mut table) = Table::new(format!("key {number}"), value, place, &FIELDS, REMEDY, findings) else { continue };
        let key = read_key(&mut table);
        check_limits(&mut table, key.as_ref(), servers, values);
        let Some(key) = key else { continue };
        check_unique(&mut table, &key, &keys, start);
        keys.extend(table.finish(key));
    }
    keys
}

fn read_key(table: &mut Table<'_>) -> Option<KeyDefinition> {
    if PLAIN.iter().any(|field| table.has(field)) {
        table.problem_with(
            "the key itself must not be in this file",
            "write the key into a file of its own and name it with `file`, or write its SHA-256 with `sha256`",
        );
    }
    let name = table.required("name").map(str::to_owned);
    let hash = match (table.has("sha256"), table.has("file")) {
        (true, true) => {
            table.problem("both `sha256` and `file`");
            None
        }
        (false, false) => {
            table.problem("neither `sha256` nor `file`");
            None
        }
        (true, false) => written_hash(table),
        (false, true) => hash_of_file(table),
    };
    let servers = table.texts("servers").map(|names| names.into_iter().map(ServerName::from).collect::<BTreeSet<_>>());
    let toolsets = table.texts("toolsets").map(|names| names.into_iter().map(ToolsetName::from).collect::<BTreeSet<_>>());
    let groups: BTreeSet<String> = table.texts("groups").unwrap_or_default().into_iter().map(str::to_owned).collect();
    let trusted = table.switch("trusted").unwrap_or_default();
    let role = role(table);
    let of_callers: Vec<(&str, bool)> =
        ["servers", "toolsets", "groups", "trusted"].into_iter().map(|field| (field, table.has(field))).collect();
    if let Err((_, reason)) = api_key::check_role(role, &of_callers) {
        table.problem(reason);
    }
    let expires_at = expiry(table);
    if let Some(name) = &name
        && let Err((_, reason)) = api_key::check(name, servers.as_ref(), toolsets.as_ref(), &groups)
    {
        table.problem(reason);
    }
    let servers = api_key::servers_of_role(role, servers);
    let properties = KeyProperties { name: name?, servers, toolsets, groups, trusted, role, expires_at };
    table.finish(KeyDefinition { properties, hash: hash? })
}

fn role(table: &mut Table<'_>) -> Option<KeyRole> {
    let name = table.text("role")?.to_owned();
    let role = KeyRole::of_name(&name);
    if role.is_none() {
        table.problem_with("`role` is unknown", suggestion(&name, &KeyRole::NAMES));
    }
    role
}

fn written_hash(table: &mut Table<'_>) -> Option<Fingerprint> {
    let text = table.text("sha256")?;
    let hash = Fingerprint::of_hex(text.trim());
    let remedy = "write the 64 hexadecimal digits that this prints: printf %s \"$KEY\" | sha256sum";
    if hash.is_none() {
        table.problem_with("`sha256` is not a SHA-256 in hexadecimal digits", remedy);
    } else if hash == Some(Fingerprint::of_text("")) {
        table.problem_with("`sha256` is the hash of an empty text", remedy);
    }
    hash
}

fn hash_of_file(table: &mut Table<'_>) -> Option<Fingerprint> {
    let path = table.required("file")?;
    let (findings, place) = table.findings();
    let Some(key) = secret(Path::new(path), place, findings).map(SecretString::from) else {
        table.spoil();
        return None;
    };
    let key = key.expose_secret();
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        table.problem_with(
            format!("the key in {path} contains a space, a line break or a non-ASCII character, which a header can't carry"),
            OWN_KEY,
        );
        return None;
    }
    if let Some(reason) = weakness(key) {
        table.warning(format!("the key in {path}: {reason}"), "generate a random one: openssl rand -hex 32");
    }
    Some(Fingerprint::of_text(key))
}

fn expiry(table: &mut Table<'_>) -> Option<SystemTime> {
    let text = table.text("expires_at")?;
    let Ok(at) = text.parse::<Timestamp>() else {
        table.problem_with("`expires_at` is not a time", "write a time with its offset, such as 2027-01-31T00:00:00Z");
        return None;
    };
    let at = SystemTime::from(at);
    if at <= SystemTime::now() {
        table.warning("the key has expired", "set a later `expires_at`, or remove the key");
    }
    Some(at)
}

/// Warns about unknown servers and toolsets, which are probably typos. A server may be disabled for a while, and the API
/// can create toolsets.
fn check_limits(table: &mut Table<'_>, key: Option<&KeyDefinition>, servers: &[ServerSettings], values: &Values) {
    let Some(key) = key else { return };
    let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    for name in key.properties.servers.iter().flatten().filter(|name| !known.is_empty() && !known.contains(&name.as_str())) {
        table.warning(format!("the server `{name}` is not configured, or disabled"), suggestion(name.as_str(), &known));
    }
    let known: Vec<&str> = values.toolsets.iter().map(|(name, ..)| name.as_str()).collect();
    for name in key.properties.toolsets.iter().flatten().filter(|name| !known.contains(&name.as_str())) {
        let remedy = format!("add a section [toolsets.{name}], unless the toolset was created over the API");
        table.warning(format!("the settings define no toolset `{name}`"), remedy);
    }
}

fn check_unique(table: &mut Table<'_>, key: &KeyDefinition, others: &[KeyDefinition], start: &StartSettings) {
    let name = &key.properties.name;
    if others.iter().any(|other| other.properties.name == *name) {
        table.problem_with(format!("another key has the name `{name}`"), "rename or remove one of the two");
    } else if let Some(other) = others.iter().find(|other| other.hash == key.hash) {
        table.problem_with(format!("`{}` and `{name}` are the same key", other.properties.name), "generate another key for one of the two");
    }
    for (setting, own) in [("http.api_key", &start.http.api_key), ("access.admin_key", &start.access.admin_key)] {
        if own.as_ref().is_some_and(|own| Fingerprint::of_text(own.expose_secret()) == key.hash) {
            table.problem_with(format!("`{name}` is the same key as {setting}"), "use a different key");
        }
    }
}
