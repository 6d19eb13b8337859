//! Rate limiting: the permitted rate, and the state of one caller.
//!
//! Uses the generic cell rate algorithm (ITU-T I.371, annex A). Its only state is the time at which the next request is due: one
//! atomic number instead of a list of times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MINUTE_NANOS: u64 = 60_000_000_000;

/// A permitted rate of requests per minute, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    per_minute: u32,
    pub(super) interval: u64,
    pub(super) tolerance: u64,
}

impl Pace {
    /// Creates a pace; `None` (no limit) if `per_minute` is 0. A `burst` of 0 allows a whole minute's requests at once.
    pub(crate) fn new(per_minute: u32, burst: u32) -> Option<Self> {
        let interval = MINUTE_NANOS.checked_div(u64::from(per_minute))?;
        let burst = if burst == 0 { per_minute } else { burst };
        Some(Self { per_minute, interval, tolerance: interval * u64::from(burst - 1) })
    }

    pub(crate) fn per_minute(&self) -> u32 {
        self.per_minute
    }
}

/// The rate limiter of one caller.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    /// The time at which the next request is due, in nanoseconds on the clock of [`Pacer::take`].
    due: AtomicU64,
}

impl Pacer {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, due: AtomicU64::new(0) }
    }

    /// Counts a request at `now`, the time since a fixed moment.
    ///
    /// # Errors
    /// The time until a request is allowed. Rejected requests are not counted.
    pub(crate) fn take(&self, now: Duration) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let Pace { interval, tolerance, .. } = self.pace;
        let next = |due: u64| {
            let due = due.max(now);
            (due - now <= tolerance).then(|| due.saturating_add(interval))
        };
        match self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(due) => Err(Duration::from_nanos(due - now - tolerance)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Pace, Pacer};

    const fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn a_burst_goes_at_once_and_then_the_pace_counts() {
        let pacer = Pacer::new(Pace::new(60, 3).unwrap());
        let start = milliseconds(5_000);
        assert_eq!([0; 4].map(|_| pacer.take(start)), [Ok(()), Ok(()), Ok(()), Err(milliseconds(1_000))]);
        assert_eq!(pacer.take(start + milliseconds(400)), Err(milliseconds(600)));
        assert_eq!(pacer.take(start + milliseconds(1_000)), Ok(()));
        assert_eq!(pacer.take(start + milliseconds(1_001)), Err(milliseconds(999)));
        assert_eq!([0; 4].map(|_| pacer.take(start + milliseconds(60_000)).is_ok()), [true, true, true, false], "rested");
    }

    #[test]
    fn without_a_burst_a_minutes_go_at_once() {
        assert_eq!(Pace::new(0, 5), None);
        let pacer = Pacer::new(Pace::new(10, 0).unwrap());
        assert_eq!((0..20).filter(|_| pacer.take(Duration::ZERO).is_ok()).count(), 10);
        // The long-term rate is never exceeded.
        let taken = (0..600_000).filter(|at| pacer.take(milliseconds(*at)).is_ok()).count();
        assert!((99..=101).contains(&taken), "{taken}");
    }

    #[test]
    fn many_at_once_get_no_more_than_one_after_the_other() {
        let pacer = Pacer::new(Pace::new(1_000, 0).unwrap());
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..1_000).filter(|_| pacer.take(milliseconds(1)).is_ok()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1_000);
    }
}
