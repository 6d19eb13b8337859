//! From the server's schema to the published one, within a budget.

use std::collections::HashSet;
use std::ptr;

use serde_json::{Map, Value, json};

use crate::domain::schema::form::{ANNOTATIONS, Form, type_of};

/// Levels of nesting that are published; what lies deeper becomes a free-form value.
const MAX_DEPTH: usize = 24;
/// Schemas that one tool may inline, a guard against references that multiply each other.
const MAX_SCHEMAS: usize = 5_000;
/// Bytes of keywords and property names that are copied, a guard against a long text that many references lead to.
const MAX_BYTES: usize = 256 * 1024;
/// Keywords, properties and alternatives that are looked at, a guard against long lists that many references lead to.
const MAX_STEPS: usize = 500_000;

const TOO_DEEP: &str = "nesting beyond what is published";
const TOO_LONG: &str = "more text than is published";

/// Keywords that are kept as they are when their value has the right kind.
const KEPT: [(&str, Kind); 22] = [
    ("title", Kind::Text),
    ("description", Kind::Text),
    ("enum", Kind::List),
    ("default", Kind::Any),
    ("examples", Kind::List),
    ("format", Kind::Text),
    ("pattern", Kind::Text),
    ("minimum", Kind::Number),
    ("maximum", Kind::Number),
    ("exclusiveMinimum", Kind::Number),
    ("exclusiveMaximum", Kind::Number),
    ("multipleOf", Kind::Number),
    ("minLength", Kind::Number),
    ("maxLength", Kind::Number),
    ("minItems", Kind::Number),
    ("maxItems", Kind::Number),
    ("uniqueItems", Kind::Flag),
    ("minProperties", Kind::Number),
    ("maxProperties", Kind::Number),
    ("deprecated", Kind::Flag),
    ("contentEncoding", Kind::Text),
    ("contentMediaType", Kind::Text),
];

/// Keywords that have no published form yet.
const DROPPED: [&str; 12] = [
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "prefixItems",
];

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Flag,
    List,
    Any,
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Flag => value.is_boolean(),
            Self::List => value.as_array().is_some_and(|items| !items.is_empty()),
            Self::Any => !value.is_null(),
        }
    }
}

pub(super) struct Translation<'a> {
    root: &'a Value,
    /// What the references being followed led to, outermost first: one that is met again is a cycle.
    open: Vec<&'a Value>,
    schemas: usize,
    bytes_left: usize,
    steps_left: usize,
    /// Once something is used up, every further schema is cut short.
    exhausted: bool,
    losses: Vec<&'static str>,
}

impl<'a> Translation<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self { root, open: Vec::new(), schemas: 0, bytes_left: MAX_BYTES, steps_left: MAX_STEPS, exhausted: false, losses: Vec::new() }
    }

    pub(super) fn root(&mut self) -> Map<String, Value> {
        self.schema(&[self.root], 0)
    }

    /// What could not be expressed, each kind once.
    pub(super) fn losses(mut self) -> Vec<String> {
        self.losses.sort_unstable();
        self.losses.into_iter().map(str::to_owned).collect()
    }

    /// The published form of a value that satisfies all of these schemas; where they disagree the first wins.
    fn schema(&mut self, parts: &[&'a Value], depth: usize) -> Map<String, Value> {
        let mut form = Form::default();
        for part in parts {
            self.gather(part, &mut form, 0);
        }
        self.form(&form, depth)
    }

    /// Adds what a schema says: its own keywords, then what it refers to, then its `allOf` parts. Keywords beside
    /// `$ref` count (2020-12, section 7.7.1.1) and win.
    fn gather(&mut self, schema: &'a Value, form: &mut Form<'a>, hops: usize) {
        let Value::Object(object) = schema else { return };
        if hops > MAX_DEPTH {
            self.lose(TOO_DEEP);
            return;
        }
        self.step(object.len());
        if self.exhausted {
            return;
        }
        for (keyword, value) in object {
            match (keyword.as_str(), value) {
                // Draft 3 wrote `required: true` on a property.
                ("$ref" | "allOf" | "anyOf" | "oneOf", _) | ("required", Value::Bool(_)) => continue,
                ("required", Value::Array(names)) => {
                    self.step(names.len());
                    form.required.extend(names.iter().filter_map(Value::as_str));
                }
                ("properties", Value::Object(properties)) => {
                    self.step(properties.len());
                    for (name, property) in properties {
                        form.properties.entry(name).or_default().push(property);
                    }
                }
                ("enum", Value::Array(values)) => self.step(values.len()),
                ("items", items) => form.items.push(items),
                _ => {}
            }
            form.keywords.entry(keyword).or_insert(value);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(alternatives)) = object.get(keyword)
                && !alternatives.is_empty()
            {
                form.alternatives.push(alternatives);
            }
        }
        if let Some(Value::String(reference)) = object.get("$ref") {
            self.follow(reference, form, hops);
        }
        if let Some(Value::Array(parts)) = object.get("allOf") {
            for part in parts {
                self.gather(part, form, hops + 1);
            }
        }
    }

    fn follow(&mut self, reference: &str, form: &mut Form<'a>, hops: usize) {
        self.step(reference.len() / 64);
        let Some(target) = self.target(reference) else {
            self.lose("a reference that leads outside the schema");
            return;
        };
        let is_target = |other: &&Value| ptr::eq(*other, target);
        if form.targets.iter().any(is_target) {
            // Said already: a schema that has to hold twice holds once.
        } else if self.open.iter().any(is_target) {
            self.lose("recursion");
            form.cycle.get_or_insert(target);
        } else {
            form.targets.push(target);
            self.gather(target, form, hops + 1);
        }
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        if pointer.is_empty() { Some(self.root) } else { self.root.pointer(&percent_decoded(pointer)) }
    }

    fn form(&mut self, form: &Form<'a>, depth: usize) -> Map<String, Value> {
        self.schemas += 1;
        if depth > MAX_DEPTH || self.schemas > MAX_SCHEMAS || self.exhausted {
            self.exhausted |= self.schemas > MAX_SCHEMAS;
            self.lose(TOO_DEEP);
            return free_form(form.type_of());
        }
        for keyword in DROPPED {
            if form.keywords.contains_key(keyword) {
                self.lose(keyword);
            }
        }
        if form.alternatives.len() > 1 {
            self.lose("alternatives beside other alternatives");
        }
        let before = self.open.len();
        self.open.extend(&form.targets);
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

    /// In place of a reference that would repeat what is around it.
    fn cycle(&mut self, target: &'a Value, form: &Form<'a>) -> Map<String, Value> {
        let mut out = self.kept(form, true);
        out.entry("description").or_insert_with(|| "the same structure again, nested".into());
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
            match object.get("$ref").and_then(Value::as_str).and_then(|reference| self.target(reference)) {
                Some(next) if kind.is_none() => target = next,
                _ => return kind,
            }
        }
        None
    }

    /// The form of a schema with alternatives, or nothing where they say nothing.
    fn alternatives(&mut self, alternatives: &'a [Value], form: &Form<'a>, depth: usize) -> Option<Map<String, Value>> {
        let mut nullable = false;
        let mut forms: Vec<Form<'a>> = Vec::new();
        for alternative in alternatives.iter().filter(|alternative| **alternative != Value::Bool(false)) {
            let mut own = Form::default();
            self.gather(alternative, &mut own, 0);
            if own.is_null() {
                nullable = true;
            } else {
                forms.push(own);
            }
        }
        let mut out = if forms.is_empty() {
            if !nullable || form.type_of().is_some() {
                return None;
            }
            let mut out = self.kept(form, true);
            out.insert("type".into(), "null".into());
            return Some(out);
        } else if forms.len() == 1 {
            let mut only = forms.pop()?.over(form);
            // The description beside the alternatives was written for this place.
            only.keywords.extend(form.annotations());
            self.form(&only, depth + 1)
        } else {
            self.variants(forms, form, depth)
        };
        if nullable {
            allow_null(&mut out);
        }
        Some(out)
    }

    fn variants(&mut self, forms: Vec<Form<'a>>, form: &Form<'a>, depth: usize) -> Map<String, Value> {
        let base = form.base();
        let mut out = self.kept(form, true);
        let mut seen: HashSet<String> = HashSet::new();
        let mut variants: Vec<Value> = Vec::new();
        for own in forms {
            self.step(base.len());
            let own = if self.exhausted { own } else { own.over(&base) };
            let mut variant = self.form(&own, depth + 1);
            let only_alternatives = variant.len() == 1;
            let nested = match variant.get_mut("anyOf") {
                Some(Value::Array(nested)) if only_alternatives => nested.split_off(0),
                _ => vec![Value::Object(variant)],
            };
            variants.extend(nested.into_iter().filter(|variant| seen.insert(variant.to_string())));
        }
        if variants.len() > 1 {
            out.insert("anyOf".into(), Value::Array(variants));
        } else if let Some(Value::Object(variant)) = variants.pop() {
            for (keyword, value) in variant {
                out.entry(keyword).or_insert(value);
            }
        }
        out
    }

    /// The keywords that are kept as they are, or only those that describe.
    fn kept(&mut self, form: &Form<'a>, only_annotations: bool) -> Map<String, Value> {
        let mut out = Map::new();
        for (keyword, kind) in KEPT {
            if only_annotations && !ANNOTATIONS.contains(&keyword) {
                continue;
            }
            if let Some(value) = form.keywords.get(keyword).filter(|value| kind.fits(value))
                && self.afford_value(keyword, value)
            {
                out.insert(keyword.into(), (*value).clone());
            }
        }
        out
    }

    /// Every schema has a type and what the type asks for.
    fn typed(&mut self, form: &Form<'a>, depth: usize) -> Map<String, Value> {
        let mut out = self.kept(form, false);
        exclusive_bounds_of_draft_4(form, &mut out);
        if let Some(constant) = form.keywords.get("const").filter(|value| !value.is_null())
            && self.afford_value("enum", constant)
        {
            out.insert("enum".into(), json!([constant]));
        }
        let Some(kind) = form.type_of() else {
            out.extend(any_value());
            return out;
        };
        out.insert("type".into(), kind);
        if is(&out, "array") {
            let items: Vec<&Value> = form.items.iter().copied().filter(|items| items.is_object()).collect();
            if form.items.iter().any(|items| items.is_array()) {
                self.lose("items as a list");
            }
            let items = if items.is_empty() { any_value() } else { self.schema(&items, depth + 1) };
            out.insert("items".into(), Value::Object(items));
        }
        if is(&out, "object") {
            self.object(form, &mut out, depth);
        }
        if !is(&out, "null")
            && let Some(Value::Array(values)) = out.get_mut("enum")
        {
            values.retain(|value| !value.is_null());
            if values.is_empty() {
                out.remove("enum");
            }
        }
        out
    }

    fn object(&mut self, form: &Form<'a>, out: &mut Map<String, Value>, depth: usize) {
        let mut accepts_more =
            form.keywords.get("patternProperties").and_then(|patterns| patterns.as_object()).is_some_and(|it| !it.is_empty());
        if !form.properties.is_empty() || form.keywords.get("properties").is_some_and(|properties| properties.is_object()) {
            let mut published = Map::new();
            for (name, parts) in form.properties.iter().filter(|(_, parts)| !parts.iter().any(|part| **part == Value::Bool(false))) {
                if self.exhausted || !self.afford(name.len() + 4) {
                    self.exhausted = true;
                    self.lose(TOO_LONG);
                    accepts_more = true;
                    break;
                }
                published.insert((*name).to_owned(), Value::Object(self.schema(parts, depth + 1)));
            }
            let mut seen = HashSet::new();
            let required: Vec<Value> = form
                .required
                .iter()
                .filter(|name| published.contains_key(**name) && seen.insert(**name))
                .map(|name| (*name).into())
                .collect();
            out.insert("properties".into(), Value::Object(published));
            if !required.is_empty() {
                out.insert("required".into(), Value::Array(required));
            }
        }
        match form.keywords.get("additionalProperties").copied() {
            _ if accepts_more => {
                out.insert("additionalProperties".into(), Value::Bool(true));
            }
            Some(Value::Bool(allowed)) => {
                out.insert("additionalProperties".into(), Value::Bool(*allowed));
            }
            Some(schema @ Value::Object(_)) => {
                let values = self.schema(&[schema], depth + 1);
                out.insert("additionalProperties".into(), Value::Object(values));
            }
            _ => {}
        }
    }

    fn lose(&mut self, what: &'static str) {
        if !self.losses.contains(&what) {
            self.losses.push(what);
        }
    }

    fn step(&mut self, steps: usize) {
        match self.steps_left.checked_sub(steps) {
            Some(left) => self.steps_left = left,
            None => self.exhausted = true,
        }
    }

    fn afford(&mut self, bytes: usize) -> bool {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }

    /// Whether there is room for a keyword; if not, the schema is published without it.
    fn afford_value(&mut self, keyword: &str, value: &Value) -> bool {
        let mut left = self.bytes_left;
        let fits = take(&mut left, keyword.len() + 4) && take_value(&mut left, value);
        // Reading counts too: a list that never fits would be read again for every reference to it.
        self.step((self.bytes_left - left) / 16);
        if fits {
            self.bytes_left = left;
        } else {
            self.lose(TOO_LONG);
        }
        fits
    }
}

fn take(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// About the length of the value as JSON.
fn take_value(left: &mut usize, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => take(left, 5),
        Value::Number(_) => take(left, 8),
        Value::String(text) => take(left, text.len() + 3),
        Value::Array(items) => take(left, 2) && items.iter().all(|item| take_value(left, item)),
        Value::Object(object) => take(left, 2) && object.iter().all(|(name, value)| take(left, name.len() + 4) && take_value(left, value)),
    }
}

pub(super) fn is(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == name,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
        _ => false,
    }
}

/// Null joins a list of types: as an alternative of its own it would be collapsed by Open WebUI.
fn allow_null(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "null") => kinds.push("null".into()),
        Some(Value::String(kind)) if kind != "null" => {
            let kinds = json!([kind, "null"]);
            schema.insert("type".into(), kinds);
        }
        _ => {}
    }
    if let Some(Value::Array(variants)) = schema.get_mut("anyOf") {
        let simple =
            |variant: &Value| variant.as_object().is_some_and(|it| it.contains_key("type") && !is(it, "object") && !is(it, "array"));
        let position = variants.iter().position(simple).unwrap_or_default();
        if let Some(Value::Object(variant)) = variants.get_mut(position) {
            allow_null(variant);
        }
    }
}

/// A value of which nothing but the type is published.
fn free_form(kind: Option<Value>) -> Map<String, Value> {
    let Some(kind) = kind else { return any_value() };
    let mut out = Map::new();
    out.insert("type".into(), kind);
    if is(&out, "array") {
        out.insert("items".into(), Value::Object(any_value()));
    }
    if is(&out, "object") {
        out.insert("additionalProperties".into(), Value::Bool(true));
    }
    out
}

/// Any JSON value but null, as a list of types that every converter keeps.
fn any_value() -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("type".into(), json!(["string", "number", "boolean", "object", "array"]));
    out.insert("items".into(), json!({"type": "string"}));
    out
}

/// Draft 4 wrote `exclusiveMinimum: true` beside `minimum`.
fn exclusive_bounds_of_draft_4(form: &Form<'_>, out: &mut Map<String, Value>) {
    for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if form.keywords.get(flag) == Some(&&Value::Bool(true))
            && let Some(limit) = out.remove(bound)
        {
            out.insert(flag.into(), limit);
        }
    }
}

/// A reference is a URI fragment: `%7B` in it means `{`.
fn percent_decoded(pointer: &str) -> String {
    url::form_urlencoded::parse(format!("x={}", pointer.replace('+', "%2B").replace('&', "%26")).as_bytes())
        .next()
        .map_or_else(|| pointer.to_owned(), |(_, value)| value.into_owned())
}
