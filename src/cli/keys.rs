//! `toolsieve keys`: manages the API keys of a running service.

use clap::Subcommand;
use clap::builder::RangedI64ValueParser;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::{cell as text, list};
use crate::cli::{Failure, Outcome, print, table};

#[derive(Subcommand)]
pub(super) enum Keys {
    /// Create a key and print it once
    Create {
        /// Name of the key: letters, digits, `-`, `_` and `.`; rules refer to the key as key:NAME
        name: String,
        /// Restrict the key to this server; may be repeated
        #[arg(long = "server", value_name = "NAME")]
        servers: Vec<String>,
        /// Restrict the key to this toolset; may be repeated
        #[arg(long = "toolset", value_name = "NAME")]
        toolsets: Vec<String>,
        /// Add the key's callers to this group; users of a trusted key keep only those of their own groups that are named here; may be
        /// repeated
        #[arg(long = "group", value_name = "NAME")]
        groups: Vec<String>,
        /// Let callers with this key name the user on whose behalf they call, as Open WebUI does
        #[arg(long)]
        trusted: bool,
        /// Let the key read the admin routes and the console, and call no tools: `viewer`
        #[arg(long, value_name = "ROLE", conflicts_with_all = ["servers", "toolsets", "groups", "trusted"])]
        role: Option<String>,
        /// Days until the key expires [default: never]
        #[arg(long, value_name = "DAYS", value_parser = days())]
        expires_in_days: Option<u32>,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// List all keys, without their secrets
    List {
        #[command(flatten)]
        shown: Shown,
    },
    /// Replace a key's secret and print the new secret once; the old one stops working
    Rotate {
        /// Name or ID of the key
        key: String,
        /// Days until the new key expires [default: the expiry stays the same]
        #[arg(long, value_name = "DAYS", value_parser = days())]
        expires_in_days: Option<u32>,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Revoke a key at once and permanently
    Revoke {
        /// Name or ID of the key
        key: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
}

fn days() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

impl Keys {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::Create { name, servers, toolsets, groups, trusted, role, expires_in_days, access } => {
                let mut body = json!({"name": name, "groups": groups, "trusted": trusted, "expires_in_days": expires_in_days});
                if let Some(role) = role {
                    body["role"] = role.into();
                }
                if !servers.is_empty() {
                    body["servers"] = servers.into();
                }
                if !toolsets.is_empty() {
                    body["toolsets"] = toolsets.into();
                }
                shown_once(&access.ask(Method::POST, "/v1/admin/keys", Some(&body))?)
            }
            Self::List { shown } => shown.get("/v1/admin/keys", as_table),
            Self::Rotate { key, expires_in_days, access } => {
                let id = id_of(&key, &access)?;
                let body = json!({"expires_in_days": expires_in_days});
                shown_once(&access.ask(Method::POST, &format!("/v1/admin/keys/{id}/rotate"), Some(&body))?)
            }
            Self::Revoke { key, access } => {
                let id = id_of(&key, &access)?;
                let answer = access.ask(Method::DELETE, &format!("/v1/admin/keys/{id}"), None)?;
                print(&format!("{} is revoked.", text(&answer["name"])))
            }
        }
    }
}

/// Prints only the key to standard output, so that scripts can read it.
fn shown_once(answer: &Value) -> Outcome {
    eprintln!("{} ({}): store this key now, because it is not shown again.", text(&answer["name"]), text(&answer["id"]));
    print(&text(&answer["key"]))
}

/// Finds a key by its name or id. Ignores revoked keys, and stored keys that a key in a file with the same name overrides.
fn id_of(key: &str, access: &ServiceAccess) -> Result<String, Failure> {
    let answer = access.ask(Method::GET, "/v1/admin/keys", None)?;
    let keys = answer["keys"].as_array().into_iter().flatten().filter(|known| known["state"] != "revoked");
    let found = keys.clone().find(|known| known["id"] == key);
    let found = found.or_else(|| keys.clone().find(|known| known["name"] == key && known["state"] != "overridden"));
    found.map(|known| text(&known["id"])).ok_or_else(|| {
        let names: Vec<String> = keys.map(|known| text(&known["name"])).collect();
        Failure::failed(format!("error: there is no key `{key}`. Known keys: {}", names.join(", ")))
    })
}

fn as_table(answer: &Value) -> String {
    let head = ["Id", "Name", "State", "From", "Servers", "Toolsets", "Groups", "Trusted", "Role", "Expires", "Last used"];
    table::of_list(&head, &answer["keys"], |key| {
        let limit = |name: &str| if key[name].is_null() { "all".to_owned() } else { list(&key[name]) };
        let trusted = if key["trusted"] == true { "yes" } else { "" };
        [
            text(&key["id"]),
            text(&key["name"]),
            text(&key["state"]),
            text(&key["managed_by"]),
            limit("servers"),
            limit("toolsets"),
            list(&key["groups"]),
            trusted.to_owned(),
            text(&key["role"]),
            text(&key["expires_at"]),
            text(&key["last_used_at"]),
        ]
    })
}
