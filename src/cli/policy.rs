//! `toolsieve policy`: manages the rules of a running service.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::cell;
use crate::cli::{Failure, Outcome, print, table};

const PATH: &str = "/v1/admin/policy";
const CHECK_PATH: &str = "/v1/admin/policy/check";
/// Fields in the GET response that PUT rejects. `set` drops them, so that it accepts the output of `show --json`.
const ONLY_SHOWN: [&str; 3] = ["effective_default", "settings_rules", "warnings"];

#[derive(Subcommand)]
pub(super) enum PolicyCommand {
    /// Show the rules in effect, starting with those from the settings
    Show {
        /// Print JSON, which `set` accepts as its input
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: ServiceAccess,
    },
    /// Replace the rules of the service; rules from the settings remain
    Set(Set),
    /// Show who may call a tool, or which tools a caller may call, and the deciding rule; changes nothing
    Check(Check),
}

#[derive(Args)]
pub(super) struct Set {
    /// JSON file with `rules`, and optionally a `default` for services whose settings don't set access.default, as for
    /// PUT /v1/admin/policy
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the rules only if this is still their version, as printed by `show` [default: `version` in the file, if
    /// any]
    #[arg(long, value_name = "NUMBER")]
    if_version: Option<u64>,
    /// Validate the rules on the service without changing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    access: ServiceAccess,
}

#[derive(Args)]
pub(super) struct Check {
    /// Tool to check, given by its public name or as server/tool [default: all tools]
    #[arg(long, value_name = "NAME", required_unless_present = "principal")]
    tool: Option<String>,
    /// Caller to check: key:NAME, user:ID, service-key, admin or anyone [default: all known callers]
    #[arg(long, value_name = "WHO")]
    principal: Option<String>,
    /// Email address of the user
    #[arg(long, requires = "principal")]
    email: Option<String>,
    /// Group of the user, in addition to the groups in the settings; may be repeated
    #[arg(long = "group", value_name = "NAME", requires = "principal")]
    groups: Vec<String>,
    /// Id of the model that makes the call
    #[arg(long, requires = "principal")]
    model: Option<String>,
    /// JSON file with rules to test instead of the current ones, in the same format as for `set`
    #[arg(long, value_name = "FILE")]
    draft: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown,
}

impl PolicyCommand {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::Show { json, access } => {
                let view = access.ask(Method::GET, PATH, None)?;
                if json { print(&format!("{view:#}")) } else { show(&view) }
            }
            Self::Set(set) => set.run(),
            Self::Check(check) => check.run(),
        }
    }
}

impl Set {
    fn run(self) -> Outcome {
        let (body, version) = rules_of(&self.file)?;
        if self.dry_run {
            let check = json!({"principal": "anyone", "policy": body});
            let answer = self.access.ask(Method::POST, CHECK_PATH, Some(&check))?;
            warn(&answer);
            return print("The rules are sound. Nothing was changed.");
        }
        let view = self.access.replace(PATH, &body, self.if_version.or(version))?;
        show(&view)
    }
}

impl Check {
    fn run(self) -> Outcome {
        let mut body = json!({
            "tool": self.tool, "principal": self.principal, "email": self.email, "groups": self.groups, "model": self.model,
        });
        if let Some(path) = &self.draft {
            body["policy"] = rules_of(path)?.0;
        }
        self.shown.ask(Method::POST, CHECK_PATH, Some(&body), decisions).map(drop)
    }
}

fn decisions(answer: &Value) -> String {
    warn(answer);
    table::of_list(&["Who", "Tool", "May", "Why"], &answer["decisions"], |decision| {
        let may = if decision["effect"] == "allow" { "yes" } else { "no" };
        [cell(&decision["principal"]), cell(&decision["name"]), may.to_owned(), cell(&decision["reason"])]
    })
}

/// Reads the rules from a file, and their version.
fn rules_of(path: &Path) -> Result<(Value, Option<u64>), Failure> {
    let invalid = |error: String| Failure::invalid(format!("error: {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    let mut rules: Value = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    let Some(members) = rules.as_object_mut() else {
        return Err(invalid("not a JSON object with `rules`".to_owned()));
    };
    // The new rules replace all others. If a file lacked `rules` by mistake, it would remove all rules and allow
    // everything.
    if !members.contains_key("rules") {
        return Err(invalid("`rules` is missing; a file that takes all rules back says \"rules\": []".to_owned()));
    }
    members.retain(|name, _| !ONLY_SHOWN.contains(&name.as_str()));
    let version = members.shift_remove("version").and_then(|version| version.as_u64());
    Ok((rules, version))
}

fn show(view: &Value) -> Outcome {
    let mut out = table::table(&["Rule", "From", "Effect", "Where"]);
    for (from, rules) in [("settings", &view["settings_rules"]), ("service", &view["rules"])] {
        for (number, rule) in (1..).zip(rules.as_array().into_iter().flatten()) {
            out.add_row([format!("{number}"), from.to_owned(), text(&rule["effect"]).to_owned(), conditions(rule)]);
        }
    }
    warn(view);
    print(&format!("{}\n\nElse: {}. Version {}.", table::text(&out), text(&view["effective_default"]), view["version"]))
}

fn conditions(rule: &Value) -> String {
    let conditions = rule.as_object().into_iter().flatten().filter(|(name, value)| *name != "effect" && value.is_array());
    let filled = conditions.filter(|(_, value)| value.as_array().is_some_and(|texts| !texts.is_empty()));
    let conditions: Vec<String> = filled.map(|(name, value)| format!("{name}: {}", table::list(value))).collect();
    if conditions.is_empty() { "everywhere".to_owned() } else { conditions.join("; ") }
}

fn warn(answer: &Value) {
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        let source = if warning["source"] == "settings" { " of the settings" } else { "" };
        eprintln!("warning: rule {}{source}: {}", warning["number"], text(&warning["reason"]));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
