//! Arguments against a tool's own schema.

use std::fmt;
use std::sync::OnceLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde::Serialize;
use serde_json::{Map, Value};

/// Longest text of one problem: a validator quotes the value it saw.
const MESSAGE_LIMIT: usize = 300;
/// Problems reported at once.
const PROBLEM_LIMIT: usize = 20;

/// The compiled schema of one tool, made on the first call.
#[derive(Default)]
pub struct ArgumentsValidator(OnceLock<Result<Validator, String>>);

impl fmt::Debug for ArgumentsValidator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ArgumentsValidator").field(&self.0.get().map(Result::is_ok)).finish()
    }
}

/// One thing that is wrong with the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentProblem {
    /// JSON Pointer (RFC 6901) to the argument; empty for the whole object.
    pub pointer: String,
    pub message: String,
}

/// How a check ended when nothing is wrong with the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    Valid,
    /// The tool's own schema is invalid, so nothing could be checked; the server has to judge.
    SchemaUnusable,
}

impl ArgumentsValidator {
    /// Validates against the server's schema; hands the arguments back.
    ///
    /// # Errors
    /// Every problem found, at most 20.
    pub fn check(&self, schema: &Value, arguments: Map<String, Value>) -> Result<(Checked, Map<String, Value>), Vec<ArgumentProblem>> {
        let validator = self.0.get_or_init(|| jsonschema::validator_for(schema).map_err(|error| cut(&error.to_string())));
        let Ok(validator) = validator else { return Ok((Checked::SchemaUnusable, arguments)) };
        let instance = Value::Object(arguments);
        if !validator.is_valid(&instance) {
            return Err(validator.iter_errors(&instance).take(PROBLEM_LIMIT).map(|error| problem(&error)).collect());
        }
        match instance {
            Value::Object(arguments) => Ok((Checked::Valid, arguments)),
            _ => Ok((Checked::Valid, Map::new())),
        }
    }
}

fn problem(error: &ValidationError<'_>) -> ArgumentProblem {
    let mut pointer = error.instance_path().to_string();
    // What is missing has a place too: where it should be.
    if let ValidationErrorKind::Required { property } = error.kind()
        && let Some(name) = property.as_str()
    {
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
    }
    ArgumentProblem { pointer, message: cut(&error.to_string()) }
}

fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_LIMIT) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ArgumentsValidator, Checked};

    fn check(schema: &Value, arguments: &Value) -> Result<Checked, Vec<String>> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        ArgumentsValidator::default()
            .check(schema, arguments.clone())
            .map(|(checked, _)| checked)
            .map_err(|problems| problems.into_iter().map(|problem| problem.pointer).collect())
    }

    #[test]
    fn each_problem_points_to_its_place() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "object", "properties": {"c": {"enum": ["x"]}}}}, "required": ["a"]});
        assert_eq!(check(&schema, &json!({"a": 1, "b": {"c": "x"}})), Ok(Checked::Valid));
        assert_eq!(check(&schema, &json!({"a": "1", "b": {"c": "y"}})), Err(vec!["/a".into(), "/b/c".into()]));
        assert_eq!(check(&schema, &json!({})), Err(vec!["/a".into()]));
    }

    #[test]
    fn a_schema_that_is_itself_invalid_checks_nothing() {
        assert_eq!(check(&json!({"type": 7}), &json!({"a": 1})), Ok(Checked::SchemaUnusable));
        assert_eq!(check(&json!({"$ref": "https://example.org/schema.json"}), &json!({"a": 1})), Ok(Checked::SchemaUnusable));
    }
}
