//! Bounds the work of a validation, and the depth of its recursion. The validator itself has no limits.
//!
//! Alternatives behind references multiply, and so do a long list and the alternatives of its items. Each error is kept with its value, and
//! within alternatives with a copy of it. So each schema gets a keyword that counts visits, and that unwinds when there were too many, or
//! when they take too long: a pattern may need milliseconds for each text.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use jsonschema::{Keyword, ValidationError, ValidationOptions};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::domain::execution::arguments::nullable::{DATA, NAMED, each_inside};

const VISIT: &str = "x-toolsieve-visit";
/// Keywords after which a validation goes on where a schema does not fit.
const BRANCHES: [&str; 4] = ["anyOf", "oneOf", "not", "if"];
/// Keywords within which errors are kept with a copy of the value, and those to which references lead.
const COPIED: [&str; 4] = ["anyOf", "oneOf", "$defs", "definitions"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Number of bytes of a text that count as much as a value.
const BYTES: usize = 512;
/// How long one step of a validation may take. Usual arguments take microseconds.
const LONGEST: Duration = Duration::from_secs(5);
/// Number of visits between two looks at the clock.
const LOOK: usize = 64;

thread_local! {
    /// What is left for the validation on this thread; the maximum outside of [`within`].
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The payload of the unwinding.
struct Exhausted;

/// Counts the visits of one schema.
struct Visit {
    /// What a visit counts that finds out whether a value fits.
    checking: usize,
    /// What a visit counts that collects errors, for each value inside.
    collecting: usize,
    /// Whether errors may be kept with a copy of the value.
    is_copied: bool,
}

/// Runs a validation with at most so many visits; `None` if there were more, or if they took too long.
pub(super) fn within<T>(most: usize, work: impl FnOnce() -> T) -> Option<T> {
    let (before, until) = (LEFT.get(), UNTIL.get());
    let most = most.min(before);
    LEFT.set(most);
    UNTIL.set(until.or_else(|| Some(Instant::now() + LONGEST)));
    // The validator is only read, so nothing is left half done.
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    LEFT.set(if before == usize::MAX { before } else { before - most + LEFT.get() });
    UNTIL.set(until);
    match done {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<Exhausted>() => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}

fn count(visits: usize) {
    let left = LEFT.get();
    if left == usize::MAX {
        return;
    }
    let after = left.saturating_sub(visits);
    LEFT.set(after);
    let is_late = || left / LOOK != after / LOOK && UNTIL.get().is_some_and(|until| Instant::now() >= until);
    if left < visits || is_late() {
        // In contrast to a panic, this is not reported.
        panic::resume_unwind(Box::new(Exhausted));
    }
}

impl<'i> Keyword<'i> for Visit {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        let values = if self.is_copied { size(instance, LEFT.get()) } else { 1 };
        count(self.collecting.saturating_mul(values));
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
        Ok(Box::new(Visit { checking: weight(0), collecting: weight(1), is_copied: weight(2) > 0 }))
    })
}

/// The schema with the keyword that counts. Pointers into it stay valid.
pub(super) fn counted(schema: &Value) -> Value {
    let References { found, has_resources } = References::of(schema);
    // A reference may lead from an alternative to its target.
    let is_definition = |reference: &&str| reference.starts_with("#/$defs/") || reference.starts_with("#/definitions/");
    let mut counted = schema.clone();
    count_in(&mut counted, has_resources || !found.iter().all(is_definition));
    counted
}

fn count_in(schema: &mut Value, is_copied: bool) {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(items) => return items.iter_mut().for_each(|item| count_in(item, is_copied)),
        _ => return,
    };
    each_inside(members, |keyword, inner| count_in(inner, is_copied || COPIED.contains(&keyword)));
    let errors = length(members, "required") + length(members, "anyOf") + length(members, "oneOf") + dependent(members);
    // The keyword comes after all others, and not at all if one of them fails. `allOf` comes before what branches.
    if BRANCHES.iter().any(|keyword| members.contains_key(*keyword)) {
        let branches = length(members, "anyOf") + length(members, "oneOf");
        if let Value::Array(parts) = members.entry("allOf").or_insert_with(|| json!([])) {
            parts.push(json!({VISIT: [1 + branches, 0]}));
        }
    }
    members.insert(VISIT.to_owned(), json!([1, 1 + errors, u8::from(is_copied)]));
}

fn length(schema: &Map<String, Value>, keyword: &str) -> usize {
    schema.get(keyword).and_then(Value::as_array).map_or(0, Vec::len)
}

/// The number of names that other names require.
fn dependent(schema: &Map<String, Value>) -> usize {
    let keywords = ["dependentRequired", "dependencies"].iter().filter_map(|keyword| schema.get(*keyword)?.as_object());
    keywords.flat_map(Map::values).filter_map(Value::as_array).map(Vec::len).sum()
}

/// The references of a schema.
#[derive(Default)]
pub(super) struct References<'a> {
    found: HashSet<&'a str>,
    /// Whether a part of the schema has an identifier of its own, so that pointers in it mean other places.
    has_resources: bool,
}

impl<'a> References<'a> {
    pub(super) fn of(schema: &'a Value) -> Self {
        let mut references = Self::default();
        if let Value::Object(members) = schema {
            references.read(members);
        }
        references
    }

    /// Whether a reference leads to something that is not read as a schema, such as a default. It would not be counted.
    pub(super) fn lead_to_data(&self) -> bool {
        self.found.iter().filter_map(|reference| reference.split_once('#')).any(|(_, fragment)| {
            let pointer = percent_decode_str(fragment).decode_utf8_lossy();
            let mut is_name = false;
            pointer.split('/').skip(1).any(|part| {
                let is_data = !is_name && DATA.contains(&part);
                is_name = !is_name && NAMED.contains(&part);
                is_data
            })
        })
    }

    /// How deep the validator can nest in the schema, behind all references: not less than it does. Recursion counts once. Counts no
    /// further than `most`.
    pub(super) fn nesting(&self, schema: &Value, most: usize) -> usize {
        let whole = levels(schema);
        let mut sum = whole;
        for reference in &self.found {
            if sum > most {
                break;
            }
            // In an embedded resource, a pointer means another place.
            let target = reference.strip_prefix('#').filter(|_| !self.has_resources).and_then(|pointer| schema.pointer(pointer));
            sum += target.map_or(whole, levels).max(1);
        }
        sum
    }

    fn read(&mut self, members: &'a Map<String, Value>) {
        self.found.extend(REFERENCES.iter().filter_map(|keyword| members.get(*keyword)?.as_str()));
        for (keyword, inner) in members {
            match inner {
                Value::Object(named) if NAMED.contains(&keyword.as_str()) => named.values().for_each(|part| self.read_part(part)),
                // A member `id` of data is no identifier.
                _ if DATA.contains(&keyword.as_str()) => {}
                _ => self.read_part(inner),
            }
        }
    }

    fn read_part(&mut self, part: &'a Value) {
        match part {
            Value::Object(members) => {
                self.has_resources |= ["$id", "id"].iter().any(|keyword| members.get(*keyword).is_some_and(Value::is_string));
                self.read(members);
            }
            Value::Array(items) => items.iter().for_each(|item| self.read_part(item)),
            _ => {}
        }
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
