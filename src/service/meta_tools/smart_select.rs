//! Selects the best tools for a task, with reasons, among all tools that the caller may use. A language model selects them: with
//! the caller's own key if there is one, otherwise the configured model. Without a model, retrieval selects them.

use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;

use crate::domain::access::principal::Principal;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::tool::Tool;
use crate::domain::selection::judgement::{Choice, Entry, Question, fitting};
use crate::service::access::limits::{Limited, Limits};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::meta_tools::proposed::{ProposedToolset, proposed};
use crate::service::ports::{Advisor, Purpose};
use crate::service::records::llm_costs::AskedFor;
use crate::service::records::metrics::SearchKind;
use crate::service::records::record::Recorder;
use crate::service::selection::judges::Judges;
use crate::service::selection::retrieve::Retrieve;
use crate::service::toolsets::loading::{CallerAt, Loading};

/// Maximum number of tokens of the list of tools in a prompt.
const CATALOGUE_TOKENS: usize = 4_000;
/// Number of top-ranked tools from which the list is filled if not all tools fit. More than ever fit.
const RANKED: usize = 400;
/// The provider's name if no model selected the tools.
const HEURISTIC: &str = "heuristic";

pub(crate) struct SmartSelect {
    pub current: Arc<CurrentCatalog>,
    pub retrieve: Arc<Retrieve>,
    pub judges: Arc<Judges>,
    pub loading: Arc<Loading>,
    pub limits: Arc<Limits>,
    pub recorder: Recorder,
}

#[derive(Clone, Debug)]
pub(crate) struct SmartSelectRequest {
    pub task: String,
    pub limit: usize,
    /// The caller's own language models, in the order in which to try them.
    pub advisors: Vec<Advisor>,
}

/// The selected tools, best first.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SmartSelection {
    pub tools: Vec<SmartTool>,
    /// Toolsets that contain the selected tools that are not loaded, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub toolsets: Vec<ProposedToolset>,
    /// The provider that selected them: `gemini`, `openai`, `anthropic`, `configured` or `heuristic`.
    pub provider: &'static str,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SmartTool {
    pub name: String,
    pub server: String,
    pub tool: String,
    pub reason: String,
}

impl SmartSelect {
    /// Selects tools for a task. If no model answers, uses retrieval and adds a warning.
    ///
    /// # Errors
    /// [`Limited`] over the caller's limit.
    pub(crate) async fn select(&self, request: &SmartSelectRequest, here: CallerAt<'_>) -> Result<SmartSelection, Limited> {
        self.limits.selection(&here.caller.principal).await?;
        let view = self.current.view(&here.caller.principal);
        let mut warnings = Vec::new();
        let advisors: Vec<&Advisor> =
            request.advisors.iter().chain([&Advisor::Configured]).filter(|advisor| self.judges.knows(advisor)).collect();
        let judged = if advisors.is_empty() {
            warnings.push(
                "chosen without a language model: none is configured, and no key was sent in X-Gemini-Api-Key, X-OpenAI-Api-Key, \
                 X-Anthropic-Api-Key or X-LLM-Api-Key"
                    .to_owned(),
            );
            None
        } else {
            self.judged(request, &here.caller.principal, &advisors, &view, &mut warnings).await
        };
        let (tools, provider) = match judged {
            Some(judged) => judged,
            None => (self.ranked(request, &view, &here.caller.principal, &mut warnings).await, HEURISTIC),
        };
        let found = tools.iter().map(|(tool, _)| tool.id.clone()).collect();
        let message = self.recorder.message(&request.task);
        // Without learning, nothing needs the vector.
        let vector = if self.recorder.learns() { self.retrieve.query_vector(&request.task).await.ok().flatten() } else { None };
        self.recorder.searched(SearchKind::SmartSelect, here.caller, (message, vector), found);
        let loaded = self.loading.now(here).await.unwrap_or_default();
        let missing: Vec<&Arc<Tool>> = tools.iter().map(|(tool, _)| tool).filter(|tool| !loaded.contains(&tool.operation_id)).collect();
        let toolsets = proposed(&missing, &view.catalog, &view.visibility, missing.len());
        let tools = tools.into_iter().map(|(tool, reason)| smart_tool(&tool, reason)).collect();
        Ok(SmartSelection { tools, toolsets, provider, warnings })
    }

    /// Tries the models one by one, each with an equal share of the remaining time.
    async fn judged(
        &self,
        request: &SmartSelectRequest,
        principal: &Principal,
        advisors: &[&Advisor],
        view: &View,
        warnings: &mut Vec<String>,
    ) -> Option<(Vec<(Arc<Tool>, String)>, &'static str)> {
        let end = Instant::now() + self.judges.settings.smart_select_timeout;
        let (tools, entries) = self.catalogue(&request.task, view, principal, warnings).await;
        if tools.is_empty() {
            return None;
        }
        let question = Question::new(&request.task, entries, request.limit).with_reasons();
        for (advisor, left) in advisors.iter().zip((1..=advisors.len()).rev()) {
            let now = Instant::now();
            let share = end.saturating_duration_since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            let asked = AskedFor { purpose: Purpose::SmartSelect, principal: Some(principal), is_own: advisor.is_own() };
            match self.judges.ask(advisor, &question, now + share, asked).await {
                Ok(choices) => {
                    let reason = |choice: &Choice| choice.reason.clone().unwrap_or_else(|| "chosen by the language model".to_owned());
                    let chosen = choices.iter().filter_map(|choice| Some((Arc::clone(tools.get(choice.place)?), reason(choice))));
                    return Some((chosen.collect(), advisor.name()));
                }
                Err(error) => warnings.push(format!("{} did not choose: {error}", advisor.name())),
            }
        }
        None
    }

    /// All tools that the caller may use. If they are too many for a prompt, those that match best.
    async fn catalogue(&self, task: &str, view: &View, principal: &Principal, warnings: &mut Vec<String>) -> (Vec<Arc<Tool>>, Vec<Entry>) {
        let entries = |tools: &[Arc<Tool>]| -> Vec<Entry> {
            let entry = |tool: &Arc<Tool>| {
                let toolsets = view.visibility.assigned.toolsets_of(tool).map(ToolsetName::as_str);
                Entry::labelled(tool.operation_id.as_str(), &tool.description, toolsets, tool.hints.tags())
            };
            tools.iter().map(entry).collect()
        };
        let all: Vec<Arc<Tool>> = view.catalog.visible(&view.visibility).take(RANKED + 1).cloned().collect();
        if all.len() <= RANKED {
            let entries = entries(&all);
            if entries.iter().map(Entry::tokens).sum::<usize>() <= CATALOGUE_TOKENS {
                return (all, entries);
            }
        }
        let (ranked, found) = self.retrieve.search(&[task.to_owned()], view, principal, RANKED).await;
        warnings.extend(found);
        let mut tools: Vec<Arc<Tool>> = ranked.into_iter().map(|(tool, _)| tool).collect();
        let entries = fitting(entries(&tools), CATALOGUE_TOKENS);
        tools.truncate(entries.len());
        (tools, entries)
    }

    async fn ranked(
        &self,
        request: &SmartSelectRequest,
        view: &View,
        principal: &Principal,
        warnings: &mut Vec<String>,
    ) -> Vec<(Arc<Tool>, String)> {
        let (ranked, found) = self.retrieve.search(std::slice::from_ref(&request.task), view, principal, request.limit).await;
        for warning in found {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        ranked.into_iter().map(|(tool, score)| (tool, format!("fits by meaning and words (score {score:.2})"))).collect()
    }
}

fn smart_tool(tool: &Tool, reason: String) -> SmartTool {
    SmartTool { name: tool.operation_id.to_string(), server: tool.id.server.to_string(), tool: tool.label.to_string(), reason }
}
