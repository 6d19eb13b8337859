//! Values of a server that differ between users: placeholders in its `headers` or `env`, and the values in `listWith`
//! that replace them when the service lists tools without a user.

use std::collections::BTreeSet;

use http::HeaderValue;
use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};

use crate::domain::access::secret::SecretName;
use crate::domain::access::template::{FIELDS, Parsed, Slot, Template, TemplateError};
use crate::domain::text::similar::nearest;
use crate::settings::connect::TokenFor;
use crate::settings::entry::Entry;
use crate::settings::finding::suggestion;
use crate::settings::json_text::{child, item};
use crate::settings::servers::{RemoteSettings, TransportSettings};

/// The header that contains a token of a sign-in.
const AUTHORIZATION: &str = "Authorization";

/// Templates by the name of the header or variable.
#[derive(Clone, Debug, Default)]
pub struct PerUserSettings {
    pub templates: IndexMap<String, Template>,
    /// Values for some of the same names, to list tools without a user.
    pub list_with: IndexMap<String, SecretString>,
    /// Whether calls need a token of a sign-in (`auth`).
    pub signs_in: bool,
}

impl PerUserSettings {
    /// Moves values with placeholders out of the transport.
    pub(super) fn read(entry: &mut Entry<'_, '_>, transport: &mut TransportSettings, remote: &RemoteSettings) -> Self {
        warn_elsewhere(entry, transport);
        let key = transport.values_key();
        let slot = if key == "env" { Slot::Variable } else { Slot::Header };
        let values = match transport {
            TransportSettings::Stdio { env, .. } => env,
            TransportSettings::StreamableHttp { headers, .. } | TransportSettings::Sse { headers, .. } => headers,
        };
        let (mut templates, mut plain) = (IndexMap::new(), IndexMap::new());
        for (name, value) in std::mem::take(values) {
            let path = child(&child(entry.path(), key), &name);
            match Template::parse(value.expose_secret()) {
                Ok(Parsed { template, others }) => {
                    warn_of_others(entry, &path, &others);
                    match template {
                        Some(template) => drop(templates.insert(name, template)),
                        None => drop(plain.insert(name, value)),
                    }
                }
                Err(error) => {
                    let remedy = remedy(&error);
                    entry.problem(&path, error.to_string(), remedy);
                }
            }
        }
        let is_same = |one: &str, other: &str| if slot == Slot::Header { one.eq_ignore_ascii_case(other) } else { one == other };
        for (at, name) in templates.keys().enumerate() {
            let same = templates.keys().skip(at + 1).chain(plain.keys()).find(|other| is_same(name, other));
            if let Some(same) = same {
                let path = child(&child(entry.path(), key), same);
                entry.problem(&path, format!("the same header as `{name}`, which differs for each user"), "remove one of the two");
            }
            if remote.oauth.is_some() && is_same(name, "authorization") {
                let path = child(&child(entry.path(), key), name);
                entry.problem(&path, "conflicts with the token of `oauth`", "remove one of the two");
            }
        }
        *values = plain;
        let is_shared = remote.connect.as_ref().is_some_and(|connect| connect.token_for != TokenFor::User);
        if is_shared && !templates.is_empty() {
            let path = child(entry.path(), key);
            let remedy = "remove the placeholders, or write \"for\": \"user\" in `auth`";
            entry.problem(&path, "differs between users, who share one token by `auth`", remedy);
        }
        let mut names: Vec<&str> = templates.keys().map(String::as_str).collect();
        if remote.connect.is_some() {
            names.push(AUTHORIZATION);
        }
        let list_with = read_list_with(entry, &names, slot, is_same);
        Self { templates, list_with, signs_in: remote.connect.is_some() }
    }

    /// Whether the server needs no values of users.
    pub fn is_empty(&self) -> bool {
        self.templates.is_empty() && !self.signs_in
    }

    pub fn names_user(&self) -> bool {
        self.templates.values().any(Template::names_user)
    }

    pub fn takes_secrets(&self) -> bool {
        self.templates.values().any(|template| !template.secrets().is_empty())
    }

    /// The secrets that the placeholders name.
    pub fn secrets(&self) -> BTreeSet<SecretName> {
        self.templates.values().flat_map(Template::secrets).collect()
    }
}

/// Reads `listWith`. Its names get the spelling of `names`, which differ between users.
fn read_list_with(
    entry: &mut Entry<'_, '_>,
    names: &[&str],
    slot: Slot,
    is_same: impl Fn(&str, &str) -> bool,
) -> IndexMap<String, SecretString> {
    let key = if entry.get("listWith").is_some() { "listWith" } else { "list_with" };
    let given = entry.text_map(key);
    let path = child(entry.path(), key);
    if !given.is_empty() && names.is_empty() {
        entry.warning(&path, "has no effect: nothing here differs per user", "remove it, or use {{user.…}} or {{secret.…}} in a value");
        return IndexMap::new();
    }
    let mut list_with = IndexMap::new();
    for (name, value) in given {
        let path = child(&path, &name);
        let Some(known) = names.iter().find(|known| is_same(known, &name)) else {
            entry.problem(&path, "nothing with this name differs per user", suggestion(&name, names));
            continue;
        };
        if slot == Slot::Header && HeaderValue::from_str(value.expose_secret()).is_err() {
            entry.problem(&path, "contains characters that a header can't carry", "remove line breaks and control characters");
        } else if Template::parse(value.expose_secret()).is_ok_and(|parsed| parsed.template.is_none()) {
            list_with.insert((*known).to_owned(), value);
        } else {
            entry.problem(&path, "contains a placeholder", "write a plain value: tools are listed without a user");
        }
    }
    list_with
}

/// Warns about placeholders where the service doesn't replace them.
fn warn_elsewhere(entry: &mut Entry<'_, '_>, transport: &TransportSettings) {
    let path = entry.path().to_owned();
    let mut texts: Vec<(String, String)> = Vec::new();
    match transport {
        TransportSettings::Stdio { command, args, directory, .. } => {
            texts.push((child(&path, "command"), command.clone()));
            texts.extend(args.iter().enumerate().map(|(at, arg)| (item(&child(&path, "args"), at), arg.clone())));
            texts.extend(directory.iter().map(|directory| (child(&path, "cwd"), directory.display().to_string())));
        }
        TransportSettings::StreamableHttp { url, .. } | TransportSettings::Sse { url, .. } => {
            let text = percent_encoding::percent_decode_str(url.as_str()).decode_utf8_lossy().into_owned();
            texts.push((child(&path, "url"), text));
        }
    }
    for (path, text) in texts {
        if !matches!(Template::parse(&text), Ok(Parsed { template: None, .. })) {
            let remedy = "put it into `headers`, or into `env` of a program: only there it is replaced";
            entry.warning(&path, "this placeholder is not replaced here", remedy);
        }
    }
}

/// Warns about misspelt placeholders, and about placeholders in Open WebUI's format.
fn warn_of_others(entry: &mut Entry<'_, '_>, path: &str, others: &[String]) {
    for other in others {
        let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        if let Some(meant) = nearest(&other.replace('_', "."), known.iter().copied()) {
            entry.warning(path, format!("`{{{{{other}}}}}` is not replaced"), format!("did you mean {{{{{meant}}}}}?"));
        }
    }
}

fn remedy(error: &TemplateError) -> String {
    let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    match error {
        TemplateError::UnknownField(found) => suggestion(found, &known),
        TemplateError::NoSecretName(_) => "write {{secret.NAME}} with 1 to 64 letters, digits, `-`, `_` and `.`".to_owned(),
        TemplateError::Unclosed => "close it".to_owned(),
    }
}
