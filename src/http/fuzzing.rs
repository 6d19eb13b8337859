//! Invariants over arbitrary bytes from callers: functions that panic on a violation. Fuzz targets (`tests/fuzz`) and tests feed
//! them a corpus and mutations of it; the service does not call them.

use serde_json::value::RawValue;

use crate::domain::publishing::meta_tools::{MAX_DESCRIBED, MAX_QUERIES};
use crate::http::mcp;
use crate::http::problem::{Fault, Problem};
use crate::http::routes::filter::filter_request;
use crate::http::routes::tools::{call_request, described_names, search_request};

/// The longest answer text, apart from quotes of the body.
const WORDS: usize = 1_000;
/// Longest id or model name kept from a request.
const MAX_ID_BYTES: usize = 256;

/// A body of `/v1/filter`, of a search, a description or a call is read within the limits, or rejected as the caller's mistake.
///
/// # Panics
/// If that does not hold.
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
        // Arguments are forwarded unchanged.
        Ok((_, arguments)) => {
            assert!(arguments.is_empty() || serde_json::from_str::<&RawValue>(&arguments).is_ok());
            assert!(bytes.windows(arguments.len().max(1)).any(|part| part == arguments.as_bytes()) || arguments.is_empty());
        }
        Err(refused) => is_callers(&refused, bytes),
    }
}

/// A message of an MCP client has one meaning, and the result inserted into its answer leaves unchanged.
///
/// # Panics
/// If that does not hold.
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

    /// Stored names are bounded: panics if one is not.
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
