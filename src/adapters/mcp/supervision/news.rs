//! Forwards a server's notifications about prompts and resources to followers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::adapters::mcp::exchange::Exchange;
use crate::adapters::mcp::supervision::server::Server;

/// Notifications within this time are forwarded together.
const TOGETHER: Duration = Duration::from_millis(50);

/// Forwards the notifications of a connection as long as it exists.
pub(in crate::adapters::mcp) async fn hand_on(server: Arc<Server>, exchange: Arc<Exchange>) {
    exchange.news.listen();
    loop {
        for what in exchange.news.next().await {
            server.send_news(what).await;
        }
        sleep(TOGETHER).await;
    }
}
