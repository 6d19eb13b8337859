//! Health checks for stdio servers. A hung server keeps its process and its pipes, so only a ping detects it.

use std::time::Duration;

use rmcp::model::{ClientRequest, PingRequest};
use tokio::time::{Instant, sleep, timeout};

use crate::adapters::mcp::exchange::{Listeners, Purpose};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::link::{Link, Wire};
use crate::adapters::mcp::timing::Timing;

/// Number of consecutive unanswered pings after which a server is considered hung.
const UNANSWERED: u32 = 3;

/// Waits until the server hangs and returns a reason. A busy server is not pinged, unless one of its calls timed out without any
/// message from the server.
pub(in crate::adapters::mcp) async fn hangs(link: &Link, is_idle: impl Fn() -> bool, timing: Timing) -> String {
    let Some(every) = timing.ping.filter(|_| link.wire == Wire::Stdio) else { return std::future::pending().await };
    let mut unanswered = 0;
    loop {
        sleep(every).await;
        while (is_idle() || link.is_doubted()) && !answers(link, timing.ping_timeout).await {
            unanswered += 1;
            if unanswered == UNANSWERED {
                return format!(
                    "it hangs: {UNANSWERED} consecutive pings were not answered within {} s",
                    timing.ping_timeout.as_secs_f64()
                );
            }
        }
        unanswered = 0;
    }
}

/// Whether the server responds within this time.
async fn answers(link: &Link, limit: Duration) -> bool {
    let asked = Instant::now();
    let ping = ClientRequest::PingRequest(PingRequest::default());
    let answer = timeout(limit, link.request(ping, Purpose::Ask, Listeners::default())).await;
    // An error is a response too. A closed connection is handled elsewhere.
    let is_answered = match answer {
        Ok(Ok(_) | Err(LinkError::Protocol { .. } | LinkError::Closed { .. })) => true,
        Ok(Err(_)) | Err(_) => link.exchange.was_heard_since(asked),
    };
    if is_answered {
        link.trust();
    }
    is_answered
}
