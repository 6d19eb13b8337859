//! Reads request bodies, with a size limit, a timeout and a memory budget for all requests. Unreadable bodies get an
//! error document.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use futures::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::domain::text::json::{mended_surrogates, tree_bytes};
use crate::http::problem::{Code, Problem};
use crate::http::state::State;

/// Minimum speed of a body, in bytes per second. Once the base time has passed, slower bodies are rejected.
const SLOWEST: u64 = 16 << 10;
/// Maximum size of a small body, including its parsed values. A quarter of the memory budget is reserved for small bodies,
/// because nearly every call is small.
const SMALL: usize = 64 << 10;
/// `Retry-After` if there is no memory for a body, in seconds.
const RETRY_AFTER: u64 = 2;

/// A complete request body. Lone surrogates are replaced with U+FFFD.
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
            request.extensions_mut().insert(Rc::new(held));
            Ok(Self::read(bytes))
        })
    }
}

/// Whether the request's headers announce a body.
pub(crate) fn is_announced(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING) || length(headers).is_some_and(|length| length > 0)
}

fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Limits and the memory budget for request bodies.
pub(crate) struct Bodies {
    /// Maximum size of a body, in bytes.
    limit: usize,
    /// Base time for a body. Every [`SLOWEST`] bytes add one second.
    patience: Duration,
    budget: Arc<Budget>,
}

/// The memory budget that all request bodies share.
struct Budget {
    most: usize,
    /// The part of the budget that bodies larger than [`SMALL`] may use.
    most_large: usize,
    /// Maximum memory that one body with its values may take.
    most_alone: usize,
    held: AtomicUsize,
    held_large: AtomicUsize,
}

/// The memory that a body occupies until its request has been answered: its bytes, and about as much as its values take when they
/// are parsed. A body of many small values is parsed to a hundred times its size. An `Rc` of this is attached to the request.
pub(crate) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
    /// Whether the body counts as large, because its announced size or the memory that it occupies exceeds [`SMALL`].
    is_large: bool,
}

impl Bodies {
    /// `limit` is the maximum size of one body, and `together` the maximum of all bodies, in bytes.
    pub(crate) fn new(limit: usize, patience: Duration, together: usize) -> Self {
        // Even the largest allowed body fits if no other body uses the budget.
        let share = together - together / 4;
        let (most_large, most_alone) = (share.max(limit), share.max(2 * limit));
        let budget = Budget { most: together, most_large, most_alone, held: AtomicUsize::new(0), held_large: AtomicUsize::new(0) };
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
            let Some(chunk) = next else {
                let bytes = parts.joined();
                held.parse(tree_bytes(&bytes))?;
                return Ok((bytes, held));
            };
            let chunk = chunk.map_err(|_| Problem::new(Code::NotJson, "The body could not be read to its end."))?;
            if held.bytes + chunk.len() > self.limit {
                return Err(self.too_large());
            }
            if !held.grow(chunk.len()) {
                return Err(overloaded());
            }
            parts.add(chunk, length);
        }
    }

    fn too_large(&self) -> Problem {
        Problem::new(Code::BodyTooLarge, format!("A body has at most {} bytes.", self.limit))
    }
}

fn overloaded() -> Problem {
    let detail = format!("The service is receiving as much as it can hold. Try again in {RETRY_AFTER} s.");
    Problem { retry_after: Some(RETRY_AFTER), ..Problem::new(Code::Overloaded, detail) }
}

impl Held {
    /// Reserves memory for the body's values. If they fit only without any other body, they use all of the memory for large ones.
    ///
    /// # Errors
    /// `Code::BodyTooLarge` if a single body may not take so much, and `Code::Overloaded` if it is not free now.
    fn parse(&mut self, values: usize) -> Result<(), Problem> {
        let (needed, most) = (self.bytes + values, self.budget.most_alone);
        if needed > most {
            let detail = format!(
                "The values in the body would take about {needed} bytes of memory, and a body may take {most} (three quarters of \
                 http.max_bodies_bytes, or twice http.max_body_bytes if that is more). Send fewer lists, objects and numbers in one \
                 request, or write them as text."
            );
            return Err(Problem::new(Code::BodyTooLarge, detail));
        }
        let values = values.min(self.budget.most_large.saturating_sub(self.bytes));
        if self.grow(values) { Ok(()) } else { Err(overloaded()) }
    }

    /// Reserves memory for more bytes of a body. Returns whether the budget allows it.
    fn grow(&mut self, bytes: usize) -> bool {
        let budget = &self.budget;
        let held = budget.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        if self.bytes <= SMALL && !self.is_large {
            return held <= budget.most;
        }
        // From now on, the body's earlier bytes also count as part of a large body.
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

/// The received parts of a body. Most bodies consist of a single part, which is not copied.
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
            // Doubles the capacity, but never beyond the announced size.
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

    /// Regression: a caller that slowly sent large bodies blocked other callers' small requests.
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
        // Regression: with its values, a nearly full body exceeded a budget of this size.
        let full = format!("{{\"a\":[1,2,3],\"b\":\"{}\"}}", "b".repeat(LARGE.len() - 100)).leak().as_bytes();
        let (_, held) = read(&bodies, &[full], None).await.unwrap();
        assert!(bodies.held() <= LARGE.len(), "{}", bodies.held());
        drop(held);
        assert_eq!(bodies.held(), 0);
    }

    /// Regression: 4 MiB of `[0],[0],…` occupied 4 MiB of the budget, and hundreds of the process's memory.
    #[tokio::test]
    async fn values_count_with_the_memory_that_they_take_when_they_are_parsed() {
        let bodies = Bodies::new(4 << 20, Duration::from_secs(1), 128 << 20);
        let body = |item: &str, count: usize| -> &'static [u8] {
            let text = format!("{{\"a\":[{}]}}", vec![item; count].join(","));
            assert!(text.len() <= 4 << 20);
            text.leak().as_bytes()
        };
        let lists = body("[0]", 1_000_000);
        for (parts, length) in [(&[lists][..], Some(lists.len())), (&[lists], None), (&[&lists[..70_000], &lists[70_000..]], None)] {
            let refused = read(&bodies, parts, length).await.err().unwrap();
            assert_eq!((refused.code, bodies.held()), (Code::BodyTooLarge, 0));
            assert!(refused.detail.contains("http.max_bodies_bytes"), "{}", refused.detail);
        }
        // What programs send in earnest passes.
        let long_chat = body(&format!("{{\"role\":\"user\",\"content\":\"{}\"}}", "[a], {b} ".repeat(10_000)), 40);
        let definition = r#"{"name":"a","description":"what the tool does, in a sentence","parameters":{"type":"object"}}"#;
        for large in [body("1234567", 100_000), body("0.12345678", 350_000), long_chat, body(definition, 40_000)] {
            let (bytes, held) = read(&bodies, &[large], None).await.unwrap();
            assert!(bodies.held() > bytes.len());
            drop(held);
        }
        let half = body("[0]", 150_000);
        let first = read(&bodies, &[half], None).await.unwrap();
        let refused = read(&bodies, &[half], None).await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after.is_some()), (Code::Overloaded, true));
        assert!(read(&bodies, &[br#"{"a": [1, 2, {"b": "c"}]}"#], None).await.is_ok(), "small ones have their share");
        drop(first);
        assert_eq!((bodies.held(), bodies.budget.held_large.load(Ordering::Relaxed)), (0, 0));
        assert!(read(&bodies, &[half], None).await.is_ok());
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
