//! Errors for requests whose parameters the SDK can't read. It doesn't know which method such a request has.

use rmcp::model::ErrorData;

/// Parameters of requests whose results may be questions.
const ANSWERS: &str = ", `inputResponses` is an object, `requestState` is a text";
const LIST: &str = "they are an object, `cursor` is a text";
const INITIALIZE: &str =
    "`protocolVersion` is a text, `capabilities` is an object, `clientInfo` is an object with the texts `name` and `version`";
const COMPLETE: &str = "`ref` has the `type` \"ref/prompt\" and a `name`, or \"ref/resource\" and a `uri`; `argument` is an object with \
                        the texts `name` and `value`";

/// What the newer protocol no longer has (MCP specification 2026-07-28, SEP-2575).
const REMOVED: [&str; 5] = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// The error for a request of this method with malformed parameters. `None` if the service doesn't know the method.
pub(super) fn of(method: &str, is_modern: bool) -> Option<ErrorData> {
    if is_modern && REMOVED.contains(&method) {
        return None;
    }
    let (parameters, more) = match method {
        "initialize" => (INITIALIZE, ""),
        "tools/call" | "prompts/get" => ("`name` is a text, `arguments` is an object", ANSWERS),
        "resources/read" => ("`uri` is a text", ANSWERS),
        "resources/subscribe" | "resources/unsubscribe" => ("`uri` is a text", ""),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => (LIST, ""),
        "completion/complete" => (COMPLETE, ""),
        "logging/setLevel" => ("`level` is debug, info, notice, warning, error, critical, alert or emergency", ""),
        "subscriptions/listen" => ("`notifications` is an object, its member `resourceSubscriptions` is a list of texts", ""),
        "ping" | "server/discover" => ("they are an object", ""),
        _ => return None,
    };
    Some(ErrorData::invalid_params(format!("the parameters of {method} can't be read: {parameters}{more}"), None))
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;

    use super::{REMOVED, of};

    #[test]
    fn methods_that_exist_are_never_said_to_be_missing() {
        let known = [
            "initialize",
            "ping",
            "server/discover",
            "tools/list",
            "tools/call",
            "prompts/list",
            "prompts/get",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "completion/complete",
            "logging/setLevel",
            "subscriptions/listen",
        ];
        for method in known {
            let error = of(method, false).unwrap();
            assert!(error.code == ErrorCode::INVALID_PARAMS && error.message.contains(method), "{error:?}");
        }
        assert!(of("tools/other", false).is_none());
    }

    #[test]
    fn the_newer_protocol_lacks_what_it_removed() {
        assert!(REMOVED.iter().all(|method| of(method, true).is_none() && of(method, false).is_some()));
        assert!(of("tools/call", true).is_some());
    }
}
