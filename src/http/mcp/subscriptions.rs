//! Subscriptions of MCP clients: to resources in a session, and by `subscriptions/listen` from protocol 2026-07-28 on.

use std::sync::Arc;

use futures::stream::{StreamExt as _, iter};
use rmcp::model::{ErrorCode, ErrorData, SubscriptionFilter};
use rmcp::service::{SubscriptionContext, SubscriptionSendError};
use serde_json::json;

use super::passthrough::{INVALID_PARAMS, RESOURCE_NOT_FOUND, error_data, protocol_error, unknown_resource};
use super::server::Handler;
use crate::http::problem::{Code, Problem};
use crate::service::mcp::mcp_news::News;
use crate::service::mcp::mcp_sessions::{McpEndpoint, McpSession, OpenStream};
use crate::service::mcp::passthrough::PassError;
use crate::service::mcp::subscriptions::{Resource, SubscribeError};
use crate::service::ports::CallError;

/// Number of subscription requests that a stream sends to servers at the same time.
const AT_ONCE: usize = 8;
/// `Retry-After` for a caller with too many streams or subscriptions, in seconds.
const RETRY_SECONDS: u64 = 60;

/// An open notification stream, with its subscribed resources.
pub(super) struct Open {
    stream: OpenStream,
    resources: Vec<String>,
}

impl Handler {
    /// Handles `resources/subscribe` in the client's session.
    pub(super) async fn follow(&self, uri: &str) -> Result<(), ErrorData> {
        let unknown = || unknown_resource(uri, RESOURCE_NOT_FOUND);
        let session = self.own_session()?;
        let (server, own) = self.server_of_resource(uri).await.ok_or_else(unknown)?;
        let resource = Resource { server, uri: own };
        let subscribed = self.state.subscriptions.subscribe(session, resource, uri, &self.passthrough_caller()).await;
        subscribed.map_err(|error| match error {
            SubscribeError::Pass(PassError::Call(CallError::Protocol { code: RESOURCE_NOT_FOUND | INVALID_PARAMS, message, .. })) => {
                protocol_error(RESOURCE_NOT_FOUND, message, Some(json!({ "uri": uri })))
            }
            SubscribeError::Pass(error) => error_data(error, unknown),
            error => ErrorData::new(ErrorCode::INVALID_REQUEST, words(&error), None),
        })
    }

    /// Handles `resources/unsubscribe`. It also succeeds if there is no such subscription.
    pub(super) async fn unfollow(&self, uri: &str) -> Result<(), ErrorData> {
        let unknown = || unknown_resource(uri, RESOURCE_NOT_FOUND);
        // Even if by now several servers list this URI, or none.
        if self.own_session()?.unfollow(uri) {
            return Ok(());
        }
        let (server, _) = self.server_of_resource(uri).await.ok_or_else(unknown)?;
        let unsubscribed = self.state.subscriptions.unsubscribe(&server, &self.passthrough_caller()).await;
        unsubscribed.map_err(|error| error_data(error, unknown))
    }

    fn own_session(&self) -> Result<&Arc<McpSession>, ErrorData> {
        let missing = "Subscriptions belong to a session: send the header Mcp-Session-Id that came with the answer to `initialize`.";
        self.session.as_ref().ok_or_else(|| ErrorData::new(ErrorCode::INVALID_REQUEST, missing, None))
    }

    /// Opens a stream for `subscriptions/listen`. Subscribes to all resources that allow this, and reports these to the
    /// client.
    pub(super) async fn open(&mut self, endpoint: McpEndpoint, resources: &[String]) -> Result<(), Problem> {
        let too_many = |detail: String| Problem { retry_after: Some(RETRY_SECONDS), ..Problem::new(Code::RateLimited, detail) };
        let limit = self.state.subscriptions.limit();
        if resources.len() > limit {
            return Err(Problem::new(Code::InvalidRequest, format!("One stream allows at most {limit} resources.")));
        }
        let stream = self.state.mcp_sessions.open_stream(&self.caller.principal, endpoint).await;
        let stream = stream.ok_or_else(|| too_many("There are too many open streams and sessions. Close some of yours.".to_owned()))?;
        self.state.subscriptions.notify_if_changed(stream.session()).await;
        let (handler, session) = (&*self, stream.session());
        let subscribing = iter(resources).map(async |uri| (uri, handler.subscribe_stream(session, uri).await));
        let done: Vec<_> = subscribing.buffered(AT_ONCE).collect().await;
        let mut accepted = Vec::new();
        for (uri, subscribed) in done {
            match subscribed {
                Ok(()) => accepted.push(uri.clone()),
                Err(error @ SubscribeError::TooMany { .. }) => return Err(too_many(words(&error))),
                // Omits unknown, hidden and rejected resources.
                Err(_) => {}
            }
        }
        self.open = Some(Arc::new(Open { stream, resources: accepted }));
        self.introduces = true;
        Ok(())
    }

    async fn subscribe_stream(&self, session: &Arc<McpSession>, uri: &str) -> Result<(), SubscribeError> {
        let (server, own) = self.server_of_resource(uri).await.ok_or(PassError::NotFound)?;
        self.state.subscriptions.subscribe(session, Resource { server, uri: own }, uri, &self.passthrough_caller()).await
    }

    /// Confirms the requested notifications that this stream will send. The SDK drops all others.
    pub(super) fn accepted(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let open = self.open.as_ref()?;
        let mut accepted = requested.clone();
        accepted.resource_subscriptions = requested.resource_subscriptions.as_ref().map(|_| open.resources.clone());
        Some(accepted)
    }

    /// Sends notifications until the client disconnects or the process ends.
    pub(super) async fn notify(&self, context: &SubscriptionContext) {
        let Some(open) = &self.open else { return };
        let session = open.stream.session();
        let mut listening = session.listen();
        self.state.mcp_sessions.notify_if_changed(session).await;
        self.state.subscriptions.notify_if_changed(session).await;
        loop {
            let news = tokio::select! {
                news = listening.next() => news,
                () = context.cancelled() => return,
            };
            let Some(news) = news else { return };
            let sink = context.sink();
            let sent = match news {
                News::Tools => sink.notify_tool_list_changed().await,
                News::Prompts => sink.notify_prompt_list_changed().await,
                News::Resources => sink.notify_resource_list_changed().await,
                // The SDK only forwards URIs that the client requested. So a change below a requested URI is reported
                // for the requested URI.
                News::Updated(uri) => {
                    match open.resources.iter().filter(|whole| uri.starts_with(whole.as_str())).max_by_key(|whole| whole.len()) {
                        Some(whole) => sink.notify_resource_updated(whole.as_str()).await,
                        None => Ok(()),
                    }
                }
            };
            match sent {
                Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
                Err(_) => return,
            }
        }
    }
}

/// Explains the error and what to do about it.
fn words(error: &SubscribeError) -> String {
    match error {
        SubscribeError::NotShared => {
            "This server is given something of each caller, so its resources can't be subscribed to here. Read them again when you need them.".to_owned()
        }
        SubscribeError::TooMany { limit, of } => {
            format!("There are {limit} subscriptions already, as many as {of} may have. Unsubscribe from some first.")
        }
        SubscribeError::Over => "The session has ended. Begin another one with `initialize`.".to_owned(),
        SubscribeError::Pass(error) => error.to_string(),
    }
}
