//! The rate limiters of this service, and their exchange with those of other services on the same store.
//!
//! The exchange runs in the background: a few times a second, and at once when little is reserved. A request waits for it only if nothing
//! is reserved, and for at most [`PATIENCE`]. Without the exchange, this service keeps to an equal share of each limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::domain::access::rate::Pace;
use crate::domain::access::shared_rate::{Permitted, Refused, SharedPacer, Standing, Wanted, nanos};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{Limit, RateKey, RateReport, RateStore, SharedRate, SharedRates, StoreError};

/// How often to exchange at least.
const USUAL: Duration = Duration::from_millis(200);
/// How often to exchange at most.
const SHORTEST: Duration = Duration::from_millis(10);
/// How long the result of an exchange is good for.
const GOOD: Duration = Duration::from_secs(3);
/// How long a request waits for a reservation.
const PATIENCE: Duration = Duration::from_millis(50);
/// A service reserves at most the quarter of its share of what is left, beyond what it needs at once.
const RESERVED_PARTS: u32 = 4;
/// How often to remove old rates.
const FORGET: Duration = Duration::from_secs(30);
/// Maximum number of keys with the requests of others, and how long they are kept.
const OTHERS: u64 = 100_000;
const OTHERS_KEPT: Duration = Duration::from_mins(5);
/// Maximum number of reports per exchange.
const REPORTS: usize = 2_000;

pub(crate) struct Rates {
    store: Option<Arc<dyn RateStore>>,
    service: Uuid,
    started: Instant,
    /// The limiters, to which exchanges add what others have permitted.
    pacers: Cache<RateKey, Arc<SharedPacer>>,
    /// When the next request of keys is due that this service has not limited itself, in nanoseconds since the start.
    others: Cache<RateKey, u64>,
    /// The limiters with requests that others don't know, with reserved or with waiting ones.
    changed: Mutex<HashMap<RateKey, Arc<SharedPacer>>>,
    urgent: Notify,
    /// Changed after every exchange, also after one that failed.
    exchanged: watch::Sender<()>,
    services: AtomicU32,
    /// Until when the last exchange is good, in nanoseconds since the start.
    good_until: AtomicU64,
}

/// A rate limiter of a caller or a server.
#[derive(Clone)]
pub(crate) struct Limiter {
    key: RateKey,
    pacer: Arc<SharedPacer>,
}

impl Limiter {
    pub(crate) fn pace(&self) -> Pace {
        self.pacer.pace()
    }
}

impl Rates {
    /// Of a service that shares its limits with the others on this store, if there can be any.
    pub(crate) fn new(store: Option<Arc<dyn RateStore>>) -> Arc<Self> {
        let idle = Duration::from_hours(1);
        Arc::new(Self {
            store: store.filter(|store| store.shares_rates()),
            service: Uuid::new_v4(),
            started: Instant::now(),
            pacers: Cache::builder().max_capacity(OTHERS).time_to_idle(idle).build(),
            others: Cache::builder().max_capacity(OTHERS).time_to_live(OTHERS_KEPT).build(),
            changed: Mutex::default(),
            urgent: Notify::new(),
            exchanged: watch::Sender::default(),
            services: AtomicU32::new(1),
            good_until: AtomicU64::new(0),
        })
    }

    /// The limiter of a caller or a server. A former one with another pace is replaced.
    pub(crate) fn limiter(&self, limit: Limit, name: &str, pace: Pace) -> Limiter {
        let key = key(limit, name);
        let known = self.others.get(&key).unwrap_or_default();
        let pacer = Arc::new(SharedPacer::new(pace, known));
        if self.store.is_some() {
            self.pacers.insert(key, Arc::clone(&pacer));
        }
        Limiter { key, pacer }
    }

    /// Counts a request. Waits for at most [`PATIENCE`], and only if the limit is near or many requests come at once.
    ///
    /// # Errors
    /// The time until a request may be allowed.
    pub(crate) async fn take(&self, limiter: &Limiter) -> Result<(), Duration> {
        match self.take_at_once(limiter) {
            Ok(()) => Ok(()),
            Err(Refused::For(time)) => Err(time),
            // Boxed, because hardly any request waits.
            Err(Refused::Unreserved) => Box::pin(self.take_reserved(limiter)).await,
        }
    }

    fn take_at_once(&self, limiter: &Limiter) -> Result<(), Refused> {
        let now = self.started.elapsed();
        let permitted = limiter.pacer.take(now, self.standing(now))?;
        self.note(limiter, permitted == Permitted::AndUrgent);
        Ok(())
    }

    async fn take_reserved(&self, limiter: &Limiter) -> Result<(), Duration> {
        let mut exchanged = self.exchanged.subscribe();
        let place = limiter.pacer.wait();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        self.note(limiter, true);
        while let Ok(Ok(())) = tokio::time::timeout_at(deadline, exchanged.changed()).await {
            match self.take_at_once(limiter) {
                Ok(()) => return Ok(()),
                Err(Refused::For(time)) => return Err(time),
                Err(Refused::Unreserved) => self.note(limiter, true),
            }
        }
        drop(place);
        let now = self.started.elapsed();
        limiter.pacer.take_late(now, self.standing(now))?;
        self.note(limiter, true);
        Ok(())
    }

    /// Notes that others should learn of this limiter, or should be asked.
    fn note(&self, limiter: &Limiter, is_urgent: bool) {
        if self.store.is_none() {
            return;
        }
        // Exchanges forget limiters that are not used.
        self.pacers.get_with(limiter.key, || Arc::clone(&limiter.pacer));
        self.changed.lock().insert(limiter.key, Arc::clone(&limiter.pacer));
        if is_urgent {
            self.urgent.notify_one();
        }
    }

    fn standing(&self, now: Duration) -> Standing {
        if self.store.is_none() {
            return Standing::ALONE;
        }
        let is_informed = nanos(now) < self.good_until.load(Ordering::Relaxed);
        Standing { services: self.services.load(Ordering::Relaxed), is_informed }
    }

    /// Exchanges with the other services, for ever. Returns at once if there can be none.
    pub(crate) async fn follow(&self) {
        let Some(store) = &self.store else { return };
        let (mut since, mut last, mut forgotten, mut fails) = (0, RateKey::default(), Instant::now(), false);
        loop {
            let result = self.exchange(store.as_ref(), since, &mut last).await;
            if result.is_err() {
                self.good_until.store(0, Ordering::Relaxed);
            }
            self.exchanged.send_replace(());
            match result {
                Ok(at) => {
                    since = at;
                    if std::mem::take(&mut fails) {
                        tracing::info!("rate limits are shared with other services again");
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut fails, true) {
                        let services = self.services.load(Ordering::Relaxed);
                        tracing::warn!(%error, services, "this service keeps to its share of each rate limit");
                    }
                    tokio::time::sleep(USUAL).await;
                }
            }
            if forgotten.elapsed() >= FORGET {
                forgotten = Instant::now();
                if let Err(error) = store.forget_rates().await {
                    tracing::debug!(%error, "old rate limits were not removed");
                }
            }
            tokio::time::sleep(SHORTEST).await;
            let _ = tokio::time::timeout(USUAL, self.urgent.notified()).await;
        }
    }

    async fn exchange(&self, store: &dyn RateStore, since: u64, last: &mut RateKey) -> Result<u64, StoreError> {
        let begun = self.started.elapsed();
        let sent = self.take_changed(last);
        let report = |(key, pacer): &(RateKey, Arc<SharedPacer>)| {
            let Wanted { owed, returned, waiting, extra } = pacer.want(begun);
            let (interval, tolerance, ahead) = (pacer.interval(), pacer.tolerance(), pacer.ahead(begun));
            RateReport { key: *key, interval, tolerance, ahead, owed, returned, waiting, extra }
        };
        let reports: Vec<RateReport> = sent.iter().map(report).collect();
        let parts = RESERVED_PARTS.saturating_mul(self.services.load(Ordering::Relaxed));
        match store.exchange_rates(self.service, &reports, parts, since).await {
            Ok(rates) => {
                let sent: HashMap<RateKey, Arc<SharedPacer>> = sent.into_iter().collect();
                Ok(self.learn(&rates, sent))
            }
            Err(error) => {
                for (_, pacer) in &sent {
                    pacer.take_back();
                }
                self.keep(sent);
                Err(error)
            }
        }
    }

    /// Takes the limiters to report, in one order in all services, so that their statements don't wait for each other in a circle. If there
    /// are too many, the next exchange goes on after `last`, so that everybody's turn comes.
    fn take_changed(&self, last: &mut RateKey) -> Vec<(RateKey, Arc<SharedPacer>)> {
        // Requests wait for the lock, so it is not held while the keys are sorted. Meanwhile, only requests add keys.
        let mut keys: Vec<RateKey> = self.changed.lock().keys().copied().collect();
        keys.sort_unstable();
        if keys.len() > REPORTS {
            let start = keys.partition_point(|key| *key <= *last);
            keys.rotate_left(start);
            keys.truncate(REPORTS);
            self.urgent.notify_one();
        }
        *last = keys.last().copied().unwrap_or_default();
        keys.sort_unstable();
        let mut changed = self.changed.lock();
        keys.iter().filter_map(|key| changed.remove_entry(key)).collect()
    }

    fn learn(&self, rates: &SharedRates, sent: HashMap<RateKey, Arc<SharedPacer>>) -> u64 {
        let now = self.started.elapsed();
        for SharedRate { key, ahead, reserved } in &rates.rates {
            let due = nanos(now + *ahead);
            if let Some(pacer) = sent.get(key) {
                pacer.receive(due, *reserved);
            }
            match self.pacers.get(key) {
                // The caller may have got another limiter meanwhile, with another pace.
                Some(pacer) if sent.get(key).is_none_or(|sent| !Arc::ptr_eq(sent, &pacer)) => pacer.learn(due),
                Some(_) => {}
                None => self.others.insert(*key, due),
            }
        }
        self.keep(sent);
        self.services.store(rates.services.max(1), Ordering::Relaxed);
        self.good_until.store(nanos(now + GOOD), Ordering::Relaxed);
        rates.at
    }

    /// Keeps limiters for the next exchange that need one.
    fn keep(&self, sent: impl IntoIterator<Item = (RateKey, Arc<SharedPacer>)>) {
        let mut changed = self.changed.lock();
        for (key, pacer) in sent.into_iter().filter(|(_, pacer)| pacer.wants_exchange()) {
            changed.entry(key).or_insert(pacer);
        }
    }
}

fn key(limit: Limit, name: &str) -> RateKey {
    let hash = Fingerprint::of_text(&format!("{}\n{name}", limit.name()));
    std::array::from_fn(|position| hash.as_bytes()[position])
}
