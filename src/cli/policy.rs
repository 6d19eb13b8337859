//! `toolsieve policy`: which caller may use which tool, asked of a running service.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::ServiceAccess;
use crate::cli::{Failure, Outcome, print, table};

#[derive(Subcommand)]
pub(super) enum Policy {
    /// Say who may call a tool, or what a caller may call, and which rule decides; nothing is changed
    Check(Check),
}

#[derive(Args)]
pub(super) struct Check {
    /// A published name, or server/tool; without it all tools
    #[arg(long, value_name = "NAME", required_unless_present = "principal")]
    tool: Option<String>,
    /// key:NAME, user:ID, service-key, admin or anyone; without it everybody who is known
    #[arg(long, value_name = "WHO")]
    principal: Option<String>,
    /// The e-mail address of a user
    #[arg(long, requires = "principal")]
    email: Option<String>,
    /// A group of a user, beside those of the settings; may be repeated
    #[arg(long = "group", value_name = "NAME", requires = "principal")]
    groups: Vec<String>,
    /// The model that calls
    #[arg(long, requires = "principal")]
    model: Option<String>,
    /// Rules to try out: a JSON file as PUT /v1/admin/policy takes it
    #[arg(long, value_name = "FILE")]
    draft: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: ServiceAccess,
}

impl Policy {
    pub(super) fn run(self) -> Outcome {
        let Self::Check(check) = self;
        let mut body = json!({
            "tool": check.tool, "principal": check.principal, "email": check.email, "groups": check.groups, "model": check.model,
        });
        if let Some(path) = &check.draft {
            let invalid = |error: String| Failure::invalid(format!("error: {}: {error}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
            body["policy"] = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        }
        let answer = check.access.ask(Method::POST, "/v1/admin/policy/check", Some(&body))?;
        if check.json {
            return print(&format!("{answer:#}"));
        }
        let mut out = table::table(&["Who", "Tool", "May", "Why"]);
        for decision in answer["decisions"].as_array().into_iter().flatten() {
            let may = if decision["effect"] == "allow" { "yes" } else { "no" };
            out.add_row([text(&decision["principal"]), text(&decision["name"]), may, text(&decision["reason"])]);
        }
        for warning in answer["warnings"].as_array().into_iter().flatten() {
            let source = if warning["source"] == "settings" { " of the settings" } else { "" };
            eprintln!("warning: rule {}{source}: {}", warning["number"], text(&warning["reason"]));
        }
        print(&table::text(&out))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
