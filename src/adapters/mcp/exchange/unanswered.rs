//! Limits the server's requests that are not answered yet, because each one takes a task, and its answer a place in a queue or a
//! connection.

use std::collections::HashMap;
use std::time::Duration;

use rmcp::model::RequestId;
use tokio::time::Instant;

/// Maximum number of unanswered questions of a server, which may wait for people, and of its other requests.
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
    is_question: bool,
    /// Whether its answer is on its way.
    is_sent: bool,
}

impl Unanswered {
    /// Whether parameters of this parsed size fit in.
    pub(super) fn fits(&self, size: usize) -> bool {
        self.0.values().map(|taken| taken.size).sum::<usize>().saturating_add(size) <= LARGEST
    }

    /// Adds a request. Returns `false` if there are too many of its kind, or another one has the same id.
    pub(super) fn take(&mut self, id: &RequestId, size: usize, is_question: bool) -> bool {
        self.0.retain(|_, taken| taken.since.elapsed() < GIVEN_UP);
        let alike = self.0.values().filter(|taken| taken.is_question == is_question).count();
        let is_taken = alike < MOST && !self.0.contains_key(id);
        if is_taken {
            self.0.insert(id.clone(), Taken { since: Instant::now(), size, is_question, is_sent: false });
        }
        is_taken
    }

    /// Notes that the answer is on its way.
    pub(super) fn sending(&mut self, id: &RequestId) {
        if let Some(taken) = self.0.get_mut(id) {
            taken.is_sent = true;
        }
    }

    /// Forgets a request that the server has cancelled, because rmcp drops its answer, unless it is on its way already.
    pub(super) fn cancelled(&mut self, id: &RequestId) {
        if self.0.get(id).is_some_and(|taken| !taken.is_sent) {
            self.0.remove(id);
        }
    }

    pub(super) fn remove(&mut self, id: &RequestId) {
        self.0.remove(id);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_requests_are_unanswered() {
        let mut unanswered = Unanswered::default();
        let id = |number: usize| RequestId::String(format!("q{number}").into());
        assert!(unanswered.take(&id(0), 0, true) && !unanswered.take(&id(0), 0, true), "the id is taken");
        assert_eq!((1..1000).filter(|number| unanswered.take(&id(*number), 0, true)).count(), MOST - 1);
        unanswered.remove(&id(0));
        assert!(unanswered.take(&id(2000), 0, true) && !unanswered.take(&id(2001), 0, true));
        let others = (3000..4000).filter(|number| unanswered.take(&id(*number), 0, false)).count();
        assert_eq!(others, MOST, "questions that wait for people leave room for the others");
        let since = Instant::now().checked_sub(GIVEN_UP).unwrap();
        unanswered.0.values_mut().for_each(|taken| taken.since = since);
        assert!(unanswered.take(&id(2001), LARGEST - 1, true));
        assert!(unanswered.fits(1) && !unanswered.fits(2));
    }

    /// Regression: an entry that was left behind blocked its id for ever.
    #[test]
    fn an_id_is_free_again_when_nobody_waits_for_its_answer() {
        let (mut unanswered, id) = (Unanswered::default(), RequestId::Number(0));
        assert!(unanswered.take(&id, 0, true));
        unanswered.cancelled(&id);
        assert!(unanswered.take(&id, 0, true), "it was cancelled");
        unanswered.0.values_mut().for_each(|taken| taken.since = Instant::now().checked_sub(GIVEN_UP).unwrap());
        assert!(unanswered.take(&id, 0, true), "it was given up");
        unanswered.clear();
        assert!(unanswered.take(&id, 0, true), "another session has begun");
        unanswered.sending(&id);
        unanswered.cancelled(&id);
        assert!(!unanswered.take(&id, 0, true), "the answer still has its place");
    }
}
