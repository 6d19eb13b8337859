//! `toolsieve learn`: shows, replays and forgets what a running service learned from use.

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::cell as text;
use crate::cli::{Outcome, print, table};

const PATH: &str = "/v1/admin/learning";

#[derive(Subcommand)]
pub(super) enum Learn {
    /// Show for whom how much was learned, the evidence on a tool, how learning changes the ranking for a message, or proposals
    Show(Show),
    /// Learn from the older half of what is remembered, measure the newer half, and switch scopes on or off by the result
    Replay(Replay),
    /// Forget what was learned: from a caller, on a tool, for a scope, or everything
    Forget(Forget),
}

#[derive(Args)]
pub(super) struct Show {
    /// Public name of a tool, such as `git__git_log`, or SERVER/TOOL for a tool that no longer exists
    #[arg(long, value_name = "NAME", conflicts_with_all = ["message", "principal"])]
    tool: Option<String>,
    /// Text of a message
    #[arg(long, value_name = "TEXT", requires = "principal")]
    message: Option<String>,
    /// Caller of the message: user:ID or key:NAME
    #[arg(long, value_name = "PRINCIPAL", requires = "message")]
    principal: Option<String>,
    /// Propose toolsets and tools to pin, by what chats called together, and parameters to hide, by what calls filled
    #[arg(long, conflicts_with_all = ["tool", "message", "principal"])]
    proposals: bool,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Args)]
pub(super) struct Replay {
    #[command(flatten)]
    shown: Shown,
}

#[derive(Args)]
pub(super) struct Forget {
    #[command(flatten)]
    what: Forgotten,
    #[command(flatten)]
    access: ServiceAccess,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Forgotten {
    /// Caller whose messages to forget, whatever the key with which they came: user:ID or key:NAME
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Public name of a tool, or SERVER/TOOL for a tool that no longer exists
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Scope, as `toolsieve learn show` lists it
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// Forget everything
    #[arg(long)]
    all: bool,
}

impl Learn {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::Show(show) => show.run(),
            Self::Replay(replay) => replay.shown.ask(Method::POST, &format!("{PATH}/replay"), None, of_replay).map(drop),
            Self::Forget(forget) => forget.run(),
        }
    }
}

impl Show {
    fn run(self) -> Outcome {
        if self.proposals {
            return self.shown.get(&format!("{PATH}/proposals"), of_proposals);
        }
        let named = [("tool", &self.tool), ("message", &self.message), ("principal", &self.principal)];
        let path = path(&named.map(|(name, value)| (name, value.as_deref())));
        self.shown.get(&path, |answer| if answer["tools"].is_array() { of_tools(answer) } else { of_scopes(answer) })
    }
}

impl Forget {
    fn run(self) -> Outcome {
        let Forgotten { principal, tool, scope, all } = &self.what;
        let all = all.then_some("true");
        let named = [("principal", principal.as_deref()), ("tool", tool.as_deref()), ("scope", scope.as_deref()), ("all", all)];
        let answer = self.access.ask(Method::DELETE, &path(&named), None)?;
        print(&format!("Forgot {} learned uses.", answer["removed"]))
    }
}

/// The path with these parameters.
fn path(parameters: &[(&str, Option<&str>)]) -> String {
    let given =
        parameters.iter().filter_map(|(name, value)| value.map(|value| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))));
    let query = given.collect::<Vec<_>>().join("&");
    if query.is_empty() { PATH.to_owned() } else { format!("{PATH}?{query}") }
}

fn of_scopes(answer: &Value) -> String {
    let rows = table::of_list(&["Scope", "Messages", "Uses", "Chats", "Stored", "Count", "Before", "After"], &answer["scopes"], |scope| {
        let [before, after] = ["before", "after"].map(|name| figure(&scope["last_replay"][name]));
        let [messages, uses, chats, stored] = ["messages", "uses", "chats", "stored"].map(|name| text(&scope[name]));
        [text(&scope["scope"]), messages, uses, chats, stored, yes(&scope["on"]), before, after]
    });
    format!("{rows}\nLearning is {}. Messages are compared by {}.", text(&answer["mode"]), text(&answer["model"]))
}

fn of_replay(answer: &Value) -> String {
    let rows = table::of_list(&["Scope", "Uses", "Needed", "Before", "After", "Count"], &answer["scopes"], |scope| {
        let [before, after] = ["before", "after"].map(|name| figure(&scope[name]));
        [text(&scope["scope"]), text(&scope["uses"]), text(&scope["needed"]), before, after, yes(&scope["on"])]
    });
    let mode = text(&answer["mode"]);
    format!(
        "{rows}\nBefore and after are the mean nDCG@5 of the newer half of the messages, without and with learning from the older half. \
         Learning is {mode}."
    )
}

fn of_proposals(answer: &Value) -> String {
    let joined = |tools: &Value| {
        let names: Vec<&str> = tools.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.join(", ")
    };
    let toolsets = table::of_list(&["Toolset of", "Chats", "People"], &answer["toolsets"], |one| {
        [joined(&one["tools"]), text(&one["chats"]), text(&one["people"])]
    });
    let pins =
        table::of_list(&["Pin", "Chats", "People"], &answer["pins"], |one| [text(&one["name"]), text(&one["chats"]), text(&one["people"])]);
    let loaded = table::of_list(&["Loaded", "Chats", "People"], &answer["loaded"], |one| {
        [text(&one["name"]), text(&one["chats"]), text(&one["people"])]
    });
    let parameters = table::of_list(&["Tool", "Never filled", "Calls", "People", "Tokens"], &answer["parameters"], |one| {
        [text(&one["name"]), joined(&one["parameters"]), text(&one["calls"]), text(&one["people"]), text(&one["tokens"])]
    });
    format!(
        "{toolsets}\n\n{pins}\n\n{loaded}\n\n{parameters}\n\nTo accept, write a toolset with PUT /v1/admin/toolsets/NAME, pin a tool with \
         `toolsieve tools set TOOL --pinned true`, and hide parameters on the tool's page of the console."
    )
}

fn yes(value: &Value) -> String {
    if *value == true { "yes" } else { "no" }.to_owned()
}

fn figure(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

fn of_tools(answer: &Value) -> String {
    let tools = answer["tools"].as_array().into_iter().flatten();
    let rows: Vec<Value> = tools
        .flat_map(|tool| {
            let evidence = tool["evidence"].as_array().cloned().unwrap_or_default();
            evidence.into_iter().map(move |mut evidence| {
                evidence["name"] = tool["name"].clone();
                evidence["delta"] = tool["delta"].as_f64().map_or(Value::Null, |delta| Value::from(format!("{delta:+.2}")));
                evidence
            })
        })
        .collect();
    table::of_list(&["Tool", "Score", "Evidence", "Count", "Days", "Scope"], &Value::from(rows), |row| {
        [text(&row["name"]), text(&row["delta"]), text(&row["kind"]), text(&row["count"]), text(&row["age_days"]), text(&row["scope"])]
    })
}
