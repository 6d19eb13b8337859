//! What lasts for a session or a chat: its loaded tools, and the state of MCP clients.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Parts;
use crate::app::background::{Tasks, end_sessions};
use crate::app::foundation::Foundation;
use crate::http::mcp::Finished;
use crate::service::mcp::mcp_sessions::McpSessions;
use crate::service::mcp::subscriptions::Subscriptions;
use crate::service::mcp::waiting_calls::WaitingCalls;
use crate::service::toolsets::loading::Loading;
use crate::service::toolsets::sessions::Sessions;

/// What lasts for a session or a chat.
pub(in crate::app) struct SessionParts {
    pub loading: Arc<Loading>,
    pub sessions: Sessions,
    pub mcp_sessions: Arc<McpSessions>,
    pub subscriptions: Arc<Subscriptions>,
    pub waiting_calls: Arc<WaitingCalls<Finished>>,
}

impl SessionParts {
    /// MCP sessions end with `closing`.
    pub(in crate::app) fn start(base: &Foundation<'_>, parts: &Parts, closing: &CancellationToken, tasks: &mut Tasks) -> Self {
        let Foundation { start, store, current, .. } = base;
        let (chats, select) = (parts.selection.chats.clone(), Arc::clone(&parts.selection.select));
        let recorder = parts.records.recorder.clone();
        let loading = Arc::new(Loading { current: Arc::clone(current), store: store.clone(), chats, recorder });
        let sessions = Sessions::start(Arc::clone(current), select, store.clone(), start.sessions.clone(), tasks.stop());
        let sessions = tasks.keep(sessions);
        let mcp_sessions = McpSessions::start(Arc::clone(current), store.clone(), start.mcp.clone(), closing.clone());
        let mcp_sessions = tasks.keep(mcp_sessions);
        tasks.add(end_sessions(Arc::clone(&parts.access.keys), Arc::clone(&mcp_sessions), closing.clone()));
        let subscriptions = tasks.keep(Subscriptions::start(
            Arc::clone(current),
            Arc::clone(&parts.catalog.servers),
            Arc::clone(&parts.calls.passthrough),
            Arc::clone(&mcp_sessions),
            Arc::clone(&loading),
            start.mcp.clone(),
            closing.clone(),
        ));
        let waiting_calls = WaitingCalls::new(start.mcp.waiting.clone(), tasks.stop());
        Self { loading, sessions, mcp_sessions, subscriptions, waiting_calls }
    }
}
