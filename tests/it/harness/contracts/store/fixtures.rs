//! What the cases save.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::domain::selection::chat::{ChatKey, ChatSet};
use toolsieve::domain::selection::enrichment::{Author, Enrichment, Written};
use toolsieve::domain::text::canonical::Fingerprint;
use toolsieve::domain::text::json_text::JsonText;
use toolsieve::service::ports::{
    Attribution, CallOutcome, EventMessage, SelectionEvent, SelectionEventKind, ServerListing, SkippedTool, UsageQuery,
};

pub(crate) fn listing(server: &str, tools: usize) -> ServerListing {
    let tool = |number: usize| {
        JsonText::of(&json!({
            "name": format!("tool{number}"),
            "inputSchema": {"type": "object", "z": 1, "a": {"y": 2.5, "b": [null, true]}},
            "description": "naïve 日本 \u{0007} \"quoted\"",
        }))
    };
    ServerListing {
        server: ServerName::from(server),
        title: Some("A title".into()),
        program: Some("a-program".into()),
        version: None,
        instructions: Some(String::new()),
        tools: (0..tools).map(tool).collect(),
        skipped: vec![SkippedTool { tool: "3".into(), reason: "no name".into() }],
    }
}

pub(crate) fn vector(seed: usize) -> Arc<[f32]> {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    (0..384).map(|position| ((seed * 31 + position * 7) % 1000) as f32 / 999.0 - 0.5).collect()
}

pub(crate) fn text(number: usize) -> Fingerprint {
    Fingerprint::of_text(&number.to_string())
}

pub(crate) fn chat(principal: &str, chat: &str) -> ChatKey {
    ChatKey { principal: PrincipalId::new(principal), chat: chat.into() }
}

pub(crate) fn set(tools: &[&str], called: &[&str]) -> ChatSet {
    let ids = |names: &[&str]| names.iter().map(|name| ToolId::new("server", *name)).collect::<Vec<_>>();
    let mut set = ChatSet::default();
    set.update(&ids(tools), &ids(called), 100);
    set
}

pub(crate) fn events(at: SystemTime) -> Vec<SelectionEvent> {
    let tools: Vec<ToolId> = (0..600).map(|number| ToolId::new("server", format!("tool{number}"))).collect();
    let kinds = [
        SelectionEventKind::Offered {
            message: message(),
            tools: tools.iter().cloned().collect(),
            tokens_before: 900,
            tokens_after: 30,
            tokens_saved: 0,
            model: None,
            arm: None,
        },
        called(&tools[0], CallOutcome::ToolError, Duration::from_micros(1500), false),
        SelectionEventKind::Searched { message: message(), tools: Vec::new(), recovered: true },
    ];
    let event = |kind| SelectionEvent {
        at,
        selection: Some("selection".into()),
        principal: "anyone".into(),
        key: None,
        chat: None,
        conversation: None,
        attribution: Attribution::default(),
        kind,
    };
    kinds.into_iter().map(event).collect()
}

pub(crate) fn message() -> EventMessage {
    EventMessage { text: Some("what somebody wrote".into()) }
}

pub(crate) fn called(tool: &ToolId, outcome: CallOutcome, took: Duration, recovered: bool) -> SelectionEventKind {
    SelectionEventKind::Called { tool: tool.clone(), outcome, took, recovered }
}

pub(crate) fn written(author: &str, words: &str) -> Written {
    let author = if author == "admin" { Author::Admin } else { Author::Model(author.into()) };
    let texts = |one: &str| vec![one.into(), words.into()];
    Written { author, enrichment: Enrichment { function: words.into(), tags: texts("a, b"), queries: texts("日本 \"quoted\"") } }
}

const HOUR: Duration = Duration::from_hours(1);

/// The beginning of an hour of the year 2027.
pub(crate) fn hour(number: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_820) + HOUR * number
}

pub(crate) fn between(since: SystemTime, until: SystemTime) -> UsageQuery {
    UsageQuery { since, until, server: None, tool: None }
}
