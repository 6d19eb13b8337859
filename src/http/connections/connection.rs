//! The state of one connection, and its timeouts.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use futures::task::AtomicWaker;
use tokio::sync::Notify;

use super::Connections;

/// Maximum time for receiving a request's headers, counted from their first byte.
const HEAD: Duration = Duration::from_secs(5);
/// How long an unauthenticated connection may be idle.
const STRANGER: Duration = Duration::from_secs(5);
/// How long an authenticated connection may be idle. Clients close idle connections earlier, so no request gets lost.
pub(crate) const KNOWN: Duration = Duration::from_secs(75);
/// How long a response may wait for a peer that doesn't read it.
const STALLED: Duration = Duration::from_mins(1);
/// How long to read and discard input after an early response, so that the peer can receive that response.
const LINGER: Duration = Duration::from_secs(1);
/// The age at which a connection should have authenticated.
const LATE: Duration = Duration::from_secs(2);
/// Size of the response parts that are passed to the server. The server copies each part into the connection's buffer,
/// and requests the next part while the buffer contains less than 32 KiB. So a peer that stops reading occupies at most
/// 48 KiB, regardless of the size of its response.
const PART: usize = 16 << 10;
/// Size of these parts for an unauthenticated connection. Its buffer contains at most one part at a time.
const STRANGERS_PART: usize = 4 << 10;
/// How often the timeouts of an unauthenticated connection are checked.
const LOOK_AT_STRANGER: Duration = Duration::from_secs(1);
const LOOK_AT_KNOWN: Duration = Duration::from_secs(5);

/// The state of a connection, shared by the server, the routes and the table of connections. Times are milliseconds
/// since the connection was opened; 0 means never.
pub(crate) struct Connection {
    number: u64,
    opened: Instant,
    connections: Weak<Connections>,
    /// Number of requests whose responses are incomplete.
    answering: AtomicUsize,
    is_known: AtomicBool,
    /// Whether the connection closes after the current response.
    is_ending: AtomicBool,
    /// When the last response was completed, or when its last byte was sent.
    quiet_since: AtomicU64,
    /// When the first byte of the next request arrived.
    first_byte_at: AtomicU64,
    /// When the peer stopped reading.
    blocked_since: AtomicU64,
    /// Whether an unauthenticated peer is waiting for a response.
    is_asked: AtomicBool,
    /// How many bytes of a form an unauthenticated peer may still send.
    form: AtomicUsize,
    /// The task that waits to read from or write to an unauthenticated peer.
    reading: AtomicWaker,
    end: Notify,
}

/// A connection's state, by which the table decides which connections to close.
pub(super) struct Standing {
    answering: bool,
    age: Duration,
}

impl Standing {
    pub(super) fn is_idle(&self) -> bool {
        !self.answering
    }

    pub(super) fn is_late(&self) -> bool {
        !self.answering && self.age >= LATE
    }
}

impl Connection {
    pub(super) fn new(number: u64, connections: Weak<Connections>) -> Self {
        Self {
            number,
            opened: Instant::now(),
            connections,
            answering: AtomicUsize::new(0),
            is_known: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            quiet_since: AtomicU64::new(0),
            first_byte_at: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
            is_asked: AtomicBool::new(false),
            form: AtomicUsize::new(0),
            reading: AtomicWaker::new(),
            end: Notify::new(),
        }
    }

    /// Marks the connection as authenticated.
    pub(crate) fn know(&self) {
        if self.is_known.swap(true, Ordering::Relaxed) {
            return;
        }
        self.reading.wake();
        if let Some(connections) = self.connections.upgrade() {
            connections.know(self.number);
        }
    }

    /// Lets an unauthenticated peer send the body of the current request, which has this length in bytes.
    pub(crate) fn take_form(&self, length: usize) {
        self.form.store(length, Ordering::Relaxed);
        self.reading.wake();
    }

    /// Counts a request as running until the returned value is dropped.
    pub(crate) fn answer(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// Accepts no further requests on this connection.
    pub(crate) fn end_after_answer(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.reading.wake();
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The current state. If a peer has stopped reading for a while, its request no longer counts as running.
    pub(super) fn standing(&self) -> Standing {
        let blocked = self.blocked_since.load(Ordering::Relaxed);
        let reads = blocked == 0 || self.opened + Duration::from_millis(blocked) + LATE > Instant::now();
        Standing { answering: self.answering.load(Ordering::Relaxed) > 0 && reads, age: self.opened.elapsed() }
    }

    pub(super) fn end(&self) {
        self.end.notify_one();
    }

    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline()
    }

    pub(super) fn next_look(&self) -> Instant {
        let look = if self.is_known.load(Ordering::Relaxed) { LOOK_AT_KNOWN } else { LOOK_AT_STRANGER };
        self.deadline().min(Instant::now() + look)
    }

    pub(super) fn was_read(&self) {
        if self.answering.load(Ordering::Relaxed) == 0 && self.first_byte_at.load(Ordering::Relaxed) == 0 {
            self.first_byte_at.store(self.now(), Ordering::Relaxed);
        }
    }

    pub(super) fn was_written(&self) {
        self.quiet_since.store(self.now(), Ordering::Relaxed);
        if self.blocked_since.swap(0, Ordering::Relaxed) > 0 {
            self.reading.wake();
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Whether further input is discarded.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Notes that an unauthenticated peer has sent all headers of a request.
    pub(super) fn was_asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// How many bytes of a form an unauthenticated peer may still send.
    pub(super) fn form_left(&self) -> usize {
        self.form.load(Ordering::Relaxed)
    }

    pub(super) fn form_was_read(&self, length: usize) {
        self.form.fetch_sub(length, Ordering::Relaxed);
    }

    /// Whether further input from an unauthenticated peer must wait until its request has been answered. The body of a form need not.
    pub(super) fn has_to_wait(&self, context: &Context<'_>) -> bool {
        let is_asked = self.is_asked.load(Ordering::Relaxed) && self.form_left() == 0;
        let waits = is_asked || self.blocked_since.load(Ordering::Relaxed) > 0;
        if waits {
            self.reading.register(context.waker());
        }
        waits
    }

    pub(super) fn was_blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Whether the peer has stopped reading. If so, the task is woken when the peer continues to read.
    fn is_blocked(&self, context: &Context<'_>) -> bool {
        let is_blocked = self.blocked_since.load(Ordering::Relaxed) > 0;
        if is_blocked {
            self.reading.register(context.waker());
        }
        is_blocked
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// When the connection closes unless something happens before.
    fn deadline(&self) -> Instant {
        let at = |time: &AtomicU64| Some(time.load(Ordering::Relaxed)).filter(|time| *time > 0);
        let after = |time: u64, patience: Duration| self.opened + Duration::from_millis(time) + patience;
        if self.answering.load(Ordering::Relaxed) > 0 {
            return at(&self.blocked_since).map_or_else(|| Instant::now() + STALLED, |since| after(since, STALLED));
        }
        let quiet = self.quiet_since.load(Ordering::Relaxed);
        if self.is_ending.load(Ordering::Relaxed) {
            return after(quiet, LINGER);
        }
        match at(&self.first_byte_at) {
            Some(first_byte) => after(first_byte, HEAD),
            None => after(quiet, if self.is_known.load(Ordering::Relaxed) { KNOWN } else { STRANGER }),
        }
    }
}

/// A running request; see [`Connection::answer`].
pub(crate) struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.first_byte_at.store(0, Ordering::Relaxed);
        self.0.quiet_since.store(self.0.now(), Ordering::Relaxed);
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        self.0.form.store(0, Ordering::Relaxed);
        if self.0.is_asked.swap(false, Ordering::Relaxed) {
            self.0.reading.wake();
        }
    }
}

/// The body of a response. The response counts as complete when this value is dropped.
pub(crate) struct Sent {
    body: BoxBody,
    /// The rest of the current chunk, which the server has not requested yet.
    rest: Bytes,
    /// Whether the previous part must be sent before the next part.
    is_handed: bool,
    answering: Option<Answering>,
}

impl Sent {
    pub(crate) fn new(body: BoxBody, answering: Option<Answering>) -> Self {
        Self { body, rest: Bytes::new(), is_handed: false, answering }
    }
}

impl MessageBody for Sent {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let sent = self.get_mut();
        let stranger = sent.answering.as_ref().map(|answering| &answering.0).filter(|connection| !connection.is_known());
        let most = if stranger.is_some() { STRANGERS_PART } else { PART };
        if let Some(connection) = stranger
            && sent.is_handed
        {
            if !connection.is_blocked(context) {
                sent.is_handed = false;
                context.waker().wake_by_ref();
            }
            // Makes the server send the previous part now.
            return Poll::Pending;
        }
        if sent.rest.is_empty() {
            match ready!(Pin::new(&mut sent.body).poll_next(context)) {
                Some(Ok(bytes)) => sent.rest = bytes,
                end => return Poll::Ready(end),
            }
        }
        let length = sent.rest.len().min(most);
        sent.is_handed = length == most;
        Poll::Ready(Some(Ok(sent.rest.split_to(length))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Weak};
    use std::task::Poll;
    use std::time::{Duration, Instant};

    use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody as _};
    use actix_web::web::Bytes;
    use futures::stream;

    use super::{Connection, HEAD, KNOWN, LATE, LINGER, PART, STALLED, STRANGER, STRANGERS_PART, Sent};

    fn remaining(connection: &Connection) -> u64 {
        // Adds the few milliseconds that the test itself takes.
        (connection.deadline() - Instant::now() + Duration::from_millis(500)).as_secs()
    }

    /// Otherwise, a peer could send half of a second request and keep the connection open indefinitely.
    #[test]
    fn each_state_has_its_clock() {
        let connection = Arc::new(Connection::new(0, Weak::new()));
        assert_eq!(remaining(&connection), STRANGER.as_secs());
        let answering = connection.answer();
        connection.was_read();
        assert_eq!(remaining(&connection), STALLED.as_secs(), "an answer may take long, as long as it is read");
        connection.was_blocked();
        assert_eq!(remaining(&connection), STALLED.as_secs());
        drop(answering);
        assert_eq!(remaining(&connection), STRANGER.as_secs());
        connection.know();
        assert_eq!(remaining(&connection), KNOWN.as_secs());
        connection.was_read();
        assert_eq!(remaining(&connection), HEAD.as_secs(), "the next head is under way");
        connection.end_after_answer();
        assert_eq!(remaining(&connection), LINGER.as_secs());
    }

    /// Otherwise, unauthenticated peers that don't read their responses could occupy all connections for a minute.
    #[test]
    fn who_reads_nothing_of_an_answer_gives_its_place_away() {
        let connection = Arc::new(Connection { opened: Instant::now().checked_sub(2 * LATE).unwrap(), ..Connection::new(0, Weak::new()) });
        let _answering = connection.answer();
        assert!(!connection.standing().is_late());
        connection.was_blocked();
        assert!(!connection.standing().is_late(), "it may be a moment");
        connection.blocked_since.store(1, Ordering::Relaxed);
        assert!(connection.standing().is_late(), "for two seconds it has read nothing");
        connection.was_written();
        assert!(!connection.standing().is_late());
    }

    /// Regression: every unauthenticated peer that didn't read a document of 200 tools occupied 300 KB.
    #[tokio::test]
    async fn an_answer_is_handed_out_in_small_parts() {
        let whole: Vec<u8> = (0..=10 * PART).map(|number| u8::try_from(number % 251).unwrap()).collect();
        let (first, second) = (Bytes::from(whole[..3].to_vec()), Bytes::from(whole[3..].to_vec()));
        let parts = stream::iter([first, second].map(Ok::<_, std::io::Error>));
        for (body, size) in
            [(BoxBody::new(whole.clone()), BodySize::Sized(whole.len() as u64)), (BoxBody::new(BodyStream::new(parts)), BodySize::Stream)]
        {
            let connection = Arc::new(Connection::new(0, Weak::new()));
            let mut sent = Sent::new(body, Some(connection.answer()));
            assert_eq!(sent.size(), size);
            let mut received = Vec::new();
            while let Some(part) = poll_fn(|context| Pin::new(&mut sent).poll_next(context)).await {
                let part = part.unwrap();
                assert!((1..=PART).contains(&part.len()), "{} bytes at once", part.len());
                assert_eq!(connection.answering.load(Ordering::Relaxed), 1, "it goes on until the last byte");
                received.extend_from_slice(&part);
            }
            assert!(received == whole, "{} of {} bytes", received.len(), whole.len());
            drop(sent);
            assert_eq!(connection.answering.load(Ordering::Relaxed), 0);
        }
    }

    /// Otherwise, an unauthenticated peer that doesn't read its response occupies a full buffer.
    #[tokio::test]
    async fn a_stranger_gets_the_next_part_when_the_last_one_has_left() {
        let connection = Arc::new(Connection::new(0, Weak::new()));
        let mut sent = Sent::new(BoxBody::new(vec![0; 3 * STRANGERS_PART]), Some(connection.answer()));
        let mut next = async || futures::poll!(poll_fn(|context| Pin::new(&mut sent).poll_next(context)));
        let length = |polled: Poll<Option<Result<Bytes, _>>>| match polled {
            Poll::Ready(Some(Ok(part))) => Some(part.len()),
            _ => None::<usize>,
        };
        assert_eq!(length(next().await), Some(STRANGERS_PART));
        connection.was_blocked();
        for _ in 0..3 {
            assert!(next().await.is_pending());
        }
        connection.was_written();
        assert!(next().await.is_pending(), "what is written goes out first");
        assert_eq!(length(next().await), Some(STRANGERS_PART));
        connection.know();
        assert_eq!(length(next().await), Some(STRANGERS_PART), "all that is left");
        assert!(matches!(next().await, Poll::Ready(None)));
    }
}
