//! What has to be known of a client's message before it is handled.

use std::borrow::Cow;

use http::HeaderMap;
use rmcp::model::ProtocolVersion;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::service::mcp_sessions::Abilities;

const INITIALIZE: &str = "initialize";
const DISCOVER: &str = "server/discover";
const CANCELLED: &str = "notifications/cancelled";
const CALL_TOOL: &str = "tools/call";
const LIST_TOOLS: &str = "tools/list";
const LISTEN: &str = "subscriptions/listen";
const VERSION: &str = "mcp-protocol-version";

/// A message of JSON-RPC, as far as anything looks at it here. What can't be read is a message that says nothing: the SDK
/// answers it.
#[derive(Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    result: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

impl<'a> Message<'a> {
    pub(super) fn read(body: &'a [u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.id.is_some() && self.is(INITIALIZE)
    }

    /// Whether the client asks who this is.
    pub(super) fn asks_who(&self) -> bool {
        self.is(INITIALIZE) || self.is(DISCOVER)
    }

    /// Of a request, its id as JSON text.
    pub(super) fn request(&self) -> Option<&'a str> {
        self.method.as_ref()?;
        self.id.map(RawValue::get)
    }

    /// Of an answer to a request of ours, that request's id.
    pub(super) fn answers(&self) -> Option<&'a str> {
        let is_answer = self.method.is_none() && (self.result.is_some() || self.error.is_some());
        self.id.filter(|_| is_answer).map(RawValue::get)
    }

    /// The id of the request that the client does not want any more.
    pub(super) fn cancels(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request: &'a RawValue,
        }
        let cancelled = serde_json::from_str::<Cancelled<'a>>(self.params.filter(|_| self.is(CANCELLED))?.get()).ok()?;
        Some(cancelled.request.get())
    }

    /// Of a greeting, what the client can do.
    pub(super) fn abilities(&self) -> Abilities {
        let params: Option<Value> = self.params.and_then(|params| serde_json::from_str(params.get()).ok());
        params
            .and_then(|mut params| params.get_mut("capabilities").map(Value::take))
            .map(|value| Abilities::read(&value))
            .unwrap_or_default()
    }

    pub(super) fn calls_a_tool(&self) -> bool {
        self.is(CALL_TOOL)
    }

    pub(super) fn lists_tools(&self) -> bool {
        self.is(LIST_TOOLS)
    }

    /// Of a request for a stream of what changes (protocol 2026-07-28), the addresses of the resources that it names.
    pub(super) fn listens(&self) -> Option<Vec<String>> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Filter {
            resource_subscriptions: Vec<String>,
        }
        #[derive(Deserialize)]
        struct Listen {
            notifications: Filter,
        }
        self.request().filter(|_| self.is(LISTEN))?;
        let asked: Option<Listen> = self.params.and_then(|params| serde_json::from_str(params.get()).ok());
        Some(asked.map(|asked| asked.notifications.resource_subscriptions).unwrap_or_default())
    }

    /// `tools/list` with `"lazy": false`: a client of the lazy mode wants all definitions for once. The SDK drops that member.
    pub(super) fn asks_for_everything(&self) -> bool {
        #[derive(Deserialize)]
        struct Listing {
            lazy: Option<bool>,
        }
        let listing: Option<Listing> = self.params.and_then(|params| serde_json::from_str(params.get()).ok());
        listing.and_then(|listing| listing.lazy) == Some(false)
    }

    fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

/// Whether a request with these headers is of a version that has sessions.
pub(super) fn has_sessions(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION).and_then(|version| version.to_str().ok());
    version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str())
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn what_is_listened_to_is_read() {
        let listens = |params: &str| Message::read(format!(r#"{{"id":1,"method":"subscriptions/listen"{params}}}"#).as_bytes()).listens();
        assert_eq!(listens(r#","params":{"notifications":{"resourceSubscriptions":["a"],"x":1}}"#), Some(vec!["a".to_owned()]));
        for nothing in
            ["", r#","params":{}"#, r#","params":{"notifications":{"toolsListChanged":true}}"#, r#","params":{"notifications":7}"#]
        {
            assert_eq!(listens(nothing), Some(Vec::new()), "{nothing}");
        }
        assert_eq!(Message::read(br#"{"id":1,"method":"tools/list"}"#).listens(), None);
    }

    #[test]
    fn messages_are_told_apart() {
        let request = Message::read(br#"{"jsonrpc":"2.0","id": "a1","method":"initialize","params":{}}"#);
        assert!(request.is_initialize() && request.answers().is_none());
        assert_eq!(request.request(), Some("\"a1\""));
        let cancelled = Message::read(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!((cancelled.cancels(), cancelled.request()), (Some("7"), None));
        for answer in [r#"{"id":3,"result":{}}"#, r#"{"id":3,"error":{"code":1,"message":"x"}}"#] {
            assert_eq!(Message::read(answer.as_bytes()).answers(), Some("3"));
        }
        for other in ["", "[]", "null", r#"{"id":3}"#, r#"{"result":{}}"#, r#"{"method":5}"#] {
            let message = Message::read(other.as_bytes());
            assert!(message.answers().is_none() && message.request().is_none() && message.cancels().is_none(), "{other}");
        }
    }
}
