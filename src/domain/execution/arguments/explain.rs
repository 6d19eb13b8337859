//! Explains invalid arguments to a model: where the problem is, which value was found, and which is expected.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value};

use crate::domain::execution::arguments::{ArgumentProblem, PROBLEM_LIMIT, cut};
use crate::domain::text::json::pointer;
use crate::domain::text::similar::nearest;

/// Maximum number of values or names in a list.
const LISTED: usize = 20;
/// Maximum length of a list, in bytes.
const LIST_BYTES: usize = 300;
/// Maximum number of nested `allOf` and references that are searched for names.
const DEPTH: usize = 8;
/// Maximum number of schemas that are searched for names.
const MOST_SEARCHED: usize = 1_000;
/// Maximum number of errors that are described. Many may have the same description.
const MOST_ERRORS: usize = 1_000;
/// Maximum number of names or values that are compared with a wrong one.
const MOST_COMPARED: usize = 5_000;
/// Keywords that may evaluate more properties, depending on the arguments or by patterns.
const OPEN: [&str; 9] =
    ["anyOf", "oneOf", "if", "dependentSchemas", "patternProperties", "additionalProperties", "not", "$dynamicRef", "$recursiveRef"];

pub(super) struct Explain<'a> {
    /// The server's own input schema.
    pub(super) schema: &'a Value,
    pub(super) instance: &'a Value,
}

impl<'a> Explain<'a> {
    pub(super) fn problems(&self, validator: &Validator) -> Vec<ArgumentProblem> {
        let mut problems: Vec<ArgumentProblem> = Vec::new();
        for error in validator.iter_errors(self.instance).take(MOST_ERRORS) {
            for problem in self.problem(&error) {
                if problems.len() >= PROBLEM_LIMIT {
                    return problems;
                }
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        problems
    }

    fn problem(&self, error: &ValidationError<'_>) -> Vec<ArgumentProblem> {
        let pointer = error.instance_path().as_str();
        let instance = error.instance().as_ref();
        let found = kind_of(instance);
        let one = |pointer: String, message: String, expected: Option<String>, did_you_mean: Option<&str>| {
            let message = match did_you_mean {
                Some(name) => format!("{message}; did you mean `{name}`?"),
                None => message,
            };
            ArgumentProblem { pointer, message: cut(&message), expected, did_you_mean: did_you_mean.map(str::to_owned) }
        };
        let expects = |expected: String| vec![one(pointer.to_owned(), format!("is {found}; expected {expected}"), Some(expected), None)];
        let strangers = |unexpected: &[String], known: Known<'_>| {
            let Known { names, is_all, .. } = known;
            let given = instance.as_object();
            let free = || names.iter().copied().filter(|name| given.is_none_or(|given| !given.contains_key(*name))).take(MOST_COMPARED);
            let is_useful = is_all && !names.is_empty();
            let expected = is_useful.then(|| format!("only {}", listed(names.iter().map(|name| format!("`{name}`")))));
            let message = || "is not an argument here".to_owned();
            // More than the first would not be reported.
            let first = unexpected.iter().take(PROBLEM_LIMIT);
            first.map(|name| one(below(pointer, name), message(), expected.clone(), nearest(name, free()))).collect()
        };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let properties = self.properties(error);
                let expected = properties.and_then(|properties| properties.get(name)).and_then(expectation);
                let message = match &expected {
                    Some(expected) => format!("is missing; expected {expected}"),
                    None => "is missing".to_owned(),
                };
                // If an unknown argument has a similar name, it was probably meant.
                let strangers = instance.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
                let strangers = strangers.filter(|given| properties.is_none_or(|properties| !properties.contains_key(*given)));
                let message = match nearest(name, strangers.take(MOST_COMPARED)) {
                    Some(given) => format!("{message}; `{given}` was given: was this one meant?"),
                    None => message,
                };
                // A missing argument is reported at the pointer where it belongs.
                vec![one(below(pointer, name), message, expected, None)]
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = self.properties(error).into_iter().flat_map(Map::keys).map(String::as_str).collect();
                strangers(unexpected, Known { names: known, is_all: true, visits: 0 })
            }
            ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let mut known = Known { names: Vec::new(), is_all: true, visits: 0 };
                match self.beside(error) {
                    Some(schema) => self.evaluated(schema, &mut known, 0),
                    None => known.is_all = false,
                }
                strangers(unexpected, known)
            }
            ValidationErrorKind::Type { kind } => expects(types(kind)),
            ValidationErrorKind::Enum { options } => {
                let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
                let expected = one_of(options);
                let meant =
                    instance.as_str().and_then(|given| nearest(given, options.iter().filter_map(Value::as_str).take(MOST_COMPARED)));
                vec![one(pointer.to_owned(), format!("is none of the allowed values; expected {expected}"), Some(expected), meant)]
            }
            ValidationErrorKind::Constant { expected_value } => expects(one_of(std::slice::from_ref(expected_value))),
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => match closest(context, pointer) {
                Some(branch) => branch.iter().take(PROBLEM_LIMIT).flat_map(|error| self.problem(error)).collect(),
                None => expects(alternatives(context, pointer)),
            },
            ValidationErrorKind::BacktrackLimitExceeded { .. } => {
                let message = "takes too long to be matched with its pattern; use a shorter text";
                vec![one(pointer.to_owned(), message.to_owned(), None, None)]
            }
            kind => {
                let expected = limit(kind);
                let message = match &expected {
                    Some(expected) => format!("does not fit; expected {expected}"),
                    None => error.masked_with("it").to_string(),
                };
                vec![one(pointer.to_owned(), message, expected, None)]
            }
        }
    }

    /// The `properties` next to the violated keyword.
    fn properties(&self, error: &ValidationError<'_>) -> Option<&'a Map<String, Value>> {
        self.beside(error)?.get("properties")?.as_object()
    }

    /// The schema that contains the violated keyword.
    fn beside(&self, error: &ValidationError<'_>) -> Option<&'a Value> {
        let (parent, _) = error.schema_path().as_str().rsplit_once('/')?;
        self.schema.pointer(parent)
    }

    /// Adds the properties that a schema evaluates, also in its `allOf` and behind its references.
    fn evaluated(&self, schema: &'a Value, known: &mut Known<'a>, depth: usize) {
        known.visits += 1;
        if known.visits > MOST_SEARCHED {
            known.is_all = false;
            return;
        }
        if depth > DEPTH || OPEN.iter().any(|keyword| schema.get(keyword).is_some()) {
            known.is_all = false;
        }
        if depth > DEPTH {
            return;
        }
        for name in schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            if known.names.len() > MOST_COMPARED {
                known.is_all = false;
                return;
            }
            if !known.names.contains(&name.as_str()) {
                known.names.push(name);
            }
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.evaluated(part, known, depth + 1);
        }
        if let Some(reference) = schema.get("$ref") {
            match reference.as_str().and_then(|reference| self.schema.pointer(reference.strip_prefix('#')?)) {
                Some(target) => self.evaluated(target, known, depth + 1),
                None => known.is_all = false,
            }
        }
    }
}

/// The names of an object's properties.
struct Known<'a> {
    names: Vec<&'a str>,
    /// Whether no other name is allowed.
    is_all: bool,
    /// Number of schemas that were visited.
    visits: usize,
}

/// The alternative that was probably meant: the only one whose type fits.
fn closest<'e>(context: &'e [Vec<ValidationError<'static>>], pointer: &str) -> Option<&'e [ValidationError<'static>]> {
    let is_wrong_kind = |error: &ValidationError<'_>| {
        let of_kind = matches!(
            error.kind(),
            ValidationErrorKind::Type { .. } | ValidationErrorKind::Constant { .. } | ValidationErrorKind::FalseSchema
        );
        of_kind && error.instance_path().as_str() == pointer
    };
    let mut fitting = context.iter().filter(|branch| !branch.is_empty() && !branch.iter().any(is_wrong_kind));
    fitting.next().filter(|_| fitting.next().is_none()).map(Vec::as_slice)
}

/// The types of all alternatives, as in "an integer or null".
fn alternatives(context: &[Vec<ValidationError<'static>>], pointer: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for branch in context {
        let of_place = branch.iter().filter(|error| error.instance_path().as_str() == pointer);
        let part = of_place.into_iter().find_map(|error| match error.kind() {
            ValidationErrorKind::Type { kind } => Some(types(kind)),
            ValidationErrorKind::Enum { options } => options.as_array().map(|options| one_of(options)),
            ValidationErrorKind::Constant { expected_value } => Some(one_of(std::slice::from_ref(expected_value))),
            ValidationErrorKind::Required { property } => property.as_str().map(|name| format!("an object with `{name}`")),
            kind => limit(kind),
        });
        let part = part.unwrap_or_else(|| "another form".to_owned());
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(" or ")
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => with_article(&kind.to_string()).to_owned(),
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| with_article(&kind.to_string()).to_owned()).collect::<Vec<_>>().join(" or "),
    }
}

/// Describes what a schema expects, if a few words are enough.
fn expectation(schema: &Value) -> Option<String> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(one_of(values));
    }
    if let Some(value) = schema.get("const") {
        return Some(one_of(std::slice::from_ref(value)));
    }
    let kinds: Vec<&str> = match schema.get("type")? {
        Value::String(kind) => vec![with_article(kind)],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).map(with_article).collect(),
        _ => return None,
    };
    Some(kinds.join(" or "))
}

fn limit(kind: &ValidationErrorKind) -> Option<String> {
    Some(match kind {
        ValidationErrorKind::Minimum { limit } => format!("{limit} or more"),
        ValidationErrorKind::Maximum { limit } => format!("{limit} or less"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        ValidationErrorKind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        ValidationErrorKind::MinLength { limit } => format!("{limit} or more characters"),
        ValidationErrorKind::MaxLength { limit } => format!("{limit} or fewer characters"),
        ValidationErrorKind::MinItems { limit } => format!("{limit} or more items"),
        ValidationErrorKind::MaxItems { limit } => format!("{limit} or fewer items"),
        ValidationErrorKind::UniqueItems => "no item twice".to_owned(),
        ValidationErrorKind::MinProperties { limit } => format!("{limit} or more members"),
        ValidationErrorKind::MaxProperties { limit } => format!("{limit} or fewer members"),
        ValidationErrorKind::Pattern { pattern } => format!("a text that matches the pattern {pattern}"),
        _ => return None,
    })
}

fn one_of(values: &[Value]) -> String {
    match values {
        [value] => value.to_string(),
        values => format!("one of {}", listed(values.iter().map(Value::to_string))),
    }
}

fn listed(mut values: impl Iterator<Item = String>) -> String {
    let mut list = String::new();
    for value in values.by_ref().take(LISTED) {
        if !list.is_empty() {
            list.push_str(", ");
        }
        if list.len() + value.len() > LIST_BYTES {
            return format!("{list}and {} more", values.count() + 1);
        }
        list.push_str(&value);
    }
    match values.count() {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn with_article(kind: &str) -> &str {
    match kind {
        "integer" => "an integer",
        "number" => "a number",
        "string" => "a string",
        "boolean" => "a boolean",
        "array" => "an array",
        "object" => "an object",
        other => other,
    }
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", pointer::escaped(name))
}
