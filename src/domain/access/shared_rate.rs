//! Rate limiting by several services together.
//!
//! The services share the state of the generic cell rate algorithm ([`Pace`]), the time at which the next request is due, and add
//! their requests to it in the background. So no request waits for the others. Until a service knows what the others have permitted,
//! it permits at most its share of what was left. In a burst of some milliseconds, two services together exceeded the limit by up to a quarter.

use std::time::Duration;

use parking_lot::Mutex;

use super::rate::Pace;

/// How a service shares its limits at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Number of services that permit requests, at least 1.
    pub services: u32,
    /// Whether this service knows what the others permit. Otherwise it keeps to an equal share of the limit.
    pub is_informed: bool,
}

impl Standing {
    /// Of a service that shares its limits with nobody.
    pub(crate) const ALONE: Self = Self { services: 1, is_informed: false };
}

/// A permitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permitted {
    /// The others may learn of it later.
    Yes,
    /// Little is left of this service's share, so the others should learn of it now.
    AndUrgent,
}

/// The rate limiter of one caller, which several services share.
#[derive(Debug)]
pub(crate) struct SharedPacer {
    pace: Pace,
    state: Mutex<State>,
}

/// All times are in nanoseconds on the clock of [`SharedPacer::take`].
#[derive(Debug, Default)]
struct State {
    /// When the next request of any service is due, as last known.
    due: u64,
    /// Requests that are not part of `due` yet.
    taken: u32,
    /// Requests that are being added to what all services know.
    sent: u32,
    /// When the next request would be due if this service kept to its share.
    own_due: u64,
}

impl SharedPacer {
    /// `due` is what is known of the requests of others.
    pub(crate) fn new(pace: Pace, due: u64) -> Self {
        Self { pace, state: Mutex::new(State { due, ..State::default() }) }
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Counts a request at `now`, the time since a fixed moment.
    ///
    /// # Errors
    /// The time until a request may be allowed. Rejected requests are not counted.
    pub(crate) fn take(&self, now: Duration, standing: Standing) -> Result<Permitted, Duration> {
        let (now, services) = (nanos(now), u64::from(standing.services.max(1)));
        let Pace { interval, tolerance, .. } = self.pace;
        // The own share: as many requests at once and per minute, divided by the number of services.
        let own_interval = interval.saturating_mul(services);
        let burst = tolerance / interval + 1;
        let own_tolerance = own_interval.saturating_mul((burst / services).max(1) - 1);
        let mut state = self.state.lock();
        let own_due = state.own_due.max(now);
        let permitted = if standing.is_informed {
            let ahead = state.due.saturating_sub(now);
            if ahead > tolerance {
                return Err(Duration::from_nanos(ahead - tolerance));
            }
            let share = ((tolerance - ahead) / interval + 1).div_euclid(services).max(1);
            let used = u64::from(state.taken) + u64::from(state.sent);
            if used >= share {
                return Err(Duration::from_nanos(interval));
            }
            if (used + 1) * 2 >= share { Permitted::AndUrgent } else { Permitted::Yes }
        } else {
            if own_due - now > own_tolerance {
                return Err(Duration::from_nanos(own_due - now - own_tolerance));
            }
            Permitted::Yes
        };
        state.taken = state.taken.saturating_add(1);
        // While the others are known, the share may be exceeded, but not saved up.
        state.own_due = own_due.saturating_add(own_interval).min(now.saturating_add(own_tolerance).saturating_add(own_interval));
        Ok(permitted)
    }

    /// The requests to add to what all services know. Call [`Self::learn`] or [`Self::take_back`] next.
    pub(crate) fn send(&self) -> u32 {
        let mut state = self.state.lock();
        state.sent = state.sent.saturating_add(std::mem::take(&mut state.taken));
        state.sent
    }

    /// Takes over when the next request of any service is due. `is_sent`: what was sent is part of it.
    pub(crate) fn learn(&self, due: u64, is_sent: bool) {
        let mut state = self.state.lock();
        state.due = due;
        if is_sent {
            state.sent = 0;
        }
    }

    /// Notes that what was sent did not arrive, as far as known.
    pub(crate) fn take_back(&self) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_add(std::mem::take(&mut state.sent));
    }

    /// How far in the future the next request of any service is due, as last known.
    pub(crate) fn ahead(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.state.lock().due.saturating_sub(nanos(now)))
    }

    /// The time that this number of requests adds.
    pub(crate) fn time_of(&self, requests: u32) -> Duration {
        Duration::from_nanos(self.pace.interval.saturating_mul(u64::from(requests)))
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn informed(services: u32) -> Standing {
        Standing { services, is_informed: true }
    }

    fn together(per_minute: u32, services: u32) -> Vec<SharedPacer> {
        (0..services).map(|_| SharedPacer::new(Pace::new(per_minute, 0).unwrap(), 0)).collect()
    }

    /// All services tell each other what they have permitted.
    fn exchange(pacers: &[SharedPacer], due: &mut u64, now: Duration) {
        for pacer in pacers {
            *due = (*due).max(nanos(now)) + nanos(pacer.time_of(pacer.send()));
        }
        for pacer in pacers {
            pacer.learn(*due, true);
        }
    }

    fn taken(pacer: &SharedPacer, attempts: u32, now: Duration, standing: Standing) -> u32 {
        (0..attempts).map(|_| u32::from(pacer.take(now, standing).is_ok())).sum()
    }

    #[test]
    fn all_together_get_the_limit_however_requests_are_spread() {
        for (per_minute, services) in [(100, 2), (100, 3), (1_000, 5), (10, 3), (3, 3), (1, 4)] {
            for first in [0, 1, 7, 50] {
                let (pacers, mut due, mut all) = (together(per_minute, services), 0, 0);
                // Many requests at once, of which the first service gets more.
                for round in 0..200 {
                    let now = Duration::from_millis(round);
                    for (number, pacer) in pacers.iter().enumerate() {
                        let attempts = if number == 0 { first } else { 1 };
                        all += taken(pacer, attempts, now, informed(services));
                    }
                    exchange(&pacers, &mut due, now);
                }
                let most = per_minute + services + per_minute / 200;
                let least = (per_minute * 9 / 10).min(200 * (first + services - 1));
                assert!((least..=most).contains(&all), "{all} of {per_minute}, {services} services, {first}");
            }
        }
    }

    #[test]
    fn the_rate_holds_over_time() {
        let (pacers, mut due, mut all) = (together(120, 3), 0, 0);
        for tenth in 0..6_000 {
            let now = Duration::from_millis(tenth * 100);
            all += pacers.iter().map(|pacer| taken(pacer, 2, now, informed(3))).sum::<u32>();
            exchange(&pacers, &mut due, now);
        }
        // Ten minutes, and what is permitted at once.
        assert!((120 * 10..=120 * 11 + 12).contains(&all), "{all}");
    }

    #[test]
    fn without_the_others_a_service_keeps_to_its_share() {
        let apart = Standing { services: 4, is_informed: false };
        let pacer = SharedPacer::new(Pace::new(100, 0).unwrap(), 0);
        assert_eq!(taken(&pacer, 100, Duration::ZERO, apart), 25);
        assert_eq!(taken(&pacer, 100, Duration::from_mins(1), apart), 25);
        let small = SharedPacer::new(Pace::new(2, 0).unwrap(), 0);
        assert_eq!(taken(&small, 100, Duration::ZERO, apart), 1);
        let alone = SharedPacer::new(Pace::new(10, 0).unwrap(), 0);
        assert_eq!(taken(&alone, 100, Duration::ZERO, Standing::ALONE), 10);
        assert_eq!(alone.take(Duration::ZERO, Standing::ALONE), Err(Duration::from_secs(6)));
    }

    #[test]
    fn what_did_not_arrive_is_sent_again_and_who_loses_the_others_gets_no_new_burst() {
        let pacer = SharedPacer::new(Pace::new(10, 0).unwrap(), 0);
        assert_eq!(taken(&pacer, 3, Duration::ZERO, informed(2)), 3);
        assert_eq!(pacer.send(), 3);
        pacer.take_back();
        assert_eq!(taken(&pacer, 10, Duration::ZERO, informed(2)), 2);
        assert_eq!(pacer.send(), 5);
        pacer.learn(nanos(pacer.time_of(5)), true);
        assert_eq!(pacer.send(), 0);
        assert_eq!(taken(&pacer, 10, Duration::ZERO, Standing { services: 2, is_informed: false }), 0);
    }
}
