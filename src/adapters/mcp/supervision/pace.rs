//! How soon a list follows another one.

use std::time::Duration;

use tokio::time::Instant;

/// Determines how long changes are collected before tools are listed, so that endless changes do not cause endless lists.
pub(super) struct Pace {
    shortest: Duration,
    pause: Duration,
    last_list: Option<Instant>,
}

impl Pace {
    const LONGEST: Duration = Duration::from_secs(30);

    pub(super) fn new(shortest: Duration) -> Self {
        Self { shortest, pause: shortest, last_list: None }
    }

    pub(super) fn listed(&mut self, now: Instant) {
        self.last_list = Some(now);
    }

    /// The pause before the next list. It doubles if a change follows soon after the last list.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        let soon = (2 * self.pause).max(10 * self.shortest);
        let keeps_changing = self.last_list.is_some_and(|last| now.saturating_duration_since(last) <= soon);
        self.pause = if keeps_changing { (2 * self.pause).min(Self::LONGEST).max(self.shortest) } else { self.shortest };
        self.pause
    }

    /// The pause before a list that checks a suspect connection. The first such list is immediate.
    pub(super) fn pause_before_check(&mut self, now: Instant) -> Duration {
        let pause = self.pause(now);
        if pause > self.shortest { pause } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_changing_is_listed_ever_less_often_until_it_is_quiet() {
        let (mut pace, mut now) = (Pace::new(Duration::from_millis(100)), Instant::now());
        for expected in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let pause = pace.pause(now);
            assert!((pause.as_secs_f64() - expected).abs() < 1e-9, "{pause:?} for {expected}");
            now += pause + Duration::from_secs(3);
            pace.listed(now);
        }
        assert_eq!(pace.pause(now + Duration::from_secs(61)), Duration::from_millis(100));
    }

    #[test]
    fn a_suspect_connection_is_checked_at_once_and_then_ever_less_often() {
        let (mut pace, mut now) = (Pace::new(Duration::from_millis(100)), Instant::now());
        for expected in [0, 200, 400, 800] {
            let pause = pace.pause_before_check(now);
            assert_eq!(pause, Duration::from_millis(expected));
            now += pause;
            pace.listed(now);
        }
        assert_eq!(pace.pause_before_check(now + Duration::from_secs(2)), Duration::ZERO);
    }
}
