//! Forwards what a server announces beside tools to its followers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::adapters::mcp::exchange::Exchange;
use crate::adapters::mcp::supervision::server::Server;

/// Announcements within this time are forwarded together.
const TOGETHER: Duration = Duration::from_millis(50);

/// Delivers the notifications of a connection while it exists.
pub(in crate::adapters::mcp) async fn hand_on(server: Arc<Server>, exchange: Arc<Exchange>) {
    exchange.news.listen();
    loop {
        for what in exchange.news.next().await {
            server.send_news(what).await;
        }
        sleep(TOGETHER).await;
    }
}
