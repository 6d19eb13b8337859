//! Reranking: a language model chooses among the best ranked tools for a message.

use tokio::time::Instant;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::selection::judgement::{Entry, Question};
use crate::domain::selection::relevance::{Ranked, is_ambiguous};
use crate::service::ports::{Advisor, Purpose};
use crate::service::records::llm_costs::AskedFor;
use crate::service::selection::foreign::ForeignTool;
use crate::service::selection::judges::Judges;
use crate::service::selection::retrieve::Ranking;
use crate::settings::Rerank;

/// The input. The ranking contains only tools offered to the caller.
pub(super) struct Reranking<'a> {
    pub(super) mode: Rerank,
    /// The caller to whom the cost is attributed; `None`: the service itself.
    pub(super) principal: Option<&'a Principal>,
    /// Language models that use the user's own keys.
    pub(super) advisors: &'a [Advisor],
    pub(super) ranking: &'a Ranking,
    pub(super) catalog: &'a Catalog,
    /// Foreign tools to choose among too. In the ranking, their keys follow the catalog's positions.
    pub(super) foreign: &'a [ForeignTool],
    /// Maximum number of tools to choose.
    pub(super) limit: usize,
}

pub(super) enum Reranked {
    /// The ranking stays, because it is clear or no model is available.
    NotAsked,
    /// The tools that the model chose, in its order.
    Chosen(Vec<Ranked<u32>>),
    /// The model failed. The ranking stays, with this warning.
    Failed(String),
}

impl Judges {
    /// Asks a model to choose if the ranking is ambiguous and a model is available.
    pub(super) async fn rerank(&self, reranking: Reranking<'_>) -> Reranked {
        let Reranking { mode, principal, advisors, ranking, catalog, foreign, limit } = reranking;
        let wanted = match mode {
            Rerank::Off => false,
            Rerank::Auto => is_ambiguous(&ranking.ranked),
            Rerank::Always => ranking.ranked.len() > 1,
        };
        if !wanted {
            return Reranked::NotAsked;
        }
        let Some(advisor) = advisors.iter().chain([&Advisor::Configured]).find(|advisor| self.knows(advisor)) else {
            return match mode {
                Rerank::Always => Reranked::Failed("chosen without a language model: none is configured".to_owned()),
                Rerank::Off | Rerank::Auto => Reranked::NotAsked,
            };
        };
        let entry = |ranked: &Ranked<u32>| {
            let place = ranked.key as usize;
            match catalog.tools().get(place) {
                Some(tool) => Some(Entry::new(tool.operation_id.as_str(), &tool.description)),
                None => foreign.get(place - catalog.tools().len()).map(|tool| Entry::new(&tool.name, &tool.description)),
            }
        };
        let (candidates, entries): (Vec<Ranked<u32>>, Vec<Entry>) =
            ranking.ranked.iter().filter_map(|ranked| Some((*ranked, entry(ranked)?))).take(self.settings.candidates).unzip();
        let question = Question::new(ranking.in_context.as_ref().unwrap_or(&ranking.message), entries, limit);
        let asked = AskedFor { purpose: Purpose::Judge, principal, is_own: advisor.is_own() };
        match self.ask(advisor, &question, Instant::now() + self.settings.timeout, asked).await {
            Ok(choices) => Reranked::Chosen(choices.iter().filter_map(|choice| candidates.get(choice.place).copied()).collect()),
            Err(error) => Reranked::Failed(format!("chosen without the language model ({}): {error}", advisor.name())),
        }
    }
}
