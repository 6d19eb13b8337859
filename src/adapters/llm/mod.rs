//! Language models behind OpenAI-compatible endpoints: implements the judge port with `async-openai`.
//!
//! A request contains only the model and the messages, which every such endpoint accepts. It is sent once.
//! Deliberately absent: retries (messages can't wait for them), streaming, and error texts (they contain the request and possibly
//! the key).

mod transport;
mod usage;

use async_openai::Client;
use async_openai::config::Config;
use async_openai::error::OpenAIError;
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::domain::selection::enrichment::{Brief, Enrichment};
use crate::domain::selection::judgement::{AnswerProblem, Choice, Question};
use crate::service::ports::{Advisor, Answered, EnrichError, Enricher, Exchange, Judge, JudgeError};
use crate::settings::LlmSettings;
use crate::settings::llm::Endpoint;

pub(crate) use self::transport::client_builder;

/// The configured models, and the providers for which users may have their own keys.
pub(crate) struct ChatModels {
    client: reqwest::Client,
    settings: LlmSettings,
}

/// The endpoint and the key of a request.
struct Account {
    base_url: String,
    key: SecretString,
}

impl ChatModels {
    /// Creates the port. `client` comes from [`client_builder`].
    pub(crate) fn new(client: reqwest::Client, settings: LlmSettings) -> Self {
        Self { client, settings }
    }

    fn endpoint(&self, advisor: &Advisor) -> Option<(&Endpoint, SecretString)> {
        match advisor {
            Advisor::Configured => Some((self.settings.configured.as_ref()?, self.settings.api_key.clone().unwrap_or_default())),
            Advisor::Own { provider, key } => Some((self.settings.of(*provider)?, key.clone())),
        }
    }

    /// Returns the model's unparsed answer, and what it consumed.
    async fn complete(&self, endpoint: &Endpoint, key: SecretString, system: String, user: String) -> Answered<Result<String, JudgeError>> {
        let account = Account { base_url: endpoint.base_url.clone(), key };
        let api = Client::build(self.client.clone(), account).with_http_service(transport::once(self.client.clone()));
        let request = json!({
            "model": endpoint.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "stream": false,
        });
        let completion: Value = match api.chat().create_byot(request).await {
            Ok(completion) => completion,
            Err(error) => return Answered::unanswered(Err(kind(&error))),
        };
        let answer = completion.pointer("/choices/0/message/content").and_then(Value::as_str);
        let exchange =
            usage::tokens(&completion, [&system, &user], answer).map(|tokens| Exchange { model: endpoint.model.clone(), tokens });
        Answered { result: answer.map(str::to_owned).ok_or(AnswerProblem::NoCompletion.into()), exchange }
    }
}

#[async_trait]
impl Judge for ChatModels {
    async fn judge(&self, advisor: &Advisor, question: &Question) -> Answered<Result<Vec<Choice>, JudgeError>> {
        let Some((endpoint, key)) = self.endpoint(advisor) else { return Answered::unanswered(Err(JudgeError::NotConfigured)) };
        let Answered { result, exchange } = self.complete(endpoint, key, question.system(), question.user()).await;
        Answered { result: result.and_then(|answer| Ok(question.read(&answer)?)), exchange }
    }
}

#[async_trait]
impl Enricher for ChatModels {
    async fn enrich(&self, brief: &Brief) -> Answered<Result<Enrichment, EnrichError>> {
        let Some(settings) = &self.settings.enrichment else { return Answered::unanswered(Err(JudgeError::NotConfigured.into())) };
        let key = self.settings.api_key.clone().unwrap_or_default();
        let Answered { result, exchange } = self.complete(&settings.endpoint, key, brief.system(), brief.user()).await;
        Answered { result: result.map_err(EnrichError::from).and_then(|answer| Ok(brief.read(&answer)?)), exchange }
    }
}

/// The kind of an error. The text is dropped.
fn kind(error: &OpenAIError) -> JudgeError {
    match error {
        OpenAIError::Boxed(error) => error.downcast_ref().copied().unwrap_or(JudgeError::Unreachable),
        OpenAIError::Reqwest(error) if error.is_timeout() => JudgeError::Timeout,
        OpenAIError::JSONDeserialize(..) => JudgeError::Answer(AnswerProblem::NoCompletion),
        _ => JudgeError::Unreachable,
    }
}

/// Unlike the library's own configuration, this one reads no environment variables, and an invalid key causes no panic.
impl Config for Account {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let key = self.key.expose_secret();
        if !key.is_empty()
            && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {key}"))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &SecretString {
        &self.key
    }
}
