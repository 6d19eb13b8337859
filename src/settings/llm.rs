//! Section `[llm]`: language models that can select and describe tools.

use std::time::Duration;

use secrecy::SecretString;

use crate::domain::selection::judgement::Provider;
use crate::settings::values::{Reader, plain_url};

/// The settings in section `[llm]`.
#[derive(Clone, Debug)]
pub struct LlmSettings {
    /// The configured model; `None` if only users' own keys are used.
    pub configured: Option<Endpoint>,
    /// The key for the configured model. Models on this machine often need none.
    pub api_key: Option<SecretString>,
    /// How long a message may wait for the model.
    pub timeout: Duration,
    /// Number of top candidates from which the model chooses.
    pub candidates: usize,
    /// Time limit for all model requests of one `smart_select`.
    pub smart_select_timeout: Duration,
    /// The model for users' own Gemini keys; `None` disables this provider.
    pub gemini: Option<Endpoint>,
    pub openai: Option<Endpoint>,
    pub anthropic: Option<Endpoint>,
    /// Settings for enrichment; `None` if it is off.
    pub enrichment: Option<EnrichmentSettings>,
}

/// Settings for enrichment, in which a model writes texts about tools for the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrichmentSettings {
    /// The address of the configured model, possibly with another model name. The same key is used.
    pub endpoint: Endpoint,
    /// Maximum number of tools to enrich per minute.
    pub per_minute: usize,
    /// Time limit for one tool.
    pub timeout: Duration,
}

/// A model behind an OpenAI-compatible URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The base URL; the service appends `/chat/completions`.
    pub base_url: String,
    pub model: String,
}

impl LlmSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let configured = endpoint(reader, "llm.base_url", "llm.model");
        Self {
            enrichment: enrichment(reader, configured.as_ref()),
            configured,
            api_key: reader.header_key("llm.api_key", "copy the key from the provider again"),
            timeout: reader.milliseconds("llm.timeout_ms", 10..=60_000),
            candidates: reader.whole("llm.candidates", 2..=200),
            smart_select_timeout: reader.milliseconds("llm.smart_select_timeout_ms", 10..=120_000),
            gemini: endpoint(reader, "llm.gemini_url", "llm.gemini_model"),
            openai: endpoint(reader, "llm.openai_url", "llm.openai_model"),
            anthropic: endpoint(reader, "llm.anthropic_url", "llm.anthropic_model"),
        }
    }

    /// The endpoint for users' keys of this provider.
    pub fn of(&self, provider: Provider) -> Option<&Endpoint> {
        match provider {
            Provider::Gemini => self.gemini.as_ref(),
            Provider::OpenAi => self.openai.as_ref(),
            Provider::Anthropic => self.anthropic.as_ref(),
        }
    }
}

/// Whether a key can be sent in a header.
pub(crate) fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}

fn enrichment(reader: &mut Reader<'_>, configured: Option<&Endpoint>) -> Option<EnrichmentSettings> {
    let own_model = reader.optional_text("llm.enrich_model");
    if reader.whole("llm.enrich_queries", 0..=20) > 0 {
        let remedy = "remove it: the model writes a sentence and tags instead of sample messages";
        reader.warning("llm.enrich_queries", "has no effect any more", remedy);
    }
    let per_minute = reader.whole("llm.enrich_per_minute", 1..=6_000);
    let timeout = reader.seconds("llm.enrich_timeout_seconds", 1..=600);
    if !reader.switch("llm.enrich") {
        return None;
    }
    let Some(configured) = configured else {
        if reader.optional_text("llm.base_url").is_none() {
            reader.problem("llm.enrich", "there is no language model", "set llm.base_url and llm.model, or leave llm.enrich off");
        }
        return None;
    };
    let endpoint = Endpoint { model: own_model.unwrap_or_else(|| configured.model.clone()), ..configured.clone() };
    Some(EnrichmentSettings { endpoint, per_minute, timeout })
}

fn endpoint(reader: &mut Reader<'_>, url_key: &str, model_key: &str) -> Option<Endpoint> {
    let model = reader.optional_text(model_key);
    let text = reader.optional_text(url_key)?;
    let url = plain_url(&text);
    let Some(url) = url else {
        let remedy = "write it as https://host/v1, without user, query and fragment; /chat/completions is appended";
        reader.problem(url_key, "not a plain http or https address", remedy);
        return None;
    };
    let Some(model) = model else {
        reader.problem(model_key, "no model for this URL", format!("write the name of a model that {url_key} has"));
        return None;
    };
    Some(Endpoint { base_url: url.as_str().trim_end_matches('/').to_owned(), model })
}
