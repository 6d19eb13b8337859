//! Limits the server's requests that are not answered yet, because each one takes a task, and its answer a place in a queue or a
//! connection.

use std::collections::HashMap;
use std::time::Duration;

use rmcp::model::RequestId;
use tokio::time::Instant;

/// Maximum number of unanswered requests of a server.
const MOST: usize = 64;
/// Maximum size of their parsed parameters together, in bytes.
const LARGEST: usize = 16 * 1024 * 1024;
/// A request without an answer for this long has none. It exceeds the time limit for callers' answers.
const GIVEN_UP: Duration = Duration::from_mins(15);

#[derive(Debug, Default)]
pub(super) struct Unanswered(HashMap<RequestId, Taken>);

#[derive(Debug)]
struct Taken {
    since: Instant,
    size: usize,
}

impl Unanswered {
    /// Whether parameters of this parsed size fit in.
    pub(super) fn fits(&self, size: usize) -> bool {
        self.0.values().map(|taken| taken.size).sum::<usize>().saturating_add(size) <= LARGEST
    }

    /// Adds a request. Returns `false` if there are too many, or another one has the same id.
    pub(super) fn take(&mut self, id: &RequestId, size: usize) -> bool {
        if self.0.len() >= MOST {
            self.0.retain(|_, taken| taken.since.elapsed() < GIVEN_UP);
        }
        let is_taken = self.0.len() < MOST && !self.0.contains_key(id);
        if is_taken {
            self.0.insert(id.clone(), Taken { since: Instant::now(), size });
        }
        is_taken
    }

    pub(super) fn remove(&mut self, id: &RequestId) {
        self.0.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_requests_are_unanswered() {
        let mut unanswered = Unanswered::default();
        let id = |number: usize| RequestId::String(format!("q{number}").into());
        assert!(unanswered.take(&id(0), 0) && !unanswered.take(&id(0), 0), "the id is taken");
        assert_eq!((1..1000).filter(|number| unanswered.take(&id(*number), 0)).count(), MOST - 1);
        unanswered.remove(&id(0));
        assert!(unanswered.take(&id(2000), 0) && !unanswered.take(&id(2001), 0));
        let since = Instant::now().checked_sub(GIVEN_UP).unwrap();
        unanswered.0.values_mut().for_each(|taken| taken.since = since);
        assert!(unanswered.take(&id(2001), LARGEST - 1));
        assert!(unanswered.fits(1) && !unanswered.fits(2));
    }
}
