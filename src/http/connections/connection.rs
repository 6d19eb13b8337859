//! One connection and its timeouts.

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

/// Time for a request's head, from its first byte.
const HEAD: Duration = Duration::from_secs(5);
/// Idle time of a stranger.
const STRANGER: Duration = Duration::from_secs(5);
/// Idle time of a known caller. Longer than clients keep connections, so that none is closed during a request.
pub(crate) const KNOWN: Duration = Duration::from_secs(75);
/// Time that an answer may wait for a peer that does not read.
const STALLED: Duration = Duration::from_mins(1);
/// Time to drain unwanted input after an early answer, so that the peer can read that answer.
const LINGER: Duration = Duration::from_secs(1);
/// Time by which every caller could have authenticated.
const LATE: Duration = Duration::from_secs(2);
/// Largest part of an answer to hand out at once. The server copies each part whole into the connection's buffer,
/// and requests the next one while the buffer has less than 32 KiB. So a stalled peer holds 48 KiB, however large its answer.
const PART: usize = 16 << 10;
/// The same for a stranger, with one part in that buffer at a time.
const STRANGERS_PART: usize = 4 << 10;
/// Interval of the checks.
const LOOK_AT_STRANGER: Duration = Duration::from_secs(1);
const LOOK_AT_KNOWN: Duration = Duration::from_secs(5);

/// The state of a connection, shared by the server, the routes and the table. Times are milliseconds after its opening; 0 is none.
pub(crate) struct Connection {
    number: u64,
    opened: Instant,
    connections: Weak<Connections>,
    /// Requests with incomplete answers.
    answering: AtomicUsize,
    is_known: AtomicBool,
    /// Whether it ends after the current answer.
    is_ending: AtomicBool,
    /// When the last answer was complete, or its last byte left.
    quiet_since: AtomicU64,
    /// When the first byte after that arrived.
    first_byte_at: AtomicU64,
    /// Since when the peer has not read.
    blocked_since: AtomicU64,
    /// Whether a stranger has an incomplete answer.
    is_asked: AtomicBool,
    /// The task that reads from or writes to a stranger, while it waits. It is one task for both.
    reading: AtomicWaker,
    end: Notify,
}

/// The state of a connection when room is needed.
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
            reading: AtomicWaker::new(),
            end: Notify::new(),
        }
    }

    /// Marks the peer as an admitted caller.
    pub(crate) fn know(&self) {
        if self.is_known.swap(true, Ordering::Relaxed) {
            return;
        }
        self.reading.wake();
        if let Some(connections) = self.connections.upgrade() {
            connections.know(self.number);
        }
    }

    /// Marks a request as running until this is dropped.
    pub(crate) fn answer(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// Accepts no further request.
    pub(crate) fn end_after_answer(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.reading.wake();
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The current state. A peer that has not read for a while does not count as being answered.
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

    /// Whether further input is unwanted.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// The whole head of a stranger's request was read.
    pub(super) fn was_asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// Whether a stranger's further input has to wait, until it is answered or authenticated.
    pub(super) fn has_to_wait(&self, context: &Context<'_>) -> bool {
        let waits = self.is_asked.load(Ordering::Relaxed) || self.blocked_since.load(Ordering::Relaxed) > 0;
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

    /// Whether the peer is not reading at the moment. Wakes the caller when it reads again.
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

    /// When it ends without further events.
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

/// See [`Connection::answer`].
pub(crate) struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.first_byte_at.store(0, Ordering::Relaxed);
        self.0.quiet_since.store(self.0.now(), Ordering::Relaxed);
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        if self.0.is_asked.swap(false, Ordering::Relaxed) {
            self.0.reading.wake();
        }
    }
}

/// The body of an answer, complete when this is dropped.
pub(crate) struct Sent {
    body: BoxBody,
    /// The part handed out that the server has not polled past yet.
    rest: Bytes,
    /// Whether a part has to leave before the next one.
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
            // Flushes the written part now.
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
        // The few milliseconds of the test itself.
        (connection.deadline() - Instant::now() + Duration::from_millis(500)).as_secs()
    }

    /// Otherwise a peer with one complete request holds a connection for ever with half of the next one.
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

    /// Otherwise strangers that do not read their answers keep their slots for a minute, however many they are.
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

    /// Regression: each stranger that left the document of 200 tools unread held a copy of its 300 KB.
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

    /// Otherwise a stranger that does not read holds a buffer full of an answer.
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
