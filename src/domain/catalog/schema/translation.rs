//! Translates the server's schema into the published one, within a budget.

use std::fmt::Write as _;
use std::ptr;

use serde_json::{Map, Value, json};

use crate::domain::catalog::schema::budget::Budget;
use crate::domain::catalog::schema::form::{Form, type_of};
use crate::domain::catalog::schema::keywords::{ANNOTATIONS, KEPT, is};
use crate::domain::catalog::schema::loss::{LossReason, SchemaLoss};
use crate::domain::catalog::schema::references::References;
use crate::domain::catalog::schema::values::{allow_null, any_value, free_form, tidy_enum};
use crate::domain::execution::arguments::ignores_siblings;
use crate::domain::text::json::pointer;

/// Maximum depth of published nesting. Deeper schemas become free-form values.
pub(super) const MAX_DEPTH: usize = 24;
/// Maximum number of recorded losses.
const MAX_LOSSES: usize = 100;

/// Keywords that have their own field in a [`Form`].
const GATHERED: [&str; 11] = [
    "anyOf",
    "oneOf",
    "allOf",
    "required",
    "properties",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "items",
    "prefixItems",
    "additionalItems",
];
/// A step from a schema to a nested one.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Keyword(&'static str),
    Name(&'a str),
    Place(usize),
}

/// A reference that is being followed: its target, and where it is published.
pub(super) struct Open<'a> {
    pub(super) target: &'a Value,
    pub(super) place: String,
}

pub(super) struct Translation<'a> {
    root: &'a Value,
    references: References<'a>,
    ignores_siblings: bool,
    /// The references being followed, outermost first. A repeated target closes a cycle.
    pub(super) open: Vec<Open<'a>>,
    path: Vec<Step<'a>>,
    pub(super) budget: Budget,
    losses: Vec<SchemaLoss>,
}

impl<'a> Translation<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            references: References::new(root),
            ignores_siblings: ignores_siblings(root),
            open: vec![Open { target: root, place: String::new() }],
            path: Vec::new(),
            budget: Budget::default(),
            losses: Vec::new(),
        }
    }

    pub(super) fn root(&mut self) -> Map<String, Value> {
        self.schema(&[self.root], 0)
    }

    /// All losses, ordered by place.
    pub(super) fn losses(mut self) -> Vec<SchemaLoss> {
        self.losses.sort_unstable();
        self.losses
    }

    /// The published form of a value that satisfies all of these schemas.
    pub(super) fn schema(&mut self, parts: &[&'a Value], depth: usize) -> Map<String, Value> {
        let mut form = Form::default();
        for part in parts {
            self.gather(part, &mut form, 0);
        }
        self.form(&form, depth)
    }

    /// The published form of a nested schema, one or two steps below the current place.
    pub(super) fn schema_at(&mut self, steps: &[Step<'a>], parts: &[&'a Value], depth: usize) -> Value {
        let before = self.path.len();
        self.path.extend_from_slice(steps);
        let published = self.schema(parts, depth + 1);
        self.path.truncate(before);
        Value::Object(published)
    }

    /// Merges a schema into the form: its own keywords, then its reference target, then its `allOf` parts. Siblings of `$ref`
    /// apply and win (2020-12, section 7.7.1.1). In drafts that ignore siblings, annotations still apply.
    pub(super) fn gather(&mut self, schema: &'a Value, form: &mut Form<'a>, hops: usize) {
        let Value::Object(object) = schema else { return };
        if hops > MAX_DEPTH {
            self.lose("allOf", LossReason::TooDeep, false);
            form.is_partial = true;
            return;
        }
        self.budget.step(object.len());
        if self.budget.is_exhausted() {
            form.is_partial = true;
            return;
        }
        let reference = ["$ref", "$dynamicRef", "$recursiveRef"].iter().find_map(|keyword| object.get(*keyword)?.as_str());
        if reference.is_some() && self.ignores_siblings {
            for (keyword, value) in object.iter().filter(|(keyword, _)| ANNOTATIONS.contains(&keyword.as_str())) {
                form.admit(keyword, value);
            }
        } else {
            self.gather_keywords(object, form);
        }
        if let Some(reference) = reference {
            self.follow(schema, reference, form, hops);
        }
        if let Some(Value::Array(parts)) = object.get("allOf") {
            for part in parts {
                self.gather(part, form, hops + 1);
            }
        }
    }

    fn gather_keywords(&mut self, object: &'a Map<String, Value>, form: &mut Form<'a>) {
        let get = |keyword: &str| object.get(keyword);
        let takes_condition = !form.keywords.contains_key("if");
        let takes_contains = !form.keywords.contains_key("contains");
        for (keyword, value) in object {
            match (keyword.as_str(), value) {
                ("required", Value::Array(names)) => {
                    self.budget.step(names.len());
                    form.required.extend(names.iter().filter_map(Value::as_str));
                }
                ("properties", Value::Object(properties)) => {
                    self.budget.step(properties.len());
                    for (name, property) in properties {
                        form.properties.entry(name).or_default().push(property);
                        if property.get("required") == Some(&Value::Bool(true)) {
                            form.required.push(name);
                        }
                    }
                    form.keywords.entry(keyword).or_insert(value);
                }
                ("anyOf" | "oneOf", Value::Array(alternatives)) => {
                    let alternatives = alternatives.as_slice();
                    let is_same = |known: &&[Value]| ptr::eq(*known, alternatives) || *known == alternatives;
                    if !alternatives.is_empty() && !form.alternatives.iter().any(is_same) {
                        form.alternatives.push(alternatives);
                    }
                }
                ("if", _) if !takes_condition => form.conflicts.push((keyword, value)),
                ("then" | "else", _) if !takes_condition || get("if").is_none() => {}
                ("minContains" | "maxContains", _) if !takes_contains || get("contains").is_none() => {}
                // Draft 4 has `exclusiveMinimum: true` next to `minimum`. Draft 3, and many schemas by mistake, have `required:
                // true` on a property. The code for the keywords next to them handles both.
                ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => {}
                (read_elsewhere, _) if GATHERED.contains(&read_elsewhere) => {}
                ("minimum", _) if get("exclusiveMinimum") == Some(&Value::Bool(true)) => form.admit("exclusiveMinimum", value),
                ("maximum", _) if get("exclusiveMaximum") == Some(&Value::Bool(true)) => form.admit("exclusiveMaximum", value),
                // Up to draft 7, one keyword covered both kinds of dependencies.
                ("dependencies", Value::Object(needs)) => {
                    let all_names = needs.values().all(Value::is_array);
                    form.admit(if all_names { "dependentRequired" } else { "dependentSchemas" }, value);
                }
                _ => {
                    if let Value::Array(values) = value {
                        self.budget.step(values.len());
                    }
                    form.admit(keyword, value);
                }
            }
        }
        // Up to draft 2019-09, an array in `items` had the meaning of `prefixItems`.
        let (prefix, items) = match (get("prefixItems"), get("items")) {
            (Some(Value::Array(prefix)), items) => (Some(prefix), items),
            (_, Some(Value::Array(prefix))) => (Some(prefix), get("additionalItems")),
            (_, items) => (None, items),
        };
        form.admit_items(prefix.map(Vec::as_slice).filter(|prefix| !prefix.is_empty()), items);
    }

    fn follow(&mut self, schema: &'a Value, reference: &str, form: &mut Form<'a>, hops: usize) {
        self.budget.step(reference.len() / 64);
        let Some(target) = self.references.target(schema, reference) else {
            self.lose("$ref", LossReason::Unresolved, false);
            form.is_partial = true;
            return;
        };
        if form.targets.iter().any(|known| ptr::eq(*known, target)) {
            // This target is merged already.
        } else if self.open.iter().any(|open| ptr::eq(open.target, target)) {
            form.cycle.get_or_insert(target);
        } else {
            form.targets.push(target);
            self.gather(target, form, hops + 1);
        }
    }

    pub(super) fn form(&mut self, form: &Form<'a>, depth: usize) -> Map<String, Value> {
        if depth > MAX_DEPTH || !self.budget.schema() {
            let reason = if depth > MAX_DEPTH { LossReason::TooDeep } else { LossReason::TooLarge };
            self.lose("properties", reason, false);
            return free_form(form.type_of());
        }
        let before = self.open.len();
        let place = self.place();
        self.open.extend(form.targets.iter().map(|target| Open { target, place: place.clone() }));
        let alternatives = form.alternatives.first().and_then(|alternatives| self.alternatives(alternatives, form, depth));
        let out = match alternatives {
            Some(out) => out,
            None => match form.cycle {
                Some(target) if !form.is_structured() => self.cycle(target, form),
                _ => self.typed(form, depth),
            },
        };
        self.open.truncate(before);
        out
    }

    /// The free-form value that replaces a reference to an enclosing schema.
    fn cycle(&mut self, target: &'a Value, form: &Form<'a>) -> Map<String, Value> {
        let mut out = self.kept(form, true);
        let notes = self.notes(form);
        self.describe(&mut out, &notes);
        for (keyword, value) in free_form(self.type_of_target(target)) {
            out.entry(keyword).or_insert(value);
        }
        out
    }

    fn type_of_target(&self, target: &'a Value) -> Option<Value> {
        let mut target = target;
        for _ in 0..MAX_DEPTH {
            let object = target.as_object()?;
            let kind = type_of(|keyword| object.get(keyword)).or_else(|| {
                let parts = object.get("allOf")?.as_array()?;
                parts.iter().find_map(|part| type_of(|keyword| part.get(keyword)))
            });
            match object.get("$ref").and_then(Value::as_str).and_then(|reference| self.references.target(target, reference)) {
                Some(next) if kind.is_none() => target = next,
                _ => return kind,
            }
        }
        None
    }

    /// The keywords that are copied unchanged, optionally only the annotations.
    pub(super) fn kept(&mut self, form: &Form<'a>, only_annotations: bool) -> Map<String, Value> {
        let mut out = Map::new();
        for (keyword, kind) in KEPT {
            if only_annotations && !ANNOTATIONS.contains(&keyword) {
                continue;
            }
            let Some(value) = form.keywords.get(keyword).filter(|value| kind.fits(value)) else { continue };
            if self.budget.afford_value(keyword, value) {
                out.insert(keyword.into(), (*value).clone());
            } else {
                self.lose(keyword, LossReason::TooLarge, false);
            }
        }
        // OpenAPI 3.0 and many authors use a single `example`.
        if !out.contains_key("examples")
            && let Some(example) = form.keywords.get("example").filter(|example| !example.is_null())
            && self.budget.afford_value("examples", example)
        {
            out.insert("examples".into(), json!([example]));
        }
        out
    }

    /// Adds the type, and the members that this type requires.
    fn typed(&mut self, form: &Form<'a>, depth: usize) -> Map<String, Value> {
        let mut out = self.kept(form, false);
        if let Some(constant) = form.keywords.get("const") {
            out.remove("enum");
            if !constant.is_null() && self.budget.afford_value("const", constant) {
                out.insert("const".into(), (*constant).clone());
            }
        }
        match form.type_of() {
            Some(kind) => {
                out.insert("type".into(), kind);
                if is(&out, "array") {
                    self.array(form, &mut out, depth);
                }
                if is(&out, "object") {
                    self.object(form, &mut out, depth);
                }
            }
            None => out.extend(any_value()),
        }
        tidy_enum(&mut out);
        self.conditions(form, &mut out);
        if form.keywords.get("nullable") == Some(&&Value::Bool(true)) {
            allow_null(&mut out);
        }
        let notes = self.notes(form);
        self.describe(&mut out, &notes);
        out
    }

    pub(super) fn lose(&mut self, keyword: &str, reason: LossReason, described: bool) {
        if self.losses.len() < MAX_LOSSES {
            let pointer = if self.is_root() { String::new() } else { self.pointer() };
            let loss = SchemaLoss { pointer, keyword: keyword.to_owned(), reason, described };
            if !self.losses.contains(&loss) {
                self.losses.push(loss);
            }
        }
    }

    /// Whether the current place is the whole input or one of its alternatives.
    pub(super) fn is_root(&self) -> bool {
        self.path.iter().all(|step| matches!(step, Step::Keyword("anyOf") | Step::Place(_)))
    }

    pub(super) fn enter(&mut self, step: Step<'a>) {
        self.path.push(step);
    }

    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    /// JSON Pointer (RFC 6901) to the current place in the published schema.
    fn pointer(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            out.push('/');
            match step {
                Step::Keyword(keyword) => out.push_str(keyword),
                Step::Name(name) => out.push_str(&pointer::escaped(name)),
                Step::Place(place) => {
                    let _ = write!(out, "{place}");
                }
            }
        }
        out
    }

    /// The current place in a readable form, such as `filter.and[]`.
    fn place(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Keyword("items") => out.push_str("[]"),
                Step::Name(name) => {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(name);
                }
                _ => {}
            }
        }
        out
    }
}
