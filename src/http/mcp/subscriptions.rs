//! Notifications that MCP clients subscribe to: resources in a session, and the streams of the newer era.

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

/// Concurrent subscription requests per stream.
const AT_ONCE: usize = 8;
/// `Retry-After` for callers with too many streams or subscriptions, in seconds.
const RETRY_SECONDS: u64 = 60;

/// An open stream, and its resources.
pub(super) struct Open {
    stream: OpenStream,
    resources: Vec<String>,
}

impl Handler {
    /// `resources/subscribe`, in the client's session.
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

    /// `resources/unsubscribe`. Succeeds for unknown subscriptions too.
    pub(super) async fn unfollow(&self, uri: &str) -> Result<(), ErrorData> {
        let unknown = || unknown_resource(uri, RESOURCE_NOT_FOUND);
        let session = self.own_session()?;
        let (server, _) = self.server_of_resource(uri).await.ok_or_else(unknown)?;
        let unsubscribed = self.state.subscriptions.unsubscribe(session, &server, uri, &self.passthrough_caller());
        unsubscribed.map_err(|error| error_data(error, unknown))
    }

    fn own_session(&self) -> Result<&Arc<McpSession>, ErrorData> {
        let missing = "Subscriptions belong to a session: send the header Mcp-Session-Id that came with the answer to `initialize`.";
        self.session.as_ref().ok_or_else(|| ErrorData::new(ErrorCode::INVALID_REQUEST, missing, None))
    }

    /// Opens the stream of a `subscriptions/listen` with all resources that allow a subscription, and reports them to the client.
    pub(super) async fn open(&mut self, endpoint: McpEndpoint, resources: &[String]) -> Result<(), Problem> {
        let too_many = |detail: String| Problem { retry_after: Some(RETRY_SECONDS), ..Problem::new(Code::RateLimited, detail) };
        let limit = self.state.subscriptions.limit();
        if resources.len() > limit {
            return Err(Problem::new(Code::InvalidRequest, format!("One stream allows at most {limit} resources.")));
        }
        let stream = self.state.mcp_sessions.open_stream(&self.caller.principal, endpoint);
        let stream = stream.ok_or_else(|| too_many("There are too many open streams and sessions. Close some of yours.".to_owned()))?;
        self.state.subscriptions.notify_if_changed(stream.session());
        let (handler, session) = (&*self, stream.session());
        let subscribing = iter(resources).map(async |uri| (uri, handler.subscribe_stream(session, uri).await));
        let done: Vec<_> = subscribing.buffered(AT_ONCE).collect().await;
        let mut accepted = Vec::new();
        for (uri, subscribed) in done {
            match subscribed {
                Ok(()) => accepted.push(uri.clone()),
                Err(error @ SubscribeError::TooMany { .. }) => return Err(too_many(words(&error))),
                // Leaves out absent and denied resources, and those that the server rejects.
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

    /// The announced part of the requested notifications. The SDK drops unannounced ones.
    pub(super) fn accepted(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let open = self.open.as_ref()?;
        let mut accepted = requested.clone();
        accepted.resource_subscriptions = requested.resource_subscriptions.as_ref().map(|_| open.resources.clone());
        Some(accepted)
    }

    /// Sends changes until the client disconnects or the process ends.
    pub(super) async fn notify(&self, context: &SubscriptionContext) {
        let Some(open) = &self.open else { return };
        let session = open.stream.session();
        let mut listening = session.listen();
        self.state.mcp_sessions.notify_if_changed(session);
        self.state.subscriptions.notify_if_changed(session);
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
                // The SDK forwards only requested URIs: a part's change is sent under the requested whole.
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

/// What to do about it.
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
