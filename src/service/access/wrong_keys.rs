//! Wrong keys: counted per address and minute. Over the limit, further wrong keys are rejected with 429, but a valid key still
//! works.
//!
//! A guessing attack leaves a few lines, not one per guess: only the first wrong key of a burst and the one that exceeds the
//! limit are logged and audited. The metric counts all.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use moka::sync::Cache;
use parking_lot::Mutex;

use crate::domain::access::policy::Effect;
use crate::domain::access::principal::Principal;
use crate::service::ports::{AuditAction, AuditEntry};
use crate::service::records::audit::Audit;
use crate::service::records::metrics::Meters;

/// Wrong keys per address and minute that get the usual response.
const FREE: u32 = 20;
const WINDOW: Duration = Duration::from_mins(1);
/// Maximum number of addresses counted at a time.
const ADDRESSES: u64 = 10_000;
/// Lines in the log and the audit log per minute, for all addresses.
const NOTES: u32 = 60;

/// The wrong keys of one address in a window, which begins with the first.
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

/// Lines written in the current window.
struct Notes {
    began: Instant,
    made: u32,
}

impl WrongKeys {
    pub(crate) fn new(audit: Audit, meters: Arc<Meters>) -> Self {
        let bursts = Cache::builder().max_capacity(ADDRESSES).time_to_live(WINDOW).build();
        Self { bursts, audit, meters, notes: Mutex::new(Notes { began: Instant::now(), made: 0 }) }
    }

    /// Counts a wrong key. If its address is over the limit, returns the rest of the window.
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

/// The counted network of an address: an IPv6 customer has at least a /64.
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
