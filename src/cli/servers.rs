//! `toolsieve servers`: manages the MCP servers of a running service.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::cell as text;
use crate::cli::{Failure, Outcome, print, table};
use crate::domain::catalog::server_entry::STORED;
use crate::domain::publishing::document::encoded;
use crate::settings::parse_entry;

#[derive(Subcommand)]
pub(super) enum Servers {
    /// List all servers, including those of the servers file
    List {
        #[command(flatten)]
        shown: Shown,
    },
    /// Add a server, or replace the entry of a server that was added this way
    Put {
        /// Name of the server
        name: String,
        /// File with the server's entry, such as {"url": "https://…"}; `-` for standard input
        file: PathBuf,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Remove a server that was added with `put`, and the secrets and sign-ins that users have stored for it
    Remove {
        name: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Switch a server on
    Enable {
        name: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Switch a server off; nothing of it is deleted
    Disable {
        name: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Replace a server's process or connection
    Restart {
        name: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Show the last lines that a server's process wrote to standard error
    Log {
        name: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print the servers that were added with `put` as a servers file, with variables in place of secret values
    Export {
        #[command(flatten)]
        access: ServiceAccess,
    },
}

impl Servers {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::List { shown } => shown.get("/v1/admin/servers", as_table),
            Self::Put { name, file, access } => {
                let answer = access.ask(Method::PUT, &path(&name), Some(&entry(&file)?))?;
                for warning in answer["warnings"].as_array().into_iter().flatten() {
                    eprintln!("warning: {}", text(warning));
                }
                print(&described(&answer))
            }
            Self::Remove { name, access } => {
                access.ask(Method::DELETE, &path(&name), None)?;
                print(&format!("{name} is removed."))
            }
            Self::Enable { name, access } => switch(&name, true, &access),
            Self::Disable { name, access } => switch(&name, false, &access),
            Self::Restart { name, access } => print(&described(&access.ask(Method::POST, &format!("{}/restart", path(&name)), None)?)),
            Self::Log { name, shown } => shown.get(&format!("{}/log", path(&name)), as_log),
            Self::Export { access } => {
                let (file, variables) = exported(&access.ask(Method::GET, "/v1/admin/servers", None)?);
                if !variables.is_empty() {
                    eprintln!("note: set these variables, because secret values are not exported: {}", variables.join(", "));
                }
                print(&format!("{file:#}"))
            }
        }
    }
}

fn switch(name: &str, enabled: bool, access: &ServiceAccess) -> Outcome {
    print(&described(&access.ask(Method::PATCH, &path(name), Some(&json!({"enabled": enabled})))?))
}

fn path(name: &str) -> String {
    format!("/v1/admin/servers/{}", encoded(name))
}

/// Reads an entry, in which comments are allowed, as in the servers file.
fn entry(file: &Path) -> Result<Value, Failure> {
    let unreadable = |error: io::Error| Failure::invalid(format!("error: {}: {error}", file.display()));
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    let entry = parse_entry(&text.map_err(unreadable)?);
    entry.map(Value::Object).map_err(|error| Failure::invalid(format!("error: {}: {error}", file.display())))
}

fn as_log(answer: &Value) -> String {
    let lines = answer["lines"].as_array().into_iter().flatten();
    let lines: Vec<String> = lines.map(|line| format!("{}  {}", text(&line["at"]), text(&line["text"]))).collect();
    if lines.is_empty() { "The server's process has written nothing.".to_owned() } else { lines.join("\n") }
}

fn as_table(answer: &Value) -> String {
    table::of_list(&["Name", "From", "State", "Tools", "Error"], &answer["servers"], |server| {
        [text(&server["server"]), text(&server["managed_by"]), state(server), text(&server["tools"]), text(&server["error"])]
    })
}

fn described(server: &Value) -> String {
    let error = server["error"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{} is {}, with {} tools{error}", text(&server["server"]), state(server), text(&server["tools"]))
}

fn state(server: &Value) -> String {
    match (&server["enabled"], &server["phase"]) {
        (Value::Bool(false), _) => "off".to_owned(),
        (_, Value::Null) => "not used".to_owned(),
        (_, phase) => text(phase),
    }
}

/// The servers file for what the API has added, and the variables that stand for secret values.
fn exported(answer: &Value) -> (Value, Vec<String>) {
    let (mut servers, mut variables, mut unnamed) = (Map::new(), Vec::new(), 0_usize);
    for server in answer["servers"].as_array().into_iter().flatten().filter(|server| server["entry"].is_object()) {
        let (name, mut entry) = (text(&server["server"]), server["entry"].clone());
        if name.contains(|letter: char| letter.is_ascii_alphabetic()) {
            name_variables(&mut entry, &name, &mut variables);
        } else {
            // Nothing of such a name would remain.
            unnamed += 1;
            name_variables(&mut entry, &format!("server_{unnamed}"), &mut variables);
        }
        if server["enabled"] == false {
            entry["disabled"] = json!(true);
        }
        servers.insert(name, entry);
    }
    (json!({"mcpServers": servers}), variables)
}

fn name_variables(value: &mut Value, name: &str, variables: &mut Vec<String>) {
    match value {
        Value::String(text) if text == STORED => {
            let variable = unique(variable(name), variables);
            *text = format!("${{{variable}}}");
            variables.push(variable);
        }
        Value::Object(members) => {
            for (member, value) in members {
                // The names of the maps say nothing.
                let is_map = ["headers", "env", "auth", "listWith", "list_with"].contains(&member.as_str());
                let name = if is_map { name.to_owned() } else { format!("{name}_{member}") };
                name_variables(value, &name, variables);
            }
        }
        _ => {}
    }
}

/// A name as that of a variable.
fn variable(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' });
    let name: String = letters.collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// The name, with a number if another secret has it already: one server must never get the credentials of another.
fn unique(name: String, taken: &[String]) -> String {
    if !taken.contains(&name) {
        return name;
    }
    // One of them is free, because there are more than names taken.
    let mut numbered = (2..=taken.len() + 2).map(|number| format!("{name}_{number}"));
    numbered.find(|numbered| !taken.contains(numbered)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{STORED, exported};

    #[test]
    fn an_export_is_a_servers_file_with_variables() {
        let entry = json!({"url": STORED, "headers": {"X-Key": STORED}, "auth": {"client_secret": STORED, "client_id": "me"}});
        let answer = json!({"servers": [
            {"server": "9-hub", "enabled": false, "entry": entry},
            {"server": "of-file", "enabled": true, "entry": null}
        ]});
        let (file, variables) = exported(&answer);
        let expected = json!({"mcpServers": {"9-hub": {
            "url": "${_9_HUB_URL}",
            "headers": {"X-Key": "${_9_HUB_X_KEY}"},
            "auth": {"client_secret": "${_9_HUB_CLIENT_SECRET}", "client_id": "me"},
            "disabled": true
        }}});
        assert_eq!((file, variables.len()), (expected, 3));
    }

    /// Regression test: servers whose names differ only in other characters than ASCII letters and digits had the same variables.
    #[test]
    fn every_secret_has_a_variable_of_its_own() {
        let entry = |headers: &[&str]| -> Value {
            let headers: serde_json::Map<String, Value> = headers.iter().map(|name| ((*name).to_owned(), json!(STORED))).collect();
            json!({"url": "https://example.org/mcp", "headers": headers})
        };
        let names = ["会議", "予定", "web-1", "web_1", "web", "1", "server_1"];
        let servers = names.map(|name| json!({"server": name, "enabled": true, "entry": entry(&["Authorization", "1-Authorization"])}));
        let (file, variables) = exported(&json!({"servers": servers}));
        assert_eq!(variables.iter().collect::<BTreeSet<_>>().len(), 2 * names.len(), "{variables:?}");
        for variable in &variables {
            let is_name = variable.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_');
            assert!(is_name && variable.starts_with(|first: char| first.is_ascii_uppercase()), "{variable}");
        }
        let of = |name: &str| file["mcpServers"][name]["headers"]["Authorization"].as_str().unwrap().to_owned();
        let expected = ["${SERVER_1_AUTHORIZATION}", "${SERVER_2_AUTHORIZATION}", "${WEB_1_AUTHORIZATION}", "${WEB_1_AUTHORIZATION_2}"];
        assert_eq!(names[..4].iter().map(|name| of(name)).collect::<Vec<_>>(), expected);
        assert_eq!(of("server_1"), "${SERVER_1_AUTHORIZATION_2}");
    }
}
