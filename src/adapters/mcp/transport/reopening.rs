//! Pauses before a stream is opened again, so that a server that ends each one at once isn't asked without end.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);
/// After a stream that lasted this long, the next one is opened at once, and the pauses start over.
const LASTING: Duration = Duration::from_secs(10);

/// Determines when to open a stream. The time between two openings doubles with each stream that ends soon.
#[derive(Debug)]
pub(in crate::adapters::mcp) struct Reopening {
    pause: Duration,
    opened: Option<Instant>,
}

impl Default for Reopening {
    fn default() -> Self {
        Self { pause: FIRST, opened: None }
    }
}

impl Reopening {
    /// The time at which to open the next stream. Call this once before each, after the end of the one before.
    pub(in crate::adapters::mcp) fn next(&mut self, now: Instant) -> Instant {
        let at = match self.opened {
            None => now,
            Some(opened) if now.saturating_duration_since(opened) >= LASTING => {
                self.pause = FIRST;
                now
            }
            Some(opened) => {
                let at = now.max(opened + self.pause);
                self.pause = (2 * self.pause).min(LONGEST);
                at
            }
        };
        self.opened = Some(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_end_at_once_are_opened_ever_less_often() {
        let (mut reopening, mut now) = (Reopening::default(), Instant::now());
        assert_eq!(reopening.next(now), now);
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            let at = reopening.next(now + Duration::from_millis(5));
            assert_eq!(at, now + Duration::from_secs(expected));
            now = at;
        }
        // A stream that lasts is replaced at once.
        now += LASTING;
        assert_eq!(reopening.next(now), now);
        assert_eq!(reopening.next(now), now + FIRST);
    }
}
