//! Validates arguments against a tool's own schema, repairs mistakes where that is safe, and explains the others.
//!
//! Arguments stay JSON text, so unrepaired ones reach the server byte for byte.

mod explain;
mod nullable;
mod visits;
mod repair;

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use jsonschema::{Draft, PatternOptions, Validator};
use serde::Serialize;
use serde_json::Value;

use crate::domain::execution::arguments::explain::Explain;
use crate::domain::execution::arguments::nullable::with_null;
use crate::domain::execution::arguments::visits::References;
use crate::domain::text::json;
use crate::domain::text::json_text::JsonText;
use crate::domain::text::short::short;

pub use self::repair::{Repair, RepairKind};

/// Maximum length of a problem's message, which may quote the value.
const MESSAGE_LIMIT: usize = 400;
/// Maximum number of problems per report.
const PROBLEM_LIMIT: usize = 20;
/// Maximum number of visits of schemas to find out whether arguments are valid.
const MOST_VISITS: usize = 10_000_000;
/// Maximum number of visits to collect all problems once. They take some hundred bytes each.
const MOST_COLLECTED: usize = 500_000;
/// Maximum number of visits for all repairs of one call.
const MOST_REPAIRED: usize = 5_000_000;
/// Maximum number of steps back to match a text with a pattern that can't be matched in linear time. These take some 15 milliseconds.
const MOST_STEPS_BACK: usize = 200_000;
/// Maximum depth of a schema behind its references. The largest of 1,900 tools has 64.
const MOST_NESTED: usize = 1_000;
/// Maximum depth of the recursion: that of the schema, for each level of the arguments.
const MOST_LEVELS: usize = 4_000;

/// The compiled schema of one tool. Compiled on the tool's first call.
#[derive(Default)]
pub struct ArgumentsValidator {
    compiled: OnceLock<Result<Compiled, String>>,
    reported: AtomicBool,
}

impl fmt::Debug for ArgumentsValidator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ArgumentsValidator").field(&self.compiled.get().map(Result::is_ok)).finish()
    }
}

struct Compiled {
    validator: Validator,
    /// The depth of the schema behind its references.
    nesting: usize,
    /// The older draft under which the schema is valid, if it is invalid under its own.
    older: Option<&'static str>,
}

impl Compiled {
    /// Whether these arguments are nested so deep that their check could exhaust the stack.
    fn is_exceeded_by(&self, instance: &Value) -> bool {
        self.nesting * visits::levels(instance) > MOST_LEVELS
    }
}

/// One problem with the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentProblem {
    /// JSON Pointer (RFC 6901) to the argument; empty for the arguments as a whole.
    pub pointer: String,
    pub message: String,
    /// The expected type or values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The name or value that was most likely meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
}

impl ArgumentProblem {
    /// A problem with the arguments as a whole.
    pub fn of_whole(message: String) -> Self {
        Self { pointer: String::new(), message, expected: Some("an object".to_owned()), did_you_mean: None }
    }

    /// The problem of arguments whose problems would take too much work to find.
    fn of_too_much(message: &str) -> Self {
        Self { expected: None, ..Self::of_whole(message.to_owned()) }
    }
}

/// The result of a validation.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentsVerdict {
    Valid,
    /// The arguments were invalid, but the repairs made them valid.
    Repaired {
        arguments: String,
        repairs: Vec<Repair>,
    },
    /// The problems, at most 20.
    Invalid(Vec<ArgumentProblem>),
    /// The tool's own schema is invalid, so nothing was validated. The server validates the arguments itself.
    Unchecked {
        reason: String,
        /// Whether the problem is reported for the first time for this tool.
        first: bool,
    },
}

impl ArgumentsValidator {
    /// Validates the JSON text of an object against the server's own schema.
    pub fn check(&self, schema: &JsonText, arguments: &str) -> ArgumentsVerdict {
        let compiled = match self.compiled.get_or_init(|| compile(&schema.value())) {
            Ok(compiled) => compiled,
            Err(reason) => {
                return ArgumentsVerdict::Unchecked { reason: reason.clone(), first: !self.reported.swap(true, Ordering::Relaxed) };
            }
        };
        let instance = match json::readable(arguments) {
            Ok(instance) => instance,
            Err(error) => return ArgumentsVerdict::Invalid(vec![ArgumentProblem::of_whole(format!("can't be read: {error}"))]),
        };
        if compiled.is_exceeded_by(&instance) {
            return ArgumentsVerdict::Invalid(vec![ArgumentProblem::of_too_much(TOO_DEEP)]);
        }
        let validator = &compiled.validator;
        match visits::within(MOST_VISITS, || validator.is_valid(&instance)) {
            Some(true) => return ArgumentsVerdict::Valid,
            Some(false) => {}
            None => return ArgumentsVerdict::Invalid(vec![ArgumentProblem::of_too_much(TOO_MUCH)]),
        }
        match visits::within(MOST_REPAIRED, || repair::repair(validator, arguments, &instance)).flatten() {
            Some((arguments, repairs)) => ArgumentsVerdict::Repaired { arguments, repairs },
            None => ArgumentsVerdict::Invalid(explained(validator, &schema.value(), &instance)),
        }
    }

    /// The problems of the JSON text of a value, at most 20, without repairs. There are none if the schema itself is invalid.
    pub fn problems(&self, schema: &Value, text: &str) -> Vec<ArgumentProblem> {
        let Ok(compiled) = self.compiled.get_or_init(|| compile(schema)) else { return Vec::new() };
        match json::readable(text) {
            Ok(instance) if compiled.is_exceeded_by(&instance) => vec![ArgumentProblem::of_too_much(TOO_DEEP)],
            Ok(instance) => explained(&compiled.validator, schema, &instance),
            Err(error) => vec![ArgumentProblem::of_whole(format!("can't be read: {error}"))],
        }
    }
}

const TOO_DEEP: &str = "is nested too deep to be checked; use fewer levels";
const TOO_MUCH: &str = "has too many values to be checked; send fewer at once";

/// The problems of invalid arguments.
fn explained(validator: &Validator, schema: &Value, instance: &Value) -> Vec<ArgumentProblem> {
    let schema = as_validated(schema);
    let problems = visits::within(MOST_COLLECTED, || Explain { schema: &schema, instance }.problems(validator));
    let too_much = "does not fit the tool's schema, and has too many values to say where; send fewer at once";
    problems.unwrap_or_else(|| vec![ArgumentProblem::of_too_much(too_much)])
}

/// Older drafts that many schemas follow without declaring them, with their `$schema`.
const OLDER: [(Draft, &str); 2] =
    [(Draft::Draft7, "http://json-schema.org/draft-07/schema#"), (Draft::Draft4, "http://json-schema.org/draft-04/schema#")];

/// The `$schema` of the older draft under which arguments are validated, if the schema is invalid under its own.
pub fn older_draft(schema: &Value) -> Option<&'static str> {
    compile(schema).ok()?.older
}

/// Compiles the schema under the declared draft, or the newest. If that fails, tries older drafts.
fn compile(schema: &Value) -> Result<Compiled, String> {
    let references = References::of(schema);
    let nesting = references.nesting(schema, MOST_NESTED);
    if nesting > MOST_NESTED {
        return Err(format!("it has more than {MOST_NESTED} levels, with those of what it refers to"));
    }
    if references.lead_to_data() {
        return Err("it refers to data, such as a default, as a schema".to_owned());
    }
    // If the schema refers to a place that has moved because of null, it is used as it is.
    let as_it_is = || compiled(schema);
    let (validator, older) = match with_null(schema) {
        Some(schema) => compiled(&schema).or_else(|_| as_it_is()),
        None => as_it_is(),
    }?;
    Ok(Compiled { validator, nesting, older })
}

fn compiled(schema: &Value) -> Result<(Validator, Option<&'static str>), String> {
    let schema = &visits::counted(schema);
    // Only the server knows which texts it accepts for a format. With zod, a `time` is `09:30:00`, which isn't one by RFC 3339.
    let patterns = || PatternOptions::fancy_regex().backtrack_limit(MOST_STEPS_BACK);
    let options = || visits::counting(jsonschema::options().should_validate_formats(false).with_pattern_options(patterns()));
    let error = match options().build(schema) {
        Ok(validator) => return Ok((validator, None)),
        Err(error) => error,
    };
    let older = |(draft, name)| Some((options().with_draft(draft).build(schema).ok()?, Some(name)));
    OLDER.into_iter().find_map(older).ok_or_else(|| cut(&error.masked().to_string()))
}

/// The schema by which arguments are validated.
fn as_validated(schema: &Value) -> Cow<'_, Value> {
    with_null(schema).map_or(Cow::Borrowed(schema), Cow::Owned)
}

/// Whether the declared draft ignores siblings of `$ref`, as drafts up to 7 do.
pub fn ignores_siblings(schema: &Value) -> bool {
    schema
        .get("$schema")
        .and_then(Value::as_str)
        .is_some_and(|draft| ["draft-03", "draft-04", "draft-05", "draft-06", "draft-07"].iter().any(|old| draft.contains(old)))
}

/// Returns the arguments as the JSON text of an object. Accepts an object encoded as a string, and no arguments at all, because
/// models send both.
///
/// # Errors
/// The type of the value sent instead.
pub fn object(sent: &str) -> Result<(Cow<'_, str>, Option<Repair>), Vec<ArgumentProblem>> {
    let sent = sent.trim();
    let as_text = || Some(Repair { pointer: String::new(), kind: RepairKind::TextToObject });
    match sent.as_bytes().first() {
        None => Ok(("{}".into(), None)),
        Some(b'{') => Ok((sent.into(), None)),
        Some(b'"') => match json::text(sent).map(|text| text.trim().to_owned()) {
            Some(text) if text.is_empty() => Ok(("{}".into(), as_text())),
            Some(text) if text.starts_with('{') && json::members(&text).is_some() => Ok((text.into(), as_text())),
            _ => Err(vec![ArgumentProblem::of_whole("is a string; expected an object".to_owned())]),
        },
        Some(byte) => {
            let is = match byte {
                b'[' => "an array",
                b't' | b'f' => "a boolean",
                b'n' => "null",
                _ => "a number",
            };
            Err(vec![ArgumentProblem::of_whole(format!("is {is}; expected an object"))])
        }
    }
}

/// Unwraps the arguments of a tool that is published with `{"arguments": {…}}`.
///
/// # Errors
/// The type of the value found instead of an object.
pub fn unwrapped(arguments: Cow<'_, str>) -> Result<(Cow<'_, str>, Option<Repair>), Vec<ArgumentProblem>> {
    const NAME: &str = "arguments";
    let inner = json::members(&arguments).and_then(|members| match members.get(NAME) {
        // If it has siblings, `arguments` is an argument of the tool itself.
        Some(inner) if members.len() == 1 => Some(inner.get().to_owned()),
        _ => None,
    });
    let Some(inner) = inner else { return Ok((arguments, None)) };
    let at = |mut problem: ArgumentProblem| {
        problem.pointer = format!("/{NAME}");
        problem
    };
    match object(&inner) {
        Ok((inner, repair)) => {
            let repair = repair.map(|repair| Repair { pointer: format!("/{NAME}"), ..repair });
            Ok((inner.into_owned().into(), repair))
        }
        Err(problems) => Err(problems.into_iter().map(at).collect()),
    }
}

fn cut(message: &str) -> String {
    short(message, MESSAGE_LIMIT).into_owned()
}

#[cfg(test)]
mod tests;
