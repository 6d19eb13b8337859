//! Repairs frequent mistakes of models where no guessing is needed.
//!
//! A value is repaired only if it is invalid and all arguments are valid afterwards. Repairs change the form of a value, never
//! its content: a number sent as a string keeps its digits.

use std::collections::HashSet;
use std::fmt;

use indexmap::IndexMap;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::execution::arguments::{MOST_COLLECTED, PROBLEM_LIMIT, visits};
use crate::domain::text::json::{self, Edit};

/// Maximum number of repairs tried individually per call.
const TRIES: usize = 100;
/// Maximum number of problems repaired per call.
const MOST: usize = 5_000;
/// Maximum number of batch repairs in sequence. A parsed string may contain further strings.
const ROUNDS: usize = 4;

/// Describes a repair by its place and kind, without the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// JSON Pointer (RFC 6901) into the arguments as sent; empty for the whole object.
    pub pointer: String,
    pub kind: RepairKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairKind {
    /// A string such as `"5"` became a number.
    TextToNumber,
    /// A string such as `"true"` became a boolean.
    TextToBoolean,
    /// A string such as `"[1, 2]"` became a list.
    TextToList,
    /// A string such as `"{…}"` became an object.
    TextToObject,
    /// A single value became a list.
    ValueToList,
    /// An optional argument was removed because it was `null`.
    NullLeftOut,
}

impl fmt::Display for RepairKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TextToNumber => "text-to-number",
            Self::TextToBoolean => "text-to-boolean",
            Self::TextToList => "text-to-list",
            Self::TextToObject => "text-to-object",
            Self::ValueToList => "value-to-list",
            Self::NullLeftOut => "null-left-out",
        })
    }
}

/// Prints `/labels=value-to-list`, with the pointer in URI fragment form (RFC 6901, section 6) so that it fits into a header.
impl fmt::Display for Repair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.pointer.bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
                write!(formatter, "{}", char::from(byte))?;
            } else {
                write!(formatter, "%{byte:02X}")?;
            }
        }
        write!(formatter, "={}", self.kind)
    }
}

struct Candidate {
    repair: Repair,
    edit: Edit,
}

/// Repairs every problem of the arguments; `None` if that fails.
pub(super) fn repair(validator: &Validator, arguments: &str, instance: &Value) -> Option<(String, Vec<Repair>)> {
    let (mut text, mut instance) = (arguments.to_owned(), instance.clone());
    let (mut repairs, mut tries) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        if problems(validator, &instance)? <= PROBLEM_LIMIT {
            break;
        }
        let more;
        (text, instance, more) = all_at_once(validator, &text, &instance)?;
        repairs.extend(more);
    }
    let mut problems = problems(validator, &instance)?;
    while problems > 0 {
        let mut candidates = candidates(validator, &instance, PROBLEM_LIMIT)?.into_iter().flatten();
        let better = candidates.find_map(|candidate| {
            tries += 1;
            if tries > TRIES {
                return None;
            }
            let text = json::edit(&text, &candidate.repair.pointer, &candidate.edit)?;
            let instance = json::readable(&text).ok()?;
            let left = self::problems(validator, &instance)?;
            (left < problems).then_some((text, instance, left, candidate.repair))
        });
        let (better_text, better_instance, left, repair) = better?;
        (text, instance, problems) = (better_text, better_instance, left);
        repairs.push(repair);
    }
    Some((text, repairs))
}

/// The number of problems, at most one more than [`PROBLEM_LIMIT`]; `None` if they take too much work to find.
fn problems(validator: &Validator, instance: &Value) -> Option<usize> {
    if validator.is_valid(instance) {
        return Some(0);
    }
    visits::within(MOST_COLLECTED, || validator.iter_errors(instance).take(PROBLEM_LIMIT + 1).count().max(1))
}

/// Repairs many places in one pass, such as a long list of numbers sent as strings. Applies the first candidate at each place;
/// the validation at the end decides whether that was right.
fn all_at_once(validator: &Validator, text: &str, instance: &Value) -> Option<(String, Value, Vec<Repair>)> {
    let candidates = candidates(validator, instance, MOST + 1)?;
    if candidates.len() > MOST {
        return None;
    }
    let mut chosen: IndexMap<String, (RepairKind, Edit)> = IndexMap::new();
    for Candidate { repair, edit } in candidates.into_iter().filter_map(|of_one| of_one.into_iter().next()) {
        chosen.entry(repair.pointer).or_insert((repair.kind, edit));
    }
    // A problem inside another one is left to the next round.
    let is_inside = |pointer: &String| pointer.match_indices('/').any(|(end, _)| chosen.contains_key(&pointer[..end]));
    let inside: HashSet<String> = chosen.keys().filter(|pointer| is_inside(pointer)).cloned().collect();
    chosen.retain(|pointer, _| !inside.contains(pointer));
    let text = json::edit_all(text, chosen.iter().map(|(pointer, (_, edit))| (pointer.as_str(), edit)))?;
    let instance = json::readable(&text).ok()?;
    let repairs = chosen.into_iter().map(|(pointer, (kind, _))| Repair { pointer, kind }).collect();
    Some((text, instance, repairs))
}

/// The possible repairs of each of the first `most` problems; `None` if a problem has none, or if they take too much work to find.
fn candidates(validator: &Validator, instance: &Value, most: usize) -> Option<Vec<Vec<Candidate>>> {
    let of_one = |error: ValidationError<'_>| {
        let mut found = Vec::new();
        collect(&error, instance, &mut found);
        (!found.is_empty()).then_some(found)
    };
    visits::within(MOST_COLLECTED, || validator.iter_errors(instance).take(most).map(of_one).collect())?
}

fn collect(error: &ValidationError<'_>, arguments: &Value, out: &mut Vec<Candidate>) {
    let pointer = error.instance_path().as_str();
    // An item of a list isn't wrapped: instead of a list of one-item lists, the list itself may be the item that was meant.
    let parent = pointer.rfind('/').and_then(|end| arguments.pointer(&pointer[..end]));
    let may_wrap = parent.is_some_and(|parent| !parent.is_array());
    let instance = error.instance();
    if instance.is_null() && !pointer.is_empty() {
        // If the argument is required, the removal causes a new problem and the repair fails.
        out.push(candidate(pointer, RepairKind::NullLeftOut, Edit::Remove));
        return;
    }
    match error.kind() {
        ValidationErrorKind::Type { kind } => convert(pointer, instance, may_wrap, |wanted| wants(kind, wanted), out),
        ValidationErrorKind::Enum { options } => {
            convert(pointer, instance, may_wrap, |wanted| options.as_array().into_iter().flatten().any(|option| is(option, wanted)), out);
        }
        ValidationErrorKind::Constant { expected_value } => convert(pointer, instance, may_wrap, |wanted| is(expected_value, wanted), out),
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            for inner in context.iter().flatten() {
                collect(inner, arguments, out);
            }
        }
        _ => {}
    }
}

fn wants(kind: &TypeKind, wanted: JsonType) -> bool {
    match kind {
        TypeKind::Single(kind) => *kind == wanted,
        TypeKind::Multiple(kinds) => kinds.iter().any(|kind| kind == wanted),
    }
}

fn is(value: &Value, wanted: JsonType) -> bool {
    match wanted {
        JsonType::Integer => value.is_i64() || value.is_u64(),
        _ => JsonType::from(value) == wanted,
    }
}

/// Adds the possible conversions of a value to an expected type.
fn convert(pointer: &str, instance: &Value, may_wrap: bool, wants: impl Fn(JsonType) -> bool, out: &mut Vec<Candidate>) {
    let mut add = |kind, replacement: String| out.push(candidate(pointer, kind, Edit::Replace(replacement)));
    if let Value::String(string) = instance {
        let string = string.trim();
        let is_json = serde_json::from_str::<&RawValue>(string).is_ok();
        let first = string.as_bytes().first().copied().unwrap_or_default();
        if is_json && (first == b'-' || first.is_ascii_digit()) && string.parse().is_ok_and(f64::is_finite) {
            let is_whole = !string.contains(['.', 'e', 'E']);
            if wants(JsonType::Number) || (is_whole && wants(JsonType::Integer)) {
                add(RepairKind::TextToNumber, string.to_owned());
            }
        }
        // Models may write booleans as in Python, with a capital letter.
        if wants(JsonType::Boolean) && ["true", "false"].iter().any(|name| string.eq_ignore_ascii_case(name)) {
            add(RepairKind::TextToBoolean, string.to_ascii_lowercase());
        }
        if is_json && first == b'[' && wants(JsonType::Array) {
            add(RepairKind::TextToList, string.to_owned());
        }
        if is_json && first == b'{' && wants(JsonType::Object) {
            add(RepairKind::TextToObject, string.to_owned());
        }
    }
    // An empty string may stand for an empty list, and a string with a list for its items.
    let is_unclear =
        |text: &str| text.trim().is_empty() || (text.trim().starts_with('[') && serde_json::from_str::<&RawValue>(text).is_ok());
    if wants(JsonType::Array) && !instance.is_array() && may_wrap && !instance.as_str().is_some_and(is_unclear) {
        out.push(candidate(pointer, RepairKind::ValueToList, Edit::Wrap));
        // A single string may stand for a list of numbers.
        if let Value::String(string) = instance
            && serde_json::from_str::<serde_json::Number>(string.trim()).is_ok()
        {
            out.push(candidate(pointer, RepairKind::ValueToList, Edit::Replace(format!("[{}]", string.trim()))));
        }
    }
}

fn candidate(pointer: &str, kind: RepairKind, edit: Edit) -> Candidate {
    Candidate { repair: Repair { pointer: pointer.to_owned(), kind }, edit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_described_in_header_characters() {
        let repair = Repair { pointer: "/größe/a~1b c".into(), kind: RepairKind::TextToNumber };
        assert_eq!(repair.to_string(), "/gr%C3%B6%C3%9Fe/a~1b%20c=text-to-number");
    }
}
