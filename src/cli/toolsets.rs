//! `toolsieve toolsets`: named lists of tools on a running service.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::ServiceAccess;
use crate::cli::{Outcome, print, table};
use crate::domain::publishing::document::encoded;

#[derive(Subcommand)]
pub(super) enum Toolsets {
    /// List all toolsets, including those of the settings
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Show a toolset and its tools
    Show {
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Add a toolset, or replace the one with this name; toolsets of the settings change only there
    Set {
        /// 1 to 64 letters, digits, `-` and `_`
        name: String,
        #[command(flatten)]
        flags: DefinitionArgs,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Remove a toolset; a key limited to it alone then reaches nothing
    Remove {
        name: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
}

/// The contents of a toolset. Texts are patterns, as in rules. One matching text per flag suffices; every flag must match.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(super) struct DefinitionArgs {
    /// Description of its purpose
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Names of servers; may be repeated
    #[arg(long = "server", value_name = "PATTERN")]
    servers: Vec<String>,
    /// Names of tools; may be repeated
    #[arg(long = "tool", value_name = "PATTERN")]
    tools: Vec<String>,
    /// Tags of tools; may be repeated
    #[arg(long = "tag", value_name = "PATTERN")]
    tags: Vec<String>,
    /// Annotations of tools, such as readOnlyHint; all must hold; may be repeated
    #[arg(long = "annotation", value_name = "HINT")]
    annotations: Vec<String>,
    /// Tools to exclude; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Tools to include in any case; overrides every other flag; may be repeated
    #[arg(long, value_name = "PATTERN")]
    always: Vec<String>,
}

impl Toolsets {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::List { json, access } => {
                let answer = access.ask(Method::GET, "/v1/admin/toolsets", None)?;
                if json { print(&format!("{answer:#}")) } else { print(&as_table(&answer)) }
            }
            Self::Show { name, json, access } => {
                let answer = access.ask(Method::GET, &path(&name), None)?;
                if json { print(&format!("{answer:#}")) } else { print(&described(&answer)) }
            }
            Self::Set { name, flags, access } => print(&described(&access.ask(Method::PUT, &path(&name), Some(&flags.body()))?)),
            Self::Remove { name, access } => {
                access.ask(Method::DELETE, &path(&name), None)?;
                print(&format!("{name} is removed."))
            }
        }
    }
}

impl DefinitionArgs {
    fn body(&self) -> Value {
        let mut body = json!({});
        if let Some(description) = &self.description {
            body["description"] = json!(description);
        }
        let Self { servers, tools, tags, annotations, exclude, always, .. } = self;
        let lists = [
            ("servers", servers),
            ("tools", tools),
            ("tags", tags),
            ("annotations", annotations),
            ("exclude", exclude),
            ("always", always),
        ];
        for (name, texts) in lists.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            body[name] = json!(texts);
        }
        body
    }
}

fn path(name: &str) -> String {
    format!("/v1/admin/toolsets/{}", encoded(name))
}

fn as_table(answer: &Value) -> String {
    let mut out = table::table(&["Name", "From", "Tools", "Description"]);
    for toolset in answer["toolsets"].as_array().into_iter().flatten() {
        let tools = toolset["members"].as_array().map_or(0, Vec::len);
        out.add_row([text(&toolset["name"]), text(&toolset["source"]), tools.to_string(), text(&toolset["description"])]);
    }
    table::text(&out)
}

fn described(toolset: &Value) -> String {
    for warning in toolset["warnings"].as_array().into_iter().flatten() {
        eprintln!("warning: {}", text(warning));
    }
    let mut lines = vec![text(&toolset["name"]), format!("  {:<12} {}", "from", text(&toolset["source"]))];
    for name in ["description", "servers", "tools", "tags", "annotations", "exclude", "always", "members"] {
        let value = &toolset[name];
        let value = if value.is_string() { text(value) } else { table::list(value) };
        if !value.is_empty() {
            lines.push(format!("  {name:<12} {value}"));
        }
    }
    lines.join("\n")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
