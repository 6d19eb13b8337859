//! Rate limiting by several services together.
//!
//! The services share the state of the generic cell rate algorithm ([`Pace`]): the time at which the next request is due. A service
//! reserves requests there before it permits them, a few at a time and fewer as the limit nears. While it waits for a reservation, it may
//! permit a few requests in advance. So all services together exceed a limit only by these advances, and no request waits unless the
//! limit is near or many requests come at once. Reserved requests that are not used soon are returned.

use std::time::Duration;

use parking_lot::Mutex;

use super::rate::Pace;

/// What all services together may permit in advance, as a part of the requests that are permitted at once.
const ADVANCED_PART: u64 = 15;
/// Below this number of requests at once, a service permits one in advance.
const SMALL: u64 = 100;
/// How many more requests to reserve than were used since the last exchange.
const GROWTH: u32 = 4;
/// How long reserved requests are kept after the last use.
const KEPT: Duration = Duration::from_millis(200);

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
    /// The others know of it, or may learn of it later.
    Yes,
    /// Little is reserved, so there should be an exchange now.
    AndUrgent,
}

/// Why a request is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing is left. Something may be left after this time.
    For(Duration),
    /// Something may be left, but nothing is reserved: the next exchange decides.
    Unreserved,
}

/// What to add to what all services know, and what to reserve. In numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Permitted without a reservation.
    pub owed: u32,
    /// Reserved, but not used.
    pub returned: u32,
    /// Requests that wait for a reservation.
    pub waiting: u32,
    /// Requests to reserve beyond these, for what comes soon.
    pub extra: u32,
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
    /// When the next request of any service is due, as last known. Contains what is reserved.
    due: u64,
    /// Requests that are reserved and not used yet.
    reserved: u32,
    /// Requests that were permitted without a reservation, and are not part of `due` yet.
    owed: u32,
    /// The same for requests that are being added to what all services know.
    sent: u32,
    /// The interval of this service's share, if requests were permitted while nothing was known of the others, and are still to be added.
    share: Option<u64>,
    /// Requests that wait for a reservation.
    waiting: u32,
    /// Requests since the last exchange.
    used: u32,
    used_at: u64,
    /// When the next request would be due if this service kept to its share.
    own_due: u64,
}

/// A request that waits for a reservation, until dropped.
pub(crate) struct Waiting<'a>(&'a SharedPacer);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
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
    /// [`Refused`]. Rejected requests are not counted.
    pub(crate) fn take(&self, now: Duration, standing: Standing) -> Result<Permitted, Refused> {
        let (now, services) = (nanos(now), u64::from(standing.services.max(1)));
        let mut state = self.state.lock();
        if !standing.is_informed {
            self.check_share(&state, now, services)?;
            state.owed = state.owed.saturating_add(1);
            state.share = Some(self.share(services).0);
            self.count(&mut state, now, services);
            return Ok(Permitted::Yes);
        }
        if state.reserved > 0 {
            state.reserved -= 1;
            self.count(&mut state, now, services);
            return Ok(if state.reserved <= state.used / 2 { Permitted::AndUrgent } else { Permitted::Yes });
        }
        self.left(&state, now)?;
        let (unknown, advance) = (state.unknown(), self.advance(services));
        if unknown >= advance {
            return Err(Refused::Unreserved);
        }
        state.owed = state.owed.saturating_add(1);
        self.count(&mut state, now, services);
        Ok(if (unknown + 1) * 2 > advance { Permitted::AndUrgent } else { Permitted::Yes })
    }

    /// The same for a request that has waited for a reservation in vain, because the exchange takes too long: permits this service's
    /// share of what is left as last known.
    ///
    /// # Errors
    /// The time after which another attempt is worthwhile.
    pub(crate) fn take_late(&self, now: Duration, standing: Standing) -> Result<(), Duration> {
        match self.take(now, standing) {
            Ok(_) => return Ok(()),
            Err(Refused::For(time)) => return Err(time),
            Err(Refused::Unreserved) => {}
        }
        let (now, services) = (nanos(now), u64::from(standing.services.max(1)));
        let mut state = self.state.lock();
        let left = self.left(&state, now).map_err(|_| Duration::from_nanos(self.pace.interval))?;
        let unknown = state.unknown();
        if unknown >= ((left + unknown) / services).max(1) {
            return Err(Duration::from_nanos(self.pace.interval));
        }
        state.owed = state.owed.saturating_add(1);
        self.count(&mut state, now, services);
        Ok(())
    }

    /// The number of requests that are left at `now`, as last known.
    fn left(&self, state: &State, now: u64) -> Result<u64, Refused> {
        let Pace { interval, tolerance, .. } = self.pace;
        let ahead = state.due.saturating_sub(now).saturating_add(interval.saturating_mul(state.unknown()));
        match tolerance.checked_sub(ahead) {
            Some(left) => Ok(left / interval + 1),
            None => Err(Refused::For(Duration::from_nanos(ahead - tolerance))),
        }
    }

    /// How many requests this service may permit without a reservation before the others know of them.
    fn advance(&self, services: u64) -> u64 {
        let burst = self.burst();
        if burst < SMALL { 1 } else { (burst / (ADVANCED_PART * services)).max(1) }
    }

    fn burst(&self) -> u64 {
        self.pace.tolerance / self.pace.interval + 1
    }

    /// The interval and the tolerance of this service's share: as many requests at once and per minute, divided by the number of services.
    fn share(&self, services: u64) -> (u64, u64) {
        let interval = self.pace.interval.saturating_mul(services);
        (interval, interval.saturating_mul((self.burst() / services).max(1) - 1))
    }

    fn check_share(&self, state: &State, now: u64, services: u64) -> Result<(), Refused> {
        let (_, tolerance) = self.share(services);
        let ahead = state.own_due.saturating_sub(now);
        if ahead > tolerance { Err(Refused::For(Duration::from_nanos(ahead - tolerance))) } else { Ok(()) }
    }

    /// Counts a permitted request for this service's share. While the others are known, the share may be exceeded, but not saved up.
    fn count(&self, state: &mut State, now: u64, services: u64) {
        let (interval, tolerance) = self.share(services);
        state.used = state.used.saturating_add(1);
        state.used_at = now;
        state.own_due = state.own_due.max(now).saturating_add(interval).min(now.saturating_add(tolerance).saturating_add(interval));
    }

    /// Registers a request that waits for a reservation.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.state.lock().waiting += 1;
        Waiting(self)
    }

    /// What to add to what all services know, and what to reserve. Call [`Self::receive`] or [`Self::take_back`] next.
    pub(crate) fn want(&self, now: Duration) -> Wanted {
        let mut state = self.state.lock();
        state.sent = state.sent.saturating_add(std::mem::take(&mut state.owed));
        if let Some(share) = state.share {
            // What was permitted long ago burdens nobody any more, however long the outage was.
            let recent = state.own_due.saturating_sub(nanos(now)).div_ceil(share.max(1));
            state.sent = state.sent.min(u32::try_from(recent).unwrap_or(u32::MAX));
        }
        let used = std::mem::take(&mut state.used);
        let (spare, waiting) = (state.reserved.saturating_sub(state.waiting), state.waiting.saturating_sub(state.reserved));
        let wanted = Wanted { owed: state.sent, waiting, ..Wanted::default() };
        if nanos(now).saturating_sub(state.used_at) >= nanos(KEPT) {
            state.reserved -= spare;
            return Wanted { returned: spare, ..wanted };
        }
        // A single request at a time needs no reservation.
        Wanted { extra: used.saturating_sub(1).saturating_mul(GROWTH).saturating_sub(spare), ..wanted }
    }

    /// Takes over the result of an exchange: when the next request of any service is due, and how many requests were reserved.
    pub(crate) fn receive(&self, due: u64, reserved: u32) {
        let mut state = self.state.lock();
        state.due = due;
        (state.sent, state.share) = (0, None);
        state.reserved = state.reserved.saturating_add(reserved);
    }

    /// Takes over when the next request of any service is due.
    pub(crate) fn learn(&self, due: u64) {
        self.state.lock().due = due;
    }

    /// Notes that what was sent did not arrive, as far as known. What was returned counts as returned.
    pub(crate) fn take_back(&self) {
        let mut state = self.state.lock();
        state.owed = state.owed.saturating_add(std::mem::take(&mut state.sent));
    }

    /// Whether there is something to tell others, or to ask them for.
    pub(crate) fn wants_exchange(&self) -> bool {
        let state = self.state.lock();
        state.reserved > 0 || state.owed > 0 || state.waiting > 0
    }

    /// How far in the future the next request of any service is due, as last known.
    pub(crate) fn ahead(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.state.lock().due.saturating_sub(nanos(now)))
    }

    /// The time between two requests.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.pace.interval)
    }

    /// How far in the future the next request may be due when another one is permitted.
    pub(crate) fn tolerance(&self) -> Duration {
        Duration::from_nanos(self.pace.tolerance)
    }
}

impl State {
    /// Requests that are not part of `due`.
    fn unknown(&self) -> u64 {
        u64::from(self.owed) + u64::from(self.sent)
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

    /// An exchange of one service, as the store does it.
    fn exchange(pacer: &SharedPacer, due: &mut u64, now: Duration, services: u64) {
        let (at, interval, tolerance) = (nanos(now), nanos(pacer.interval()), nanos(pacer.tolerance()));
        let Wanted { owed, returned, waiting, extra } = pacer.want(now);
        let base = due.saturating_sub(u64::from(returned) * interval).max(at) + u64::from(owed) * interval;
        let left = tolerance.checked_sub(base - at).map_or(0, |left| left / interval + 1);
        let reserved = u64::from(waiting).min(left) + u64::from(extra).min(left.saturating_sub(waiting.into()) / (4 * services));
        *due = base + reserved * interval;
        pacer.receive(*due, u32::try_from(reserved).unwrap());
    }

    /// Requests at one moment, of which each waits for one exchange. Every service exchanges once. Returns how many are permitted.
    fn at_once(pacers: &[SharedPacer], requests: &[u32], due: &mut u64, now: Duration) -> u32 {
        let standing = informed(u32::try_from(pacers.len()).unwrap());
        let mut permitted = 0;
        let mut waiting = Vec::new();
        for (pacer, requests) in pacers.iter().zip(requests) {
            for _ in 0..*requests {
                match pacer.take(now, standing) {
                    Ok(_) => permitted += 1,
                    Err(Refused::Unreserved) => waiting.push((pacer, pacer.wait())),
                    Err(Refused::For(_)) => {}
                }
            }
        }
        for pacer in pacers {
            exchange(pacer, due, now, pacers.len() as u64);
        }
        for (pacer, place) in waiting {
            drop(place);
            permitted += u32::from(pacer.take(now, standing).is_ok());
        }
        permitted
    }

    fn taken(pacer: &SharedPacer, attempts: u32, now: Duration, standing: Standing) -> u32 {
        (0..attempts).map(|_| u32::from(pacer.take(now, standing).is_ok())).sum()
    }

    #[test]
    fn all_together_keep_to_the_limit_however_requests_are_spread() {
        for (per_minute, services) in [(100, 2), (100, 3), (1_000, 5), (10_000, 3), (10, 3), (5, 2), (3, 3), (1, 4)] {
            for first in [1, 7, 50, 1_000] {
                for other in [0, 1, 30] {
                    let (pacers, mut due, mut all) = (together(per_minute, services), 0, 0);
                    let requests: Vec<u32> = (0..services).map(|number| if number == 0 { first } else { other }).collect();
                    for round in 0..200 {
                        all += at_once(&pacers, &requests, &mut due, Duration::from_millis(round * 15));
                    }
                    // Some are due again in three seconds.
                    let again = per_minute / 20;
                    let over = if per_minute < 100 { services } else { per_minute / 10 };
                    let asked = 200 * requests.iter().sum::<u32>();
                    let least = (per_minute - per_minute / 10).min(asked);
                    let case = format!("{all} of {per_minute}, {services} services, {first} and {other} at once");
                    assert!((least..=per_minute + again + over).contains(&all), "{case}");
                }
            }
        }
    }

    #[test]
    fn one_burst_at_all_services_gets_the_limit() {
        let (pacers, mut due) = (together(100, 2), 0);
        let all = at_once(&pacers, &[150, 150], &mut due, Duration::ZERO);
        assert!((100..=110).contains(&all), "{all}");
        assert_eq!(at_once(&pacers, &[150, 150], &mut due, Duration::from_millis(30)), 0);
    }

    #[test]
    fn the_rate_holds_over_time() {
        let (pacers, mut due, mut all) = (together(120, 3), 0, 0);
        for tenth in 0..6_000 {
            all += at_once(&pacers, &[2, 2, 2], &mut due, Duration::from_millis(tenth * 100));
        }
        // Ten minutes, and what is permitted at once.
        assert!((120 * 10..=120 * 11 + 12).contains(&all), "{all}");
    }

    #[test]
    fn what_is_reserved_and_not_used_is_returned() {
        let (pacers, mut due) = (together(100, 2), 0);
        assert_eq!(at_once(&pacers, &[10, 0], &mut due, Duration::ZERO), 10);
        assert!(pacers[0].wants_exchange(), "more is reserved than was used");
        let later = Duration::from_millis(300);
        exchange(&pacers[0], &mut due, later, 2);
        assert!(!pacers[0].wants_exchange());
        let left = at_once(&pacers, &[0, 200], &mut due, later);
        assert!((90..=93).contains(&left), "{left}");
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
        assert_eq!(alone.take(Duration::ZERO, Standing::ALONE), Err(Refused::For(Duration::from_secs(6))));
    }

    #[test]
    fn who_waits_in_vain_gets_a_share_of_what_is_left() {
        let pacer = SharedPacer::new(Pace::new(100, 0).unwrap(), 0);
        let late = (0..100).filter(|_| pacer.take_late(Duration::ZERO, informed(2)).is_ok()).count();
        assert_eq!(late, 50);
    }

    #[test]
    fn what_did_not_arrive_is_sent_again_and_who_loses_the_others_gets_no_new_burst() {
        let pacer = SharedPacer::new(Pace::new(10, 0).unwrap(), 0);
        let late = (0..10).filter(|_| pacer.take_late(Duration::ZERO, informed(2)).is_ok()).count();
        assert_eq!(late, 5);
        assert_eq!(pacer.want(Duration::ZERO).owed, 5);
        pacer.take_back();
        assert_eq!(pacer.want(Duration::ZERO).owed, 5);
        pacer.receive(5 * nanos(pacer.interval()), 0);
        assert_eq!(pacer.want(Duration::ZERO).owed, 0);
        assert_eq!(taken(&pacer, 10, Duration::ZERO, Standing { services: 2, is_informed: false }), 0);
    }

    /// Regression test: after an outage of half an hour, a caller who had kept to half of the limit was refused for a quarter of an hour.
    #[test]
    fn what_was_permitted_long_ago_is_not_owed_after_an_outage() {
        let apart = Standing { services: 2, is_informed: false };
        let pacer = SharedPacer::new(Pace::new(100, 0).unwrap(), 0);
        for second in 0..1_800 {
            let now = Duration::from_secs(second);
            if second % 2 == 0 {
                assert_eq!(pacer.take(now, apart), Ok(Permitted::Yes), "{second}");
            }
            let owed = pacer.want(now).owed;
            assert!(owed <= 26, "{owed}");
            pacer.take_back();
        }
        let mut due = 0;
        exchange(&pacer, &mut due, Duration::from_mins(31), 2);
        assert_eq!(due, nanos(Duration::from_mins(31)), "the last minute was quiet");
        assert_eq!(taken(&pacer, 1, Duration::from_mins(31), informed(2)), 1);
    }
}
