//! Publishes `anyOf` and `oneOf`, both as `anyOf`. A single alternative is inlined.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::domain::catalog::schema::form::Form;
use crate::domain::catalog::schema::translation::{Step, Translation};
use crate::domain::catalog::schema::values::{allow_null, is_only_null};
use crate::domain::text::canonical::{Fingerprint, fingerprint};

impl<'a> Translation<'a> {
    /// The published form of all alternatives; `None` if they add nothing.
    pub(super) fn alternatives(&mut self, alternatives: &'a [Value], form: &Form<'a>, depth: usize) -> Option<Map<String, Value>> {
        let mut nullable = form.keywords.get("nullable") == Some(&&Value::Bool(true));
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
            // The outer description was written for this use of the schema, so it wins.
            only.keywords.extend(form.annotations());
            only.alternatives.extend(form.alternatives.iter().skip(1));
            only.cycle = only.cycle.or(form.cycle);
            self.form(&only, depth + 1)
        } else {
            self.variants(forms, form, depth)
        };
        if take_null(&mut out) || nullable {
            allow_null(&mut out);
        }
        Some(out)
    }

    fn variants(&mut self, forms: Vec<Form<'a>>, form: &Form<'a>, depth: usize) -> Map<String, Value> {
        let mut base = form.base();
        let mut out = self.kept(form, true);
        let notes = self.notes(form);
        // Notes about these keywords appear once, in the description next to the alternatives.
        base.keywords.retain(|keyword, _| !self.speaks(keyword, form));
        let mut seen: HashSet<Fingerprint> = HashSet::new();
        let mut variants: Vec<Value> = Vec::new();
        self.enter(Step::Keyword("anyOf"));
        for own in forms {
            self.budget.step(base.len());
            let own = if self.budget.is_exhausted() { own } else { own.over(&base) };
            self.enter(Step::Place(variants.len()));
            let mut variant = self.form(&own, depth + 1);
            self.leave();
            let only_alternatives = variant.len() == 1;
            let nested = match variant.get_mut("anyOf") {
                Some(Value::Array(nested)) if only_alternatives => nested.split_off(0),
                _ => vec![Value::Object(variant)],
            };
            variants.extend(nested.into_iter().filter(|variant| seen.insert(fingerprint(variant))));
        }
        self.leave();
        if variants.len() > 1 {
            out.insert("anyOf".into(), Value::Array(variants));
        } else if let Some(Value::Object(variant)) = variants.pop() {
            for (keyword, value) in variant {
                out.entry(keyword).or_insert(value);
            }
        }
        self.describe(&mut out, &notes);
        out
    }
}

/// Removes alternatives that allow only null. Returns whether there were any.
pub(super) fn take_null(schema: &mut Map<String, Value>) -> bool {
    let Some(Value::Array(variants)) = schema.get_mut("anyOf") else { return false };
    let is_null = |variant: &Value| variant.as_object().is_some_and(is_only_null);
    let before = variants.len();
    if variants.iter().all(is_null) {
        variants.truncate(1);
    } else {
        variants.retain(|variant| !is_null(variant));
    }
    let found = variants.len() < before;
    if variants.len() == 1
        && let Some(Value::Array(mut variants)) = schema.remove("anyOf")
        && let Some(Value::Object(only)) = variants.pop()
    {
        for (keyword, value) in only {
            schema.entry(keyword).or_insert(value);
        }
    }
    found
}
