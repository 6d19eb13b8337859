//! `toolsieve feedback`: records a verdict on a selection.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::json;

use crate::cli::admin::CallerAccess;
use crate::cli::{Outcome, print};

#[derive(Args)]
pub(super) struct Feedback {
    /// Public name of the tool, such as `git__git_log`
    tool: String,
    verdict: Verdict,
    /// ID of the selection: `selection_id` in the response of /v1/filter
    #[arg(long, value_name = "ID", required_unless_present = "chat", conflicts_with = "chat")]
    selection: Option<String>,
    /// ID of a chat; the verdict applies to the chat's last selection
    #[arg(long, value_name = "ID")]
    chat: Option<String>,
    #[command(flatten)]
    access: CallerAccess,
}

#[derive(Clone, Copy, ValueEnum)]
enum Verdict {
    /// The selection offered the tool, and the message needed it
    Helpful,
    /// The selection offered the tool, but the message didn't need it
    Wrong,
    /// The message needed the tool, but the selection didn't offer it
    Missing,
}

impl Feedback {
    pub(super) fn run(self) -> Outcome {
        let verdict = self.verdict.to_possible_value().map(|value| value.get_name().to_owned());
        let body = json!({"selection_id": self.selection, "chat_id": self.chat, "tool": self.tool, "verdict": verdict});
        let answer = self.access.ask(Method::POST, "/v1/feedback", &body)?;
        print(&format!("Stored for the selection {}.", answer["selection_id"].as_str().unwrap_or_default()))
    }
}
