//! Shapes of tools: parameters that are hidden, fixed or have a default, and tools that are switched off.
//!
//! A shape changes what callers see and send. The server's definition stays as it is, and so does its fingerprint.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use indexmap::IndexMap;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::domain::catalog::hidden_text;
use crate::domain::catalog::schema::InputSchema;
use crate::domain::catalog::schema::parameters::{Changes, Parameter, check, parameters};
use crate::domain::execution::arguments::ArgumentProblem;
use crate::domain::text::json;
use crate::domain::text::similar::nearest;

/// Maximum number of parameters in a shape.
pub const MOST_PARAMETERS: usize = 100;
/// Maximum length of a parameter's name, in characters.
pub const NAME_CHARACTERS: usize = 200;
/// Maximum length of a fixed or default value, in bytes of JSON.
pub const VALUE_BYTES: usize = 10_000;

/// An admin's changes to the parameters of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Top-level parameters, by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, ParameterShape>,
    /// Whether the tool is switched off for everybody.
    #[serde(default)]
    pub disabled: bool,
}

/// What happens to one parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ParameterShape {
    /// Nobody sees or sends it.
    Hidden,
    /// Nobody sees or sends it, and the server always gets this value.
    Fixed(Value),
    /// The server gets this value if a call lacks the parameter.
    Default(Value),
}

impl ParameterShape {
    fn member(&self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Fixed(_) => "fixed",
            Self::Default(_) => "default",
        }
    }

    /// The fixed or default value.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Self::Hidden => None,
            Self::Fixed(value) | Self::Default(value) => Some(value),
        }
    }
}

/// `{"hidden": true}`, `{"fixed": VALUE}` or `{"default": VALUE}`.
impl Serialize for ParameterShape {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.member(), self.value().unwrap_or(&Value::Bool(true)))])
    }
}

impl<'de> Deserialize<'de> for ParameterShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = r#"expected one of {"hidden": true}, {"fixed": VALUE} and {"default": VALUE}"#;
        let mut members = Map::deserialize(deserializer)?.into_iter();
        match (members.next(), members.next()) {
            (Some((member, value)), None) => match (member.as_str(), value) {
                ("hidden", Value::Bool(true)) => Ok(Self::Hidden),
                ("fixed", value) => Ok(Self::Fixed(value)),
                ("default", value) => Ok(Self::Default(value)),
                _ => Err(D::Error::custom(EXPECTED)),
            },
            _ => Err(D::Error::custom(EXPECTED)),
        }
    }
}

/// The reason why a shape doesn't fit a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShapeProblem {
    /// The parameter; `None` for the shape as a whole.
    pub parameter: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl ShapeProblem {
    /// A problem with one parameter.
    pub fn at(parameter: &str, message: String) -> Self {
        Self { parameter: Some(hidden_text::visible(parameter)), message }
    }

    fn of_whole(message: String) -> Self {
        Self { parameter: None, message }
    }

    /// The problem of a shape whose tool is not listed.
    pub fn unlisted() -> Self {
        Self::of_whole(
            "no server lists this tool at the moment, so its parameters can't be checked. Try again when it is listed".to_owned(),
        )
    }

    /// JSON Pointer (RFC 6901) into the body that set the shape.
    pub fn pointer(&self) -> String {
        match &self.parameter {
            Some(name) => format!("/shape/parameters/{}", json::pointer::escaped(name)),
            None => "/shape".to_owned(),
        }
    }
}

impl fmt::Display for ShapeProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parameter {
            Some(name) => write!(formatter, "`{name}`: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

impl Shape {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks everything that does not depend on a tool.
    ///
    /// # Errors
    /// All problems found.
    pub fn checked(self) -> Result<Self, Vec<ShapeProblem>> {
        if self.parameters.len() > MOST_PARAMETERS {
            return Err(vec![ShapeProblem::of_whole(format!("at most {MOST_PARAMETERS} parameters"))]);
        }
        let mut problems = Vec::new();
        for (name, shape) in &self.parameters {
            if name.is_empty() || name.chars().count() > NAME_CHARACTERS {
                let name: String = name.chars().take(40).collect();
                problems.push(ShapeProblem::at(&name, format!("the name must have 1 to {NAME_CHARACTERS} characters")));
            }
            if shape.value().is_some_and(|value| value.to_string().len() > VALUE_BYTES) {
                problems.push(ShapeProblem::at(name, format!("the value must have at most {VALUE_BYTES} bytes of JSON")));
            }
        }
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// Compares the shape with the server's own input schema.
    pub fn problems(&self, source: &Value) -> Vec<ShapeProblem> {
        let known = parameters(source);
        self.parameters.iter().filter_map(|(name, shape)| problem(name, shape, source, &known)).collect()
    }

    /// Applies the shape to an input. Parameters that the schema no longer has, and defaults that no longer fit it, are left
    /// alone; see [`Shaped::problems`].
    pub fn apply(&self, input: &InputSchema) -> (InputSchema, Shaped) {
        if self.parameters.is_empty() {
            return (input.clone(), Shaped { disabled: self.disabled, ..Shaped::default() });
        }
        let source = &input.source.value();
        let known = parameters(source);
        let mut shaped = Shaped { disabled: self.disabled, ..Shaped::default() };
        let mut changes = Changes::default();
        for (name, shape) in &self.parameters {
            let found = known.get(name.as_str());
            let problem = problem(name, shape, source, &known);
            match shape {
                ParameterShape::Default(value) if problem.is_none() => {
                    changes.defaults.insert(name, value);
                    shaped.defaults.insert(name.clone(), value.to_string());
                }
                ParameterShape::Default(_) => {}
                ParameterShape::Hidden | ParameterShape::Fixed(_) => {
                    let value = shape.value().filter(|_| found.is_some());
                    changes.without.insert(name, value);
                    shaped.without.insert(name.clone());
                    shaped.fixed.extend(value.map(|value| (name.clone(), value.to_string())));
                }
            }
            shaped.problems.extend(problem);
        }
        (InputSchema::compile(&changes.apply(source)), shaped)
    }
}

fn problem(name: &str, shape: &ParameterShape, source: &Value, known: &IndexMap<&str, Parameter<'_>>) -> Option<ShapeProblem> {
    let Some(parameter) = known.get(name) else {
        let meant = nearest(name, known.keys().copied()).map(|name| format!(", but `{name}`")).unwrap_or_default();
        return Some(ShapeProblem::at(name, format!("the tool has no such parameter{meant}. Remove it from the shape")));
    };
    match shape {
        ParameterShape::Hidden if parameter.required => {
            Some(ShapeProblem::at(name, "the server requires this parameter. Give it a fixed value instead of hiding it".to_owned()))
        }
        ParameterShape::Hidden => None,
        ParameterShape::Fixed(value) | ParameterShape::Default(value) => check(source, parameter, value)
            .err()
            .map(|why| ShapeProblem::at(name, format!("the {} value does not fit the server's schema: it {why}", shape.member()))),
    }
}

/// A shape that was applied to a tool: what happens to the arguments of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shaped {
    pub disabled: bool,
    /// What no longer fits the server's definition.
    pub problems: Vec<ShapeProblem>,
    /// Parameters that callers don't send.
    without: BTreeSet<String>,
    /// Values that the server always gets, as JSON text.
    fixed: BTreeMap<String, String>,
    /// Values that the server gets for missing parameters, as JSON text.
    defaults: BTreeMap<String, String>,
}

impl Shaped {
    /// Whether the parameters differ from the server's own.
    pub fn changes_parameters(&self) -> bool {
        !self.without.is_empty() || !self.defaults.is_empty()
    }

    /// Checks that the arguments, a JSON object, contain no parameter that callers don't send.
    ///
    /// # Errors
    /// One problem per such parameter.
    pub fn refuse(&self, arguments: &str) -> Result<(), Vec<ArgumentProblem>> {
        if self.without.is_empty() {
            return Ok(());
        }
        let members = json::members(arguments).unwrap_or_default();
        let is_refused = |name: &&Cow<'_, str>| {
            // With its hidden characters, the server would take it for the same parameter.
            let plain = hidden_text::strip(name).map(|(plain, _)| plain);
            self.without.contains(name.as_ref()) || plain.is_some_and(|plain| self.without.contains(plain.as_str()))
        };
        let problem = |name: &Cow<'_, str>| ArgumentProblem {
            pointer: format!("/{}", json::pointer::escaped(name)),
            message: "is not an argument here; leave it out".to_owned(),
            expected: None,
            did_you_mean: None,
        };
        let problems: Vec<ArgumentProblem> = members.keys().filter(is_refused).map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Adds the fixed values, and the defaults of missing parameters, to the JSON text of an object. Every other byte stays.
    /// `None` if there is nothing to add.
    pub fn filled(&self, arguments: &str) -> Option<String> {
        let members = json::members(arguments)?;
        let defaults = self.defaults.iter().filter(|(name, _)| !members.contains_key(name.as_str()));
        let added: Vec<String> = self.fixed.iter().chain(defaults).map(|(name, value)| format!("{}:{value}", json::quoted(name))).collect();
        if added.is_empty() {
            return None;
        }
        let open = arguments.trim_end().strip_suffix('}')?.trim_end();
        let separator = if members.is_empty() { "" } else { "," };
        Some(format!("{open}{separator}{}}}", added.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Shape, Shaped};
    use crate::domain::catalog::schema::InputSchema;
    use crate::domain::execution::arguments::{ArgumentsValidator, ArgumentsVerdict};

    fn shape(parameters: &Value) -> Shape {
        serde_json::from_value(json!({"parameters": parameters})).unwrap()
    }

    fn applied(source: &Value, parameters: &Value) -> (InputSchema, Shaped) {
        shape(parameters).apply(&InputSchema::compile(source))
    }

    /// What callers may send, by the schema that arguments are validated against.
    fn takes(input: &InputSchema, arguments: &Value) -> bool {
        ArgumentsValidator::default().check(&input.source, &arguments.to_string()) == ArgumentsVerdict::Valid
    }

    fn messages(source: &Value, parameters: &Value) -> String {
        shape(parameters).problems(source).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_parameter_has_one_shape() {
        for good in [json!({"hidden": true}), json!({"fixed": null}), json!({"default": [1]})] {
            let read = shape(&json!({"a": good}));
            assert_eq!(serde_json::to_value(&read).unwrap()["parameters"]["a"], good);
        }
        for bad in [json!({}), json!({"hidden": false}), json!({"hidden": true, "fixed": 1}), json!({"shown": true}), json!(1)] {
            assert!(serde_json::from_value::<Shape>(json!({"parameters": {"a": bad}})).is_err(), "{bad}");
        }
        let value = "x".repeat(10_001);
        for (name, shape) in [("", json!({"hidden": true})), (&"n".repeat(201), json!({"hidden": true})), ("a", json!({"fixed": value}))] {
            let shape: Shape = serde_json::from_value(json!({"parameters": {name: shape}})).unwrap();
            assert_eq!(shape.checked().unwrap_err().len(), 1);
        }
    }

    #[test]
    fn a_shape_is_checked_against_the_schema() {
        let source = json!({"type": "object", "required": ["to"], "properties": {
            "to": {"type": "string"}, "limit": {"type": "integer", "maximum": 10}, "kind": {"enum": ["a", "b"]}}});
        assert_eq!(messages(&source, &json!({"to": {"fixed": "x"}, "limit": {"default": 3}, "kind": {"hidden": true}})), "");
        for (parameters, part) in [
            (json!({"to": {"hidden": true}}), "`to`: the server requires this parameter"),
            (json!({"limits": {"hidden": true}}), "`limits`: the tool has no such parameter, but `limit`"),
            (json!({"limit": {"default": "3"}}), "the default value does not fit the server's schema: it is a string; expected an integer"),
            (json!({"limit": {"fixed": 11}}), "`limit`: the fixed value does not fit"),
            (json!({"kind": {"fixed": "c"}}), "\"a\""),
        ] {
            let found = messages(&source, &parameters);
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn a_hidden_parameter_is_nowhere_and_is_refused() {
        let source = json!({"type": "object", "required": ["to", "tenant"], "minProperties": 2, "examples": [{"to": "x", "tenant": "t"}],
            "properties": {"to": {"type": "string"}, "tenant": {"type": "string"}, "limit": {"type": "integer"}, "debug": {"type": "boolean"}},
            "dependentRequired": {"debug": ["limit"], "to": ["tenant"]}});
        let (input, shaped) = applied(&source, &json!({"tenant": {"fixed": "t"}, "debug": {"hidden": true}, "limit": {"default": 5}}));
        for text in [input.source.to_string(), input.published.to_string(), input.hint.clone().unwrap_or_default()] {
            assert!(!text.contains("tenant") && !text.contains("debug"), "{text}");
        }
        assert_eq!(input.published.value()["properties"]["limit"]["default"], 5);
        assert_eq!(input.published.value()["required"], json!(["to"]));
        assert!(takes(&input, &json!({"to": "x"})) && !takes(&input, &json!({"limit": 1})));
        assert!(shaped.problems.is_empty() && shaped.refuse(r#"{"to": "x"}"#).is_ok());
        for sent in [r#"{"tenant": "t"}"#, r#"{"te\u006eant": 1}"#, r#"{"debug": null}"#, "{\"ten\u{200b}ant\": 1}"] {
            assert_eq!(shaped.refuse(sent).unwrap_err().len(), 1, "{sent}");
        }
        assert_eq!(shaped.filled(r#"{"to": 1.50 }"#).unwrap(), r#"{"to": 1.50,"tenant":"t","limit":5}"#);
        assert_eq!(shaped.filled(" { } ").unwrap(), r#" {"tenant":"t","limit":5}"#);
        assert_eq!(shaped.filled(r#"{"limit":1}"#).unwrap(), r#"{"limit":1,"tenant":"t"}"#);
        assert_eq!(Shaped::default().filled("{}"), None);
    }

    #[test]
    fn a_fixed_value_selects_alternatives() {
        let branch = |action: &str, needs: &str| {
            json!({"type": "object", "required": ["action", needs], "additionalProperties": false,
                "properties": {"action": {"const": action}, needs: {"type": "string"}}})
        };
        let source = json!({"type": "object", "oneOf": [branch("create", "title"), branch("delete", "id")]});
        let (input, shaped) = applied(&source, &json!({"action": {"fixed": "create"}}));
        assert!(shaped.problems.is_empty(), "{shaped:?}");
        assert!(
            !input.published.to_string().contains("action") && input.published.value()["properties"].get("id").is_none(),
            "{}",
            input.published
        );
        assert!(takes(&input, &json!({"title": "x"})) && !takes(&input, &json!({"id": "x"})));
        assert!(messages(&source, &json!({"action": {"hidden": true}})).contains("requires"));
        assert!(messages(&source, &json!({"action": {"fixed": "rename"}})).contains("does not fit"));
    }

    #[test]
    fn references_and_conditions_name_no_hidden_parameter() {
        let source = json!({"$ref": "#/$defs/input", "$defs": {
            "input": {"type": "object", "properties": {"mode": {"type": "string"}, "path": {"$ref": "#/$defs/path"}, "depth": {"type": "integer"}},
                "required": ["mode"], "if": {"properties": {"mode": {"const": "deep"}}, "required": ["mode"]}, "then": {"required": ["depth"]}},
            "path": {"type": "string"}}});
        let (input, shaped) = applied(&source, &json!({"mode": {"fixed": "deep"}}));
        assert!(shaped.problems.is_empty(), "{shaped:?}");
        assert!(!input.published.to_string().contains("mode"), "{}", input.published);
        assert_eq!(input.published.value()["properties"]["path"]["type"], "string");
        assert!(takes(&input, &json!({"depth": 1})) && !takes(&input, &json!({"path": "x"})), "{}", input.source);
        let (input, _) = applied(&source, &json!({"mode": {"fixed": "flat"}}));
        assert!(takes(&input, &json!({"path": "x"})));
        // What refers to a hidden parameter keeps its meaning.
        let source = json!({"type": "object", "properties": {"from": {"type": "integer"}, "to": {"$ref": "#/properties/from"}}});
        let (input, _) = applied(&source, &json!({"from": {"hidden": true}}));
        assert_eq!(input.published.value()["properties"], json!({"to": {"type": "integer"}}));
        assert!(takes(&input, &json!({"to": 1})) && !takes(&input, &json!({"to": []})));
        // A schema that refers to itself ends.
        let endless = json!({"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [{"$ref": "#"}, {"$ref": "#/allOf/1"}]});
        let (input, _) = applied(&endless, &json!({"a": {"hidden": true}}));
        assert!(!input.published.to_string().contains("\"a\""), "{}", input.published);
    }

    #[test]
    fn a_shape_that_no_longer_fits_is_reported_and_hides_all_the_same() {
        let source = json!({"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}, "limit": {"type": "integer"}}});
        let parameters = json!({"gone": {"fixed": 1}, "to": {"hidden": true}, "limit": {"default": "many"}});
        let (input, shaped) = applied(&source, &parameters);
        assert_eq!(shaped.problems.len(), 3, "{:?}", shaped.problems);
        assert!(shaped.refuse(r#"{"gone": 1}"#).is_err() && shaped.refuse(r#"{"to": 1}"#).is_err());
        assert_eq!(shaped.filled("{}"), None);
        assert!(!input.published.to_string().contains("\"to\"") && input.published.value()["properties"]["limit"].get("default").is_none());
    }

    #[test]
    fn free_form_input_can_lose_a_parameter_too() {
        let source = json!({"type": "object", "additionalProperties": true, "properties": {"key": {"type": "string"}}});
        let (input, shaped) = applied(&source, &json!({"key": {"fixed": "k"}}));
        assert!(input.wrapped && !input.published.to_string().contains("key"), "{}", input.published);
        assert_eq!(shaped.filled(r#"{"x":1}"#).unwrap(), r#"{"x":1,"key":"k"}"#);
    }
}
