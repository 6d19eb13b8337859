//! Enrichment: a language model writes additional search texts, once per tool, in the background.
//!
//! It starts once the index is complete. There is one request per tool, one at a time. Each answer is stored at once, so stopping
//! loses at most one. After a failure, requests pause; the pause doubles with each further failure. Invalid answers are dropped,
//! and this process makes no further request for their tools. Searches use the texts once nearly all tools have one
//! ([`crate::domain::selection::enrichment::USED_FROM_PERCENT`]).

pub(crate) mod feed;
pub(crate) mod admin;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::enrichment::{Author, Brief, Enrichment, Enrichments, Written, is_used, key};
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::feed::{EnrichmentFeed, FileEnrichments};
use crate::service::leading::Leading;
use crate::service::ports::{Answered, EnrichError, Enricher, EnrichmentStore, Exchange, JudgeError, StoreError};
use crate::settings::llm::EnrichmentSettings;

/// Pause after the first failure. It doubles with each consecutive one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// Number of failures after which a tool is skipped. Some errors do not show whether the tool is their cause.
const ATTEMPTS: u32 = 5;
/// Maximum delay before enrichments reach the index. They are collected, because each update rebuilds the whole index.
const LONGEST_UNPUBLISHED: Duration = Duration::from_mins(5);

/// How often to look for texts of another service.
const OTHERS: Duration = Duration::from_mins(1);

/// Receives what the language model consumed.
pub(crate) type OnExchange = Arc<dyn Fn(Exchange) + Send + Sync>;

pub(crate) struct Enriching {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn EnrichmentStore>,
    pub enricher: Arc<dyn Enricher>,
    pub settings: EnrichmentSettings,
    pub on_exchange: OnExchange,
    pub feed: Arc<EnrichmentFeed>,
}

/// Tools for which this process has received no valid answer.
#[derive(Default)]
struct Refused {
    failures: HashMap<Fingerprint, u32>,
    given_up: HashSet<Fingerprint>,
}

/// The enrichments of a catalog's tools, by key. An admin's overrides the model's, and one in the settings file counts as an
/// admin's and overrides both.
pub(crate) async fn in_force(
    catalog: &Catalog,
    store: &dyn EnrichmentStore,
    model: Option<&str>,
    of_files: &FileEnrichments,
) -> Result<HashMap<Fingerprint, Written>, StoreError> {
    let keys: Vec<Fingerprint> = catalog.tools().iter().map(|tool| key(tool)).collect();
    let mut written = store.enrichments(model, &keys).await?;
    for tool in catalog.tools() {
        if let Some(enrichment) = of_files.get(&tool.id) {
            written.insert(key(tool), Written { author: Author::Admin, enrichment: enrichment.clone() });
        }
    }
    Ok(written)
}

/// The enrichments that search uses for a catalog's tools.
pub(crate) async fn in_use(
    catalog: &Catalog,
    store: &dyn EnrichmentStore,
    model: Option<&str>,
    of_files: &FileEnrichments,
) -> Result<Enrichments, StoreError> {
    Ok(Enrichments::of(in_force(catalog, store, model, of_files).await?, catalog.tools().len()))
}

impl Enriching {
    /// Puts texts into this service's index that another service has written, for ever. Notices them within a minute.
    pub(crate) async fn follow_others(&self, leading: &Leading) {
        let mut known = None;
        loop {
            sleep(OTHERS).await;
            if leading.leads() {
                known = None;
                continue;
            }
            let catalog = self.current.snapshot();
            let read = in_use(&catalog, self.store.as_ref(), self.feed.model(), &self.feed.of_files()).await;
            let Ok(used) = read else { continue };
            if known.as_ref().is_some_and(|known| *known != used) {
                self.feed.publish();
            }
            known = Some(used);
        }
    }

    /// Writes missing enrichments whenever the index is complete, until `stop`.
    pub(crate) async fn follow(&self, stop: CancellationToken) {
        let work = async {
            let mut completions = self.feed.completions();
            let mut refused = Refused::default();
            while completions.changed().await.is_ok() {
                if let Err(error) = self.write_missing(&mut refused).await {
                    tracing::warn!(%error, "tools are not enriched until the index changes");
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Requests an enrichment for every tool without one.
    async fn write_missing(&self, refused: &mut Refused) -> Result<(), StoreError> {
        let catalog = self.current.snapshot();
        let written = in_force(&catalog, self.store.as_ref(), self.feed.model(), &self.feed.of_files()).await?;
        let is_missing = |tool: &&Arc<Tool>| !written.contains_key(&key(tool)) && !refused.given_up.contains(&key(tool));
        let mut queue: VecDeque<Arc<Tool>> = catalog.tools().iter().filter(is_missing).cloned().collect();
        if queue.is_empty() {
            return Ok(());
        }
        let model = self.settings.endpoint.model.as_str();
        tracing::info!(tools = queue.len(), model, "a language model begins to enrich tools");
        let mut pace = interval(Duration::from_mins(1) / u32::try_from(self.settings.per_minute).unwrap_or(u32::MAX).max(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut pause, mut done, mut unpublished) = (FIRST_PAUSE, 0_usize, None);
        while let Some(tool) = queue.pop_front() {
            if !self.is_wanted(&tool).await? {
                continue;
            }
            pace.tick().await;
            match self.ask(&tool).await {
                Ok(enrichment) => {
                    self.save(&tool, enrichment).await;
                    (pause, done) = (FIRST_PAUSE, done + 1);
                    unpublished.get_or_insert_with(Instant::now);
                }
                Err(EnrichError::Answer(problem)) => {
                    tracing::warn!(tool = %tool.id, %problem, "an invalid enrichment is dropped");
                    refused.given_up.insert(key(&tool));
                    pause = FIRST_PAUSE;
                }
                Err(EnrichError::Model(error)) => {
                    tracing::warn!(tool = %tool.id, %error, retry_in_s = pause.as_secs(), "the language model failed to enrich a tool");
                    if refused.again(key(&tool), error) {
                        queue.push_back(tool);
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            if unpublished.is_some_and(|since: Instant| since.elapsed() >= LONGEST_UNPUBLISHED) {
                unpublished = None;
                self.feed.publish();
            }
        }
        if unpublished.is_some() {
            self.feed.publish();
        }
        tracing::info!(tools = done, model, "a language model has enriched tools");
        let catalog = self.current.snapshot();
        let written = in_force(&catalog, self.store.as_ref(), self.feed.model(), &self.feed.of_files()).await?;
        let (written, tools) = (written.len(), catalog.tools().len());
        if !is_used(written, tools) {
            tracing::warn!(written, tools, "searches ignore the language model's texts, because too many tools have none");
        }
        Ok(())
    }

    /// Whether the tool still exists and still has no enrichment.
    async fn is_wanted(&self, tool: &Tool) -> Result<bool, StoreError> {
        let key = key(tool);
        let is_there = self.current.snapshot().tool(&tool.id).is_some_and(|known| known.fingerprint == tool.fingerprint);
        let is_there = is_there && self.feed.check_given(&tool.id).is_ok();
        Ok(is_there && self.store.enrichments(self.feed.model(), &[key]).await?.is_empty())
    }

    async fn ask(&self, tool: &Tool) -> Result<Enrichment, EnrichError> {
        let brief = Brief::new(tool);
        let answered = timeout(self.settings.timeout, self.enricher.enrich(&brief)).await;
        let Answered { result, exchange } = answered.unwrap_or_else(|_| Answered::unanswered(Err(JudgeError::Timeout.into())));
        if let Some(exchange) = exchange {
            (self.on_exchange)(exchange);
        }
        result
    }

    /// Stores an enrichment. Retries until that succeeds, because the answer was paid for.
    async fn save(&self, tool: &Tool, enrichment: Enrichment) {
        let written = Written { author: Author::Model(self.settings.endpoint.model.clone()), enrichment };
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.store.save_enrichment(&key(tool), &written).await {
            log_unsaved(&tool.id, &error, pause);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn log_unsaved(tool: &ToolId, error: &StoreError, pause: Duration) {
    tracing::warn!(%tool, %error, retry_in_s = pause.as_secs(), "an enrichment was not stored; retrying");
}

impl Refused {
    /// Whether to retry a tool after this failure. Wrong keys, rate limits and unreachable models are not the tool's fault.
    fn again(&mut self, key: Fingerprint, error: JudgeError) -> bool {
        if matches!(error, JudgeError::Unauthorized | JudgeError::RateLimited | JudgeError::Unreachable) {
            return true;
        }
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        if *failures < ATTEMPTS {
            return true;
        }
        self.given_up.insert(key);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPTS, Refused};
    use crate::domain::text::canonical::Fingerprint;
    use crate::service::ports::JudgeError;

    #[test]
    fn a_tool_that_makes_the_model_fail_is_left_out_at_last() {
        let mut refused = Refused::default();
        let (one, two) = (Fingerprint::of_text("one"), Fingerprint::of_text("two"));
        for _ in 1..ATTEMPTS {
            assert!(refused.again(one, JudgeError::Timeout));
        }
        assert!(refused.again(one, JudgeError::RateLimited), "not the tool's fault");
        assert!(!refused.again(one, JudgeError::Refused(400)));
        assert!(refused.given_up.contains(&one) && refused.again(two, JudgeError::Timeout));
    }
}
