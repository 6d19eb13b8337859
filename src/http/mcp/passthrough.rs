//! Forwards prompts, resources and completions between MCP clients and servers: finds the right server and translates
//! names.
//!
//! Where several servers are reachable, a prompt is named `SERVER__NAME` and a resource `toolsieve://SERVER/URI`. The
//! server's own URI follows the slash unchanged. So removing the prefix restores the URI, even if the client built it
//! from a template. At an address of a single server, prompts and resources have their original names.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceRequestParams, ReadResourceResponse, Reference, ResultType,
    ServerCapabilities,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::rounds;
use super::server::{Handler, LIST_TTL_MS};
use crate::domain::catalog::hidden_text;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::json::{self, Edit};
use crate::http::problem::Problem;
use crate::service::caller::CallOptions;
use crate::service::mcp::passthrough::{PassError, PassthroughCaller, member_of_name};
use crate::service::mcp::waiting_calls::{Subject, WaitError};
use crate::service::ports::{CallError, PassthroughKind, PassthroughRequest};

/// Separates the server's name from the prompt's name.
const BETWEEN: &str = "__";
const SCHEME: &str = "toolsieve://";
/// Characters that are not escaped in a server's name within a URI (RFC 3986).
const IN_ADDRESS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
pub(super) const INVALID_PARAMS: i64 = -32602;

/// The public URI of a server's resource.
pub(super) fn prefixed_uri(server: &ServerName, uri: &str) -> String {
    format!("{SCHEME}{}/{uri}", utf8_percent_encode(server.as_str(), IN_ADDRESS))
}

fn server_of_uri(prefixed: &str) -> Option<(ServerName, &str)> {
    let (server, uri) = prefixed.strip_prefix(SCHEME)?.split_once('/')?;
    let server = percent_decode_str(server).decode_utf8().ok()?;
    Some((ServerName::from(&*server), uri))
}

impl Handler {
    pub(super) fn passthrough_caller(&self) -> PassthroughCaller {
        PassthroughCaller { caller: self.caller.clone(), address: Arc::clone(&self.served), server: self.server.clone() }
    }

    /// Adds prompts, resources and completions to the announced capabilities.
    pub(super) fn announce(&self, capabilities: &mut ServerCapabilities) {
        let offers = self.state.passthrough.offers(&self.passthrough_caller());
        let list_changed = self.receives_changes.then_some(true);
        capabilities.prompts = offers.prompts.then(Default::default);
        if let Some(prompts) = &mut capabilities.prompts {
            prompts.list_changed = list_changed;
        }
        capabilities.resources = offers.resources.then(Default::default);
        if let Some(resources) = &mut capabilities.resources {
            resources.list_changed = list_changed;
            resources.subscribe = list_changed.filter(|_| offers.subscriptions);
        }
        capabilities.completions = offers.completions.then(Default::default);
    }

    pub(super) async fn prompts(&self) -> ListPromptsResult {
        let prompts = self.entries(PassthroughKind::Prompts, prompt_name).await;
        ListPromptsResult::with_all_items(prompts).with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private)
    }

    pub(super) async fn resources(&self) -> ListResourcesResult {
        let resources = self.entries(PassthroughKind::Resources, prefixed_uri).await;
        ListResourcesResult::with_all_items(resources).with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private)
    }

    pub(super) async fn resource_templates(&self) -> ListResourceTemplatesResult {
        let templates = self.entries(PassthroughKind::ResourceTemplates, prefixed_uri).await;
        ListResourceTemplatesResult::with_all_items(templates).with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private)
    }

    pub(super) async fn prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let round = rounds::round(context, request.input_responses.take(), request.request_state.take());
        let requested = request.name.clone();
        let unknown = || ErrorData::invalid_params(format!("Unknown prompt: {requested}"), None);
        let Some((server, name)) = self.server_of_prompt(&requested) else {
            self.note_denied_prompt(&requested);
            return Err(unknown());
        };
        request.name.clone_from(&name);
        request.meta = None;
        let subject = Subject::Prompt(server.clone(), name);
        let result = self
            .ask(&server, passthrough_request(PassthroughKind::Prompt, &request), subject, round)
            .await
            .map_err(|error| error_data(error, unknown))?;
        if let Some(question) = self.written.question(result.get()) {
            return Ok(question.into());
        }
        let messages = listed(result.get(), "messages").ok_or_else(unreadable)?;
        let uris = if self.server.is_none() { uris_in_prompt(&messages) } else { Vec::new() };
        let result = with_server(&server, result.get(), &uris);
        Ok(self.written.prompt(result).ok_or_else(unreadable)?.into())
    }

    pub(super) async fn resource(
        &self,
        mut request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let round = rounds::round(context, request.input_responses.take(), request.request_state.take());
        let requested = request.uri.clone();
        // Protocol 2026-07-28 has no separate code for unknown resources.
        let code = if round.is_some() { INVALID_PARAMS } else { RESOURCE_NOT_FOUND };
        let missing = |message: String| protocol_error(code, message, Some(json!({ "uri": requested })));
        let unknown = || unknown_resource(&requested, code);
        let (server, uri) = self.server_of_resource(&requested).await.ok_or_else(unknown)?;
        request.uri.clone_from(&uri);
        request.meta = None;
        let subject = Subject::Resource(server.clone(), uri);
        let result = match self.ask(&server, passthrough_request(PassthroughKind::Resource, &request), subject, round).await {
            Ok(result) => result,
            Err(PassError::Call(CallError::Protocol { code: RESOURCE_NOT_FOUND | INVALID_PARAMS, message, .. })) => {
                return Err(missing(message));
            }
            Err(error) => return Err(error_data(error, unknown)),
        };
        if let Some(question) = self.written.question(result.get()) {
            return Ok(question.into());
        }
        let contents = listed(result.get(), "contents").ok_or_else(unreadable)?;
        let uris = if self.server.is_none() { uris_in_resource(&contents) } else { Vec::new() };
        let result = with_server(&server, result.get(), &uris);
        Ok(self.written.resource(result).ok_or_else(unreadable)?.into())
    }

    pub(super) async fn completion(&self, mut request: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        let unknown = || ErrorData::invalid_params("There is no prompt or resource with this name to complete.", None);
        let server = match &mut request.r#ref {
            Reference::Prompt(prompt) => {
                let (server, name) = self.server_of_prompt(&prompt.name).ok_or_else(unknown)?;
                prompt.name = name;
                server
            }
            Reference::Resource(resource) => {
                let (server, uri) = self.server_of_resource(&resource.uri).await.ok_or_else(unknown)?;
                resource.uri = uri;
                server
            }
            _ => return Err(unknown()),
        };
        request.meta = None;
        let completion = passthrough_request(PassthroughKind::Completion, &request);
        let answered = self.state.passthrough.ask(&server, completion, &self.passthrough_caller(), CallOptions::default()).await;
        let result = answered.map_err(|error| error_data(error, unknown))?;
        let mut result: CompleteResult = read(&result)?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }

    /// The entries that all servers list, with public names and without hidden characters. Omits unreadable entries.
    async fn entries<T: DeserializeOwned>(&self, what: PassthroughKind, named: fn(&ServerName, &str) -> String) -> Vec<T> {
        let (mut entries, key) = (Vec::new(), member_of_name(what));
        for (server, listed) in self.state.passthrough.list(what, &self.passthrough_caller()).await {
            for entry in listed.iter() {
                let mut shown = hidden_text::clean(entry).value.unwrap_or_else(|| entry.clone());
                // Removes hidden characters from the name too.
                if let Some((name, _)) = shown.get("name").and_then(Value::as_str).and_then(hidden_text::strip) {
                    shown["name"] = name.into();
                }
                let Some(name) = shown.get(key).and_then(Value::as_str) else { continue };
                if self.server.is_none() {
                    shown[key] = named(&server, name).into();
                }
                entries.extend(serde_json::from_value(shown).ok());
            }
        }
        entries
    }

    /// Finds the server and the original name of a prompt. If several server names match, the longest one wins.
    fn server_of_prompt(&self, name: &str) -> Option<(ServerName, String)> {
        let (server, name) = match &self.server {
            Some(server) => (server.clone(), name.to_owned()),
            None => prompt_of(self.state.passthrough.readable(&self.passthrough_caller()), name)?,
        };
        let own = self.state.passthrough.own_name(&server, PassthroughKind::Prompts, &name);
        Some((server, own))
    }

    fn note_denied_prompt(&self, name: &str) {
        let Some((server, name)) = prompt_of(self.state.passthrough.all_servers(), name) else { return };
        let request = PassthroughRequest { what: PassthroughKind::Prompt, params: json!({ "name": name }) };
        self.state.passthrough.note_denial(&server, &request, &self.caller.principal);
    }

    /// Finds the server and the original URI of a resource. A client may also use the original URI, which it found in a
    /// result. Such a resource belongs to the only server that lists it. If no server lists it, it belongs to the only server that
    /// has resources.
    pub(super) async fn server_of_resource(&self, uri: &str) -> Option<(ServerName, String)> {
        let own = |server: ServerName, uri: &str| {
            let uri = self.state.passthrough.own_name(&server, PassthroughKind::Resources, uri);
            (server, uri)
        };
        if let Some(server) = &self.server {
            return Some(own(server.clone(), uri));
        }
        if let Some((server, uri)) = server_of_uri(uri) {
            return Some(own(server, uri));
        }
        let lists = self.state.passthrough.list(PassthroughKind::Resources, &self.passthrough_caller()).await;
        Some((server_that_lists(uri, &lists)?.clone(), uri.to_owned()))
    }
}

fn passthrough_request(what: PassthroughKind, params: &impl Serialize) -> PassthroughRequest {
    PassthroughRequest { what, params: serde_json::to_value(params).unwrap_or_default() }
}

/// The server of a resource with this original URI. `None` if several servers list it, because any of them could be meant.
fn server_that_lists<'a>(uri: &str, lists: &'a [(ServerName, Arc<Vec<Value>>)]) -> Option<&'a ServerName> {
    let lists_it = |entries: &Vec<Value>| entries.iter().any(|entry| entry.get("uri").is_some_and(|known| known == uri));
    let mut found = lists.iter().filter(|(_, entries)| lists_it(entries)).map(|(server, _)| server);
    match (found.next(), found.next(), lists) {
        (Some(only), None, _) | (None, None, [(only, _)]) => Some(only),
        _ => None,
    }
}

/// The items of a result's list.
fn listed<'a>(result: &'a str, name: &str) -> Option<Vec<&'a RawValue>> {
    json::items(json::member(result, name)?.get())
}

/// The resource URIs in the messages of a prompt, with their JSON pointers.
fn uris_in_prompt(messages: &[&RawValue]) -> Vec<(String, String)> {
    let linked = messages.iter().enumerate().filter_map(|(number, message)| {
        let content = json::member(message.get(), "content")?;
        let (holder, pointer) = match &*text_member(content, "type")? {
            "resource_link" => (content, format!("/messages/{number}/content/uri")),
            "resource" => (json::member(content.get(), "resource")?, format!("/messages/{number}/content/resource/uri")),
            _ => return None,
        };
        Some((pointer, text_member(holder, "uri")?))
    });
    linked.filter(|(_, uri)| !is_public(uri)).collect()
}

/// The URIs in the contents of a resource, with their JSON pointers.
fn uris_in_resource(contents: &[&RawValue]) -> Vec<(String, String)> {
    let uris = contents.iter().enumerate().filter_map(|(number, content)| Some((number, text_member(content, "uri")?)));
    uris.map(|(number, uri)| (format!("/contents/{number}/uri"), uri)).collect()
}

fn text_member(value: &RawValue, name: &str) -> Option<String> {
    json::text(json::member(value.get(), name)?.get())
}

/// The result with the server's name in these URIs, for addresses that serve many servers.
fn with_server(server: &ServerName, result: &str, uris: &[(String, String)]) -> String {
    let prefixed = |uri: &str| Edit::Replace(json::quoted(&prefixed_uri(server, uri)));
    let edits: Vec<(&str, Edit)> = uris.iter().map(|(pointer, uri)| (pointer.as_str(), prefixed(uri))).collect();
    json::edit_all(result, edits.iter().map(|(pointer, edit)| (*pointer, edit))).unwrap_or_else(|| result.to_owned())
}

/// Whether clients can read the resource without the service.
pub(super) fn is_public(uri: &str) -> bool {
    ["http:", "https:"].iter().any(|scheme| uri.starts_with(scheme))
}

fn prompt_of(servers: Vec<ServerName>, name: &str) -> Option<(ServerName, String)> {
    let fitting = servers.into_iter().filter_map(|server| {
        let own = name.strip_prefix(server.as_str())?.strip_prefix(BETWEEN)?.to_owned();
        Some((server, own))
    });
    fitting.max_by_key(|(server, _)| server.as_str().len())
}

/// The error for an unknown or hidden resource, with the code for the client's protocol version.
pub(super) fn unknown_resource(uri: &str, code: i64) -> ErrorData {
    protocol_error(code, format!("Unknown resource: {uri}"), Some(json!({ "uri": uri })))
}

fn prompt_name(server: &ServerName, name: &str) -> String {
    format!("{server}{BETWEEN}{name}")
}

fn read<T: DeserializeOwned>(result: &RawValue) -> Result<T, ErrorData> {
    serde_json::from_str(result.get()).map_err(|_| unreadable())
}

fn unreadable() -> ErrorData {
    ErrorData::internal_error("The server's answer can't be read.", None)
}

pub(super) fn protocol_error(code: i64, message: String, data: Option<Value>) -> ErrorData {
    ErrorData::new(ErrorCode(i32::try_from(code).unwrap_or(ErrorCode::INTERNAL_ERROR.0)), message, data)
}

/// Forwards a server's error unchanged, and describes the service's own errors as over HTTP.
pub(super) fn error_data(error: PassError, unknown: impl Fn() -> ErrorData) -> ErrorData {
    let problem = match error {
        PassError::NotFound | PassError::Call(CallError::UnknownServer) => return unknown(),
        PassError::Call(CallError::Protocol { code, message, data }) => return protocol_error(code, message, data.map(|data| *data)),
        PassError::Waiting(error @ WaitError::Unknown) => return unknown_state(error),
        // Nothing was carried out.
        PassError::Call(error @ CallError::Timeout(_)) => return ErrorData::internal_error(format!("{error}."), None),
        PassError::Call(error) => Problem::from(error),
        PassError::Credentials(error) => Problem::from(error),
        PassError::Limited(limited) => Problem::from(limited),
        PassError::Waiting(error) => Problem::from(error),
    };
    ErrorData::internal_error(problem.detail, None)
}

/// The error for a state that is unknown for this client.
pub(super) fn unknown_state(error: WaitError) -> ErrorData {
    ErrorData::invalid_params(format!("{error}."), None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{listed, prefixed_uri, server_of_uri, server_that_lists, uris_in_prompt, uris_in_resource, with_server};
    use crate::domain::catalog::tool::ServerName;

    #[test]
    fn what_a_prompt_refers_to_says_whose_it_is() {
        let link = |uri: &str| format!(r#"{{"role":"user","content":{{"uri":"{uri}", "type":"resource_link","odd":1.50}}}}"#);
        let embedded = |uri: &str| format!(r#"{{"content":{{"type":"resource","resource":{{"text":"x","uri":"{uri}"}}}}}}"#);
        let others = r#"{"content":{"type":"text","uri":"doc://a"}},{"content":[7]},{"content":{"type":"hologram","uri":"doc://a"}},7"#;
        let prompt = |one: &str, two: &str| {
            format!(r#"{{"messages": [{},{},{},{others}],"n":1e2}}"#, link(one), embedded(two), link("https://example.org/a"))
        };
        let own = prompt("doc://a", "doc://b");
        let uris = uris_in_prompt(&listed(&own, "messages").unwrap());
        let expected = prompt("toolsieve://one/doc://a", "toolsieve://one/doc://b");
        assert_eq!(with_server(&ServerName::from("one"), &own, &uris), expected);
        assert!(listed(r#"{"messages":7}"#, "messages").is_none() && listed("{}", "messages").is_none());
    }

    #[test]
    fn what_a_resource_contains_says_whose_it_is() {
        let resource = |one: &str, two: &str| format!(r#"{{"contents":[{{"uri":"{one}","odd":1.50}},7,{{"uri":"{two}"}}]}}"#);
        let own = resource("doc://a", "https://example.org/a");
        let uris = uris_in_resource(&listed(&own, "contents").unwrap());
        let expected = resource("toolsieve://one/doc://a", "toolsieve://one/https://example.org/a");
        assert_eq!(with_server(&ServerName::from("one"), &own, &uris), expected);
    }

    #[test]
    fn a_uri_that_several_servers_list_belongs_to_none() {
        let list = |server: &str, uris: &[&str]| {
            let entries = uris.iter().map(|uri| json!({"uri": uri})).collect();
            (ServerName::from(server), Arc::new(entries))
        };
        let lists = [list("one", &["doc://a", "doc://b"]), list("two", &["doc://b", "doc://c"])];
        let of = |uri: &str| server_that_lists(uri, &lists).map(ServerName::as_str);
        assert_eq!((of("doc://a"), of("doc://c")), (Some("one"), Some("two")));
        assert_eq!((of("doc://b"), of("doc://d")), (None, None));
        assert_eq!(server_that_lists("doc://d", &lists[..1]).map(ServerName::as_str), Some("one"), "nobody else has resources");
    }

    #[test]
    fn a_prefixed_uri_gives_back_what_it_was_made_of() {
        for (server, uri) in [("a", "test://x/y?z=1#f"), ("my_server.x", "file:///a b"), ("ä/b c", "x://{id}/data"), ("a", "")] {
            let server = ServerName::from(server);
            assert_eq!(server_of_uri(&prefixed_uri(&server, uri)), Some((server, uri)));
        }
        assert_eq!(prefixed_uri(&ServerName::from("ä/b"), "test://{id}"), "toolsieve://%C3%A4%2Fb/test://{id}");
        assert!(server_of_uri("test://x").is_none() && server_of_uri("toolsieve://x").is_none());
    }
}
