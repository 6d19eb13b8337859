//! Implements the embedder port with an OpenAI-compatible endpoint.
//!
//! For a message, there is one attempt with a short time limit. After a failure, messages are not embedded until a background
//! probe succeeds. Texts of tools are sent in batches. They are retried after 429, 5xx and timeouts, with the pause from
//! `Retry-After` or increasing pauses.

mod fault;
mod health;
mod wire;
mod exchange;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use rand::RngExt;
use reqwest::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use self::fault::{AnswerFault, Fault};
use self::health::Health;
use self::wire::Role;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{EmbedError, Embedder};
use crate::settings::EndpointSettings;

/// Maximum number of concurrent requests per call.
const AT_ONCE: usize = 4;
/// Maximum length of a text, in characters: about 2,000 tokens of English, which every model accepts.
const LONGEST_TEXT: usize = 8_000;
/// Minimum length to which a rejected text is cut, in characters.
const SHORTEST_TEXT: usize = 250;
/// Maximum length of all texts in a request, in characters: about 50,000 tokens, which every endpoint accepts.
const LONGEST_REQUEST: usize = 200_000;
/// Replaces empty texts, which endpoints reject.
const NOTHING: &str = "nothing";
/// The text of a probe, which checks the endpoint and determines the length of its vectors.
const PROBE: &str = "time";

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time limit of a request with texts of tools.
    pub passages: Duration,
    /// Maximum number of attempts per request with texts of tools.
    pub attempts: u32,
    /// Pause after the first failure. It doubles with each further one, unless the endpoint sends `Retry-After`.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            passages: Duration::from_mins(1),
            attempts: 5,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_mins(1),
        }
    }
}

/// An embedder that uses an endpoint. Dropping it ends its background probe.
pub struct EndpointEmbedder {
    shared: Arc<Shared>,
    _probing: DropGuard,
}

struct Shared {
    client: Client,
    settings: EndpointSettings,
    timing: Timing,
    model: String,
    /// Length of the vectors; 0 until the first response.
    dimension: AtomicUsize,
    health: Health,
}

impl EndpointEmbedder {
    /// Determines the length of vectors in the background, so that an unavailable endpoint does not delay the start. Call it
    /// within a runtime.
    pub fn start(client: Client, settings: EndpointSettings, timing: Timing) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            client,
            timing,
            model: model_id(&settings),
            dimension: AtomicUsize::new(settings.dimensions.unwrap_or(0)),
            settings,
            health: Health::unknown(),
        });
        let (probing, stopped) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move { stopped.run_until_cancelled(probing.keep_probing()).await });
        Self { shared, _probing: stop.drop_guard() }
    }
}

/// An id from the model's name, the endpoint's host, and a hash of everything that affects the vectors.
pub(super) fn model_id(settings: &EndpointSettings) -> String {
    let EndpointSettings { base_url, model, dialect, dimensions, prefixes, .. } = settings;
    let host = Url::parse(base_url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let hash = Fingerprint::of_text(&format!("{:?}", (base_url, model, dialect, dimensions, prefixes))).to_string();
    format!("{model}@{host}-{}", &hash[..12])
}

impl Shared {
    async fn keep_probing(&self) {
        let mut pause = self.timing.first_pause;
        loop {
            match timeout(self.timing.passages, self.ask(Role::Passage, &[PROBE.to_owned()])).await.unwrap_or(Err(Fault::Timeout)) {
                Ok(_) => {
                    self.health.answers();
                    pause = self.timing.first_pause;
                    self.health.failure().await;
                    sleep(self.wait(pause, self.health.fault())).await;
                }
                Err(fault) => {
                    self.health.fails(fault);
                    // Consume the notification of this failure.
                    self.health.failure().await;
                    sleep(self.wait(pause, Some(fault))).await;
                    pause = (pause * 2).min(self.timing.longest_pause);
                }
            }
        }
    }

    /// The time to wait: the pause, or a longer `Retry-After` up to a limit.
    fn wait(&self, pause: Duration, fault: Option<Fault>) -> Duration {
        let wanted = fault.and_then(Fault::retry_after).unwrap_or_default();
        wanted.min(self.timing.longest_pause).max(pause)
    }

    async fn ask(&self, role: Role, texts: &[String]) -> Result<Vec<Vec<f32>>, Fault> {
        let known = Some(self.dimension.load(Ordering::Relaxed)).filter(|dimension| *dimension > 0);
        let vectors = exchange::ask(&self.client, &self.settings, role, texts, known).await?;
        let found = vectors.first().map_or(0, Vec::len);
        match self.dimension.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
            Err(expected) if expected != found => Err(AnswerFault::Dimension { expected, found }.into()),
            _ => Ok(vectors),
        }
    }

    /// Requests vectors, with retries as long as these may help.
    async fn ask_patiently(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Fault> {
        let mut pause = self.timing.first_pause;
        let mut attempt = 1;
        loop {
            let fault = match timeout(self.timing.passages, self.ask(Role::Passage, texts)).await.unwrap_or(Err(Fault::Timeout)) {
                Ok(vectors) => return Ok(vectors),
                Err(fault) => fault,
            };
            if !fault.may_pass() || attempt >= self.timing.attempts {
                return Err(fault);
            }
            tracing::debug!(reason = %fault, attempt, "retrying texts of tools");
            // Random jitter, so that requests that failed together are not retried together.
            let apart = pause.mul_f64(rand::rng().random_range(0.75..1.25));
            sleep(self.wait(apart, Some(fault))).await;
            pause = (pause * 2).min(self.timing.longest_pause);
            attempt += 1;
        }
    }

    /// Requests vectors. If the endpoint rejects the request, its unknown limits may be the reason, so smaller requests and then
    /// shorter texts are tried.
    async fn ask_within_limits(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, Fault> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut waiting = vec![texts];
        while let Some(mut texts) = waiting.pop() {
            match self.ask_patiently(&texts).await {
                Ok(more) => vectors.extend(more),
                Err(Fault::Refused(_)) if texts.len() > 1 => {
                    let rest = texts.split_off(texts.len() / 2);
                    waiting.extend([rest, texts]);
                }
                Err(fault @ Fault::Refused(_)) => {
                    let text = texts.pop().unwrap_or_default();
                    let half = text.chars().count() / 2;
                    if half < SHORTEST_TEXT {
                        return Err(fault);
                    }
                    waiting.push(vec![text.chars().take(half).collect()]);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(vectors)
    }

    fn requests(&self, prefix: Option<&String>, texts: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Vec<String>> {
        let prefix = prefix.map_or("", String::as_str);
        let mut requests: Vec<Vec<String>> = Vec::new();
        let mut characters = 0;
        for text in texts {
            let text = text.as_ref();
            let text = if text.trim().is_empty() { NOTHING } else { text };
            let text: String = prefix.chars().chain(text.chars()).take(LONGEST_TEXT).collect();
            characters += text.len();
            match requests.last_mut() {
                Some(request) if request.len() < self.settings.batch && characters <= LONGEST_REQUEST => request.push(text),
                _ => {
                    characters = text.len();
                    requests.push(vec![text]);
                }
            }
        }
        requests
    }

    /// Fails if the endpoint is known to be unavailable.
    fn check(&self) -> Result<(), Fault> {
        self.health.fault().map_or(Ok(()), Err)
    }

    async fn queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Fault> {
        self.check()?;
        let requests = self.requests(self.settings.prefixes.query.as_ref(), texts);
        let sent = stream::iter(requests).map(|request| async move { self.ask(Role::Query, &request).await }).buffered(AT_ONCE);
        timeout(self.settings.timeout, sent.try_concat()).await.unwrap_or(Err(Fault::Timeout))
    }

    async fn passages(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, Fault> {
        self.check()?;
        let requests = self.requests(self.settings.prefixes.passage.as_ref(), texts);
        let sent = stream::iter(requests).map(|request| async move { self.ask_within_limits(request).await }).buffered(AT_ONCE);
        sent.try_concat().await
    }

    fn noted(&self, result: Result<Vec<Vec<f32>>, Fault>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        match result {
            Ok(vectors) => Ok(vectors.into_iter().map(Arc::from).collect()),
            Err(fault) => {
                if fault.is_outage() && self.health.fault().is_none() {
                    self.health.fails(fault);
                }
                Err(EmbedError::Failed(fault.to_string()))
            }
        }
    }
}

#[async_trait]
impl Embedder for EndpointEmbedder {
    fn model(&self) -> &str {
        &self.shared.model
    }

    fn dimension(&self) -> usize {
        self.shared.dimension.load(Ordering::Relaxed)
    }

    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.shared.noted(self.shared.queries(texts).await)
    }

    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.shared.noted(self.shared.passages(texts).await)
    }

    fn fault(&self) -> Option<String> {
        self.shared.health.fault().map(|fault| fault.to_string())
    }

    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        Some(self.shared.health.recoveries())
    }
}
