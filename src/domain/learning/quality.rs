//! How well tools answer: the failures and the time of their last calls. Among near duplicates, the better one is offered.

use std::collections::VecDeque;
use std::time::Duration;

use super::evidence::Minute;

/// Older calls don't count. A tool that comes after its near duplicate gets no calls that would replace them.
pub const COUNTED: Duration = Duration::from_hours(7 * 24);
/// Maximum number of calls that are remembered per tool.
const CALLS: usize = 64;
/// Maximum number of one person's calls among them.
const CALLS_OF_ONE: usize = 8;
/// Number of calls from which a person's own calls say enough.
const OWN: usize = 4;
/// Number of different people whose calls say enough for others. With three, one of them decides nothing.
const PEOPLE: usize = 3;
/// By how much the share of failed calls must differ.
const FEWER_FAILURES: f32 = 0.25;
/// The share of failed calls from which a tool without calls is preferred.
const FAILING: f32 = 0.5;
/// How much longer the slower tool takes: a factor, and a time that people notice.
const FASTER: f32 = 1.5;
const NOTICED: Duration = Duration::from_millis(100);

/// The last calls of a tool.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    last: VecDeque<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// A hash of the caller.
    person: u64,
    has_failed: bool,
    took: Duration,
    at: Minute,
}

/// What the last calls of a tool show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Share of failed calls, between 0 and 1.
    pub failures: f32,
    /// Median time of a call.
    pub took: Duration,
}

impl Calls {
    /// Notes a finished call. A person's ninth call displaces the first.
    pub fn add(&mut self, person: u64, has_failed: bool, took: Duration, at: Minute) {
        let of_person = self.last.iter().filter(|call| call.person == person).count();
        if of_person >= CALLS_OF_ONE {
            let oldest = self.last.iter().position(|call| call.person == person);
            oldest.and_then(|oldest| self.last.remove(oldest));
        } else if self.last.len() >= CALLS {
            self.last.pop_front();
        }
        self.last.push_back(Call { person, has_failed, took, at });
    }

    /// What the calls show for a person: the person's own calls if there are enough, otherwise those of everyone, in which each person
    /// has one voice. `None` if there are too few.
    pub fn quality(&self, person: u64, now: Minute) -> Option<Quality> {
        let own = self.of(person, now);
        if own.len() >= OWN {
            return Some(Quality::of(&own));
        }
        let mut people: Vec<u64> = self.counted(now).map(|call| call.person).collect();
        people.sort_unstable();
        people.dedup();
        if people.len() < PEOPLE {
            return None;
        }
        let voices: Vec<Quality> = people.into_iter().map(|person| Quality::of(&self.of(person, now))).collect();
        let mut failures: Vec<f32> = voices.iter().map(|voice| voice.failures).collect();
        failures.sort_unstable_by(f32::total_cmp);
        Some(Quality { failures: failures[failures.len() / 2], took: median(voices.iter().map(|voice| voice.took)) })
    }

    /// Forgets a person's calls.
    pub fn forget(&mut self, person: u64) {
        self.last.retain(|call| call.person != person);
    }

    fn of(&self, person: u64, now: Minute) -> Vec<Call> {
        self.counted(now).filter(|call| call.person == person).copied().collect()
    }

    fn counted(&self, now: Minute) -> impl Iterator<Item = &Call> {
        self.last.iter().filter(move |call| u64::from(now.0.saturating_sub(call.at.0)) * 60 < COUNTED.as_secs())
    }
}

impl Quality {
    fn of(calls: &[Call]) -> Self {
        let failed = calls.iter().filter(|call| call.has_failed).count();
        Self { failures: failed as f32 / calls.len().max(1) as f32, took: median(calls.iter().map(|call| call.took)) }
    }

    /// Whether a tool is better than a near duplicate of it: it fails less, or it fails no more and is noticeably faster.
    pub fn is_better(one: Option<Self>, other: Option<Self>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => {
                let fails_less = one.failures + FEWER_FAILURES <= other.failures;
                let is_faster = one.took.mul_f32(FASTER) <= other.took && one.took + NOTICED <= other.took;
                fails_less || (one.failures <= other.failures && is_faster)
            }
            (None, Some(other)) => other.failures >= FAILING,
            (_, None) => false,
        }
    }
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CALLS, COUNTED, Calls, Minute, Quality};

    const NOW: Minute = Minute(1_000_000);

    fn calls(of: &[(u64, usize, bool, u64)]) -> Calls {
        let mut calls = Calls::default();
        for &(person, count, has_failed, millis) in of {
            (0..count).for_each(|_| calls.add(person, has_failed, Duration::from_millis(millis), NOW));
        }
        calls
    }

    #[test]
    fn the_faster_one_that_fails_no_more_is_better() {
        let of = |calls: &Calls| calls.quality(1, NOW);
        let (fast, slow) = (calls(&[(1, 4, false, 50)]), calls(&[(1, 4, false, 400)]));
        assert!(Quality::is_better(of(&fast), of(&slow)) && !Quality::is_better(of(&slow), of(&fast)));
        let near = calls(&[(1, 4, false, 120)]);
        assert!(!Quality::is_better(of(&fast), of(&near)), "nobody notices");
        let failing = calls(&[(1, 2, false, 10), (1, 2, true, 10)]);
        assert!(Quality::is_better(of(&slow), of(&failing)) && !Quality::is_better(of(&failing), of(&slow)), "failures count first");
        assert!(Quality::is_better(None, of(&failing)) && !Quality::is_better(None, of(&slow)));
        assert!(!Quality::is_better(of(&fast), None), "nothing is known about the other");
        assert_eq!(calls(&[(1, 3, false, 50)]).quality(1, NOW), None, "too few calls");
    }

    #[test]
    fn one_caller_decides_nothing_for_others() {
        let honest = [(1, 3, false, 50), (2, 3, false, 60)];
        let with = |more: &[(u64, usize, bool, u64)]| calls(&[&honest[..], more].concat());
        let hostile = with(&[(9, 1_000, true, 60_000)]);
        assert_eq!(hostile.last.len(), 6 + super::CALLS_OF_ONE);
        assert_eq!(hostile.quality(7, NOW), Some(Quality { failures: 0.0, took: Duration::from_millis(60) }));
        assert_eq!(calls(&[(9, 1_000, true, 60_000)]).quality(7, NOW), None);
        assert_eq!(hostile.quality(9, NOW).map(|quality| quality.failures), Some(1.0), "for itself");
        let many: Vec<(u64, usize, bool, u64)> = (0..100).map(|person| (person, 1, false, 1)).collect();
        assert_eq!(calls(&many).last.len(), CALLS);
    }

    #[test]
    fn an_outage_is_forgotten() {
        let failing = calls(&[(1, 4, true, 10), (2, 1, true, 10), (3, 1, true, 10)]);
        let after =
            |time: Duration| [1, 9].map(|person| failing.quality(person, Minute(NOW.0 + u32::try_from(time.as_secs() / 60).unwrap())));
        assert!(
            after(COUNTED.saturating_sub(Duration::from_hours(1))).into_iter().all(|known| known.is_some_and(|known| known.failures > 0.9))
        );
        assert_eq!(after(COUNTED), [None, None]);
    }
}
