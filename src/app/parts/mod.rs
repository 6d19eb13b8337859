//! Builds the parts of the service, one module per area, and starts their background tasks.

mod access;
mod catalog;
mod execution;
mod records;
mod selection;
mod sessions;

use std::sync::Arc;

pub(super) use self::access::{AccessParts, UserParts};
pub(crate) use self::catalog::mcp_options;
pub(super) use self::catalog::{CatalogParts, KnownTools};
pub(super) use self::execution::CallParts;
pub(super) use self::records::RecordParts;
pub(super) use self::selection::SelectionParts;
pub use self::selection::select;
pub(super) use self::sessions::SessionParts;
use super::StartError;
use super::background::{Tasks, clean};
use super::foundation::Foundation;
use crate::service::cleaning::{Cleaning, Kept};
use crate::settings::StartSettings;

/// The parts that the rest of the service uses.
pub(super) struct Parts {
    pub access: AccessParts,
    pub catalog: CatalogParts,
    pub records: RecordParts,
    pub users: UserParts,
    pub selection: SelectionParts,
    pub calls: CallParts,
}

impl Parts {
    /// Starts them in the order in which they need each other.
    pub(super) async fn start(base: &Foundation<'_>, known: KnownTools, tasks: &mut Tasks) -> Result<Self, StartError> {
        let access = AccessParts::load(base, tasks).await?;
        let (catalog, mut refresh) = CatalogParts::load(base, known).await?;
        let records = RecordParts::start(base, &catalog.count_tokens, tasks).await?;
        let events = catalog.servers.events();
        tasks.add(tokio::spawn(async move { refresh.follow(events).await }));
        let users = UserParts::start(base, &access, &catalog, tasks).await?;
        let cleaning = Cleaning {
            leading: base.leading.clone(),
            store: base.store.clone(),
            keys: Arc::clone(&access.keys),
            connections: Arc::clone(&users.connections),
            overrides: Arc::clone(&catalog.overrides),
            definitions: Arc::clone(&catalog.definitions),
            learning: records.learning.clone(),
            switches: Arc::clone(&users.switches),
            kept: kept_after_expiry(base.start),
        };
        tasks.add(clean(cleaning, tasks.stop()));
        let selection = SelectionParts::start(base, &access, &catalog, &records, &users, tasks)?;
        let calls = CallParts::start(base, &catalog, &records, &users, tasks);
        Ok(Self { access, catalog, records, users, selection, calls })
    }
}

/// How long expired data is kept.
fn kept_after_expiry(start: &StartSettings) -> Kept {
    Kept { keys: start.store.key_retention, definitions: start.store.definition_retention }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::records::retention;
    use super::{Kept, kept_after_expiry, mcp_options};
    use crate::service::records::record::Retention;
    use crate::settings::{EmbedderProvider, Environment, Settings, Sources};

    /// Each setting has a value of its own, so no two can be mixed up on their way.
    #[test]
    fn each_setting_arrives_where_it_is_used() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let environment: Environment = [
            ("STORE__CHAT_RETENTION_DAYS", "11"),
            ("STORE__EVENT_RETENTION_DAYS", "12"),
            ("STORE__USAGE_RETENTION_DAYS", "13"),
            ("STORE__KEY_RETENTION_DAYS", "14"),
            ("STORE__DEFINITION_RETENTION_DAYS", "15"),
            ("STORE__AUDIT_RETENTION_DAYS", "16"),
            ("STORE__UNUSED_RETENTION_DAYS", "17"),
            ("FILES__LIFETIME_SECONDS", "118"),
            ("FILES__MAX_TOTAL_BYTES", "1190000000"),
            ("MCP__SESSION_IDLE_SECONDS", "120"),
            ("MCP__WAITING_CALLS_TOTAL", "2100"),
            ("PROCESSES__PING_SECONDS", "22"),
            ("LIMITS__SELECTION_EXCEPTIONS", "user:few*=23"),
            ("EMBEDDER__URL", "http://127.0.0.1:9/v1"),
            ("EMBEDDER__MODEL", "a-model"),
            ("EMBEDDER__QUERY_PREFIX", "query-24"),
            ("EMBEDDER__PASSAGE_PREFIX", "passage-25"),
        ]
        .into_iter()
        .map(|(name, value)| (format!("TOOLSIEVE_{name}"), value.to_owned()))
        .collect();
        let (Settings { start, live, .. }, _) = Settings::load(&Sources { environment, ..Sources::default() }).unwrap();
        let (days, seconds) = (|days: u64| Duration::from_hours(24 * days), Duration::from_secs);
        let Retention { chats, events, usage } = retention(&start);
        assert_eq!([chats, events, usage], [days(11), days(12), days(13)]);
        assert_eq!(kept_after_expiry(&start), Kept { keys: days(14), definitions: days(15) });
        assert_eq!([start.store.audit_retention, start.store.unused_retention], [days(16), days(17)]);
        assert_eq!((start.files.lifetime, start.files.max_total_bytes), (seconds(118), 1_190_000_000));
        assert_eq!((start.mcp.idle, start.mcp.waiting.total), (seconds(120), 2_100));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mcp_options(&start, folder.path()).unwrap().timing.ping, Some(seconds(22)));
        assert_eq!(live.limits.selection_exceptions, [("user:few*".to_owned(), 23)]);
        let EmbedderProvider::Endpoint(endpoint) = &start.embedder.provider else { panic!("{:?}", start.embedder) };
        let prefixes = [&endpoint.prefixes.query, &endpoint.prefixes.passage].map(|prefix| prefix.as_deref().unwrap());
        assert_eq!(prefixes, ["query-24", "passage-25"]);
    }
}
