//! `toolsieve sessions`: manages sessions, which are temporary tool lists with their own address, on a running service.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::admin::{CallerAccess, ServiceAccess, Shown};
use crate::cli::mode::ModeArg;
use crate::cli::table::cell as text;
use crate::cli::{Failure, Outcome, print, table};
use crate::domain::publishing::document::encoded;
use crate::domain::toolsets::mode::Mode;

#[derive(Subcommand)]
pub(super) enum Sessions {
    /// List all callers' sessions
    List {
        /// Show only sessions of this caller: user:ID, key:NAME, service-key, admin or anyone
        #[arg(long, value_name = "WHO")]
        principal: Option<String>,
        #[command(flatten)]
        shown: Shown,
    },
    /// Create a session that belongs to the key's caller, and print its address
    Create {
        /// Publish this toolset's tools; with --task, select only from these tools; may be repeated
        #[arg(long = "toolset", value_name = "NAME")]
        toolsets: Vec<String>,
        /// Publish this server's tools; with --task, select only from these tools; may be repeated
        #[arg(long = "server", value_name = "NAME")]
        servers: Vec<String>,
        /// Always publish this tool, given by its public name or as SERVER/TOOL; may be repeated
        #[arg(long = "tool", value_name = "NAME")]
        tools: Vec<String>,
        /// Select tools for this task, as for a message
        #[arg(long, value_name = "TEXT")]
        task: Option<String>,
        /// Maximum number of tools to select for the task
        #[arg(long, value_name = "NUMBER", requires = "task", value_parser = clap::value_parser!(u32).range(1..=128))]
        limit: Option<u32>,
        /// Mode of documents that are requested without `?mode=`
        #[arg(long, value_enum)]
        mode: Option<ModeArg>,
        /// Lifetime in seconds [default: the service's setting `sessions.ttl_seconds`]
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
        ttl_seconds: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: CallerAccess,
    },
    /// End any caller's session
    Remove {
        /// ID of the session
        id: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
}

impl Sessions {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::List { principal, shown } => {
                let query = principal.map(|principal| format!("?principal={}", encoded(&principal))).unwrap_or_default();
                shown.get(&format!("/v1/admin/sessions{query}"), as_table)
            }
            Self::Create { toolsets, servers, tools, task, limit, mode, ttl_seconds, json, access } => {
                if toolsets.is_empty() && servers.is_empty() && tools.is_empty() && task.is_none() && mode.is_none() {
                    return Err(Failure::invalid("error: the session would be empty: add --toolset, --server, --tool or --task"));
                }
                let mode = mode.map(|mode| Mode::from(mode).name());
                let body = json!({
                    "toolsets": toolsets, "servers": servers, "tools": tools, "task": task, "limit": limit, "mode": mode,
                    "ttl_seconds": ttl_seconds,
                });
                let answer = access.ask(Method::POST, "/v1/sessions", &body)?;
                if json {
                    return print(&format!("{answer:#}"));
                }
                for warning in answer["warnings"].as_array().into_iter().flatten() {
                    eprintln!("warning: {}", text(warning));
                }
                let count = answer["tools"].as_array().map_or(0, Vec::len);
                eprintln!("{}: {count} tools, until {}.", text(&answer["id"]), text(&answer["expires_at"]));
                print(&text(&answer["url"]))
            }
            Self::Remove { id, access } => {
                access.ask(Method::DELETE, &format!("/v1/admin/sessions/{}", encoded(&id)), None)?;
                print("The session has ended.")
            }
        }
    }
}

fn as_table(answer: &Value) -> String {
    table::of_list(&["Id", "Of", "Toolsets", "Servers", "Tools", "Created", "Expires"], &answer["sessions"], |session| {
        [
            text(&session["id"]),
            text(&session["principal"]),
            table::list(&session["toolsets"]),
            table::list(&session["servers"]),
            table::list(&session["tools"]),
            text(&session["created_at"]),
            text(&session["expires_at"]),
        ]
    })
}
