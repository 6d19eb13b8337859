//! Health checks of stdio servers: a hung server keeps its process and pipes, so nothing else would reveal it.

use std::time::Duration;

use rmcp::model::{ClientRequest, PingRequest};
use tokio::time::{Instant, sleep, timeout};

use crate::adapters::mcp::exchange::{Listeners, Purpose};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::link::{Link, Wire};
use crate::adapters::mcp::timing::Timing;

/// So many consecutive unanswered pings mean that it hangs.
const UNANSWERED: u32 = 3;

/// Resolves with a reason when the server hangs. A busy server is not pinged, unless one of its calls timed out without any
/// message from it.
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

/// Whether any response arrives within this time.
async fn answers(link: &Link, limit: Duration) -> bool {
    let asked = Instant::now();
    let ping = ClientRequest::PingRequest(PingRequest::default());
    let answer = timeout(limit, link.request(ping, Purpose::Ask, Listeners::default())).await;
    // An error is a response. A closed connection is handled elsewhere.
    let is_answered = match answer {
        Ok(Ok(_) | Err(LinkError::Protocol { .. } | LinkError::Closed { .. })) => true,
        Ok(Err(_)) | Err(_) => link.exchange.was_heard_since(asked),
    };
    if is_answered {
        link.trust();
    }
    is_answered
}
