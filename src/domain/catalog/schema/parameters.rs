//! The top-level parameters of an input schema, and schemas without some of them.
//!
//! Alternatives, references, conditions and dependencies at the root describe the same object as the root, so their properties
//! are parameters too. A changed schema never forbids what the server's own schema allows once the left out values are added:
//! constraints that can't be kept exactly are dropped. The server checks them itself.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::domain::catalog::schema::references::References;
use crate::domain::execution::arguments::{self, ArgumentsValidator, ignores_siblings};

/// Maximum number of values in all references that are replaced with their targets.
const MAX_INLINED: usize = 100_000;
/// Maximum depth of nested alternatives and references.
const MAX_DEPTH: usize = 16;
/// Keywords of the root that other parts of the schema may need.
const SHARED: [&str; 6] = ["$schema", "$id", "id", "$defs", "definitions", "components"];

/// A top-level parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameter<'a> {
    /// Its schemas in the root and in all parts that describe the same object.
    pub schemas: Vec<&'a Value>,
    /// Whether every call must contain it.
    pub required: bool,
}

/// The top-level parameters of an input schema, in the schema's order.
pub fn parameters(source: &Value) -> IndexMap<&str, Parameter<'_>> {
    let reader = Reader::new(source);
    let mut found: IndexMap<&str, Parameter<'_>> = IndexMap::new();
    reader.visit(source, &mut Vec::new(), &mut |object| {
        for (name, schema) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            found.entry(name).or_default().schemas.push(schema);
        }
    });
    for name in reader.required(source, 0) {
        found.entry(name).or_default().required = true;
    }
    found
}

/// Checks a value against the schemas of a parameter. It has to fit one of them.
///
/// # Errors
/// What is wrong with the value, as in "is a string; expected an integer".
pub fn check(source: &Value, parameter: &Parameter<'_>, value: &Value) -> Result<(), String> {
    const NAME: &str = "value";
    let arguments = json!({NAME: value}).to_string();
    let mut first = None;
    for schema in &parameter.schemas {
        let mut alone = shared(source);
        alone.insert("properties".into(), json!({NAME: schema}));
        let problems = ArgumentsValidator::default().problems(&Value::Object(alone), &arguments);
        let Some(problem) = problems.into_iter().next() else { return Ok(()) };
        let inside = problem.pointer.strip_prefix(&format!("/{NAME}")).unwrap_or_default();
        first.get_or_insert_with(|| if inside.is_empty() { problem.message.clone() } else { format!("{inside} {}", problem.message) });
    }
    first.map_or(Ok(()), Err)
}

/// Changes to the top-level parameters of a schema.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// Parameters to leave out, with the value that the server gets for them.
    pub without: BTreeMap<&'a str, Option<&'a Value>>,
    /// Default values. These parameters become optional.
    pub defaults: BTreeMap<&'a str, &'a Value>,
}

impl Changes<'_> {
    /// Returns the changed schema.
    pub fn apply(&self, source: &Value) -> Value {
        // Without its invalid parts, the schema might be valid under a draft that reads the rest differently.
        let declared = arguments::older_draft(source).map(|draft| declaring(source, draft));
        let source = declared.as_ref().unwrap_or(source);
        let altering = Altering { reader: Reader::new(source), changes: self, left: Cell::new(MAX_INLINED), open: RefCell::default() };
        let Value::Object(root) = source else { return source.clone() };
        let mut changed = altering.object(source, root, 0);
        for keyword in ["default", "examples"] {
            if let Some(value) = changed.get_mut(keyword) {
                self.strip(value);
            }
        }
        keep_targets(&mut changed, root);
        Value::Object(changed)
    }

    fn strip(&self, value: &mut Value) {
        match value {
            Value::Object(object) => object.retain(|name, _| !self.without.contains_key(name.as_str())),
            Value::Array(values) => values.iter_mut().for_each(|value| self.strip(value)),
            _ => {}
        }
    }

    /// Whether a schema contains the name of a parameter that is left out.
    fn are_named_in(&self, value: &Value) -> bool {
        match value {
            Value::Object(object) => {
                object.iter().any(|(name, inner)| self.without.contains_key(name.as_str()) || self.are_named_in(inner))
            }
            Value::Array(values) => values.iter().any(|inner| self.are_named_in(inner)),
            Value::String(text) => self.without.contains_key(text.as_str()),
            _ => false,
        }
    }
}

struct Reader<'a> {
    root: &'a Value,
    references: References<'a>,
    ignores_siblings: bool,
}

impl<'a> Reader<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, references: References::new(root), ignores_siblings: ignores_siblings(root) }
    }

    fn target(&self, schema: &'a Value) -> Option<&'a Value> {
        self.references.target(schema, schema.get("$ref")?.as_str()?)
    }

    /// Visits the schema and all parts that describe the same object.
    fn visit(&self, schema: &'a Value, open: &mut Vec<*const Value>, visit: &mut impl FnMut(&'a Map<String, Value>)) {
        let Value::Object(object) = schema else { return };
        if open.len() > MAX_DEPTH || open.iter().any(|known| ptr::eq(*known, schema)) {
            return;
        }
        open.push(ptr::from_ref(schema));
        visit(object);
        let of_list = ["allOf", "anyOf", "oneOf"].iter().filter_map(|keyword| object.get(*keyword)?.as_array()).flatten();
        let single = ["then", "else"].iter().filter_map(|keyword| object.get(*keyword));
        let named = ["dependentSchemas", "dependencies"].iter().filter_map(|keyword| object.get(*keyword)?.as_object());
        for part in self.target(schema).into_iter().chain(of_list).chain(single).chain(named.flat_map(Map::values)) {
            self.visit(part, open, visit);
        }
        open.pop();
    }

    /// The parameters that every call needs.
    fn required(&self, schema: &'a Value, depth: usize) -> BTreeSet<&'a str> {
        let mut names: BTreeSet<&str> = strings(schema.get("required")).collect();
        if depth > MAX_DEPTH {
            return names;
        }
        let all = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for part in self.target(schema).into_iter().chain(all) {
            names.extend(self.required(part, depth + 1));
        }
        for alternatives in ["anyOf", "oneOf"].iter().filter_map(|keyword| schema.get(*keyword)?.as_array()) {
            let sets = alternatives.iter().map(|part| self.required(part, depth + 1));
            names.extend(sets.reduce(|one, other| one.intersection(&other).copied().collect()).unwrap_or_default());
        }
        names
    }
}

struct Altering<'a, 'c> {
    reader: Reader<'a>,
    changes: &'c Changes<'c>,
    /// Number of values that references may still be replaced with.
    left: Cell<usize>,
    /// The targets of the references that are being replaced.
    open: RefCell<Vec<&'a Value>>,
}

impl<'a> Altering<'a, '_> {
    fn value(&self, schema: &'a Value, depth: usize) -> Value {
        match schema {
            Value::Object(object) if depth <= MAX_DEPTH => Value::Object(self.object(schema, object, depth)),
            // A part as deep as this is left out, so that it names nothing.
            Value::Object(_) => json!({}),
            other => other.clone(),
        }
    }

    fn object(&self, schema: &'a Value, object: &'a Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut out = object.clone();
        let mut also: Vec<Value> = Vec::new();
        let refers = self.follow(schema, depth, &mut out, &mut also);
        if !(refers && self.reader.ignores_siblings) {
            self.properties(&mut out);
            self.conditions(object, depth, &mut out, &mut also);
            self.dependencies(object, depth, &mut out, &mut also);
            self.counts(&mut out);
            if let Some(Value::Array(parts)) = object.get("allOf") {
                also.extend(parts.iter().map(|part| self.value(part, depth + 1)));
            }
            for keyword in ["anyOf", "oneOf"] {
                if let Some(Value::Array(parts)) = object.get(keyword) {
                    self.alternatives(keyword, parts, depth, &mut out, &mut also);
                }
            }
        }
        for keyword in ["const", "enum", "not"] {
            if out.get(keyword).is_some_and(|value| self.changes.are_named_in(value)) {
                out.shift_remove(keyword);
            }
        }
        if !also.is_empty() {
            out.insert("allOf".into(), also.into());
        }
        out
    }

    /// Replaces a reference with its changed target. Returns whether there is one.
    fn follow(&self, schema: &'a Value, depth: usize, out: &mut Map<String, Value>, also: &mut Vec<Value>) -> bool {
        let Some(target) = self.reader.target(schema) else { return false };
        if self.reader.ignores_siblings {
            out.retain(|keyword, _| SHARED.contains(&keyword.as_str()));
        }
        out.shift_remove("$ref");
        // In a cycle, the target applies already.
        if ptr::eq(target, self.reader.root) || self.open.borrow().iter().any(|known| ptr::eq(*known, target)) {
            return true;
        }
        // A target that is too large is left out, so that it names nothing.
        let Some(left) = self.left.get().checked_sub(size(target, self.left.get())) else { return true };
        self.left.set(left);
        self.open.borrow_mut().push(target);
        also.push(self.value(target, depth + 1));
        self.open.borrow_mut().pop();
        true
    }

    fn properties(&self, out: &mut Map<String, Value>) {
        let Changes { without, defaults } = self.changes;
        if let Some(Value::Object(properties)) = out.get_mut("properties") {
            properties.retain(|name, _| !without.contains_key(name.as_str()));
            for (name, value) in defaults {
                if let Some(schema) = properties.get_mut(*name) {
                    set_default(schema, value, self.reader.ignores_siblings);
                }
            }
        }
        self.require(out, &[]);
    }

    /// Adds required parameters, and removes those that callers needn't send.
    fn require(&self, out: &mut Map<String, Value>, more: &[&str]) {
        let Changes { without, defaults } = self.changes;
        let known: Vec<&str> = strings(out.get("required")).collect();
        let all: Vec<Value> = (known.iter().copied())
            .chain(more.iter().copied().filter(|name| !known.contains(name)))
            .filter(|name| !without.contains_key(name) && !defaults.contains_key(name))
            .map(Value::from)
            .collect();
        if all.is_empty() {
            out.shift_remove("required");
        } else {
            out.insert("required".into(), all.into());
        }
    }

    /// A condition about a parameter that is left out is decided here, or dropped.
    fn conditions(&self, object: &'a Map<String, Value>, depth: usize, out: &mut Map<String, Value>, also: &mut Vec<Value>) {
        let Some(condition) = object.get("if") else {
            out.retain(|keyword, _| !matches!(keyword.as_str(), "then" | "else"));
            return;
        };
        let branch = |keyword: &str| object.get(keyword).map(|part| self.value(part, depth + 1));
        if !self.changes.are_named_in(condition) {
            for keyword in ["then", "else"] {
                if let Some(part) = branch(keyword) {
                    out.insert(keyword.into(), part);
                }
            }
            return;
        }
        for keyword in ["if", "then", "else"] {
            out.shift_remove(keyword);
        }
        if let Some(is_met) = self.is_met(condition) {
            also.extend(branch(if is_met { "then" } else { "else" }));
        }
    }

    /// Whether a condition is met; `None` if that depends on what callers send.
    fn is_met(&self, condition: &Value) -> Option<bool> {
        let without = &self.changes.without;
        let named = condition.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).map(String::as_str);
        let is_plain = condition.as_object()?.keys().all(|keyword| matches!(keyword.as_str(), "properties" | "required" | "type"));
        let mut names = named.chain(strings(condition.get("required")));
        if !is_plain || !names.all(|name| without.contains_key(name)) {
            return None;
        }
        let values: Map<String, Value> = without.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.clone()))).collect();
        Some(self.fits(condition, &Value::Object(values)))
    }

    fn dependencies(&self, object: &'a Map<String, Value>, depth: usize, out: &mut Map<String, Value>, also: &mut Vec<Value>) {
        let Changes { without, defaults } = self.changes;
        for keyword in ["dependentRequired", "dependentSchemas", "dependencies"] {
            let Some(Value::Object(own)) = object.get(keyword) else { continue };
            let mut kept = Map::new();
            for (name, needs) in own {
                let is_sent = without.get(name.as_str()).map(Option::is_some);
                match (is_sent, needs) {
                    // It is never sent, so nothing depends on it.
                    (Some(false), _) => {}
                    (Some(true), Value::Array(_)) => self.require(out, &strings(Some(needs)).collect::<Vec<_>>()),
                    (Some(true), schema) => also.push(self.value(schema, depth + 1)),
                    (None, Value::Array(needed)) => {
                        let is_left_to_callers = |needed: &&Value| {
                            needed.as_str().is_none_or(|needed| !without.contains_key(needed) && !defaults.contains_key(needed))
                        };
                        kept.insert(name.clone(), needed.iter().filter(is_left_to_callers).cloned().collect());
                    }
                    (None, schema) => drop(kept.insert(name.clone(), self.value(schema, depth + 1))),
                }
            }
            if kept.is_empty() {
                out.shift_remove(keyword);
            } else {
                out.insert(keyword.into(), kept.into());
            }
        }
    }

    /// Counts of parameters include those that callers don't send.
    fn counts(&self, out: &mut Map<String, Value>) {
        let fixed = self.changes.without.values().flatten().count() as u64;
        let sent = fixed + self.changes.defaults.len() as u64;
        for (keyword, own) in [("minProperties", sent), ("maxProperties", fixed)] {
            if let Some(count) = out.get(keyword).and_then(Value::as_u64) {
                out.insert(keyword.into(), count.saturating_sub(own).into());
            }
        }
    }

    fn alternatives(&self, keyword: &str, parts: &'a [Value], depth: usize, out: &mut Map<String, Value>, also: &mut Vec<Value>) {
        let possible: Vec<&Value> = parts.iter().filter(|part| !self.is_excluded(part, 0)).collect();
        // If none is possible, the server decides.
        let possible = if possible.is_empty() { parts.iter().collect() } else { possible };
        let changed: Vec<Value> = possible.iter().map(|part| self.value(part, depth + 1)).collect();
        let is_same = changed.len() == parts.len() && changed.iter().zip(parts).all(|(new, old)| new == old);
        if is_same {
            return;
        }
        out.shift_remove(keyword);
        // What made alternatives exclude each other may be gone.
        also.push(if changed.len() == 1 { changed.into_iter().next().unwrap_or_default() } else { json!({"anyOf": changed}) });
    }

    /// Whether a call with the values that the server gets can't match this alternative.
    fn is_excluded(&self, part: &'a Value, depth: usize) -> bool {
        let without = &self.changes.without;
        if *part == Value::Bool(false) {
            return true;
        }
        if depth > MAX_DEPTH {
            return false;
        }
        if strings(part.get("required")).any(|name| without.get(name).is_some_and(Option::is_none)) {
            return true;
        }
        let properties = part.get("properties").and_then(Value::as_object);
        let is_closed = part.get("additionalProperties") == Some(&Value::Bool(false)) && part.get("patternProperties").is_none();
        let is_wrong = |(name, value): (&&str, &Option<_>)| {
            let Some(value) = value else { return false };
            match properties.and_then(|properties| properties.get(*name)) {
                Some(schema) => !self.fits(&json!({"properties": {*name: schema}}), &json!({*name: value})),
                None => is_closed,
            }
        };
        let all = part.get("allOf").and_then(Value::as_array).into_iter().flatten();
        without.iter().any(is_wrong) || self.reader.target(part).into_iter().chain(all).any(|inner| self.is_excluded(inner, depth + 1))
    }

    fn fits(&self, schema: &Value, value: &Value) -> bool {
        let mut alone = shared(self.reader.root);
        alone.extend(schema.as_object().cloned().unwrap_or_default());
        ArgumentsValidator::default().problems(&Value::Object(alone), &value.to_string()).is_empty()
    }
}

/// The parts of a root that other schemas in it may need.
fn shared(root: &Value) -> Map<String, Value> {
    SHARED.iter().filter_map(|&keyword| Some((keyword.to_owned(), root.get(keyword)?.clone()))).collect()
}

/// The schema with its draft declared.
fn declaring(source: &Value, draft: &str) -> Value {
    let mut declared = source.clone();
    if let Value::Object(root) = &mut declared {
        root.insert("$schema".into(), draft.into());
    }
    declared
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Keeps the targets of references into parts of the root that may have moved: a copy of the server's own root becomes a
/// definition, to which these references then point.
fn keep_targets(changed: &mut Map<String, Value>, root: &Map<String, Value>) {
    let mut name = "own".to_owned();
    while ["$defs", "definitions"].iter().any(|shared| root.get(*shared).is_some_and(|shared| shared.get(&name).is_some())) {
        name.push('_');
    }
    let mut moved = false;
    changed.iter_mut().for_each(|(keyword, value)| redirect(keyword, value, &name, &mut moved));
    if !moved {
        return;
    }
    let mut own = root.clone();
    own.retain(|keyword, _| !SHARED.contains(&keyword.as_str()));
    own.iter_mut().for_each(|(keyword, value)| redirect(keyword, value, &name, &mut moved));
    match changed.entry("$defs").or_insert_with(|| json!({})) {
        Value::Object(definitions) => drop(definitions.insert(name, own.into())),
        other => *other = json!({name: own}),
    }
}

/// Redirects references into the root to a definition with this name.
fn redirect(keyword: &str, value: &mut Value, name: &str, moved: &mut bool) {
    match value {
        // These keywords contain data, which may look like a schema.
        _ if matches!(keyword, "enum" | "const" | "default" | "examples") => {}
        Value::String(reference) if keyword == "$ref" => {
            if let Some(place) = reference.strip_prefix("#/")
                && !SHARED.contains(&place.split('/').next().unwrap_or_default())
            {
                *reference = format!("#/$defs/{name}/{place}");
                *moved = true;
            }
        }
        Value::Object(object) => object.iter_mut().for_each(|(keyword, value)| redirect(keyword, value, name, moved)),
        Value::Array(values) => values.iter_mut().for_each(|value| redirect("", value, name, moved)),
        _ => {}
    }
}

fn set_default(schema: &mut Value, default: &Value, ignores_siblings: bool) {
    match schema {
        Value::Object(object) if ignores_siblings && object.contains_key("$ref") => {
            *schema = json!({"allOf": [std::mem::take(object)], "default": default});
        }
        Value::Object(object) => drop(object.insert("default".into(), default.clone())),
        other => *other = json!({"default": default}),
    }
}

/// Number of values in a schema, counted up to one more than `most`.
fn size(value: &Value, most: usize) -> usize {
    let (mut waiting, mut seen) = (vec![value], 0);
    while let Some(value) = waiting.pop() {
        seen += 1;
        if seen > most {
            break;
        }
        match value {
            Value::Object(object) => waiting.extend(object.values()),
            Value::Array(values) => waiting.extend(values),
            _ => {}
        }
    }
    seen
}
