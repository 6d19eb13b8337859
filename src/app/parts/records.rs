//! Records: events, the audit log, costs, and what the service learns from them.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::adapters::data_dir::DataDir;
use crate::adapters::spool::{SpoolFolder, SpoolSpace};
use crate::app::StartError;
use crate::app::background::{Tasks, learn_from_others};
use crate::app::foundation::Foundation;
use crate::service::catalog::refresh::CountTokens;
use crate::service::learning::learn::Learning;
use crate::service::ports::Spool;
use crate::service::records::audit::Audit;
use crate::service::records::llm_costs::LlmCosts;
use crate::service::records::record::{Recorder, Retention};
use crate::settings::{StartSettings, UsageSettings};

/// Records, and what the service learns from them.
#[derive(Clone)]
pub(in crate::app) struct RecordParts {
    pub recorder: Recorder,
    pub audit: Audit,
    pub learning: Learning,
    pub llm_costs: LlmCosts,
    pub usage: Arc<ArcSwap<UsageSettings>>,
}

impl RecordParts {
    pub(super) async fn start(base: &Foundation<'_>, count_tokens: &CountTokens, tasks: &mut Tasks) -> Result<Self, StartError> {
        let Foundation { start, live, store, leading, embedder, .. } = base;
        let [audit_spool, event_spool] = spools(base.data_dir, start)?;
        let kept = (retention(start), leading.clone());
        let recorder = tasks.keep(Recorder::start(store.clone(), Some(event_spool), kept, tasks.stop()));
        let kept = (embedder.model(), start.store.event_retention);
        let learning = tasks.keep(Learning::start(store.clone(), start.learning, kept, tasks.stop()).await);
        let learning = learning.with_embedder(Arc::clone(embedder));
        tasks.add(learning.replay_nightly(tasks.stop()));
        let usage = Arc::new(ArcSwap::from_pointee(live.usage.clone()));
        let recorder = recorder.with_meters(Arc::clone(&base.meters)).with_texts(start.learning.message_text);
        let recorder = recorder.with_usage(Arc::clone(&usage)).with_learning(learning.if_on());
        tasks.add(learn_from_others(recorder.clone(), tasks.stop()));
        let llm_costs = LlmCosts::new(recorder.clone(), Arc::clone(count_tokens));
        let kept = (start.store.audit_retention, leading.clone());
        let audit = tasks.keep(Audit::start(store.clone(), audit_spool, kept, tasks.stop()));
        Ok(Self { recorder, audit, learning, llm_costs, usage })
    }
}

/// The places on the disk for the audit log and for events, while the store is away.
fn spools(data_dir: &DataDir, start: &StartSettings) -> Result<[Arc<dyn Spool>; 2], StartError> {
    let space = SpoolSpace::new(start.store.max_spool_bytes);
    let open = |name: &str| match SpoolFolder::open(data_dir.spool().join(name), Arc::clone(&space)) {
        Ok(spool) => Ok(Arc::new(spool) as Arc<dyn Spool>),
        Err(source) => Err(StartError::Folder { folder: data_dir.spool(), source }),
    };
    Ok([open("audit")?, open("events")?])
}

pub(super) fn retention(start: &StartSettings) -> Retention {
    let store = &start.store;
    Retention { chats: store.chat_retention, events: store.event_retention, usage: store.usage_retention }
}
