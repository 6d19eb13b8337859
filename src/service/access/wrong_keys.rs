//! Counts wrong keys per address and minute. Over the limit, further wrong keys get status 429, but a valid key still works.
//!
//! Only the first wrong key of a burst, and the one that exceeds the limit, are logged and audited. So a guessing attack produces
//! a few lines, not one per guess. The metric counts all wrong keys.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use moka::sync::Cache;
use parking_lot::Mutex;

use crate::domain::access::principal::Principal;
use crate::domain::access::rule::Effect;
use crate::service::ports::{AuditAction, AuditEntry};
use crate::service::records::audit::Audit;
use crate::service::records::metrics::Meters;

/// Number of wrong keys per address and minute that get the usual response.
const FREE: u32 = 20;
const WINDOW: Duration = Duration::from_mins(1);
/// Maximum number of addresses that are counted at a time.
const ADDRESSES: u64 = 10_000;
/// Maximum number of lines per minute in the log and the audit log, for all addresses together.
const NOTES: u32 = 60;

/// The wrong keys from one address within a minute, which begins with the first one.
struct Burst {
    began: Instant,
    keys: AtomicU32,
}

pub(crate) struct WrongKeys {
    bursts: Cache<IpAddr, Arc<Burst>>,
    audit: Audit,
    meters: Arc<Meters>,
    notes: Mutex<Notes>,
}

/// The number of lines written in the current minute.
struct Notes {
    began: Instant,
    made: u32,
}

impl WrongKeys {
    pub(crate) fn new(audit: Audit, meters: Arc<Meters>) -> Self {
        let bursts = Cache::builder().max_capacity(ADDRESSES).time_to_live(WINDOW).build();
        Self { bursts, audit, meters, notes: Mutex::new(Notes { began: Instant::now(), made: 0 }) }
    }

    /// Counts a wrong key. Over the limit, returns the remaining time of the minute.
    pub(crate) fn count(&self, address: Option<IpAddr>) -> Option<Duration> {
        let Some(address) = address.map(network) else {
            self.meters.wrong_key(false);
            return None;
        };
        let burst = self.bursts.get_with(address, || Arc::new(Burst { began: Instant::now(), keys: AtomicU32::new(0) }));
        let keys = burst.keys.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.meters.wrong_key(keys > FREE);
        if keys == 1 || keys == FREE + 1 {
            self.note(address, keys > FREE);
        }
        (keys > FREE).then(|| WINDOW.saturating_sub(burst.began.elapsed()).max(Duration::from_secs(1)))
    }

    fn note(&self, address: IpAddr, is_limited: bool) {
        {
            let mut notes = self.notes.lock();
            if notes.began.elapsed() >= WINDOW {
                *notes = Notes { began: Instant::now(), made: 0 };
            }
            notes.made += 1;
            if notes.made > NOTES {
                return;
            }
        }
        let client = shown(address);
        let action = if is_limited {
            tracing::warn!(client, limit = FREE, "too many wrong keys in a minute: further ones are answered with 429");
            AuditAction::WrongKeysLimit
        } else {
            tracing::warn!(client, "a wrong key");
            AuditAction::WrongKey
        };
        let entry = AuditEntry::of_change(&Principal::nobody(), action, client);
        self.audit.record(AuditEntry { decision: Effect::Block, ..entry });
    }
}

/// The network of an address that is counted. An IPv6 customer has at least a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

fn shown(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("{address}/64"),
    }
}

#[cfg(test)]
mod tests {
    use super::{network, shown};

    #[test]
    fn addresses_of_one_customer_count_together() {
        for (address, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
            ("::1", "::/64"),
        ] {
            assert_eq!(shown(network(address.parse().unwrap())), expected, "{address}");
        }
    }
}
