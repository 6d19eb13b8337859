//! Bounds the work of a validation, and the depth of its recursion. The validator itself has no limits.
//!
//! Alternatives behind references multiply, and so do a long list and the alternatives of its items. Each error is kept with its value, and
//! within alternatives with a copy of it. So each schema gets a keyword that counts visits, and that unwinds when there were too many.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};

use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value, json};

use crate::domain::execution::arguments::nullable::{DATA, NAMED};

const VISIT: &str = "x-toolsieve-visit";
/// Keywords after which a validation goes on where a schema does not fit.
const BRANCHES: [&str; 4] = ["anyOf", "oneOf", "not", "if"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Number of bytes of a text that count as much as a value.
const BYTES: usize = 512;

thread_local! {
    /// What is left for the validation on this thread.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The payload of the unwinding.
struct Exhausted;

/// Counts the visits of one schema.
struct Visit {
    /// What a visit counts that finds out whether a value fits.
    checking: usize,
    /// What a visit counts that collects errors, for each value inside.
    collecting: usize,
}

/// Runs a validation with at most so many visits; `None` if there were more.
pub(super) fn within<T>(most: usize, work: impl FnOnce() -> T) -> Option<T> {
    let before = LEFT.get();
    let most = most.min(before);
    LEFT.set(most);
    // The validator is only read, so nothing is left half done.
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    LEFT.set(before - most + LEFT.get());
    match done {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<Exhausted>() => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}

fn count(visits: usize) {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(visits));
    if left < visits {
        // In contrast to a panic, this is not reported.
        panic::resume_unwind(Box::new(Exhausted));
    }
}

impl<'i> Keyword<'i> for Visit {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.collecting > 0 {
            count(self.collecting.saturating_mul(size(instance, LEFT.get())));
        }
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        count(self.checking);
        true
    }
}

/// The number of values in a value, or more than `most`.
fn size(value: &Value, most: usize) -> usize {
    let sum = |size: usize, value: &Value| if size > most { size } else { size + self::size(value, most - size) };
    match value {
        Value::Array(items) => items.iter().fold(1, sum),
        Value::Object(members) => members.values().fold(1, sum),
        Value::String(text) => 1 + text.len() / BYTES,
        _ => 1,
    }
}

/// Lets a validator count the visits of [`counted`] schemas.
pub(super) fn counting(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    options.with_keyword(VISIT, |_, weights, _| {
        let weight = |at: usize| weights.get(at).and_then(Value::as_u64).and_then(|weight| usize::try_from(weight).ok()).unwrap_or(1);
        Ok(Box::new(Visit { checking: weight(0), collecting: weight(1) }))
    })
}

/// The schema with the keyword that counts. Pointers into it stay valid.
pub(super) fn counted(schema: &Value) -> Value {
    let mut schema = schema.clone();
    count_in(&mut schema);
    schema
}

fn count_in(schema: &mut Value) {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(items) => return items.iter_mut().for_each(count_in),
        _ => return,
    };
    for (keyword, inner) in members.iter_mut() {
        match inner {
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => named.values_mut().for_each(count_in),
            _ if DATA.contains(&keyword.as_str()) => {}
            _ => count_in(inner),
        }
    }
    let errors = length(members, "required") + length(members, "anyOf") + length(members, "oneOf") + dependent(members);
    // The keyword comes after all others, and not at all if one of them fails. `allOf` comes before what branches.
    if BRANCHES.iter().any(|keyword| members.contains_key(*keyword)) {
        let branches = length(members, "anyOf") + length(members, "oneOf");
        if let Value::Array(parts) = members.entry("allOf").or_insert_with(|| json!([])) {
            parts.push(json!({VISIT: [1 + branches, 0]}));
        }
    }
    members.insert(VISIT.to_owned(), json!([1, 1 + errors]));
}

fn length(schema: &Map<String, Value>, keyword: &str) -> usize {
    schema.get(keyword).and_then(Value::as_array).map_or(0, Vec::len)
}

/// The number of names that other names require.
fn dependent(schema: &Map<String, Value>) -> usize {
    let keywords = ["dependentRequired", "dependencies"].iter().filter_map(|keyword| schema.get(*keyword)?.as_object());
    keywords.flat_map(Map::values).filter_map(Value::as_array).map(Vec::len).sum()
}

/// How deep the validator can nest in the schema, behind all references: not less than it does. Recursion counts once.
pub(super) fn nesting(schema: &Value, most: usize) -> usize {
    let (mut references, mut has_resources) = (HashSet::new(), false);
    find_references(schema, true, &mut references, &mut has_resources);
    let whole = levels(schema);
    let mut sum = whole;
    for reference in references {
        if sum > most {
            break;
        }
        // In an embedded resource, a pointer means another place.
        let target = reference.strip_prefix('#').filter(|_| !has_resources).and_then(|pointer| schema.pointer(pointer));
        sum += target.map_or(whole, levels).max(1);
    }
    sum
}

fn find_references<'a>(value: &'a Value, is_root: bool, found: &mut HashSet<&'a str>, has_resources: &mut bool) {
    match value {
        Value::Object(members) => {
            found.extend(REFERENCES.iter().filter_map(|keyword| members.get(*keyword)?.as_str()));
            *has_resources |= !is_root && ["$id", "id"].iter().any(|keyword| members.get(*keyword).is_some_and(Value::is_string));
            members.values().for_each(|inner| find_references(inner, false, found, has_resources));
        }
        Value::Array(items) => items.iter().for_each(|inner| find_references(inner, false, found, has_resources)),
        _ => {}
    }
}

/// The number of objects and arrays inside each other.
pub(super) fn levels(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or_default(),
        _ => 0,
    }
}
