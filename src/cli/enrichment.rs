//! `toolsieve enrichment`: shows how many tools have texts from a language model, and the cost of the remaining ones.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use crate::adapters::tokens::TokenCounter;
use crate::cli::{ConfigurationArgs, Failure, Outcome, catalog, print, runtime, stored};
use crate::domain::selection::enrichment::{Author, Brief, FUNCTION_CHARACTERS, MOST_TAGS, TAG_CHARACTERS, is_used, key};
use crate::service::catalog::enrich::in_force;
use crate::settings::Settings;

#[derive(Args)]
pub(super) struct Enrichment {
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct State {
    /// Name of the language model; absent if `llm.enrich` is off.
    model: Option<String>,
    tools: usize,
    /// Number of tools with texts from this model.
    by_model: usize,
    by_admin: usize,
    /// Whether searches use the model's texts: enough tools have texts.
    model_texts_used: bool,
    /// Number of tools without texts from this model.
    left: usize,
    /// cl100k tokens in the requests for the remaining tools.
    request_tokens: u64,
    /// Maximum length of a stored response; absent if there are no requests.
    answer_characters: Option<usize>,
    /// Duration of the requests, at the configured rate per minute.
    minutes: Option<usize>,
}

impl Enrichment {
    pub(super) fn run(self) -> Outcome {
        let mut settings = self.configuration.load_any()?;
        let state = runtime()?.block_on(async {
            catalog::merge_stored_of_data_dir(&mut settings).await?;
            state(&settings).await
        })?;
        if self.json {
            return print(&serde_json::to_string_pretty(&state).unwrap_or_default());
        }
        let model = state.model.as_ref().map_or_else(|| "none: [llm] enrich is off".to_owned(), Clone::clone);
        let mut left = format!("{}, whose requests have {} tokens", state.left, state.request_tokens);
        if let (Some(minutes), Some(characters)) = (state.minutes, state.answer_characters) {
            let _ = write!(left, ", at least {minutes} min; each response may have at most {characters} characters");
        }
        let State { tools, by_model, by_admin, .. } = state;
        let used = match (by_model, state.model_texts_used) {
            (0, _) => "",
            (_, true) => " (used in searches)",
            (_, false) => " (not used in searches yet: too many tools have none)",
        };
        print(&format!(
            "Model    {model}\nTools    {tools}\nWritten  {by_model} by the model{used}, {by_admin} by an admin\nLeft     {left}"
        ))
    }
}

async fn state(settings: &Settings) -> Result<State, Failure> {
    let known = catalog::last_good(settings, "start the service once").await?;
    let enrichment = settings.start.llm.enrichment.as_ref();
    let model = enrichment.map(|enrichment| enrichment.endpoint.model.clone());
    let store = stored::opened(settings).await?.ok_or_else(|| Failure::failed("error: the store was removed"))?;
    let written = in_force(&known.catalog, &*store.port(), model.as_deref(), &settings.live.tools.enrichments).await;
    store.close().await;
    let written = written.map_err(|error| Failure::failed(format!("error: {error}")))?;

    let tools = known.catalog.tools();
    let by = |is_admin: bool| {
        let authors = tools.iter().filter_map(|tool| written.get(&key(tool)).map(|written| &written.author));
        authors.filter(|author| (**author == Author::Admin) == is_admin).count()
    };
    let requests: Vec<String> = tools
        .iter()
        .filter(|tool| !written.contains_key(&key(tool)))
        .map(|tool| Brief::new(tool))
        .map(|brief| format!("{}\n{}", brief.system(), brief.user()))
        .collect();
    Ok(State {
        model,
        tools: tools.len(),
        by_model: by(false),
        by_admin: by(true),
        model_texts_used: is_used(written.len(), tools.len()),
        left: requests.len(),
        request_tokens: TokenCounter::default().count(&requests).into_iter().map(u64::from).sum(),
        answer_characters: enrichment.map(|_| FUNCTION_CHARACTERS + MOST_TAGS * TAG_CHARACTERS),
        minutes: enrichment.map(|enrichment| requests.len() / enrichment.per_minute),
    })
}
