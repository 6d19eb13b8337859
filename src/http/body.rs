//! Request bodies: a size limit, a timeout, a memory budget shared by all requests, and our own errors for unreadable
//! bodies.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use futures::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::domain::text::json::mended_surrogates;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;

/// Bytes per second. A slower body is rejected once its base time has passed.
const SLOWEST: u64 = 16 << 10;
/// The largest body that may use the reserved quarter of the budget: nearly every call is far smaller.
const SMALL: usize = 64 << 10;
/// Seconds until there is probably room again.
const RETRY_AFTER: u64 = 2;

/// All bytes of a body. Replaces a lone surrogate with U+FFFD.
pub(crate) struct Body(pub Bytes);

impl Body {
    fn read(bytes: Bytes) -> Self {
        let mended = std::str::from_utf8(&bytes).ok().and_then(mended_surrogates);
        Self(mended.map_or(bytes, Bytes::from))
    }
}

impl FromRequest for Body {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let state = request.app_data::<web::Data<State>>().cloned();
        let (request, mut payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let state = state.ok_or_else(|| Problem::new(Code::Internal, "The service is not set up."))?;
            let (bytes, held) = state.bodies.read(length(request.headers()), &mut payload).await?;
            request.extensions_mut().insert(held);
            Ok(Self::read(bytes))
        })
    }
}

/// Whether a request has a body, according to its head.
pub(crate) fn is_announced(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING) || length(headers).is_some_and(|length| length > 0)
}

fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Limits on reading bodies.
pub(crate) struct Bodies {
    /// Largest body in bytes.
    limit: usize,
    /// Base time for a body, plus a second per [`SLOWEST`] bytes.
    patience: Duration,
    budget: Arc<Budget>,
}

/// Memory for all bodies together.
struct Budget {
    most: usize,
    /// The part of it for bodies of more than [`SMALL`] bytes.
    most_large: usize,
    held: AtomicUsize,
    held_large: AtomicUsize,
}

/// A body's share of the budget, until its request is answered.
pub(crate) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
    /// Whether it counts as larger than [`SMALL`], by its announced or received size.
    is_large: bool,
}

impl Bodies {
    /// `limit`: bytes per body; `together`: bytes of all bodies.
    pub(crate) fn new(limit: usize, patience: Duration, together: usize) -> Self {
        // With an empty budget, one body always finds room.
        let most_large = (together - together / 4).max(limit);
        let budget = Budget { most: together, most_large, held: AtomicUsize::new(0), held_large: AtomicUsize::new(0) };
        Self { limit, patience, budget: Arc::new(budget) }
    }

    /// Bytes in use.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.budget.held.load(Ordering::Relaxed)
    }

    async fn read(&self, length: Option<usize>, payload: &mut Payload) -> Result<(Bytes, Held), Problem> {
        if length.is_some_and(|length| length > self.limit) {
            return Err(self.too_large());
        }
        let began = Instant::now();
        let is_large = length.is_some_and(|length| length > SMALL);
        let mut held = Held { budget: Arc::clone(&self.budget), bytes: 0, is_large };
        let mut parts = Parts::default();
        loop {
            let earned = Duration::from_millis(held.bytes as u64 * 1_000 / SLOWEST);
            let Ok(next) = timeout_at(began + self.patience + earned, payload.next()).await else {
                return Err(Problem::new(Code::BodyTooSlow, "Send the body without pauses, right after the head."));
            };
            let Some(chunk) = next else { return Ok((parts.joined(), held)) };
            let chunk = chunk.map_err(|_| Problem::new(Code::NotJson, "The body could not be read to its end."))?;
            if held.bytes + chunk.len() > self.limit {
                return Err(self.too_large());
            }
            if !held.grow(chunk.len()) {
                let detail = format!("The service is receiving as much as it can hold. Try again in {RETRY_AFTER} s.");
                return Err(Problem { retry_after: Some(RETRY_AFTER), ..Problem::new(Code::Overloaded, detail) });
            }
            parts.add(chunk, length);
        }
    }

    fn too_large(&self) -> Problem {
        Problem::new(Code::BodyTooLarge, format!("A body has at most {} bytes.", self.limit))
    }
}

impl Held {
    /// Reserves further bytes. Returns whether there is room.
    fn grow(&mut self, bytes: usize) -> bool {
        let budget = &self.budget;
        let held = budget.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        if self.bytes <= SMALL && !self.is_large {
            return held <= budget.most;
        }
        // From now on, its earlier bytes count as those of a large body.
        let large = if self.is_large { bytes } else { self.bytes };
        self.is_large = true;
        let held_large = budget.held_large.fetch_add(large, Ordering::Relaxed) + large;
        held <= budget.most && held_large <= budget.most_large
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.is_large {
            self.budget.held_large.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// The received part. Most bodies arrive in one piece and are not copied.
#[derive(Default)]
struct Parts {
    first: Bytes,
    all: Option<BytesMut>,
}

impl Parts {
    fn add(&mut self, part: Bytes, length: Option<usize>) {
        if self.first.is_empty() && self.all.is_none() {
            self.first = part;
            return;
        }
        let first = std::mem::take(&mut self.first);
        let all = self.all.get_or_insert_default();
        let needed = all.len() + first.len() + part.len();
        if needed > all.capacity() {
            // Doubles, but never beyond the announced size: memory is for received bytes.
            let room = length.map_or(2 * needed, |length| length.min(2 * needed)).max(needed);
            all.reserve(room - all.len());
        }
        all.extend_from_slice(&first);
        all.extend_from_slice(&part);
    }

    fn joined(self) -> Bytes {
        self.all.map_or(self.first, BytesMut::freeze)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use actix_web::dev::Payload;
    use actix_web::error::PayloadError;
    use actix_web::web::Bytes;
    use futures::{StreamExt as _, stream};

    use super::{Bodies, Held, SMALL};
    use crate::http::problem::{Code, Problem};

    fn payload(parts: impl futures::Stream<Item = &'static [u8]> + 'static) -> Payload {
        let parts = parts.map(|part| Ok::<_, PayloadError>(Bytes::from_static(part)));
        Payload::Stream { payload: Box::pin(parts) }
    }

    #[tokio::test]
    async fn parts_are_joined_and_counted_until_they_are_dropped() {
        let bodies = Bodies::new(100, Duration::from_secs(1), 100);
        for (parts, length) in [(&[&b"abc"[..]][..], Some(3)), (&[b"a", b"bc"], Some(3)), (&[b"a", b"b", b"c"], None)] {
            let (bytes, held) = bodies.read(length, &mut payload(stream::iter(parts.to_vec()))).await.unwrap();
            assert_eq!((&bytes[..], bodies.held()), (&b"abc"[..], 3));
            drop(held);
            assert_eq!(bodies.held(), 0);
        }
    }

    #[tokio::test]
    async fn all_bodies_together_have_a_limit() {
        let bodies = Bodies::new(100, Duration::from_secs(1), 5);
        let first = bodies.read(None, &mut payload(stream::iter([&b"abc"[..]]))).await.unwrap();
        let refused = bodies.read(None, &mut payload(stream::iter([&b"abc"[..]]))).await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after.is_some()), (Code::Overloaded, true));
        assert_eq!(bodies.held(), 3, "what was refused counts no more");
        drop(first);
        bodies.read(None, &mut payload(stream::iter([&b"abc"[..]]))).await.unwrap();
    }

    async fn read(bodies: &Bodies, parts: &[&'static [u8]], length: Option<usize>) -> Result<(Bytes, Held), Problem> {
        bodies.read(length, &mut payload(stream::iter(parts.to_vec()))).await
    }

    /// Regression: one caller with slow large bodies blocked a call of a hundred bytes.
    #[tokio::test]
    async fn large_bodies_leave_room_for_small_ones() {
        static LARGE: [u8; 96 << 10] = [b'a'; 96 << 10];
        let (begin, rest) = LARGE.split_at(LARGE.len() / 2);
        let bodies = Bodies::new(LARGE.len(), Duration::from_secs(1), 4 * LARGE.len());
        let mut large = Vec::new();
        for (parts, length) in [(&[begin, rest][..], None), (&[begin, rest], Some(LARGE.len())), (&[&LARGE[..]], None)] {
            large.push(read(&bodies, parts, length).await.unwrap());
        }
        assert_eq!(bodies.held(), 3 * LARGE.len(), "their share is full to the last byte");
        for (parts, length) in
            [(&[&LARGE[..]][..], None), (&[begin, rest], None), (&[&LARGE[..=SMALL]], None), (&[&LARGE[..1]], Some(SMALL + 1))]
        {
            let refused = read(&bodies, parts, length).await.err().unwrap();
            assert_eq!((refused.code, bodies.held()), (Code::Overloaded, 3 * LARGE.len()), "{length:?}");
        }
        let small = [read(&bodies, &[b"abc"], Some(3)).await.unwrap(), read(&bodies, &[&LARGE[..SMALL]], Some(SMALL)).await.unwrap()];
        let refused = read(&bodies, &[&LARGE[..SMALL]], None).await.err().unwrap();
        assert_eq!(refused.code, Code::Overloaded, "small ones have the budget, and no more");
        large.pop();
        large.push(read(&bodies, &[begin, rest], None).await.unwrap());
        drop((large, small));
        assert_eq!((bodies.held(), bodies.budget.held_large.load(Ordering::Relaxed)), (0, 0));
    }

    #[tokio::test]
    async fn one_body_has_room_whatever_the_budget() {
        static LARGE: [u8; 96 << 10] = [b'a'; 96 << 10];
        let bodies = Bodies::new(LARGE.len(), Duration::from_secs(1), LARGE.len());
        assert!(read(&bodies, &[&LARGE[..]], Some(LARGE.len())).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_stops_is_given_up() {
        let bodies = Bodies::new(100, Duration::from_millis(10), 100);
        let endless = stream::iter([&b"abc"[..]]).chain(stream::pending());
        let refused = bodies.read(Some(4), &mut payload(endless)).await.err().unwrap();
        assert_eq!((refused.code, bodies.held()), (Code::BodyTooSlow, 0));
        let refused = bodies.read(Some(101), &mut payload(stream::pending())).await.err().unwrap();
        assert_eq!(refused.code, Code::BodyTooLarge, "rejected before its first byte");
    }

    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let bodies = Bodies::new(1 << 20, Duration::from_millis(50), 1 << 20);
        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((&b"a"[..], ()))
        });
        let refused = bodies.read(None, &mut payload(trickle)).await.err().unwrap();
        assert_eq!(refused.code, Code::BodyTooSlow);
    }
}
