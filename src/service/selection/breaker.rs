//! Circuit breaker: skips a language model that fails repeatedly.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of consecutive failures that open the breaker.
pub(super) const FAILURES: u32 = 3;
/// How long the breaker stays open before it permits a trial call.
pub(super) const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A trial call is in progress.
    Trying,
}

/// Calls that are given up later than this count as failures: the callers no longer waited for the model.
const PATIENCE: Duration = Duration::from_secs(1);

/// Permission for a call, which records the outcome. If dropped without an outcome, it counts as a failure only if the call took long.
pub(super) struct Permit {
    breaker: Arc<Breaker>,
    since: Instant,
    tries: bool,
    reported: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self(Mutex::new(State::Closed { failures: 0 }))
    }
}

impl Breaker {
    pub(super) fn admit(self: &Arc<Self>, now: Instant) -> Option<Permit> {
        let mut state = self.0.lock();
        let tries = match *state {
            State::Closed { .. } => false,
            State::Open { until } if now >= until => {
                *state = State::Trying;
                true
            }
            State::Open { .. } | State::Trying => return None,
        };
        Some(Permit { breaker: Arc::clone(self), since: now, tries, reported: false })
    }
}

impl Permit {
    pub(super) fn report(mut self, succeeded: bool, now: Instant) {
        self.record(succeeded, now);
    }

    fn record(&mut self, succeeded: bool, now: Instant) {
        self.reported = true;
        let mut state = self.breaker.0.lock();
        let opened = State::Open { until: now + PAUSE };
        *state = match (*state, succeeded) {
            (State::Closed { .. }, true) => State::Closed { failures: 0 },
            (State::Closed { failures }, false) if failures + 1 >= FAILURES => opened,
            (State::Closed { failures }, false) => State::Closed { failures: failures + 1 },
            (State::Trying, true) if self.tries => State::Closed { failures: 0 },
            (State::Trying, false) if self.tries => opened,
            // Ignore an older call that finished late.
            (state, _) => state,
        };
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.reported {
            return;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.since) > PATIENCE {
            self.record(false, now);
        } else if self.tries {
            *self.breaker.0.lock() = State::Open { until: self.since };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::{Breaker, FAILURES, PATIENCE, PAUSE};

    fn fail(breaker: &Arc<Breaker>, times: u32, now: Instant) {
        for _ in 0..times {
            breaker.admit(now).unwrap().report(false, now);
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_one_that_succeeds() {
        let breaker = Arc::new(Breaker::default());
        let start = Instant::now();
        fail(&breaker, FAILURES - 1, start);
        breaker.admit(start).unwrap().report(true, start);
        fail(&breaker, FAILURES, start);
        assert!(breaker.admit(start).is_none());
        let later = start + PAUSE;
        let trying = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_none(), "one call tries");
        trying.report(false, later);
        assert!(breaker.admit(later).is_none());
        let later = later + PAUSE;
        breaker.admit(later).unwrap().report(true, later);
        fail(&breaker, FAILURES - 1, later);
        assert!(breaker.admit(later).is_some());
    }

    #[test]
    fn a_try_that_was_given_up_leaves_room_for_another() {
        let breaker = Arc::new(Breaker::default());
        let start = Instant::now();
        let late = breaker.admit(start).unwrap();
        fail(&breaker, FAILURES, start);
        late.report(true, start);
        assert!(breaker.admit(start).is_none(), "an older call says nothing about now");
        let later = start + PAUSE;
        drop(breaker.admit(later).unwrap());
        assert!(breaker.admit(later).is_some());
    }

    #[test]
    fn calls_that_are_given_up_count_if_they_took_long() {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..2 * FAILURES {
            drop(breaker.admit(Instant::now()).unwrap());
        }
        let since = Instant::now().checked_sub(2 * PATIENCE).unwrap();
        for _ in 0..FAILURES {
            drop(breaker.admit(since).unwrap());
        }
        assert!(breaker.admit(Instant::now()).is_none());
    }
}
