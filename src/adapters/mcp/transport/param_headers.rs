//! HTTP headers that repeat parts of a request (MCP specification 2026-07-28, "Standard request headers" and "Custom headers from
//! tool parameters"). rmcp adds the latter only on connections on which the tools were listed, and clients over stdio send none of them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::text::json;

/// Schema keyword of an argument that a header repeats.
pub(in crate::adapters::mcp) const ANNOTATION: &str = "x-mcp-header";
const PARAM: &str = "mcp-param-";
/// Maximum depth of nested schemas that are searched.
const DEPTH: usize = 16;

/// Formats a value for a header, encoded if necessary.
pub(in crate::adapters::mcp) fn written(value: &str) -> String {
    if value.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) && !value.starts_with("=?") {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(value))
    }
}

/// An argument that a header repeats: its path, and the header's name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Annotated {
    path: Vec<String>,
    header: String,
}

/// For each tool, the arguments that headers repeat.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct ParamHeaders(Mutex<HashMap<String, Vec<Annotated>>>);

impl ParamHeaders {
    /// Reads the header annotations of these tools.
    pub(in crate::adapters::mcp) fn learn(&self, tools: &[Value]) {
        let annotated = tools.iter().filter_map(|tool| {
            let mut found = Vec::new();
            collect(tool.get("inputSchema")?, &mut Vec::new(), &mut found);
            Some((tool.get("name")?.as_str()?.to_owned(), found)).filter(|(_, found)| !found.is_empty())
        });
        *self.0.lock() = annotated.collect();
    }

    pub(in crate::adapters::mcp) fn has(&self, tool: &str) -> bool {
        self.0.lock().contains_key(tool)
    }

    /// The names and values of the headers for a call.
    pub(in crate::adapters::mcp) fn of(&self, tool: &str, arguments: &RawValue) -> Vec<(String, String)> {
        let known = self.0.lock();
        if !known.contains_key(tool) {
            return Vec::new();
        }
        // Keep numbers as written.
        let arguments: Value = serde_json::from_str(&json::with_texts_for_numbers(arguments.get())).unwrap_or_default();
        let headers = known.get(tool).into_iter().flatten().filter_map(|Annotated { path, header }| {
            let value = match path.iter().try_fold(&arguments, |value, member| value.get(member))? {
                Value::String(text) => text.clone(),
                value @ (Value::Bool(_) | Value::Number(_)) => value.to_string(),
                _ => return None,
            };
            Some((format!("{PARAM}{header}"), written(&value)))
        });
        headers.collect()
    }
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Annotated>) {
    if path.len() >= DEPTH {
        return;
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property.get(ANNOTATION).and_then(Value::as_str).filter(|header| !header.is_empty()) {
            found.push(Annotated { path: path.clone(), header: header.to_owned() });
        }
        collect(property, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::{ParamHeaders, written};

    #[test]
    fn annotated_arguments_become_headers() {
        let headers = ParamHeaders::default();
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
            "plain": {"type": "string"},
        }});
        headers.learn(&[json!({"name": "one", "inputSchema": schema}), json!({"name": "two", "inputSchema": {"type": "object"}})]);
        assert!(headers.has("one") && !headers.has("two"));
        let raw = |arguments: Value| serde_json::value::to_raw_value(&arguments).unwrap();
        let of = |arguments| headers.of("one", &raw(arguments));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            of(json!({"region": "eu", "deep": {"count": 3}, "plain": "x"})),
            [pair("mcp-param-Region", "eu"), pair("mcp-param-Count", "3")]
        );
        assert_eq!(of(json!({"region": "São Paulo"})), [pair("mcp-param-Region", "=?base64?U8OjbyBQYXVsbw==?=")]);
        assert_eq!(of(json!({"region": null})), []);
        assert_eq!(headers.of("two", &raw(json!({"region": "eu"}))), []);
        let written = RawValue::from_string(r#"{"deep": {"count": 12345678901234567890123}, "other": 1e999}"#.to_owned()).unwrap();
        assert_eq!(headers.of("one", &written), [pair("mcp-param-Count", "12345678901234567890123")]);
    }

    #[test]
    fn what_a_header_cannot_carry_is_encoded() {
        assert_eq!((written("a__b"), written("=?x"), written("a b")), ("a__b".into(), "=?base64?PT94?=".into(), "=?base64?YSBi?=".into()));
    }
}
