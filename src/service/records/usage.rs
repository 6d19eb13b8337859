//! Reports usage: sums over tools, servers and days.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::domain::catalog::tool::ServerName;
use crate::domain::records::usage::Latencies;
use crate::domain::text::named::named;
use crate::service::ports::{self, DayUsage, MessageCounts, StoreError, ToolCounts, ToolUsage, UsageQuery, UsageStore};

pub struct Usage {
    pub store: Arc<dyn UsageStore>,
}

/// The usage in a period.
#[derive(Clone, Debug)]
pub struct UsageReport {
    pub totals: Totals,
    /// Usage per tool, in the requested order.
    pub tools: Vec<ToolUsage>,
    /// Total number of tools, including those beyond the limit.
    pub tool_count: usize,
    /// Usage per server, in the requested order.
    pub servers: Vec<ServerUsage>,
    /// Usage per day, oldest first.
    pub days: Vec<DayUsage>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub messages: MessageCounts,
    pub tools: ToolCounts,
}

/// The sums over one server's tools.
#[derive(Clone, Debug)]
pub struct ServerUsage {
    pub server: ServerName,
    pub counts: ToolCounts,
    pub latencies: Latencies,
    pub called_at: Option<SystemTime>,
}

named! {
    /// The sort order of tools and servers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum UsageOrder {
        #[default]
        Called = "called",
        Offered = "offered",
        Recovered = "recovered",
    }
}

impl UsageOrder {
    /// The sort key. Larger keys come first.
    fn of(self, counts: &ToolCounts) -> (u64, u64, u64) {
        match self {
            Self::Called => (counts.called, counts.offered, counts.recovered),
            Self::Offered => (counts.offered, counts.called, counts.recovered),
            Self::Recovered => (counts.recovered, counts.called, counts.offered),
        }
    }
}

impl Usage {
    /// Reports usage in a period, with at most `limit` tools.
    pub async fn report(&self, query: &UsageQuery, order: UsageOrder, limit: usize) -> Result<UsageReport, StoreError> {
        let ports::Usage { mut tools, mut days } = self.store.usage(query).await?;
        days.sort_by_key(|day| day.day);
        let mut totals = Totals::default();
        for day in &days {
            totals.messages.add(&day.messages);
            totals.tools.add(&day.tools);
        }
        let mut servers = of_servers(&tools);
        servers.sort_by(|one, other| order.of(&other.counts).cmp(&order.of(&one.counts)).then_with(|| one.server.cmp(&other.server)));
        tools.sort_by(|one, other| order.of(&other.counts).cmp(&order.of(&one.counts)).then_with(|| one.tool.cmp(&other.tool)));
        let tool_count = tools.len();
        tools.truncate(limit);
        Ok(UsageReport { totals, tools, tool_count, servers, days })
    }
}

/// The share of calls without an error; `None` without calls.
pub fn success_rate(counts: &ToolCounts) -> Option<f64> {
    (counts.called > 0).then(|| counts.succeeded as f64 / counts.called as f64)
}

/// The 50th and 95th percentiles, accurate to 10 %; `None` without data.
pub fn quantiles(latencies: &Latencies) -> Option<(Duration, Duration)> {
    latencies.quantile(0.5).zip(latencies.quantile(0.95))
}

fn of_servers(tools: &[ToolUsage]) -> Vec<ServerUsage> {
    let mut servers: BTreeMap<&ServerName, ServerUsage> = BTreeMap::new();
    for tool in tools {
        let server = servers.entry(&tool.tool.server).or_insert_with(|| ServerUsage {
            server: tool.tool.server.clone(),
            counts: ToolCounts::default(),
            latencies: Latencies::default(),
            called_at: None,
        });
        server.counts.add(&tool.counts);
        server.latencies.add_all(&tool.latencies);
        server.called_at = server.called_at.max(tool.called_at);
    }
    servers.into_values().collect()
}
