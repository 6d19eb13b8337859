//! Health checks. A hung stdio server keeps its process and its pipes, so only a ping detects it. A remote server is asked for its list
//! of tools.

use std::pin::pin;
use std::time::Duration;

use rmcp::model::{ClientRequest, PingRequest};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::adapters::mcp::exchange::{Listeners, Purpose};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::link::{Link, Wire};
use crate::adapters::mcp::link::list::{ListError, Tools, list};
use crate::adapters::mcp::timing::Timing;

/// Number of consecutive unanswered pings after which a server is considered hung.
const UNANSWERED: u32 = 3;

/// Doubts about a remote server that doesn't list its tools.
///
/// Its running calls may still be answered: a busy server can be slow to list, and over streamable HTTP each call has a request of its
/// own. So the connection stays open for them, but no longer than the time limit of a call.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct Doubts {
    since: Option<Instant>,
    /// Whether a list was rejected as by another server.
    is_rejected: bool,
}

impl Doubts {
    /// Records an answer of the server.
    pub(in crate::adapters::mcp) fn end(&mut self) {
        *self = Self::default();
    }

    /// Records that the server rejected a list as if it were another one. Returns whether it had rejected one before.
    pub(in crate::adapters::mcp) fn are_confirmed(&mut self) -> bool {
        std::mem::replace(&mut self.is_rejected, true)
    }

    /// Records a failed check. Returns whether the connection counts as lost.
    pub(in crate::adapters::mcp) fn are_final(&mut self, now: Instant, is_idle: bool, call_timeout: Duration) -> bool {
        is_idle || *self.since.get_or_insert(now) + call_timeout <= now
    }

    /// The time at which the connection counts as lost even if calls are running; `None` without doubts.
    pub(in crate::adapters::mcp) fn until(&self, call_timeout: Duration) -> Option<Instant> {
        self.since.map(|since| since + call_timeout)
    }
}

/// Why a list is not there in time.
#[derive(Debug)]
pub(in crate::adapters::mcp) struct Late {
    pub(in crate::adapters::mcp) after: Duration,
    /// Whether the server has sent anything meanwhile.
    pub(in crate::adapters::mcp) was_heard: bool,
}

/// Lists the tools within `limit`. Gives up after `silence` if the server has sent nothing since the start of the list.
pub(in crate::adapters::mcp) async fn list_in_time(
    link: &Link,
    silence: Duration,
    limit: Duration,
) -> Result<Result<Tools, ListError>, Late> {
    let begun = Instant::now();
    let mut listing = pin!(list(link));
    let mut after = silence.min(limit);
    loop {
        if let Ok(listed) = timeout_at(begun + after, &mut listing).await {
            return Ok(listed);
        }
        let was_heard = link.exchange.was_heard_since(begun);
        if !was_heard || after == limit {
            return Err(Late { after, was_heard });
        }
        after = limit;
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_calls_keep_a_doubtful_connection_for_a_while() {
        let (mut doubts, start, limit) = (Doubts::default(), Instant::now(), Duration::from_mins(1));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!doubts.are_final(at(0), false, limit));
        assert!(doubts.are_final(at(1), true, limit), "it is idle");
        assert!(!doubts.are_final(at(59), false, limit));
        assert!(doubts.are_final(at(60), false, limit));
        doubts.end();
        assert!(!doubts.are_final(at(61), false, limit));
    }

    #[test]
    fn one_rejected_list_ends_no_connection() {
        let mut doubts = Doubts::default();
        assert!(!doubts.are_confirmed() && doubts.are_confirmed());
        doubts.end();
        assert!(!doubts.are_confirmed(), "a list has come in between");
    }
}
