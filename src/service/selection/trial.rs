//! Tries other texts for a tool on recorded messages, before they are saved.
//!
//! Each message is selected for twice, by the code that selects for chats: with the tool's current texts and with the new ones. The index
//! isn't changed. In both cases, the tool's scores are computed here from its texts, so the two differ by the texts alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::domain::access::principal::Principal;
use crate::domain::access::tool_facts::ToolOverride;
use crate::domain::catalog::catalog::{self, Catalog, CatalogServer};
use crate::domain::catalog::texts::ToolText;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::enrichment::Enrichments;
use crate::domain::selection::relevance::{LexicalModel, Role, SparseVector};
use crate::service::access::policies::{CheckPrincipal, Policies};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::tool_facts::{OverrideError, ToolOverrides};
use crate::service::ports::{
    EmbedError, Embedder, EventQuery, IndexAnswer, IndexCandidate, IndexContents, IndexError, IndexQuery, IndexState, StoreError,
    StoredEventKind, ToolIndex,
};
use crate::service::records::activity::Activity;
use crate::service::selection::request::{SelectRequest, Turn};
use crate::service::selection::select::Select;
use crate::settings::Rerank;

/// Only messages of the last week are tried.
const SPAN: Duration = Duration::from_hours(7 * 24);
/// Number of recent events among which the messages are, and maximum number of different messages.
const EVENTS: usize = 2_000;
const MESSAGES: usize = 200;
/// How long a trial may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a trial needs from the rest of the service.
pub(crate) struct TextTrials {
    pub current: Arc<CurrentCatalog>,
    pub overrides: Arc<ToolOverrides>,
    pub policies: Arc<Policies>,
    pub select: Arc<Select>,
    pub index: Arc<dyn ToolIndex>,
    pub embedder: Arc<dyn Embedder>,
    pub lexical: Arc<LexicalModel>,
    pub enrichments: watch::Receiver<Arc<Enrichments>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialError {
    #[error(transparent)]
    Text(#[from] OverrideError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What other texts of a tool would change.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TextTrial {
    /// Number of different messages of the last week that were tried, newest first; at most 200.
    pub tried: usize,
    /// Number of selections of the last week whose messages are not stored.
    pub without_text: usize,
    /// Whether messages were left out, because the trial took too long or because there are more.
    pub is_cut: bool,
    /// Messages whose selection would change.
    pub changes: Vec<TrialChange>,
}

/// A message whose selection would change. Tools are named by their published names.
#[derive(Debug, Serialize)]
pub(crate) struct TrialChange {
    /// The number of its latest selection.
    pub event: u64,
    pub principal: String,
    pub message: String,
    pub added: Vec<String>,
    pub gone: Vec<String>,
}

impl TextTrials {
    /// Tries these texts for a tool.
    ///
    /// # Errors
    /// [`TrialError`]
    pub(crate) async fn run(&self, id: &ToolId, written: ToolOverride, activity: &Activity) -> Result<TextTrial, TrialError> {
        let written = written.checked().map_err(OverrideError::from)?;
        let catalog = self.current.snapshot();
        let now = Arc::clone(catalog.tool(id).ok_or(OverrideError::NotFound)?);
        let then = Arc::new(self.built(&now, written).ok_or(OverrideError::NotFound)?);
        let sides = [self.side(&catalog, &now, &now).await?, self.side(&catalog, &now, &then).await?];

        let since = SystemTime::now().checked_sub(SPAN).unwrap_or(SystemTime::UNIX_EPOCH);
        let recent = activity.find(&EventQuery { limit: EVENTS, ..EventQuery::default() }).await?;
        let ends = Instant::now() + PATIENCE;
        let (mut trial, mut seen) = (TextTrial::default(), HashSet::new());
        for event in recent.into_iter().filter(|event| event.at >= since) {
            if !matches!(event.kind, StoredEventKind::Offered { .. }) {
                continue;
            }
            let Some(message) = event.message else {
                trial.without_text += 1;
                continue;
            };
            if !seen.insert((event.principal.clone(), message.clone())) {
                continue;
            }
            if trial.tried >= MESSAGES || Instant::now() >= ends {
                trial.is_cut = true;
                break;
            }
            let of = CheckPrincipal { principal: event.principal.clone(), ..CheckPrincipal::default() };
            // The caller's key may be revoked since then.
            let Ok(principal) = self.policies.principal_of(&of) else { continue };
            let mut selected = Vec::with_capacity(2);
            for side in &sides {
                selected.push(self.selected(side, &message, &principal).await);
            }
            let only = |one: usize, other: usize| selected[one].difference(&selected[other]).cloned().collect::<Vec<_>>();
            let (gone, added) = (only(0, 1), only(1, 0));
            trial.tried += 1;
            if !(gone.is_empty() && added.is_empty()) {
                trial.changes.push(TrialChange { event: event.id, principal: event.principal, message, added, gone });
            }
        }
        Ok(trial)
    }

    /// The tool as it would be with these texts. Tags that rules assign stay.
    fn built(&self, now: &Tool, written: ToolOverride) -> Option<Tool> {
        let mut overlays = (*self.overrides.overlays()).clone();
        overlays.written.insert(now.id.clone(), written);
        let tool = catalog::listed_tool(&now.id.server, &now.raw).ok()?;
        let overlay = overlays.overlay(&tool.id, &tool.operation_id, &tool.hints);
        let mut tool = tool.with(&overlay);
        // Counting them again would change nothing but the cut by a budget.
        tool.tokens = now.tokens;
        Some(tool)
    }

    /// The catalog and the index with a tool in the place of the current one.
    async fn side(&self, catalog: &Catalog, now: &Arc<Tool>, tool: &Arc<Tool>) -> Result<Side, TrialError> {
        let enrichments = Arc::clone(&self.enrichments.borrow());
        let servers = catalog.servers().iter().map(|server| {
            let tools = server.tools.iter().map(|known| Arc::clone(if known.id == now.id { tool } else { known }));
            CatalogServer { tools: tools.collect(), ..server.clone() }
        });
        let changed = Catalog::new(servers.collect());
        changed.learn_texts(self.lexical.analyzer());
        let description = enrichments.description(tool);
        let sparse = self.lexical.document_vector(&ToolText { description: &description, ..tool.text() });
        let dense = self.embedder.embed_passages(enrichments.passages(tool)).await?;
        let count = changed.tools().len() as f32;
        // As the index weighs them: ln(1 + (n - df + 0.5) / (df + 0.5)).
        let rarity = |term: &u32| {
            let with_term = changed.texts().map_or(1, |texts| texts.vocabulary.tools_with(*term)).max(1) as f32;
            (1.0 + (count - with_term + 0.5).max(0.0) / (with_term + 0.5)).ln()
        };
        let rarities = sparse.indices.iter().map(|term| (*term, rarity(term))).collect();
        let index = Overlaid { inner: Arc::clone(&self.index), tool: Arc::clone(tool), dense, sparse, rarities };
        Ok(Side { catalog: Arc::new(changed), select: self.select.trying(Arc::new(index)) })
    }

    /// The published names of the tools that a message would get.
    async fn selected(&self, side: &Side, message: &str, principal: &Principal) -> BTreeSet<String> {
        let turn = Turn { role: Role::User, text: message.to_owned(), called: Vec::new() };
        let request = SelectRequest { turns: vec![turn], ..SelectRequest::default() };
        let mut view = self.current.view(principal).of_catalog(Arc::clone(&side.catalog));
        // A language model costs money, and its answer isn't the effect of the text alone.
        Arc::make_mut(&mut view.settings).rerank = Rerank::Off;
        let (_, explanation) = side.select.explain_in(request, principal, view).await;
        let sent = explanation.candidates.into_iter().filter(|candidate| candidate.sent).map(|candidate| candidate.name);
        sent.chain(explanation.kept.into_iter().map(|kept| kept.name)).collect()
    }
}

/// One of the two states that are compared.
struct Side {
    catalog: Arc<Catalog>,
    select: Select,
}

/// The index, with the scores of one tool computed from its texts.
struct Overlaid {
    inner: Arc<dyn ToolIndex>,
    tool: Arc<Tool>,
    dense: Vec<Arc<[f32]>>,
    sparse: SparseVector,
    /// The inverse document frequencies of the tool's terms.
    rarities: HashMap<u32, f32>,
}

impl Overlaid {
    fn scored(&self, request: &IndexQuery<'_>) -> IndexCandidate {
        let dot = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>();
        let dense = |query: &Arc<[f32]>| self.dense.iter().map(|own| dot(own, query)).reduce(f32::max);
        let lexical = |query: &SparseVector| {
            let known = query.indices.iter().zip(&query.values);
            let weighed = known.filter_map(|(term, weight)| {
                let place = self.sparse.indices.binary_search(term).ok()?;
                Some(weight * self.sparse.values[place] * self.rarities.get(term)?)
            });
            weighed.sum::<f32>()
        };
        IndexCandidate {
            tool: self.tool.id.clone(),
            // As the index rounds them.
            dense: request
                .texts
                .iter()
                .map(|text| text.dense.as_ref().and_then(dense).map(|cosine| (cosine * 1e3).round() / 1e3))
                .collect(),
            lexical: request.texts.iter().map(|text| lexical(&text.sparse)).collect(),
        }
    }
}

#[async_trait]
impl ToolIndex for Overlaid {
    /// Nothing: a trial changes no index.
    async fn replace(&self, _contents: IndexContents) -> Result<(), IndexError> {
        Ok(())
    }

    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        let mut answer = self.inner.search(request).await?;
        answer.candidates.retain(|candidate| candidate.tool != self.tool.id);
        if request.visibility.allows(&self.tool) {
            answer.candidates.push(self.scored(request));
        }
        Ok(answer)
    }

    fn state(&self) -> IndexState {
        self.inner.state()
    }
}
