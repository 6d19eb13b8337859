//! Compares two documents of one server, tool by tool. The differences are missing operations, renamed operations, and
//! schema keywords that only one document has.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::cli::doctor::documents::{Operation, Operations};
use crate::domain::catalog::tool::ServerName;

/// Schema keywords that tell a model something. Types and unions are missing here, because they have several equivalent
/// spellings.
const KEYWORDS: [&str; 20] = [
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "uniqueItems",
];
const DEEPEST: usize = 40;

/// The differences between the two documents of one server.
#[derive(Debug, Serialize)]
pub(super) struct ServerComparison {
    pub(super) server: String,
    /// The reason if the documents can't be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip)]
    error_is_problem: bool,
    /// Number of tools that both documents contain.
    pub(super) common: usize,
    pub(super) only_mcpo: Vec<String>,
    pub(super) only_toolsieve: Vec<String>,
    /// Tools that both documents contain, but with differences.
    pub(super) changed: Vec<ToolComparison>,
}

/// The differences between the two definitions of one tool.
#[derive(Debug, Default, Serialize)]
pub(super) struct ToolComparison {
    pub(super) tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation_id: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Change>,
    /// Parameters that only mcpo publishes, by their paths.
    pub(super) lost_parameters: Vec<String>,
    pub(super) gained_parameters: Vec<String>,
    /// Keywords that only mcpo publishes, and how often.
    pub(super) lost: BTreeMap<&'static str, usize>,
    pub(super) gained: BTreeMap<&'static str, usize>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub(super) mcpo: String,
    pub(super) toolsieve: String,
}

impl ServerComparison {
    pub(super) fn of(server: &ServerName, theirs: Result<Operations, String>, ours: Result<Operations, String>) -> Self {
        let error_is_problem = ours.is_err();
        let error = ours.as_ref().err().or(theirs.as_ref().err()).cloned();
        let (theirs, ours) = (theirs.unwrap_or_default(), ours.unwrap_or_default());
        let only = |one: &Operations, other: &Operations| one.keys().filter(|path| !other.contains_key(*path)).cloned().collect();
        let common: Vec<(&String, &Operation, &Operation)> =
            theirs.iter().filter_map(|(path, theirs)| Some((path, theirs, ours.get(path)?))).collect();
        Self {
            server: server.to_string(),
            error,
            error_is_problem,
            common: common.len(),
            only_mcpo: only(&theirs, &ours),
            only_toolsieve: only(&ours, &theirs),
            changed: common.iter().filter_map(|(path, theirs, ours)| ToolComparison::of(path, theirs, ours)).collect(),
        }
    }

    /// A comparison for which mcpo's document couldn't be fetched. Nothing is known about its tools.
    pub(super) fn unread(server: &ServerName, error: String) -> Self {
        Self { error_is_problem: true, ..Self::of(server, Err(error), Ok(Operations::new())) }
    }

    /// Whether our document lacks or renames something that mcpo publishes, or couldn't be compared. Ignores servers for which mcpo
    /// publishes nothing.
    pub(super) fn is_problem(&self) -> bool {
        self.error_is_problem || !self.only_mcpo.is_empty() || self.changed.iter().any(ToolComparison::is_problem)
    }
}

impl ToolComparison {
    /// Compares two operations; returns `None` if they are equal.
    fn of(path: &str, theirs: &Operation, ours: &Operation) -> Option<Self> {
        let change = |theirs: &String, ours: &String| (theirs != ours).then(|| Change { mcpo: theirs.clone(), toolsieve: ours.clone() });
        let (old, new) = (Contents::of(&theirs.body), Contents::of(&ours.body));
        let out = Self {
            tool: path.trim_start_matches('/').to_owned(),
            operation_id: change(&theirs.id, &ours.id),
            summary: change(&theirs.summary, &ours.summary),
            lost_parameters: old.parameters.difference(&new.parameters).cloned().collect(),
            gained_parameters: new.parameters.difference(&old.parameters).cloned().collect(),
            lost: old.more_than(&new),
            gained: new.more_than(&old),
        };
        let is_same = out.operation_id.is_none()
            && out.summary.is_none()
            && out.lost_parameters.is_empty()
            && out.gained_parameters.is_empty()
            && out.lost.is_empty()
            && out.gained.is_empty();
        (!is_same).then_some(out)
    }

    pub(super) fn is_problem(&self) -> bool {
        self.operation_id.is_some() || !self.lost_parameters.is_empty() || !self.lost.is_empty()
    }
}

/// The parameters and keywords of a schema.
#[derive(Default)]
struct Contents {
    parameters: BTreeSet<String>,
    keywords: BTreeMap<&'static str, usize>,
}

impl Contents {
    fn of(schema: &Value) -> Self {
        let mut contents = Self::default();
        // The body schema has a title too, but that title describes no parameter.
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                contents.parameter(name, property, 0);
            }
        }
        contents
    }

    fn parameter(&mut self, path: &str, schema: &Value, depth: usize) {
        self.parameters.insert(path.to_owned());
        self.schema(path, schema, depth + 1);
    }

    fn schema(&mut self, path: &str, schema: &Value, depth: usize) {
        let Some(keys) = schema.as_object().filter(|_| depth < DEEPEST) else { return };
        for keyword in KEYWORDS {
            let says_something = match keys.get(keyword) {
                None | Some(Value::Null) => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Object(map)) => !map.is_empty() || keyword == "default",
                Some(_) => true,
            };
            if says_something {
                *self.keywords.entry(keyword).or_default() += 1;
            }
        }
        for (name, property) in keys.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.parameter(&format!("{path}.{name}"), property, depth);
        }
        if let Some(items) = keys.get("items") {
            self.schema(&format!("{path}[]"), items, depth + 1);
        }
        for keyword in ["anyOf", "oneOf", "allOf"] {
            for option in keys.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.schema(path, option, depth + 1);
            }
        }
    }

    fn more_than(&self, other: &Self) -> BTreeMap<&'static str, usize> {
        let more = self.keywords.iter().map(|(keyword, count)| {
            let others = other.keywords.get(keyword).copied().unwrap_or_default();
            (*keyword, count.saturating_sub(others))
        });
        more.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Change, Operation, Operations, ServerComparison};

    #[expect(clippy::unnecessary_wraps, reason = "what a comparison takes")]
    fn operations(tools: &[(&str, &str, Value)]) -> Result<Operations, String> {
        let operation = |id: &str, body: &Value| Operation { id: id.to_owned(), summary: "S".to_owned(), body: body.clone() };
        Ok(tools.iter().map(|(path, id, body)| ((*path).to_owned(), operation(id, body))).collect())
    }

    #[test]
    fn what_is_gained_is_no_problem_and_what_is_lost_is_one() {
        let poor = json!({"properties": {"a": {"type": "string", "description": "A"}}});
        let rich = json!({"properties": {"a": {"type": "string", "description": "A", "enum": ["x"], "minLength": 1}}});
        let (old, new) = (operations(&[("/t", "i", poor)]), operations(&[("/t", "i", rich), ("/new", "n", json!({}))]));
        let gained = ServerComparison::of(&"s".into(), old.clone(), new.clone());
        assert!(!gained.is_problem(), "{gained:?}");
        assert_eq!(gained.only_toolsieve, ["/new"]);
        assert_eq!(json!(gained.changed[0].gained), json!({"enum": 1, "minLength": 1}));
        let lost = ServerComparison::of(&"s".into(), new, old);
        assert!(lost.is_problem() && lost.only_mcpo == ["/new"] && lost.changed[0].lost.len() == 2, "{lost:?}");
    }

    #[test]
    fn names_and_parameters_count() {
        let deep = |name: &str| json!({"properties": {"o": {"properties": {name: {"items": {"properties": {"p": {}}}}}}}});
        let comparison =
            ServerComparison::of(&"s".into(), operations(&[("/t", "one", deep("x"))]), operations(&[("/t", "two", deep("y"))]));
        let tool = &comparison.changed[0];
        assert_eq!(tool.operation_id, Some(Change { mcpo: "one".into(), toolsieve: "two".into() }));
        assert_eq!((tool.lost_parameters.join(" "), tool.gained_parameters.join(" ")), ("o.x o.x[].p".into(), "o.y o.y[].p".into()));
        assert!(comparison.is_problem());
    }

    #[test]
    fn a_server_that_only_one_side_publishes() {
        let some = || operations(&[("/t", "i", json!({}))]);
        assert!(!ServerComparison::of(&"s".into(), Err("mcpo fails".into()), some()).is_problem());
        let unread = ServerComparison::unread(&"s".into(), "mcpo can't be reached".into());
        assert!(unread.is_problem() && unread.only_toolsieve.is_empty(), "nothing is known about mcpo's tools");
        let ours_down = ServerComparison::of(&"s".into(), some(), Err("down".into()));
        assert!(ours_down.is_problem() && ours_down.error.as_deref() == Some("down"));
    }
}
