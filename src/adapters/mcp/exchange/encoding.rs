//! Writes messages to a server as JSON text.

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, InputResponses, JsonRpcMessage, JsonRpcRequest, RequestId, RequestMetaObject,
};
use serde::Serialize;
use serde_json::value::RawValue;

/// Marks the cancellation of a request that was never sent. rmcp must see it, and the server must not.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters::mcp) struct Unsent;

/// Whether a message cancels a request that was never sent.
pub(in crate::adapters::mcp) fn cancels_unsent(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(message) = message else { return false };
    matches!(&message.notification, ClientNotification::CancelledNotification(cancelled) if cancelled.extensions.get::<Unsent>().is_some())
}

/// The JSON text of a call's arguments, attached to the request's extensions. [`encode`] sends it unchanged, because rmcp's
/// parsed arguments have rounded numbers.
#[derive(Clone, Debug)]
pub(in crate::adapters::mcp) struct RawArguments(pub(in crate::adapters::mcp) Arc<RawValue>);

/// Encodes a message for the wire. rmcp's own encoding cannot contain raw arguments.
pub(in crate::adapters::mcp) fn encode(message: &ClientJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Call<'a> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        method: &'static str,
        params: Params<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<&'a RequestMetaObject>,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        input_responses: Option<&'a InputResponses>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_state: Option<&'a str>,
        arguments: &'a RawValue,
    }
    let JsonRpcMessage::Request(JsonRpcRequest { id, request: ClientRequest::CallToolRequest(call), .. }) = message else {
        return serde_json::to_vec(message);
    };
    let Some(RawArguments(arguments)) = call.extensions.get() else { return serde_json::to_vec(message) };
    let params = Params {
        meta: call.extensions.get().filter(|meta: &&RequestMetaObject| !meta.0.0.is_empty()),
        name: &call.params.name,
        input_responses: call.params.input_responses.as_ref(),
        request_state: call.params.request_state.as_deref(),
        arguments,
    };
    serde_json::to_vec(&Call { jsonrpc: "2.0", id, method: "tools/call", params })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, GetExtensions};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn arguments_go_over_the_wire_as_they_were_written() {
        let arguments = r#"{"id": 12345678901234567890123, "x": 1e999}"#;
        let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
        request.extensions.insert(RawArguments(Arc::from(RawValue::from_string(arguments.to_owned()).unwrap())));
        let message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7));
        let text = String::from_utf8(encode(&message).unwrap()).unwrap();
        assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#));
    }

    #[test]
    fn a_call_is_written_as_rmcp_writes_it() {
        let arguments = json!({"a": "\u{7}é", "b": [1, {}]});
        let mut params = CallToolRequestParams::new("näme").with_arguments(arguments.as_object().unwrap().clone());
        params.input_responses = Some(serde_json::from_value(json!({"who": {"action": "decline"}})).unwrap());
        params.request_state = Some("state".to_owned());
        let mut request = CallToolRequest::new(params);
        request.extensions.get_or_insert_default::<RequestMetaObject>().0.0.insert("progressToken".to_owned(), json!(7));
        let mut message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::String("x".into()));
        let by_rmcp = serde_json::to_value(&message).unwrap();
        if let JsonRpcMessage::Request(request) = &mut message {
            request.request.extensions_mut().insert(RawArguments(serde_json::value::to_raw_value(&arguments).unwrap().into()));
        }
        assert_eq!(serde_json::from_slice::<Value>(&encode(&message).unwrap()).unwrap(), by_rmcp);
    }
}
