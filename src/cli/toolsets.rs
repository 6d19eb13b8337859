//! `toolsieve toolsets`: manages named lists of tools on a running service.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::cell as text;
use crate::cli::{Outcome, print, table};
use crate::domain::publishing::document::encoded;

#[derive(Subcommand)]
pub(super) enum Toolsets {
    /// List all toolsets, including those from the settings
    List {
        #[command(flatten)]
        shown: Shown,
    },
    /// Show a toolset and its tools
    Show {
        name: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Add or replace a toolset; toolsets from the settings can't be replaced
    Set {
        /// Name of the toolset: 1 to 64 letters, digits, `-` and `_`
        name: String,
        #[command(flatten)]
        flags: DefinitionArgs,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Remove a toolset; keys restricted to this toolset can then use no tools
    Remove {
        name: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
}

/// The definition of a toolset. A tool belongs to the toolset if at least one pattern of each flag matches. Flags
/// without patterns are ignored.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(super) struct DefinitionArgs {
    /// Purpose of the toolset
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Include only tools from servers that match this pattern; may be repeated
    #[arg(long = "server", value_name = "PATTERN")]
    servers: Vec<String>,
    /// Include only tools whose names match this pattern; may be repeated
    #[arg(long = "tool", value_name = "PATTERN")]
    tools: Vec<String>,
    /// Include only tools with a tag that matches this pattern; may be repeated
    #[arg(long = "tag", value_name = "PATTERN")]
    tags: Vec<String>,
    /// Include only tools with this annotation, such as readOnlyHint; if repeated, tools need all annotations
    #[arg(long = "annotation", value_name = "HINT")]
    annotations: Vec<String>,
    /// Exclude tools that match this pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Include tools that match this pattern regardless of all other flags; may be repeated
    #[arg(long, value_name = "PATTERN")]
    always: Vec<String>,
}

impl Toolsets {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::List { shown } => shown.get("/v1/admin/toolsets", as_table),
            Self::Show { name, shown } => shown.get(&path(&name), described),
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
    table::of_list(&["Name", "From", "Tools", "Description"], &answer["toolsets"], |toolset| {
        let tools = toolset["members"].as_array().map_or(0, Vec::len);
        [text(&toolset["name"]), text(&toolset["source"]), tools.to_string(), text(&toolset["description"])]
    })
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
