//! Checks for arbitrary input from callers: functions that panic if an invariant is violated. Fuzz targets
//! (`tests/fuzz`) and tests call them with a corpus and mutations of it. The service never calls them.

use serde_json::value::RawValue;

use crate::domain::publishing::meta_tools::{MAX_DESCRIBED, MAX_QUERIES, MAX_SERVERS};
use crate::http::mcp;
use crate::http::problem::{Fault, Problem};
use crate::http::routes::filter::filter_request;
use crate::http::routes::tools::{call_request, described_names, search_request};

/// Maximum length of an error text, without its quotes from the body.
const WORDS: usize = 1_000;
/// Maximum length of an id or a model name in a request.
const MAX_ID_BYTES: usize = 256;

/// Checks that each route either reads this body within its limits, or rejects it as the caller's mistake. The routes
/// are those for selection, search, description and calls.
///
/// # Panics
/// If a check fails.
pub fn bodies(bytes: &[u8]) {
    match filter_request(bytes) {
        Ok(request) => {
            assert!(!request.turns.is_empty());
            let texts = [&request.chat, &request.message, &request.model];
            assert!(texts.into_iter().flatten().all(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES));
            assert!(request.limit.is_none_or(|limit| (1..=128).contains(&limit)));
        }
        Err(refused) => is_callers(&refused, bytes),
    }
    match search_request(bytes) {
        Ok((search, chat)) => {
            assert!((1..=MAX_QUERIES).contains(&search.queries.len()) && search.queries.iter().all(|query| !query.trim().is_empty()));
            assert!(search.servers.len() <= MAX_SERVERS && search.servers.iter().all(|server| !server.trim().is_empty()));
            assert!((1..=100).contains(&search.limit));
            assert!(chat.is_none_or(|chat| chat.len() <= MAX_ID_BYTES));
        }
        Err(refused) => is_callers(&refused, bytes),
    }
    match described_names(bytes) {
        Ok(names) => assert!((1..=MAX_DESCRIBED).contains(&names.len())),
        Err(refused) => is_callers(&refused, bytes),
    }
    match call_request(bytes) {
        // The arguments are forwarded unchanged.
        Ok((_, arguments)) => {
            assert!(arguments.is_empty() || serde_json::from_str::<&RawValue>(&arguments).is_ok());
            assert!(bytes.windows(arguments.len().max(1)).any(|part| part == arguments.as_bytes()) || arguments.is_empty());
        }
        Err(refused) => is_callers(&refused, bytes),
    }
}

/// Checks that a message from an MCP client is read unambiguously, and that a result is inserted unchanged.
///
/// # Panics
/// If a check fails.
pub fn messages(bytes: &[u8]) {
    mcp::fuzzing::message(bytes);
    mcp::fuzzing::result(bytes);
}

fn is_callers(problem: &Problem, bytes: &[u8]) {
    assert_eq!(problem.code.fault(), Fault::Caller, "{}", problem.detail);
    assert!(problem.detail.len() <= bytes.len() * 2 + WORDS, "{} bytes about {}", problem.detail.len(), bytes.len());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::bodies;

    /// Checks that stored names have a limited length.
    #[test]
    fn what_is_kept_of_a_body_is_bounded() {
        for member in ["chat_id", "message_id", "model"] {
            for length in [0, 1, 256, 257, 100_000] {
                let body = json!({"messages": [{"role": "user", "content": "a"}], member: "a".repeat(length)});
                bodies(body.to_string().as_bytes());
            }
        }
    }
}
