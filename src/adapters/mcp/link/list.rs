//! Lists a server's tools. Invalid tools are skipped; the size of the whole list is strictly limited.

use std::collections::HashSet;

use ::http::StatusCode;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::adapters::mcp::exchange::{Listeners, Purpose};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::link::{Link, Reply};
use crate::domain::catalog::catalog::MAX_TOOLS;
use crate::domain::text::json;
use crate::domain::text::json_text::JsonText;
use crate::service::ports::SkippedTool;

const MAX_PAGES: usize = 1000;
/// Maximum size of all pages together, in bytes, inclusive.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of consecutive pages without a tool.
const MAX_EMPTY_PAGES: usize = 10;
/// Maximum nesting depth of a definition. JSON parsers, here and in clients, stop at 128 levels.
const MAX_DEPTH: usize = 100;
/// Members that contain prose. A lone surrogate there, which many parsers reject, counts as U+FFFD.
const PROSE: [&str; 2] = ["title", "description"];
const METHOD_NOT_FOUND: i64 = -32601;
/// Errors of a server that does not know the request in this form: invalid request, unknown method, invalid parameters, unsupported
/// protocol version.
const NOT_UNDERSTOOD: [i64; 4] = [-32600, METHOD_NOT_FOUND, -32602, -32022];

/// A server's tools as sent.
#[derive(Debug, Default, PartialEq)]
pub(in crate::adapters::mcp) struct Tools {
    pub(in crate::adapters::mcp) tools: Vec<JsonText>,
    pub(in crate::adapters::mcp) skipped: Vec<SkippedTool>,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum ListError {
    #[error("listing the tools failed: {0}")]
    Link(#[from] LinkError),
    /// The server answered the request for another than the first page with an error.
    #[error("listing the tools failed: {0}")]
    LaterPage(LinkError),
    #[error("the response to tools/list has no list of tools")]
    NoList,
}

impl ListError {
    /// Whether the server itself seems to be gone, although something responds at its address. With any other status or error, it
    /// has responded.
    pub(in crate::adapters::mcp) fn shows_absence(&self) -> bool {
        match self {
            Self::Link(LinkError::Refused(StatusCode::NOT_FOUND | StatusCode::GONE)) => true,
            Self::Link(error) => error.is_of_proxy(),
            Self::LaterPage(_) | Self::NoList => false,
        }
    }

    /// Whether another server seems to respond at the address, with another protocol version or in another session: it does not understand
    /// the first request, with which the connection began.
    pub(in crate::adapters::mcp) fn shows_replacement(&self) -> bool {
        match self {
            Self::Link(LinkError::Rejected { .. } | LinkError::Refused(StatusCode::BAD_REQUEST)) => true,
            Self::Link(LinkError::Protocol { code, .. }) => NOT_UNDERSTOOD.contains(code),
            Self::Link(_) | Self::LaterPage(_) | Self::NoList => false,
        }
    }
}

/// Requests all pages. The result includes the skipped tools.
pub(in crate::adapters::mcp) async fn list(link: &Link) -> Result<Tools, ListError> {
    let mut collected = Collected::default();
    let mut cursor = None;
    loop {
        let request = match cursor.take() {
            Some(cursor) => ListToolsRequest::with_param(PaginatedRequestParams::default().with_cursor(Some(cursor))),
            None => ListToolsRequest::default(),
        };
        let Reply { result: page, bytes } =
            match link.request(ClientRequest::ListToolsRequest(request), Purpose::List, Listeners::default()).await {
                Ok(reply) => reply,
                // The server has only prompts or resources.
                Err(LinkError::Protocol { code: METHOD_NOT_FOUND, .. } | LinkError::Rejected { code: METHOD_NOT_FOUND, .. })
                    if !link.has_tools =>
                {
                    return Ok(Tools::default());
                }
                Err(error @ (LinkError::Protocol { .. } | LinkError::Rejected { .. })) if collected.pages > 0 => {
                    return Err(ListError::LaterPage(error));
                }
                Err(error) => return Err(error.into()),
            };
        cursor = collected.add(&page, bytes)?;
        if cursor.is_none() {
            return Ok(collected.found);
        }
    }
}

#[derive(Default)]
struct Collected {
    found: Tools,
    names: HashSet<String>,
    cursors: HashSet<String>,
    pages: usize,
    bytes: usize,
    empty_pages: usize,
    /// Number of tools so far, used or skipped.
    seen: usize,
}

impl Collected {
    /// Adds a page and returns the cursor of the next one. Splits the page as text, so that an invalid tool does not affect
    /// others.
    fn add(&mut self, page: &RawValue, bytes: usize) -> Result<Option<String>, ListError> {
        let page = json::members(page.get()).ok_or(ListError::NoList)?;
        let tools = page.get("tools").and_then(|tools| json::items(tools.get())).ok_or(ListError::NoList)?;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            return Ok(self.stop(&format!("more than {} MiB", MAX_BYTES >> 20)));
        }
        self.pages += 1;
        self.empty_pages = if tools.is_empty() { self.empty_pages + 1 } else { 0 };
        let (count, known) = (tools.len(), self.names.len());
        for tool in tools {
            self.seen += 1;
            if self.seen > MAX_TOOLS {
                return Ok(self.stop(&format!("more than {MAX_TOOLS} tools")));
            }
            self.read(tool);
        }
        let cursor = match page.get("nextCursor").map(|cursor| cursor.get()) {
            None | Some("null") => return Ok(None),
            Some(cursor) => match json::text(cursor) {
                // Some servers write this for `null`.
                Some(cursor) if cursor.is_empty() => return Ok(None),
                Some(cursor) => cursor,
                None => return Ok(self.stop("the next page's cursor is not a string")),
            },
        };
        if self.cursors.contains(&cursor) {
            return Ok(self.stop("the cursor repeats"));
        }
        if count > 0 && self.names.len() == known {
            return Ok(self.stop("the page has no new tool"));
        }
        if self.empty_pages >= MAX_EMPTY_PAGES || self.pages >= MAX_PAGES {
            return Ok(self.stop("there are too many pages"));
        }
        self.cursors.insert(cursor.clone());
        Ok(Some(cursor))
    }

    fn read(&mut self, tool: &RawValue) {
        let depth = json::depth(tool.get());
        let mended = || json::mended_in(tool.get(), &PROSE).and_then(|mended| json::readable(&mended).ok());
        if depth <= MAX_DEPTH
            && let Some(tool) = json::readable(tool.get()).ok().or_else(mended)
        {
            return self.take(&tool);
        }
        let name = json::member(tool.get(), "name").and_then(|name| json::text(name.get())).filter(|name| !name.is_empty());
        if let Some(name) = &name {
            self.names.insert(name.clone());
        }
        if depth > MAX_DEPTH {
            self.skip(name, &format!("its definition is {depth} levels deep; at most {MAX_DEPTH} are allowed"));
        } else {
            self.skip(name, "its definition is invalid");
        }
    }

    fn take(&mut self, tool: &Value) {
        let name = match tool.get("name") {
            Some(Value::String(name)) if !name.is_empty() => name.clone(),
            Some(Value::String(_)) => return self.skip(None, "its name is empty"),
            Some(_) => return self.skip(None, "its name is not a string"),
            None if tool.is_object() => return self.skip(None, "it has no name"),
            None => return self.skip(None, "it is not an object"),
        };
        if !self.names.insert(name.clone()) {
            return self.skip(Some(name), "duplicate name");
        }
        match tool.get("inputSchema") {
            Some(Value::Object(_)) => self.found.tools.push(JsonText::of(tool)),
            Some(_) => self.skip(Some(name), "its inputSchema is not an object"),
            None => self.skip(Some(name), "it has no inputSchema"),
        }
    }

    fn skip(&mut self, name: Option<String>, reason: &str) {
        let tool = name.unwrap_or_else(|| format!("tool {}", self.seen));
        self.found.skipped.push(SkippedTool { tool, reason: reason.to_owned() });
    }

    /// Ends the list early and keeps the tools so far.
    fn stop(&mut self, reason: &str) -> Option<String> {
        let tool = format!("everything after page {}", self.pages);
        self.found.skipped.push(SkippedTool { tool, reason: reason.to_owned() });
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    impl Collected {
        fn add_page(&mut self, page: &Value, bytes: usize) -> Result<Option<String>, ListError> {
            self.add(&to_raw_value(page).unwrap(), bytes)
        }
    }

    fn tool(name: &str) -> Value {
        json!({"name": name, "inputSchema": {"type": "object"}})
    }

    #[test]
    fn bad_tools_are_reported_and_the_others_kept_as_they_are() {
        let odd = json!({"zeta": 1, "name": "odd", "inputSchema": {}, "execution": {"x": [1.0]}});
        let page = json!({"tools": [
            tool("a"), odd, {"name": 7, "inputSchema": {}}, {"name": "", "inputSchema": {}}, {"inputSchema": {}},
            {"name": "b"}, {"name": "c", "inputSchema": true}, {"name": "d", "inputSchema": null}, "e",
            {"name": "a", "inputSchema": {}, "description": "second"},
        ]});
        let mut collected = Collected::default();
        assert_eq!(collected.add_page(&page, 100).unwrap(), None);
        let Tools { tools, skipped } = collected.found;
        assert_eq!(tools.iter().map(ToString::to_string).collect::<Vec<_>>(), [tool("a").to_string(), odd.to_string()]);
        let skipped: Vec<_> = skipped.iter().map(|skipped| format!("{}: {}", skipped.tool, skipped.reason)).collect();
        assert_eq!(
            skipped,
            [
                "tool 3: its name is not a string",
                "tool 4: its name is empty",
                "tool 5: it has no name",
                "b: it has no inputSchema",
                "c: its inputSchema is not an object",
                "d: its inputSchema is not an object",
                "tool 9: it is not an object",
                "a: duplicate name",
            ]
        );
    }

    #[test]
    fn a_listing_always_ends() {
        let mut collected = Collected::default();
        let page = |name: &str, cursor: Value| json!({"tools": [tool(name)], "nextCursor": cursor});
        assert_eq!(collected.add_page(&page("a", json!("1")), 100).unwrap(), Some("1".into()));
        assert_eq!(collected.add_page(&page("b", json!("1")), 100).unwrap(), None);
        assert_eq!(collected.add_page(&page("b", json!("2")), 100).unwrap(), None);
        assert_eq!(collected.add_page(&page("c", json!(3)), 100).unwrap(), None);
        let reasons: Vec<_> = collected.found.skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
        assert!(reasons.contains(&"the cursor repeats") && reasons.contains(&"the page has no new tool"));

        let mut ended = Collected::default();
        assert_eq!(ended.add_page(&page("a", json!("")), 100).unwrap(), None);
        assert!(ended.found.skipped.is_empty(), "an empty cursor is none");

        let mut endless = Collected::default();
        let mut pages = 0;
        while endless.add_page(&page(&pages.to_string(), json!(pages.to_string())), 100).unwrap().is_some() {
            pages += 1;
        }
        assert_eq!(pages + 1, MAX_PAGES);

        let mut empty = Collected::default();
        let mut pages = 0;
        while empty.add_page(&json!({"tools": [], "nextCursor": pages.to_string()}), 100).unwrap().is_some() {
            pages += 1;
        }
        assert_eq!(pages + 1, MAX_EMPTY_PAGES);
        let mut large = Collected::default();
        let mut pages = 0;
        while large.add_page(&page(&pages.to_string(), json!(pages.to_string())), 10 << 20).unwrap().is_some() {
            pages += 1;
        }
        assert_eq!((pages, large.found.tools.len()), (6, 6));
        assert_eq!(large.found.skipped[0].reason, "more than 64 MiB");
        assert!(matches!(Collected::default().add_page(&json!({"tools": {}}), 100), Err(ListError::NoList)));
    }

    #[test]
    fn an_error_for_the_first_page_may_come_from_another_server() {
        let protocol = |code: i64| LinkError::Protocol { code, message: String::new(), data: None };
        let rejected = || LinkError::Rejected { code: -32000, message: String::new(), data: None };
        for (error, is_shown) in [
            (ListError::Link(rejected()), true),
            (ListError::Link(LinkError::Refused(StatusCode::BAD_REQUEST)), true),
            (ListError::Link(protocol(-32022)), true),
            (ListError::Link(protocol(-32603)), false),
            (ListError::Link(LinkError::Refused(StatusCode::TOO_MANY_REQUESTS)), false),
            (ListError::LaterPage(protocol(-32602)), false),
            (ListError::NoList, false),
        ] {
            assert_eq!(error.shows_replacement(), is_shown, "{error:?}");
            assert!(!error.shows_absence(), "{error:?}");
        }
    }

    /// Regression test: one deeply nested definition made the whole server unavailable.
    #[test]
    fn a_definition_that_can_not_be_read_costs_one_tool() {
        let schema = |levels: usize| {
            let (open, close) = (r#"{"properties":{"a":"#.repeat(levels), "}}".repeat(levels));
            format!(r#"{open}{{"type":"object"}}{close}"#)
        };
        let tool = |name: &str, schema: &str| format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#);
        let far = r#"{"properties":{"a":{"maximum":1e999}}}"#;
        // Each level is two nested objects, and the schema and the tool add two more.
        let tools =
            [tool("a", "{}"), tool("deep", &schema(49)), tool("deeper", &schema(50)), tool("deepest", &schema(5_000)), tool("far", far)];
        let half = tool("half", r#"{"properties":{"\ud83d":{}}}"#);
        let prose = r#"{"name":"prose","title":"\udc00","description":"a \ud83d","inputSchema":{"properties":{"a":{"title":"\ud83d"}}}}"#;
        let page = format!(r#"{{"tools":[{},{half},{prose},{}],"nextCursor":null}}"#, tools.join(","), tool("z", "{}"));
        let mut collected = Collected::default();
        assert_eq!(collected.add(&RawValue::from_string(page).unwrap(), 100).unwrap(), None);
        let Tools { tools, skipped } = collected.found;
        let names: Vec<_> = tools.iter().map(|tool| tool.value()["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["a", "deep", "far", "prose", "z"]);
        let prose = tools[3].value();
        assert_eq!((&prose["title"], &prose["description"]), (&json!("\u{fffd}"), &json!("a \u{fffd}")));
        assert_eq!(prose["inputSchema"]["properties"]["a"]["title"], "\u{fffd}");
        let skipped: Vec<_> = skipped.iter().map(|skipped| format!("{}: {}", skipped.tool, skipped.reason)).collect();
        assert_eq!(
            skipped,
            [
                "deeper: its definition is 102 levels deep; at most 100 are allowed",
                "deepest: its definition is 10002 levels deep; at most 100 are allowed",
                "half: its definition is invalid",
            ]
        );
    }
}
