//! Limits on calls and searches per caller, and on calls per server. Excess requests are rejected, not queued.
//!
//! Services on the same store count together ([`super::rates`]), except for concurrent calls. Nothing is counted if there is no limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use moka::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::rate::Pace;
use crate::domain::access::rule::{self, CallerPatterns};
use crate::domain::catalog::tool::ServerName;
use crate::service::access::rates::{Limiter, Rates};
use crate::service::ports::Limit;
use crate::service::records::metrics::Meters;
use crate::settings::{LimitSettings, LiveSettings};

/// Maximum number of callers with counters. Beyond this, the least recently used caller's counters are dropped.
const CALLERS: u64 = 20_000;
const IDLE: Duration = Duration::from_hours(1);
/// `Retry-After` for a server with too many concurrent calls, whose duration is unknown.
const SOON: Duration = Duration::from_secs(1);

/// The limit that rejected a request, with the time to retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", described(*.limit, *.most))]
pub(crate) struct Limited {
    pub limit: Limit,
    pub most: u32,
    pub retry_after: Duration,
}

fn described(limit: Limit, most: u32) -> String {
    match limit {
        Limit::Calls => format!("this caller may make {most} tool calls a minute"),
        Limit::Selections => format!("this caller may send {most} messages, searches and judgements a minute"),
        Limit::ServerCalls => format!("this server accepts {most} calls a minute from all callers together"),
        Limit::ConcurrentCalls => format!("this server accepts {most} calls at a time"),
    }
}

/// Permission for a call. Hold it while the call runs.
#[derive(Debug, Default)]
pub(crate) struct CallPermit {
    _place: Option<OwnedSemaphorePermit>,
}

pub(crate) struct Limits {
    now: ArcSwap<Table>,
    rates: Arc<Rates>,
    meters: Arc<Meters>,
}

/// The limits in force, with their counters.
#[derive(Default)]
struct Table {
    settings: LimitSettings,
    calls: Callers,
    selections: Callers,
    servers: HashMap<ServerName, Arc<ServerLimit>>,
}

impl Limits {
    pub(crate) fn new(meters: Arc<Meters>, rates: Arc<Rates>) -> Self {
        Self { now: ArcSwap::default(), rates, meters }
    }

    /// Exchanges with the other services on the store, for ever. Returns at once if there can be none.
    pub(crate) async fn follow(&self) {
        self.rates.follow().await;
    }

    /// Applies changed settings. Unchanged limits keep their counters.
    pub(crate) fn configure(&self, live: &LiveSettings) {
        let (former, settings) = (self.now.load(), &live.limits);
        let servers = live.servers.iter().map(|server| {
            let (pace, concurrent) = of_server(settings, server.name.as_str());
            let kept = former.servers.get(&server.name).filter(|known| known.is(pace, concurrent)).cloned();
            (server.name.clone(), kept.unwrap_or_else(|| Arc::new(ServerLimit::new(&self.rates, &server.name, pace, concurrent))))
        });
        let keeps = |one: &LimitSettings| {
            let calls = (one.calls, one.burst, &one.call_exceptions) == (settings.calls, settings.burst, &settings.call_exceptions);
            let asks = (one.selections, one.burst, &one.selection_exceptions)
                == (settings.selections, settings.burst, &settings.selection_exceptions);
            (calls, asks)
        };
        let (same_calls, same_selections) = keeps(&former.settings);
        let callers = |same: bool, former: &Callers, number: u32, exceptions: &[(String, u32)]| {
            if same { former.clone() } else { Callers::new(number, settings.burst, exceptions) }
        };
        let table = Table {
            calls: callers(same_calls, &former.calls, settings.calls, &settings.call_exceptions),
            selections: callers(same_selections, &former.selections, settings.selections, &settings.selection_exceptions),
            servers: servers.collect(),
            settings: settings.clone(),
        };
        self.now.store(Arc::new(table));
    }

    /// Permits or rejects a call. Hold the returned permit until the call ends.
    pub(crate) async fn call(&self, principal: &Principal, server: &ServerName) -> Result<CallPermit, Limited> {
        let table = self.now.load_full();
        let permit = async {
            // A call that the caller's own limit rejects must not count for the server.
            table.calls.take(Limit::Calls, principal, &self.rates).await?;
            let Some(server) = table.servers.get(server) else { return Ok(CallPermit::default()) };
            let permit = server.enter()?;
            server.take(&self.rates).await?;
            Ok(permit)
        };
        permit.await.inspect_err(|limited: &Limited| self.meters.limited(limited.limit))
    }

    /// Permits or rejects a message, a search or feedback.
    pub(crate) async fn selection(&self, principal: &Principal) -> Result<(), Limited> {
        let table = self.now.load_full();
        let taken = table.selections.take(Limit::Selections, principal, &self.rates).await;
        taken.inspect_err(|limited| self.meters.limited(limited.limit))
    }
}

/// Rate limits of callers.
#[derive(Clone, Default)]
struct Callers {
    usual: Option<Pace>,
    /// Patterns of callers with their own rates, which are in `paces` in the same order. `None` is unlimited.
    exceptions: CallerPatterns,
    paces: Vec<Option<Pace>>,
    /// The rate limiters of recent callers; `None` if no caller is limited.
    known: Option<Cache<PrincipalId, Option<Limiter>>>,
}

impl Callers {
    fn new(number: u32, burst: u32, exceptions: &[(String, u32)]) -> Self {
        let usual = Pace::new(number, burst);
        let (mut patterns, mut paces) = (Vec::new(), Vec::new());
        // Skip invalid patterns, which were rejected with the settings.
        for (pattern, number) in exceptions.iter().filter(|(pattern, _)| rule::glob(pattern).is_ok()) {
            patterns.push(pattern);
            paces.push(Pace::new(*number, burst));
        }
        let is_free = usual.is_none() && paces.iter().all(Option::is_none);
        let known = (!is_free).then(|| Cache::builder().max_capacity(CALLERS).time_to_idle(IDLE).build());
        Self { usual, exceptions: CallerPatterns::new(&patterns), paces, known }
    }

    async fn take(&self, limit: Limit, principal: &Principal, rates: &Rates) -> Result<(), Limited> {
        let Some(known) = &self.known else { return Ok(()) };
        let limiter = known.get_with_by_ref(&principal.id, || Some(rates.limiter(limit, principal.id.as_str(), self.pace(principal)?)));
        let Some(limiter) = limiter else { return Ok(()) };
        let limited = |retry_after| Limited { limit, most: limiter.pace().per_minute(), retry_after };
        rates.take(&limiter).await.map_err(limited)
    }

    /// The rate for a caller, found by its names.
    fn pace(&self, principal: &Principal) -> Option<Pace> {
        match principal.names().flat_map(|name| self.exceptions.matches(&name)).min() {
            Some(first) => self.paces.get(first).copied().flatten(),
            None => self.usual,
        }
    }
}

/// The limits of one server, for all callers together.
struct ServerLimit {
    limiter: Option<Limiter>,
    concurrent: u32,
    places: Option<Arc<Semaphore>>,
}

impl ServerLimit {
    fn new(rates: &Rates, name: &ServerName, pace: Option<Pace>, concurrent: u32) -> Self {
        let places = (concurrent > 0).then(|| Arc::new(Semaphore::new(concurrent as usize)));
        Self { limiter: pace.map(|pace| rates.limiter(Limit::ServerCalls, name.as_str(), pace)), concurrent, places }
    }

    fn is(&self, pace: Option<Pace>, concurrent: u32) -> bool {
        self.limiter.as_ref().map(Limiter::pace) == pace && self.concurrent == concurrent
    }

    fn enter(&self) -> Result<CallPermit, Limited> {
        let Some(places) = &self.places else { return Ok(CallPermit::default()) };
        match Arc::clone(places).try_acquire_owned() {
            Ok(place) => Ok(CallPermit { _place: Some(place) }),
            Err(_) => Err(Limited { limit: Limit::ConcurrentCalls, most: self.concurrent, retry_after: SOON }),
        }
    }

    async fn take(&self, rates: &Rates) -> Result<(), Limited> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        let most = limiter.pace().per_minute();
        rates.take(limiter).await.map_err(|retry_after| Limited { limit: Limit::ServerCalls, most, retry_after })
    }
}

fn of_server(settings: &LimitSettings, name: &str) -> (Option<Pace>, u32) {
    let of = |usual: u32, exceptions: &[(String, u32)]| {
        exceptions.iter().find(|(server, _)| server == name).map_or(usual, |(_, number)| *number)
    };
    let calls = of(settings.server_calls, &settings.server_exceptions);
    (Pace::new(calls, settings.burst), of(settings.concurrent_calls, &settings.concurrent_exceptions))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::{CallPermit, Limited, Limits, Rates};
    use crate::domain::access::principal::{GroupTable, Principal, User};
    use crate::domain::catalog::tool::ServerName;
    use crate::service::ports::Limit;
    use crate::settings::{Environment, LimitSettings, LiveSettings, ServersSource, Settings, Sources};

    fn live(limits: LimitSettings) -> LiveSettings {
        let text = r#"{"mcpServers": {"one": {"command": "x"}, "two": {"command": "x"}}}"#.to_owned();
        let servers = ServersSource::Text { name: "test".into(), text };
        let (settings, _) = Settings::load(&Sources { servers, environment: Environment::default(), ..Sources::default() }).unwrap();
        LiveSettings { limits, ..settings.live }
    }

    fn limits(settings: LimitSettings) -> Limits {
        let limits = Limits::new(Arc::default(), Rates::new(None));
        limits.configure(&live(settings));
        limits
    }

    fn user(id: &str, email: &str) -> Principal {
        Principal::service_key().on_behalf_of(User { id: id.into(), email: Some(email.into()), ..User::default() }, &GroupTable::default())
    }

    /// Nothing waits without other services.
    fn call(limits: &Limits, principal: &Principal, server: &ServerName) -> Result<CallPermit, Limited> {
        limits.call(principal, server).now_or_never().unwrap()
    }

    fn selection(limits: &Limits, principal: &Principal) -> Result<(), Limited> {
        limits.selection(principal).now_or_never().unwrap()
    }

    #[test]
    fn callers_are_limited_each_for_itself_and_by_the_first_pattern_that_fits() {
        let exceptions = [("user:b@example.org", 1), ("user:*@Example.org", 3), ("service-key", 0)];
        let call_exceptions = exceptions.map(|(pattern, number)| (pattern.to_owned(), number)).to_vec();
        let selection_exceptions = vec![("user:b@example.org".to_owned(), 4)];
        let limits = limits(LimitSettings { calls: 2, call_exceptions, selections: 1, selection_exceptions, ..LimitSettings::default() });
        let (one, two) = (ServerName::from("one"), ServerName::from("two"));
        let calls = |principal: &Principal| {
            let servers = [&one, &two].into_iter().cycle();
            servers.take(10).filter(|server| call(&limits, principal, server).is_ok()).count()
        };
        assert_eq!(calls(&Principal::anyone()), 2);
        assert_eq!(calls(&user("a", "A@example.org")), 3);
        assert_eq!(calls(&user("b", "b@example.org")), 1);
        assert_eq!(calls(&user("C@example.org", "")), 3, "the id is an address");
        assert_eq!(calls(&Principal::service_key()), 10);
        let refused = call(&limits, &Principal::anyone(), &one).unwrap_err();
        assert_eq!((refused.limit, refused.most, refused.retry_after.as_secs()), (Limit::Calls, 2, 29));
        assert_eq!(refused.to_string(), "this caller may make 2 tool calls a minute");
        assert!(selection(&limits, &Principal::anyone()).is_ok(), "calls are not messages");
        assert_eq!(selection(&limits, &Principal::anyone()).unwrap_err().limit, Limit::Selections);
        let selections = (0..10).filter(|_| selection(&limits, &user("b", "b@example.org")).is_ok()).count();
        assert_eq!(selections, 4, "with an exception of its own");
    }

    /// Regression test: an address in a pattern put all of the pattern in lower case, so that its other alternatives matched other ids.
    #[test]
    fn only_addresses_match_in_any_case() {
        let call_exceptions = vec![("user:{U1,anna@Example.org}".to_owned(), 3)];
        let limits = limits(LimitSettings { calls: 1, call_exceptions, ..LimitSettings::default() });
        let calls = |id: &str, email: &str| {
            let caller = user(id, email);
            (0..10).filter(|_| call(&limits, &caller, &"one".into()).is_ok()).count()
        };
        assert_eq!(["U1", "u1", "ANNA@example.org"].map(|id| calls(id, "")), [3, 1, 3]);
        assert_eq!(calls("u2", "Anna@example.ORG"), 3);
    }

    #[test]
    fn a_server_gets_what_it_takes() {
        let settings = LimitSettings {
            server_calls: 5,
            server_exceptions: vec![("two".into(), 0)],
            concurrent_calls: 2,
            concurrent_exceptions: vec![("two".into(), 1)],
            ..LimitSettings::default()
        };
        let limits = limits(settings.clone());
        let (one, two, anyone) = (ServerName::from("one"), ServerName::from("two"), Principal::anyone());
        let held: Vec<_> = (0..3).map(|_| call(&limits, &anyone, &one)).collect();
        assert_eq!(held.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(held[2].as_ref().unwrap_err().limit, Limit::ConcurrentCalls);
        limits.configure(&live(settings));
        assert!(call(&limits, &anyone, &one).is_err(), "calls under way count after a reload that changed nothing");
        drop(held);
        assert_eq!((0..10).filter(|_| call(&limits, &anyone, &one).is_ok()).count(), 3, "what was refused was not taken");
        assert_eq!(call(&limits, &anyone, &one).unwrap_err().limit, Limit::ServerCalls);
        assert_eq!((0..10).filter(|_| call(&limits, &anyone, &two).is_ok()).count(), 10);
        let first = call(&limits, &anyone, &two);
        assert!(first.is_ok() && call(&limits, &anyone, &two).is_err());
    }

    #[test]
    fn without_limits_nothing_is_counted() {
        let limits = limits(LimitSettings::default());
        assert!((0..1_000).all(|_| call(&limits, &Principal::anyone(), &ServerName::from("one")).is_ok()));
        assert!(limits.now.load().calls.known.is_none() && limits.now.load().selections.known.is_none());
    }
}
