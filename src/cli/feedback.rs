//! `toolsieve feedback`: verdicts on selections.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::json;

use crate::cli::admin::CallerAccess;
use crate::cli::{Outcome, print};

#[derive(Args)]
pub(super) struct Feedback {
    /// Published name of the tool
    tool: String,
    verdict: Verdict,
    /// ID of the selection: `selection_id` in the response of /v1/filter
    #[arg(long, value_name = "ID", required_unless_present = "chat", conflicts_with = "chat")]
    selection: Option<String>,
    /// ID of a chat; the verdict is for its last selection
    #[arg(long, value_name = "ID")]
    chat: Option<String>,
    #[command(flatten)]
    access: CallerAccess,
}

#[derive(Clone, Copy, ValueEnum)]
enum Verdict {
    /// The tool was right
    Helpful,
    /// The message does not need the tool
    Wrong,
    /// The message needs the tool, but it was not offered
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
