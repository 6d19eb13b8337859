//! Usage as mergeable sums. Latencies are stored as histograms to bound their size.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::domain::catalog::tool::ToolId;

/// Declares a struct of counts that can be added up.
macro_rules! counts {
    ($(#[$meta:meta])* pub struct $counts:ident { $($(#[$count_meta:meta])* pub $count:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counts { $($(#[$count_meta])* pub $count: u64,)* }

        impl $counts {
            pub fn add(&mut self, other: &Self) {
                $(self.$count += other.$count;)*
            }

            /// Builds the counts by calling `count` with each name.
            pub fn by_name<E>(count: impl Fn(&'static str) -> Result<u64, E>) -> Result<Self, E> {
                Ok(Self { $($count: count(stringify!($count))?,)* })
            }
        }
    };
}

pub(super) use counts;

/// Selects the usage data to sum up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    pub since: SystemTime,
    pub until: SystemTime,
    /// Only this server; `None` for all servers.
    pub server: Option<String>,
    /// Only the tool with this raw name; `None` for all tools.
    pub tool: Option<String>,
}

/// Sums over a period. The lists are in no defined order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tools that were offered, were called or received feedback.
    pub tools: Vec<ToolUsage>,
    /// Days (UTC) with activity.
    pub days: Vec<DayUsage>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolUsage {
    pub tool: ToolId,
    pub counts: ToolCounts,
    /// Latencies of calls that the server answered.
    pub latencies: Latencies,
    /// The time of the last call.
    pub called_at: Option<SystemTime>,
    pub helpful: u64,
    pub wrong: u64,
    pub missing: u64,
}

counts! {
    pub struct ToolCounts {
        /// Number of selections that contained the tool.
        pub offered,
        pub called,
        pub succeeded,
        pub tool_errors,
        /// Calls made although the chat's last selection lacked the tool.
        pub recovered,
    }
}

/// Usage on one day (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayUsage {
    /// The start of the day.
    pub day: SystemTime,
    pub messages: MessageCounts,
    /// Sums over the requested tools.
    pub tools: ToolCounts,
}

counts! {
    /// Counts per message, independent of tools.
    pub struct MessageCounts {
        pub selections,
        pub searches,
        /// Searches whose best result was missing from the chat's last selection.
        pub recovered_searches,
        pub tokens_before,
        pub tokens_after,
    }
}

/// Number of buckets per doubling of the latency. Adjacent buckets differ by 19 %, so a latency is accurate to 10 %.
const STEPS: f64 = 4.0;

/// A histogram bucket. Higher numbers mean longer latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LatencyBucket(pub u8);

impl LatencyBucket {
    pub fn of(time: Duration) -> Self {
        let micros = (time.as_secs_f64() * 1e6).max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 4 times the bits of a time")]
        Self((micros.log2() * STEPS) as u8)
    }

    /// The duration at the middle of the bucket.
    pub fn middle(self) -> Duration {
        Duration::from_secs_f64(((f64::from(self.0) + 0.5) / STEPS).exp2() / 1e6)
    }
}

/// A histogram of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(BTreeMap<LatencyBucket, u64>);

impl Latencies {
    pub fn add(&mut self, bucket: LatencyBucket, count: u64) {
        *self.0.entry(bucket).or_default() += count;
    }

    pub fn add_all(&mut self, other: &Self) {
        for (bucket, count) in other.iter() {
            self.add(bucket, count);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (LatencyBucket, u64)> {
        self.0.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// The latency at quantile `share` (0 to 1), accurate to 10 %; `None` without data.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.0.values().sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.iter()
            .find(|(_, count)| {
                seen += count;
                seen >= wanted
            })
            .map(|(bucket, _)| bucket.middle())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Latencies, LatencyBucket};

    #[test]
    fn a_time_is_known_to_a_tenth() {
        for micros in [1_u64, 2, 3, 10, 777, 1_000, 12_345, 1_000_000, 59_999_999, 86_400_000_000] {
            let time = Duration::from_micros(micros);
            let kept = LatencyBucket::of(time).middle();
            assert!((kept.as_secs_f64() / time.as_secs_f64() - 1.0).abs() < 0.1, "{time:?} became {kept:?}");
        }
        assert_eq!(LatencyBucket::of(Duration::ZERO), LatencyBucket(0));
    }

    #[test]
    fn quantiles_are_those_of_all_that_was_added() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for millis in 1..=100 {
            latencies.add(LatencyBucket::of(Duration::from_millis(millis)), 1);
        }
        let near = |share: f64, millis: f64| {
            let found = latencies.quantile(share).unwrap().as_secs_f64() * 1e3;
            assert!((found / millis - 1.0).abs() < 0.1, "{share}: {found} is not {millis}");
        };
        near(0.5, 50.0);
        near(0.95, 95.0);
        near(0.0, 1.0);
        let mut twice = latencies.clone();
        twice.add_all(&latencies);
        assert_eq!(twice.quantile(0.95), latencies.quantile(0.95));
    }
}
