//! The part of a connection that calls use to send requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientRequest, ElicitationCapability, GetExtensions, RequestId,
    SamplingCapability,
};
use rmcp::service::{Peer, PeerRequestOptions};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::adapters::mcp::exchange::{Answer, Exchange, Listeners, Purpose, Ticket, Unsent};
use crate::adapters::mcp::link::error::{LinkError, link_error};
use crate::adapters::mcp::link::follow::Followed;
use crate::service::ports::Offers;
use crate::settings::servers::TransportSettings;

/// Maximum size of a page in a list, in bytes, regardless of the limit for results.
pub(in crate::adapters::mcp) const LIST_LIMIT: usize = 16 * 1024 * 1024;
const PARSE_ERROR: i64 = -32700;

/// The transport protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::adapters::mcp) enum Wire {
    Stdio,
    StreamableHttp,
    Sse,
}

impl Wire {
    pub(in crate::adapters::mcp) fn of(transport: &TransportSettings) -> Self {
        match transport {
            TransportSettings::Stdio { .. } => Self::Stdio,
            TransportSettings::StreamableHttp { .. } => Self::StreamableHttp,
            TransportSettings::Sse { .. } => Self::Sse,
        }
    }
}

/// Requests that servers may send to callers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Questions {
    /// Elicitation: requests for input from the user.
    pub elicitation: bool,
    /// Sampling: requests for a completion from the caller's model.
    pub sampling: bool,
}

impl Questions {
    pub(in crate::adapters::mcp) fn allow(self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.elicitation,
            "sampling/createMessage" => self.sampling,
            _ => false,
        }
    }

    /// Reduces a client's capabilities to those that servers may use. Roots are always kept; the service itself does not use
    /// them.
    fn cut(self, capabilities: &Value) -> Value {
        let known = [("elicitation", self.elicitation), ("sampling", self.sampling), ("roots", true)];
        let kept = known.into_iter().filter(|(_, is_allowed)| *is_allowed);
        let kept = kept.filter_map(|(name, _)| Some((name.to_owned(), capabilities.get(name)?.clone())));
        Value::Object(kept.collect())
    }

    pub(in crate::adapters::mcp) fn capabilities(self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.elicitation.then(ElicitationCapability::default);
        capabilities.sampling = self.sampling.then(SamplingCapability::default);
        capabilities
    }
}

/// The part of a connection that calls use.
#[derive(Debug)]
pub(in crate::adapters::mcp) struct Link {
    pub(in crate::adapters::mcp) peer: Peer<RoleClient>,
    pub(in crate::adapters::mcp) exchange: Arc<Exchange>,
    /// Whether the server uses protocol 2026-07-28 or newer, without sessions and with server requests in results.
    pub(in crate::adapters::mcp) is_modern: bool,
    pub(in crate::adapters::mcp) followed: Followed,
    pub(in crate::adapters::mcp) protocol: String,
    /// Whether the server declared the tools capability.
    pub(in crate::adapters::mcp) has_tools: bool,
    pub(in crate::adapters::mcp) offers: Offers,
    pub(in crate::adapters::mcp) wire: Wire,
    pub(super) questions: Questions,
    /// The running calls. List requests are not included.
    pub(in crate::adapters::mcp) calls: TaskTracker,
    /// Set after a call timed out without any message from the server.
    pub(super) is_doubted: AtomicBool,
    /// Cancelled once rmcp has closed the connection.
    pub(super) closed: CancellationToken,
    pub(super) result_limit: usize,
}

/// The response to a request.
#[derive(Debug)]
pub(in crate::adapters::mcp) struct Reply {
    pub(in crate::adapters::mcp) result: Box<RawValue>,
    /// The size of the whole message, in bytes.
    pub(in crate::adapters::mcp) bytes: usize,
}

impl Link {
    /// Reduces a client's capabilities to those that this server may use.
    pub(in crate::adapters::mcp) fn allowed(&self, capabilities: &Value) -> Value {
        self.questions.cut(capabilities)
    }

    pub(in crate::adapters::mcp) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    pub(in crate::adapters::mcp) fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Relaxed);
    }

    pub(in crate::adapters::mcp) fn trust(&self) {
        self.is_doubted.store(false, Ordering::Relaxed);
    }

    pub(in crate::adapters::mcp) fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Relaxed)
    }

    /// Sends a request and returns the raw result. Dropping the future cancels the request at the server.
    pub(in crate::adapters::mcp) async fn request(
        &self,
        mut request: ClientRequest,
        purpose: Purpose,
        listeners: Listeners,
    ) -> Result<Reply, LinkError> {
        let limit = match purpose {
            Purpose::List => LIST_LIMIT,
            Purpose::Call | Purpose::Ask => self.result_limit,
        };
        let ticket = Ticket::new(purpose, limit, listeners);
        request.extensions_mut().insert(ticket.clone());
        let options = PeerRequestOptions::no_options();
        let Ok(handle) = self.peer.send_cancellable_request(request, options).await else {
            return Err(LinkError::Closed { reason: "the connection is closed".into(), sent: false });
        };
        let mut abandoned = CancelOnDrop { peer: &self.peer, exchange: &self.exchange, ticket: &ticket, id: Some(handle.id.clone()) };
        let outcome = tokio::select! {
            biased;
            outcome = handle.rx => Some(outcome),
            // A request that is queued while rmcp closes the connection would never get a response.
            () = self.closed.cancelled() => None,
        };
        abandoned.id = None;
        match ticket.take() {
            Some(Answer::Result { result, bytes }) => Ok(Reply { result, bytes }),
            Some(Answer::Error { code, message, data }) if ticket.is_rejected() => Err(LinkError::Rejected { code, message, data }),
            Some(Answer::Error { code, message, data }) => Err(LinkError::Protocol { code, message, data }),
            Some(Answer::TooLarge { limit }) => Err(LinkError::TooLarge { limit }),
            Some(Answer::Malformed) => {
                Err(LinkError::Protocol { code: PARSE_ERROR, message: "the server's answer is not JSON-RPC".into(), data: None })
            }
            None => {
                let mut error = match outcome {
                    Some(Ok(Err(error))) => link_error(error),
                    // The response was a duplicate on a resumed stream, or there was none.
                    Some(Ok(Ok(_)) | Err(_)) | None => LinkError::Closed { reason: "the connection was closed".into(), sent: true },
                };
                if let LinkError::Closed { sent, .. } = &mut error
                    && (*sent || self.wire == Wire::Stdio)
                {
                    *sent = !ticket.withdraw().await;
                } else if error.is_of_proxy() && ticket.withdraw().await {
                    // The proxy has refused a new session, not the call: the server had refused that before.
                    error = LinkError::Closed { reason: error.to_string().into(), sent: false };
                }
                Err(error)
            }
        }
    }
}

/// Cancels a request if this guard is dropped before the response arrives: in the queue, or at the server.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    exchange: &'a Exchange,
    ticket: &'a Ticket,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let is_unsent = self.ticket.abandon();
        if !is_unsent {
            self.exchange.abandon(&id);
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let reason = Some("the caller no longer waits for the result".to_owned());
        let mut notification = CancelledNotification::new(CancelledNotificationParam::new(Some(id), reason));
        if is_unsent {
            notification.extensions.insert(Unsent);
        }
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let _ = peer.send_notification(notification.into()).await;
        });
    }
}
