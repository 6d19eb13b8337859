//! How often something may happen: a pace, and who is ahead of it.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A): one number says when the next one is due, so that a limit is one atomic
//! value and never a list of times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MINUTE_NANOS: u64 = 60_000_000_000;

/// So many in a minute, evenly, of which some may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    per_minute: u32,
    interval: u64,
    tolerance: u64,
}

impl Pace {
    /// `None` for 0 in a minute, which means no limit. A `burst` of 0 is a whole minute's.
    #[must_use]
    pub fn new(per_minute: u32, burst: u32) -> Option<Self> {
        let interval = MINUTE_NANOS.checked_div(u64::from(per_minute))?;
        let burst = if burst == 0 { per_minute } else { burst };
        Some(Self { per_minute, interval, tolerance: interval * u64::from(burst - 1) })
    }

    #[must_use]
    pub fn per_minute(&self) -> u32 {
        self.per_minute
    }
}

/// Somebody who keeps to a pace.
#[derive(Debug)]
pub struct Pacer {
    pace: Pace,
    /// When the next one is due, in nanoseconds of the clock of [`Pacer::take`].
    due: AtomicU64,
}

impl Pacer {
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, due: AtomicU64::new(0) }
    }

    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Takes one at this time since some fixed moment.
    ///
    /// # Errors
    /// How long it is until one may be taken. What was refused does not count.
    pub fn take(&self, now: Duration) -> Result<(), Duration> {
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
        // Nobody gets more in the long run.
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
