//! A single HTTP exchange with an endpoint. Does not use `async-openai`, because its errors lose `Retry-After` and its response
//! types support neither base64 nor a missing `index`.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use secrecy::ExposeSecret;

use super::fault::{AnswerFault, Fault};
use super::wire::{self, Role};
use crate::settings::EndpointSettings;

/// Maximum size of a response per vector, in bytes: 8,192 numbers as JSON. A second constant covers the rest of the response.
const LONGEST_VECTOR: usize = 256 << 10;
const LONGEST_FRAME: usize = 1 << 20;

/// Requests the vectors of these texts, without retries.
pub(super) async fn ask(
    client: &Client,
    settings: &EndpointSettings,
    role: Role,
    texts: &[String],
    dimension: Option<usize>,
) -> Result<Vec<Vec<f32>>, Fault> {
    let request = client.post(format!("{}/embeddings", settings.base_url)).headers(headers(settings));
    let request = request.json(&wire::request(settings, role, texts));
    let response = request.send().await.map_err(|error| kind(&error))?;
    if let Some(fault) = refusal(&response) {
        return Err(fault);
    }
    let body = whole(response, LONGEST_FRAME + texts.len() * LONGEST_VECTOR).await?;
    Ok(wire::vectors(&body, texts.len(), dimension)?)
}

fn headers(settings: &EndpointSettings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(key) = &settings.api_key
        && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", key.expose_secret()))
    {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers
}

/// The kind of an error. The text is dropped, because it contains the endpoint's address.
fn kind(error: &reqwest::Error) -> Fault {
    if error.is_timeout() { Fault::Timeout } else { Fault::Unreachable }
}

fn refusal(response: &Response) -> Option<Fault> {
    let status = response.status();
    match status {
        status if status.is_success() => None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(Fault::Unauthorized),
        StatusCode::NOT_FOUND => Some(Fault::NotFound),
        StatusCode::TOO_MANY_REQUESTS => Some(Fault::RateLimited(retry_after(response.headers()))),
        StatusCode::REQUEST_TIMEOUT => Some(Fault::Server(status.as_u16(), retry_after(response.headers()))),
        status if status.is_server_error() => Some(Fault::Server(status.as_u16(), retry_after(response.headers()))),
        status => Some(Fault::Refused(status.as_u16())),
    }
}

/// Parses `Retry-After` in seconds. These endpoints don't send the date form.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

async fn whole(mut response: Response, longest: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| kind(&error))? {
        if body.len() + chunk.len() > longest {
            return Err(AnswerFault::TooLong.into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
