//! Reads the parts of an MCP client's message that are needed before the SDK handles it.

use std::borrow::Cow;
use std::sync::Arc;

use actix_web::web::Bytes;
use http::HeaderMap;
use rmcp::model::ProtocolVersion;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::server::{DESCRIBE, DESCRIBE_BATCH};
use super::unreadable;
use crate::domain::text::json::{self, Members};
use crate::service::mcp::mcp_sessions::Abilities;

const ID: &str = "id";
const METHOD: &str = "method";
const PARAMS: &str = "params";
const ARGUMENTS: &str = "arguments";
const META: &str = "_meta";
const PARSE_ERROR: i64 = -32700;
pub(super) const INVALID_REQUEST: i64 = -32600;
const INITIALIZE: &str = "initialize";
const DISCOVER: &str = "server/discover";
const CANCELLED: &str = "notifications/cancelled";
/// The notifications that the SDK knows.
const NOTIFICATIONS: [&str; 4] = [CANCELLED, "notifications/initialized", "notifications/progress", "notifications/roots/list_changed"];
const CALL_TOOL: &str = "tools/call";
const LIST_TOOLS: &str = "tools/list";
const LISTEN: &str = "subscriptions/listen";
const VERSION: &str = "mcp-protocol-version";

/// The members of a JSON-RPC message that this module needs. If a member occurs twice, the last one counts, as in the
/// SDK.
#[derive(Default)]
pub(super) struct Message<'a> {
    members: Members<'a>,
    method: Option<String>,
    is_answer: bool,
}

/// The error for a message that is not valid JSON-RPC.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) code: i64,
    pub(super) message: String,
    /// The message's id as JSON text, if it could be read.
    pub(super) id: Option<String>,
}

/// A message, divided between the SDK and this service.
pub(super) struct Parted {
    /// The message that the SDK gets.
    pub(super) body: Bytes,
    /// The arguments of a tool call as unchanged JSON text. Parsing them into a tree would round numbers.
    pub(super) arguments: Option<Arc<str>>,
}

impl<'a> Message<'a> {
    /// Reads the message in a request body. Batches are rejected.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Unreadable> {
        let parse_error = |error: serde_json::Error| Unreadable { code: PARSE_ERROR, message: format!("Parse error: {error}"), id: None };
        let json: &RawValue = serde_json::from_slice(body).map_err(parse_error)?;
        let invalid = |message: &str| Unreadable { code: INVALID_REQUEST, message: format!("Invalid request: {message}"), id: None };
        match json.get().as_bytes().first() {
            Some(b'{') => {}
            Some(b'[') => return Err(invalid("a batch is not supported, send one message at a time")),
            _ => return Err(invalid("a message is an object")),
        }
        let members = json::read_members(json.get()).map_err(parse_error)?;
        let id = members.get(ID).copied();
        let has_id = id.is_none_or(|id| is_id(id.get()));
        let known_id = || id.filter(|_| has_id).map(|id| id.get().to_owned());
        let invalid = |message: &str| Unreadable { id: known_id(), ..invalid(message) };
        if members.get("jsonrpc").and_then(|version| json::text(version.get())).as_deref() != Some("2.0") {
            return Err(invalid("`jsonrpc` is \"2.0\""));
        }
        let method = match members.get(METHOD) {
            Some(method) => Some(json::text(method.get()).ok_or_else(|| invalid("`method` is a string"))?),
            None => None,
        };
        let is_answer = method.is_none() && (members.contains_key("result") || members.contains_key("error"));
        match (&method, is_answer) {
            (None, false) => Err(invalid("there is no `method`")),
            (Some(_), _) if !has_id => Err(invalid("`id` is a string or a whole number")),
            _ => Ok(Self { members, method, is_answer }),
        }
    }

    /// Divides the message. With `checks_headers`, the SDK also gets the arguments, because it compares them with
    /// headers that repeat them. The parameters of unknown methods go nowhere.
    pub(super) fn part(&self, body: Bytes, checks_headers: bool) -> Parted {
        if self.params().is_some() && !self.has_known_method() {
            let message = self.without_parameters();
            return Parted { body: message.map_or(body, |message| json::bounded(&message).into_owned().into()), arguments: None };
        }
        let params = self.params().filter(|_| self.calls_a_tool()).and_then(|params| json::members(params.get()));
        let arguments = params.as_ref().and_then(|params| params.get(ARGUMENTS)).map(|arguments| arguments.get());
        let Some(arguments) = arguments.filter(|arguments| arguments.starts_with('{')) else {
            let bounded = std::str::from_utf8(&body).ok().and_then(|text| match json::bounded(text) {
                Cow::Owned(bounded) => Some(bounded.into()),
                Cow::Borrowed(_) => None,
            });
            return Parted { body: bounded.unwrap_or(body), arguments: None };
        };
        let for_sdk = if checks_headers { Some(json::with_texts_for_numbers(arguments)) } else { None };
        // Arguments that the SDK can't parse are not compared.
        let for_sdk = for_sdk.filter(|arguments| serde_json::from_str::<Value>(arguments).is_ok()).unwrap_or(Cow::Borrowed("{}"));
        let message = self.with_arguments(params.as_ref(), &for_sdk);
        Parted { body: message.map_or(body, |message| json::bounded(&message).into_owned().into()), arguments: Some(arguments.into()) }
    }

    fn with_arguments(&self, params: Option<&Members<'_>>, arguments: &str) -> Option<String> {
        let arguments: &RawValue = serde_json::from_str(arguments).ok()?;
        let mut params = params?.clone();
        params.insert(ARGUMENTS.into(), arguments);
        let params = serde_json::value::to_raw_value(&params).ok()?;
        let mut members = self.members.clone();
        members.insert(PARAMS.into(), &params);
        serde_json::to_string(&members).ok()
    }

    /// Whether the method is one of the protocol, or of the lazy mode. Answers have no method, and count as known.
    fn has_known_method(&self) -> bool {
        let is_known = |method: &str| {
            [DESCRIBE, DESCRIBE_BATCH].contains(&method) || NOTIFICATIONS.contains(&method) || unreadable::of(method, false).is_some()
        };
        self.method.as_deref().is_none_or(is_known)
    }

    /// The message with the metadata alone, which the SDK needs for its answer. It would copy all parameters several times.
    fn without_parameters(&self) -> Option<String> {
        let mut params = json::members(self.params()?.get()).unwrap_or_default();
        params.retain(|name, _| name == META);
        let params = serde_json::value::to_raw_value(&params).ok()?;
        let mut members = self.members.clone();
        members.insert(PARAMS.into(), &params);
        serde_json::to_string(&members).ok()
    }

    fn id(&self) -> Option<&'a RawValue> {
        self.members.get(ID).copied()
    }

    fn params(&self) -> Option<&'a RawValue> {
        self.members.get(PARAMS).copied()
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.id().is_some() && self.is(INITIALIZE)
    }

    /// Whether the message asks for the server's name and capabilities.
    pub(super) fn asks_who(&self) -> bool {
        self.is(INITIALIZE) || self.is(DISCOVER)
    }

    /// The id of this request, as JSON text.
    pub(super) fn request(&self) -> Option<&'a str> {
        self.method.as_ref()?;
        self.id().map(RawValue::get)
    }

    /// The id of the service's own request that this message answers.
    pub(super) fn answers(&self) -> Option<&'a str> {
        self.id().filter(|_| self.is_answer).map(RawValue::get)
    }

    /// The id of the request that this message cancels.
    pub(super) fn cancels(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request: &'a RawValue,
        }
        let cancelled = serde_json::from_str::<Cancelled<'a>>(self.params().filter(|_| self.is(CANCELLED))?.get()).ok()?;
        Some(cancelled.request.get())
    }

    /// The client's capabilities in an `initialize` request.
    pub(super) fn abilities(&self) -> Abilities {
        let params: Option<Value> = self.params().and_then(|params| serde_json::from_str(params.get()).ok());
        params
            .and_then(|mut params| params.get_mut("capabilities").map(Value::take))
            .map(|value| Abilities::read(&value))
            .unwrap_or_default()
    }

    /// Whether the message needs to know which servers' prompts and resources the address has.
    pub(super) fn needs_servers(&self) -> bool {
        let prefixes = ["prompts/", "resources/", "completion/", LISTEN];
        self.asks_who() || self.method.as_deref().is_some_and(|method| prefixes.iter().any(|prefix| method.starts_with(prefix)))
    }

    pub(super) fn calls_a_tool(&self) -> bool {
        self.is(CALL_TOOL)
    }

    pub(super) fn lists_tools(&self) -> bool {
        self.is(LIST_TOOLS)
    }

    /// The resource URIs for which the client opens a notification stream (protocol 2026-07-28).
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
        let listen: Option<Listen> = self.params().and_then(|params| serde_json::from_str(params.get()).ok());
        Some(listen.map(|listen| listen.notifications.resource_subscriptions).unwrap_or_default())
    }

    /// Whether the message is `tools/list` with `"lazy": false`, by which a client in lazy mode requests all full
    /// definitions. The SDK drops this member.
    pub(super) fn asks_for_everything(&self) -> bool {
        #[derive(Deserialize)]
        struct Listing {
            lazy: Option<bool>,
        }
        let listing: Option<Listing> = self.params().and_then(|params| serde_json::from_str(params.get()).ok());
        listing.and_then(|listing| listing.lazy) == Some(false)
    }

    fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

/// Whether the text is a valid id for the SDK: a string or a 64-bit integer.
fn is_id(id: &str) -> bool {
    id.starts_with('"') || id.parse::<i64>().is_ok()
}

/// Whether a request with these headers uses a protocol version that has sessions.
pub(super) fn has_sessions(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION).and_then(|version| version.to_str().ok());
    version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str())
}

#[cfg(test)]
mod tests {
    use actix_web::web::Bytes;

    use super::{INVALID_REQUEST, Message, PARSE_ERROR};

    fn read(message: &str) -> Message<'_> {
        Message::read(message.as_bytes()).unwrap_or_else(|error| panic!("{error:?}"))
    }

    #[test]
    fn what_is_listened_to_is_read() {
        let listens = |params: &str| read(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"{params}}}"#)).listens();
        assert_eq!(listens(r#","params":{"notifications":{"resourceSubscriptions":["a"],"x":1}}"#), Some(vec!["a".to_owned()]));
        for nothing in
            ["", r#","params":{}"#, r#","params":{"notifications":{"toolsListChanged":true}}"#, r#","params":{"notifications":7}"#]
        {
            assert_eq!(listens(nothing), Some(Vec::new()), "{nothing}");
        }
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).listens(), None);
    }

    #[test]
    fn kinds_of_messages_are_distinguished() {
        let request = read(r#"{"jsonrpc":"2.0","id": "a1","method":"initialize","params":{}}"#);
        assert!(request.is_initialize() && request.answers().is_none());
        assert_eq!(request.request(), Some("\"a1\""));
        let cancelled = read(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!((cancelled.cancels(), cancelled.request()), (Some("7"), None));
        for answer in [r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, r#"{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}}"#] {
            assert_eq!(read(answer).answers(), Some("3"));
        }
        assert_eq!(read(r#"{"jsonrpc":"2.0","result":{}}"#).answers(), None);
    }

    #[test]
    fn what_is_no_message_is_an_error_of_the_protocol() {
        let error = |message: &str| Message::read(message.as_bytes()).err().map(|error| (error.code, error.id));
        for broken in ["", "{", "{\"jsonrpc\": NaN}", "{}x", "\u{feff}{}"] {
            assert_eq!(error(broken), Some((PARSE_ERROR, None)), "{broken}");
        }
        assert_eq!(Message::read(b"{\"a\": \"\xff\"}").err().map(|error| error.code), Some(PARSE_ERROR));
        for (odd, id) in [
            ("[]", None),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, None),
            ("null", None),
            ("5", None),
            ("{}", None),
            (r#"{"id":3,"method":"ping"}"#, Some("3")),
            (r#"{"jsonrpc":"1.0","id":"x","method":"ping"}"#, Some("\"x\"")),
            (r#"{"jsonrpc":"2.0","id":3}"#, Some("3")),
            (r#"{"jsonrpc":"2.0","id":3,"method":5}"#, Some("3")),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, None),
        ] {
            assert_eq!(error(odd), Some((INVALID_REQUEST, id.map(str::to_owned))), "{odd}");
        }
    }

    /// Regression: the SDK made several trees of parameters that nobody reads.
    #[test]
    fn parameters_of_unknown_methods_go_nowhere() {
        let message = |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let sent = |message: String| {
            let parted = read(&message).part(Bytes::from(message.clone()), true);
            assert!(parted.arguments.is_none());
            String::from_utf8(parted.body.to_vec()).unwrap()
        };
        let params = r#"{"b":[[0],[0]],"_meta":{"progressToken":7}}"#;
        for method in ["tools/other", "x", "notifications/other"] {
            assert_eq!(sent(message(method, params)), message(method, r#"{"_meta":{"progressToken":7}}"#));
            assert_eq!(sent(message(method, r#"{"b":1}"#)), message(method, "{}"));
            assert_eq!(sent(message(method, "[[0],[0]]")), message(method, "{}"));
        }
        for method in ["prompts/get", "tools/describe", "notifications/progress", "ping"] {
            assert_eq!(sent(message(method, params)), message(method, params));
        }
    }

    #[test]
    fn arguments_are_set_aside_as_they_were_written() {
        let part = |message: &str, checks_headers| {
            let parted = read(message).part(Bytes::from(message.to_owned()), checks_headers);
            (String::from_utf8(parted.body.to_vec()).unwrap(), parted.arguments.as_deref().map(str::to_owned))
        };
        let written = r#"{ "a":1e999, "b": 12345678901234567890123 ,"a":[0.10]}"#;
        let call = |arguments: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","arguments":{arguments},"_meta":{{}}}}}}"#)
        };
        assert_eq!(part(&call(written), false), (call("{}"), Some(written.to_owned())));
        let readable = r#"{ "a":"1e999", "b": "12345678901234567890123" ,"a":[0.10]}"#;
        assert_eq!(part(&call(written), true), (call(readable), Some(written.to_owned())));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(part(&call(&deep), true), (call("{}"), Some(deep)));
        // The SDK itself rejects these arguments.
        for odd in ["null", "[1]", "\"{}\""] {
            assert_eq!(part(&call(odd), true), (call(odd), None));
        }
        let other = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"arguments":{"a":1e999}}}"#;
        assert_eq!(part(other, false), (other.replace("1e999", "1.7976931348623157e308"), None));
    }
}
