//! What the arguments of calls teach: which parameters are filled, and what calls are about.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::catalog::schema::parameters::parameters;
use crate::domain::catalog::shape::MOST_PARAMETERS;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::text::json;

/// Number of calls of a tool before a parameter counts as unused.
const LEAST_CALLS: u64 = 20;
/// Larger arguments, in bytes of JSON, teach nothing.
const MOST_BYTES: usize = 64 * 1024;
/// Longer names of parameters are ignored.
const NAME_BYTES: usize = 200;
/// Maximum length of the text about a call, in bytes.
const TEXT_BYTES: usize = 600;
/// Minimum number of words in such a text.
const FEWEST_WORDS: usize = 2;
/// Longer words are ids, paths and keys rather than words.
const LONGEST_WORD: usize = 24;
/// Maximum depth of values in such a text.
const MAX_DEPTH: usize = 6;

/// What the arguments of a call teach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallArguments {
    /// The declared top-level parameters that the call filled.
    pub filled: Vec<String>,
    /// The words of the values, without those that may identify somebody or something. `None` if there are too few, or if they aren't used.
    pub text: Option<String>,
}

/// How often calls filled a tool's parameters, over all callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledParameters {
    pub tool: ToolId,
    /// Number of calls with success.
    pub calls: u64,
    /// Number of callers.
    pub people: u64,
    /// For each filled parameter, the number of calls that filled it.
    pub parameters: BTreeMap<String, u64>,
}

/// Parameters of a tool that no call filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedParameters {
    pub names: Vec<String>,
    /// The share of the tool's tokens that these parameters cost.
    pub tokens: u32,
}

impl CallArguments {
    /// What these arguments of a tool teach. `with_text`: whether their words count too.
    pub fn of(tool: &Tool, arguments: &str, with_text: bool) -> Self {
        if arguments.len() > MOST_BYTES {
            return Self::default();
        }
        let Some(members) = json::members(arguments) else { return Self::default() };
        // Undeclared names may be values, such as the keys of a map.
        let source = tool.input.source.value();
        let declared = parameters(&source).into_keys().filter(|name| name.len() <= NAME_BYTES);
        let filled = declared.filter(|name| members.get(*name).is_some_and(|value| !is_empty(value.get())));
        Self { filled: filled.take(MOST_PARAMETERS).map(str::to_owned).collect(), text: with_text.then(|| text(arguments)).flatten() }
    }
}

/// The id under which the words of a call after a message are remembered. The ids of messages themselves contain no slash.
pub fn id_of_words(message: &str, tool: &ToolId) -> Arc<str> {
    format!("{message}/{tool}").into()
}

/// Whether this id belongs to the words of a call.
pub(super) fn is_of_words(id: &str) -> bool {
    id.contains('/')
}

/// Whether a value, as JSON text, says nothing.
fn is_empty(value: &str) -> bool {
    matches!(value, "null" | "\"\"" | "[]" | "{}")
}

fn text(arguments: &str) -> Option<String> {
    let (mut text, mut words) = (String::new(), 0);
    add_words(&serde_json::from_str(arguments).ok()?, 0, &mut |word| {
        if text.len() + word.len() < TEXT_BYTES {
            text.extend((words > 0).then_some(' '));
            text.push_str(word);
            words += 1;
        }
    });
    (words >= FEWEST_WORDS).then_some(text)
}

fn add_words(value: &Value, depth: usize, add: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => text.split_whitespace().filter(|word| is_word(word)).for_each(add),
        Value::Array(values) if depth < MAX_DEPTH => values.iter().for_each(|value| add_words(value, depth + 1, add)),
        Value::Object(members) if depth < MAX_DEPTH => members.values().for_each(|value| add_words(value, depth + 1, add)),
        _ => {}
    }
}

/// Numbers, dates, ids, addresses, paths and keys are left out.
fn is_word(word: &str) -> bool {
    let is_address = word.contains(['@', '/', '\\', '=', '_']) || word.contains("::");
    !is_address && word.chars().count() <= LONGEST_WORD && word.chars().any(char::is_alphabetic) && !word.chars().any(char::is_numeric)
}

impl FilledParameters {
    /// The optional parameters that callers see and that no call filled. `None` if there are none, or too few calls.
    pub fn unused(&self, tool: &Tool) -> Option<UnusedParameters> {
        if self.calls < LEAST_CALLS {
            return None;
        }
        let is_unused = |name: &str| !self.parameters.contains_key(name);
        let source = tool.input.source.value();
        let found = parameters(&source).into_iter().filter(|(name, parameter)| !parameter.required && is_unused(name));
        let (mut names, mut bytes) = (Vec::new(), 0);
        for (name, parameter) in found {
            names.push(name.to_owned());
            bytes += name.len() + parameter.schemas.first().map_or(0, |schema| schema.to_string().len());
        }
        let whole = tool.function_text().len().max(1);
        let tokens = u64::from(tool.tokens) * bytes.min(whole) as u64 / whole as u64;
        (!names.is_empty()).then(|| UnusedParameters { names, tokens: u32::try_from(tokens).unwrap_or(u32::MAX) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{CallArguments, FilledParameters, LEAST_CALLS};
    use crate::domain::catalog::catalog::tool;
    use crate::domain::catalog::tool::{Tool, ToolId};

    fn search() -> Tool {
        let properties = json!({"query": {"type": "string"}, "limit": {"type": "integer"}, "sort": {"type": "string"}, "filters": {}});
        let schema = json!({"type": "object", "properties": properties, "required": ["query"]});
        let raw = json!({"name": "search", "description": "Searches.", "inputSchema": schema});
        Tool { tokens: 200, ..tool(&"shop".into(), &raw).unwrap() }
    }

    #[test]
    fn only_declared_parameters_with_a_value_are_filled() {
        let arguments = json!({"query": "red shoes", "limit": 0, "sort": null, "filters": {}, "+49 170 1234567": "x"});
        let learned = CallArguments::of(&search(), &arguments.to_string(), false);
        assert_eq!((learned.filled, learned.text), (vec!["query".to_owned(), "limit".to_owned()], None));
        for odd in ["", "[]", "{", "null"] {
            assert_eq!(CallArguments::of(&search(), odd, true), CallArguments::default(), "{odd}");
        }
    }

    #[test]
    fn the_text_contains_no_numbers_addresses_and_keys() {
        let arguments = json!({
            "query": "invoices for anna@example.org since 2026-01-31 from https://example.org/a?key=1 in C:\\tmp",
            "filters": {"state": "open items", "id": "4f9a", "key": "sk-AbCdEfGhIjKlMnOpQrStUvWxYzAbCd", "deep": [true, 7, "late payments"]},
        });
        let text = CallArguments::of(&search(), &arguments.to_string(), true).text.unwrap();
        assert_eq!(text, "invoices for since from in open items late payments");
        let short = CallArguments::of(&search(), &json!({"query": "shoes", "limit": 3}).to_string(), true);
        assert_eq!(short.text, None, "one word says little");
        let long = CallArguments::of(&search(), &json!({"query": "many words ".repeat(900)}).to_string(), true);
        assert!(long.text.unwrap().len() <= 600);
    }

    #[test]
    fn parameters_that_no_call_filled_are_unused() {
        let (tool, filled) = (search(), BTreeMap::from([("query".to_owned(), 40), ("sort".to_owned(), 1)]));
        let used = FilledParameters { tool: ToolId::new("shop", "search"), calls: 40, people: 3, parameters: filled };
        let found = used.unused(&tool).unwrap();
        assert_eq!(found.names, ["limit", "filters"]);
        assert!(found.tokens > 10 && found.tokens < 150, "{found:?}");
        let few = FilledParameters { calls: LEAST_CALLS - 1, ..used };
        assert_eq!(few.unused(&tool), None);
        let all = ["query", "sort", "limit", "filters"].map(|name| (name.to_owned(), 1)).into();
        assert_eq!(FilledParameters { calls: 90, parameters: all, ..few }.unused(&tool), None);
    }
}
