//! Sends a user to the page for sign-ins by an elicitation of a URL (MCP specification, "Elicitation").
//!
//! A client with protocol 2025-11-25 gets the error that requires the elicitation. A client with protocol 2026-07-28 gets a question as
//! the result, and repeats its call. All other clients get the link as text.

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::{Value, json};

use crate::service::access::connections::ConnectionError;
use crate::service::access::secrets::CredentialError;
use crate::service::execution::execute::ExecuteError;
use crate::service::ports::Round;

/// `URLElicitationRequiredError` (protocol 2025-11-25).
const URL_ELICITATION_REQUIRED: i32 = -32042;
/// The key of our question in a result.
const KEY: &str = "toolsieve_sign_in";
/// The method of an elicitation.
pub(super) const ELICIT: &str = "elicitation/create";

/// The elicitation for an error of a call; `None` for any other error.
pub(super) fn elicitation(error: &ExecuteError) -> Option<Value> {
    let ExecuteError::Credentials(CredentialError::Connection(ConnectionError::SignInNeeded { server, link: Some(link), .. })) = error
    else {
        return None;
    };
    // The link's own id identifies the elicitation.
    let id = link.rsplit_once('=').map_or(link.as_str(), |(_, id)| id).split('.').next().unwrap_or_default();
    let message = format!("Sign in to {server}, so that its tools can be called for you.");
    Some(json!({"mode": "url", "elicitationId": id, "url": link, "message": message}))
}

/// The error that requires an elicitation.
pub(super) fn required(elicitation: &Value) -> ErrorData {
    let data = json!({"elicitations": [elicitation]});
    ErrorData::new(ErrorCode(URL_ELICITATION_REQUIRED), "The user must sign in first.", Some(data))
}

/// The result that asks a client with protocol 2026-07-28 to show the link.
pub(super) fn question(elicitation: &Value) -> String {
    json!({"resultType": "input_required", "inputRequests": {KEY: {"method": ELICIT, "params": elicitation}}}).to_string()
}

/// Removes the answer to our question from a round, because the server has not asked it. The call itself shows whether the user has
/// signed in.
pub(super) fn without_answer(mut round: Round) -> Round {
    if let Some(responses) = &mut round.responses
        && responses.remove(KEY).is_some()
        && responses.is_empty()
    {
        round.responses = None;
    }
    round
}
