//! `toolsieve tools show`, `set`, `unset` and `approve`: metadata and approvals of tools on a running service.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::cell as text;
use crate::cli::{Failure, Outcome, print};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::publishing::document::encoded;
use crate::domain::text::json as json_text;

#[derive(Subcommand)]
pub(super) enum ToolCommand {
    /// Show a tool's metadata and how its definition has changed; for a server, show its texts and prompts
    Show {
        #[command(flatten)]
        tool: ToolOrServer,
        #[command(flatten)]
        shown: Shown,
    },
    /// Set a tool's metadata; values for which you pass no flag stay the same
    Set {
        #[command(flatten)]
        tool: ToolName,
        /// Tag that replaces all current tags of the tool; may be repeated to set several tags
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        /// Word or phrase by which searches find the tool, replacing all its current synonyms; may be repeated
        #[arg(long = "synonym", value_name = "WORDS")]
        synonyms: Vec<String>,
        /// Replace the server's description of the tool
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Whether to offer the tool in every chat
        #[arg(long, value_name = "true|false")]
        pinned: Option<bool>,
        /// Hide or fix parameters, give them defaults or switch the tool off, replacing the current shape: a JSON object such as
        /// `{"parameters": {"owner": {"fixed": "our-team"}}, "disabled": false}`
        #[arg(long, value_name = "JSON")]
        shape: Option<String>,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Remove the metadata that was set for a tool, and use the server's own again
    Unset {
        #[command(flatten)]
        tool: ToolName,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Approve the current definition of a tool, a prompt or a server (its title and instructions)
    Approve {
        #[command(flatten)]
        tool: ToolOrServer,
        /// Approve this prompt of the server
        #[arg(long, value_name = "NAME")]
        prompt: Option<String>,
        /// Fingerprint of the definition to approve, as printed by `show`
        #[arg(long, value_name = "HEX")]
        fingerprint: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
}

#[derive(Args)]
pub(super) struct ToolName {
    /// Server's name and the tool's name on this server, such as `time/get_current_time`
    #[arg(value_name = "SERVER/TOOL")]
    tool: String,
}

impl ToolName {
    fn path(&self) -> Result<String, Failure> {
        match self.tool.split_once('/') {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                Ok(format!("/v1/admin/tools/{}/{}", encoded(server), encoded(tool)))
            }
            _ => Err(Failure::invalid(format!("error: `{}` is not SERVER/TOOL, such as time/get_current_time", self.tool))),
        }
    }
}

#[derive(Args)]
pub(super) struct ToolOrServer {
    /// Tool, such as `time/get_current_time`, or server, such as `time`
    #[arg(value_name = "SERVER[/TOOL]")]
    name: String,
}

impl ToolOrServer {
    fn is_server(&self) -> bool {
        !self.name.contains('/')
    }

    fn path(&self) -> Result<String, Failure> {
        if self.is_server() && !self.name.is_empty() {
            return Ok(format!("/v1/admin/servers/{}/definition", encoded(&self.name)));
        }
        ToolName { tool: self.name.clone() }.path()
    }
}

/// Reads the value of `--shape`. A repeated name is refused, as by the service, which can't see it in what is sent.
fn read_shape(text: &str) -> Result<Value, Failure> {
    let shape = serde_json::from_str(text).map_err(|error| Failure::invalid(format!("error: --shape is not JSON: {error}")))?;
    match json_text::repeated_name(text) {
        Some(name) => Err(Failure::invalid(format!("error: --shape: {name} occurs twice in the same object"))),
        None => Ok(shape),
    }
}

impl ToolCommand {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::Show { tool, shown } => shown.get(&tool.path()?, if tool.is_server() { described_server } else { described }),
            Self::Set { tool, tags, synonyms, description, pinned, shape, access } => {
                let path = tool.path()?;
                let view = access.ask(Method::GET, &path, None)?;
                let mut facts = view["written"].clone();
                if !facts.is_object() {
                    facts = json!({});
                }
                let shape = shape.as_deref().map(read_shape).transpose()?;
                let given = [
                    ("tags", (!tags.is_empty()).then(|| json!(tags))),
                    ("synonyms", (!synonyms.is_empty()).then(|| json!(synonyms))),
                    ("description", description.map(Value::from)),
                    ("pinned", pinned.map(Value::from)),
                    ("shape", shape),
                ];
                if given.iter().all(|(_, value)| value.is_none()) {
                    return Err(Failure::invalid("error: nothing to write: add --tag, --synonym, --description, --pinned or --shape"));
                }
                // Absent means the same, and is accepted if the settings pin the tool.
                if let Some(facts) = facts.as_object_mut() {
                    facts.retain(|name, value| name != "pinned" || *value != false);
                }
                for (name, value) in given {
                    if let Some(value) = value {
                        facts[name] = value;
                    }
                }
                let version = view["version"].as_u64();
                print(&described(&access.replace(&path, &facts, version)?))
            }
            Self::Unset { tool, access } => print(&described(&access.ask(Method::DELETE, &tool.path()?, None)?)),
            Self::Approve { tool, prompt, fingerprint, access } => {
                if prompt.is_some() && !tool.is_server() {
                    return Err(Failure::invalid("error: --prompt needs a server: write the server's name without a tool"));
                }
                let path = format!("{}/approve", tool.path()?);
                let mut body = json!({"fingerprint": fingerprint});
                if let Some(prompt) = &prompt {
                    body["prompt"] = prompt.as_str().into();
                }
                access.ask(Method::POST, &path, Some(&body))?;
                let prompt = prompt.map_or_else(String::new, |prompt| format!(" prompt {prompt}"));
                print(&format!("{}{prompt} is approved.", tool.name))
            }
        }
    }
}

fn described(view: &Value) -> String {
    let texts = |value: &Value, member: &str| {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| text(if member.is_empty() { item } else { &item[member] })).collect::<Vec<_>>().join(", ")
    };
    let definition = &view["definition"];
    let mut out = format!("{}/{}\n", text(&view["server"]), text(&view["tool"]));
    let published = if view["published"] == true { text(&view["name"]) } else { "no".to_owned() };
    let lines = [
        ("published", published),
        ("description", text(&view["description"]).lines().next().unwrap_or_default().to_owned()),
        ("tags", texts(&view["tags"], "tag")),
        ("synonyms", texts(&view["synonyms"], "")),
        ("pinned", view["pinned"].to_string()),
        ("disabled", if view["disabled"] == true { "true".to_owned() } else { String::new() }),
        ("managed by", text(&view["managed_by"])),
        ("definition", definition["state"].as_str().unwrap_or("not compared").to_owned()),
        ("fingerprint", text(&definition["fingerprint"])),
    ];
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(out, "  {name:<12} {value}");
    }
    for (name, shape) in view["written"]["shape"]["parameters"].as_object().into_iter().flatten() {
        let _ = writeln!(out, "  parameter {}: {shape}", visible(name));
    }
    for problem in view["shape_problems"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  the shape does not fit: {}: {}", text(&problem["parameter"]), text(&problem["message"]));
    }
    changes(&mut out, view);
    for hidden in view["hidden_text"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  hidden characters at {}: {}", text(&hidden["pointer"]), texts(&hidden["code_points"], ""));
    }
    out.trim_end().to_owned()
}

fn changes(out: &mut String, view: &Value) {
    for change in view["difference"]["changes"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  {}", change["pointer"].as_str().unwrap_or_default());
        for (sign, side) in [('-', &change["before"]), ('+', &change["after"])] {
            for line in side.as_str().into_iter().flat_map(str::lines) {
                let _ = writeln!(out, "    {sign} {line}");
            }
        }
    }
}

fn described_server(view: &Value) -> String {
    let mut out = String::new();
    let prompts = view["prompts"].as_object().into_iter().flatten().map(|(name, part)| (format!("prompt {name}"), part));
    for (name, part) in std::iter::once(("title and instructions".to_owned(), &view["definition"])).chain(prompts) {
        let state = part["state"].as_str().unwrap_or("not compared");
        let _ = writeln!(out, "{}: {name}: {state}", view["server"].as_str().unwrap_or_default());
        if let Some(fingerprint) = part["fingerprint"].as_str() {
            let _ = writeln!(out, "  fingerprint  {fingerprint}");
        }
        changes(&mut out, part);
    }
    out.trim_end().to_owned()
}
