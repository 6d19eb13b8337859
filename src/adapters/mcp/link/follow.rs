//! Subscriptions of the newer protocol version: each `subscriptions/listen` request has a streamed response (MCP specification
//! 2026-07-28, "Subscriptions"). [`Exchange::inbound`] handles the notifications.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{ServerCapabilities, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::adapters::mcp::exchange::Exchange;
use crate::adapters::mcp::link::error::{LinkError, link_error};
use crate::adapters::mcp::transport::reopening::Reopening;

const INVALID_PARAMS: i64 = -32602;

/// The subscribed resources of a connection, by URI, each with the task that reads its stream.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct Followed(Mutex<HashMap<String, AbortOnDropHandle<()>>>);

impl Followed {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to a resource. Replaces an existing subscription.
    pub(in crate::adapters::mcp) async fn follow(
        &self,
        peer: &Peer<RoleClient>,
        exchange: &Arc<Exchange>,
        uri: &str,
    ) -> Result<(), LinkError> {
        let subscription = subscribe(peer, uri).await?;
        let keeping = keep(subscription, peer.clone(), uri.to_owned(), Arc::clone(exchange));
        self.lock().insert(uri.to_owned(), AbortOnDropHandle::new(tokio::spawn(keeping)));
        Ok(())
    }

    pub(in crate::adapters::mcp) fn unfollow(&self, uri: &str) {
        // Dropping the task cancels the stream at the server.
        self.lock().remove(uri);
    }
}

async fn subscribe(peer: &Peer<RoleClient>, uri: &str) -> Result<Subscription, LinkError> {
    let filter = SubscriptionFilter::builder().resource_subscription(uri).build();
    let subscription = peer.listen(filter).await.map_err(link_error)?;
    if subscription.acknowledged().resource_subscriptions.as_ref().is_some_and(|uris| uris.iter().any(|known| known == uri)) {
        return Ok(subscription);
    }
    Err(LinkError::Protocol {
        code: INVALID_PARAMS,
        message: "the server does not support subscriptions to this resource".to_owned(),
        data: None,
    })
}

async fn keep(mut subscription: Subscription, peer: Peer<RoleClient>, uri: String, exchange: Arc<Exchange>) {
    let mut reopening = Reopening::default();
    reopening.next(Instant::now());
    loop {
        while let Ok(Some(_)) = subscription.next().await {}
        subscription = loop {
            sleep_until(reopening.next(Instant::now())).await;
            if peer.is_transport_closed() {
                return;
            }
            if let Ok(subscription) = subscribe(&peer, &uri).await {
                break subscription;
            }
        };
        // The resource may have changed before the subscription.
        exchange.news.updated(&uri);
    }
}

/// The lists whose changes the server can announce.
pub(in crate::adapters::mcp) fn lists_of(capabilities: &ServerCapabilities) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = capabilities.tools.as_ref().and_then(|tools| tools.list_changed).filter(|told| *told);
    filter.prompts_list_changed = capabilities.prompts.as_ref().and_then(|prompts| prompts.list_changed).filter(|told| *told);
    filter.resources_list_changed = capabilities.resources.as_ref().and_then(|resources| resources.list_changed).filter(|told| *told);
    filter
}

/// Subscribes to a server's lists for the lifetime of the connection.
pub(in crate::adapters::mcp) async fn lists(peer: Peer<RoleClient>, filter: SubscriptionFilter, exchange: Arc<Exchange>) {
    let mut reopening = Reopening::default();
    reopening.next(Instant::now());
    while !peer.is_transport_closed() {
        if let Ok(mut subscription) = peer.listen(filter.clone()).await {
            while let Ok(Some(_)) = subscription.next().await {}
            // The tools may have changed before the subscription.
            exchange.changed.notify_one();
            exchange.news.prompts();
            exchange.news.resources();
        }
        sleep_until(reopening.next(Instant::now())).await;
    }
}
