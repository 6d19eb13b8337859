//! `toolsieve feedback`: what somebody knows better than the selection.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::json;

use crate::cli::admin::CallerAccess;
use crate::cli::{Outcome, print};

#[derive(Args)]
pub(super) struct Feedback {
    /// The published name of the tool
    tool: String,
    verdict: Verdict,
    /// The selection that is meant: the `selection_id` that /v1/filter answered
    #[arg(long, value_name = "ID", required_unless_present = "chat", conflicts_with = "chat")]
    selection: Option<String>,
    /// The chat whose last selection is meant
    #[arg(long, value_name = "ID")]
    chat: Option<String>,
    #[command(flatten)]
    access: CallerAccess,
}

#[derive(Clone, Copy, ValueEnum)]
enum Verdict {
    /// It was right
    Helpful,
    /// It is not what the message needs
    Wrong,
    /// The message needs it, and it was not offered
    Missing,
}

impl Feedback {
    pub(super) fn run(self) -> Outcome {
        let verdict = self.verdict.to_possible_value().map(|value| value.get_name().to_owned());
        let body = json!({"selection_id": self.selection, "chat_id": self.chat, "tool": self.tool, "verdict": verdict});
        let answer = self.access.ask(Method::POST, "/v1/feedback", &body)?;
        print(&format!("It is kept for the selection {}.", answer["selection_id"].as_str().unwrap_or_default()))
    }
}
