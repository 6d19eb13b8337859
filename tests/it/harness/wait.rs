//! The one loop that waits: for what becomes so a moment after it was caused.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing waits for it unless it fails.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// What one look finds: whether it is so, what was waited for, or what is there in its place.
pub(crate) trait Look {
    type Found;

    /// The error is what the message of a failure shows.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "not so".to_owned())
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, S: Display> Look for Result<T, S> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|seen| seen.to_string())
    }
}

/// A look at a value: what was waited for if the condition holds, and otherwise what is shown.
pub(crate) fn when<T>(seen: T, condition: impl FnOnce(&T) -> bool) -> Result<T, T> {
    if condition(&seen) { Ok(seen) } else { Err(seen) }
}

/// Looks again and again until `what` has happened. Panics after [`LONG`] with `what` and the last look.
pub(crate) async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    eventually_within(LONG, what, look).await
}

/// The same with a limit of its own.
pub(crate) async fn eventually_within<L: Look>(limit: Duration, what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    within(limit, look).await.unwrap_or_else(|seen| panic!("waited {limit:?} for this: {what}. At last: {seen}"))
}

/// The same for what need not happen: the error is the last look.
pub(crate) async fn within<L: Look>(limit: Duration, mut look: impl AsyncFnMut() -> L) -> Result<L::Found, String> {
    let begun = Instant::now();
    loop {
        match look().await.found() {
            Err(_) if begun.elapsed() < limit => tokio::time::sleep(PAUSE).await,
            last => return last,
        }
    }
}

/// The same on a thread that may block.
pub(crate) fn eventually_blocking<L: Look>(what: &str, look: impl FnMut() -> L) -> L::Found {
    looked(look).unwrap_or_else(|seen| panic!("waited {LONG:?} for this: {what}. At last: {seen}"))
}

/// The same for who has something to do before the panic: the error is the last look.
pub(crate) fn looked<L: Look>(mut look: impl FnMut() -> L) -> Result<L::Found, String> {
    let begun = Instant::now();
    loop {
        match look().found() {
            Err(_) if begun.elapsed() < LONG => std::thread::sleep(PAUSE),
            last => return last,
        }
    }
}

/// Holds a promise about time on a machine that may have other work: one of a few tries is within the limit.
pub(crate) async fn quickest(what: &str, limit: Duration, mut attempt: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 3 {
        let this = attempt().await;
        if this < limit {
            return;
        }
        took.push(this);
    }
    panic!("{what} within {limit:?}: it took {took:?}");
}

#[tokio::test]
async fn what_never_happens_fails_with_its_name_and_the_last_look() {
    let mut looks = 0;
    let waiting = eventually("the third number", async || {
        looks += 1;
        when(looks, |look| *look == 3)
    });
    assert_eq!(waiting.await, 3);
    let never = tokio::spawn(eventually_within(Duration::ZERO, "a fourth number", async || when("three", |look| *look == "four")));
    let message = *never.await.unwrap_err().into_panic().downcast::<String>().unwrap();
    assert!(message.contains("a fourth number") && message.contains("three"), "{message}");
}
