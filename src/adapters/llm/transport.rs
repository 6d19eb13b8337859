//! Sends a single HTTP request to a model, on behalf of `async-openai`.
//!
//! The library's own transport retries failures, reads bodies of any length, and logs bodies that it can't parse. This one maps
//! error responses to error kinds without reading them, and returns only JSON bodies of limited length.

use std::future::Future;
use std::time::Duration;

use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use reqwest::{Client, ClientBuilder, Response, StatusCode, redirect};
use serde::de::IgnoredAny;
use tower::Service;
use tower::service_fn;

use crate::adapters::proxies;
use crate::domain::selection::judgement::AnswerProblem;
use crate::service::ports::JudgeError;

/// Maximum length of a completion, in bytes. Most have a few hundred.
const LONGEST: usize = 1 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Configures a client for language models. It follows no redirects, because these would send key and message elsewhere.
pub(crate) fn client_builder() -> ClientBuilder {
    proxies::client_builder()
        .user_agent(concat!("toolsieve/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none())
}

/// A transport that sends each request once, without retries.
pub(super) fn once(
    client: Client,
) -> impl Service<HttpRequestFactory, Response = Response, Error = OpenAIError, Future: Future<Output = Result<Response, OpenAIError>> + Send>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(move |factory: HttpRequestFactory| {
        let client = client.clone();
        async move {
            let request = factory.build().await?;
            let response = client.execute(request).await.map_err(OpenAIError::Reqwest)?;
            match refusal(response.status()) {
                Some(error) => Err(failed(error)),
                None => whole(response).await,
            }
        }
    })
}

fn refusal(status: StatusCode) -> Option<JudgeError> {
    match status {
        status if status.is_success() => None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(JudgeError::Unauthorized),
        StatusCode::TOO_MANY_REQUESTS => Some(JudgeError::RateLimited),
        status => Some(JudgeError::Refused(status.as_u16())),
    }
}

/// Reads the whole body, up to a maximum length.
async fn whole(mut response: Response) -> Result<Response, OpenAIError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(OpenAIError::Reqwest)? {
        if body.len() + chunk.len() > LONGEST {
            return Err(failed(AnswerProblem::TooLong.into()));
        }
        body.extend_from_slice(&chunk);
    }
    if serde_json::from_slice::<IgnoredAny>(&body).is_err() {
        return Err(failed(AnswerProblem::NoCompletion.into()));
    }
    Ok(http::Response::new(body).into())
}

fn failed(error: JudgeError) -> OpenAIError {
    OpenAIError::Boxed(Box::new(error))
}
