//! Publishes objects and arrays.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::domain::catalog::schema::form::Form;
use crate::domain::catalog::schema::loss::LossReason;
use crate::domain::catalog::schema::translation::{Step, Translation};
use crate::domain::catalog::schema::values::{any_item, any_value};

impl<'a> Translation<'a> {
    pub(super) fn array(&mut self, form: &Form<'a>, out: &mut Map<String, Value>, depth: usize) {
        let prefix = if self.budget.is_exhausted() { &[] } else { form.prefix.unwrap_or_default() };
        let first = prefix
            .iter()
            .enumerate()
            .map(|(place, schema)| self.schema_at(&[Step::Keyword("prefixItems"), Step::Place(place)], &[schema], depth));
        let first: Vec<Value> = first.collect();
        let counting: Vec<&Value> = form.items.iter().filter(|(from, _)| *from <= prefix.len()).map(|(_, schema)| *schema).collect();
        let any_of_any = form.items.len() == 1 && *form.items[0].1 == any_item();
        let items = if any_of_any {
            any_item()
        } else if counting.is_empty() {
            Value::Object(any_value())
        } else {
            self.schema_at(&[Step::Keyword("items")], &counting, depth)
        };
        if !first.is_empty() {
            out.insert("prefixItems".into(), first.into());
        }
        out.insert("items".into(), items);
        // A schema that forbids further items would be `false`, so `maxItems` replaces it.
        if let Some(length) = form.length
            && out.get("maxItems").and_then(Value::as_u64).is_none_or(|most| most > length as u64)
        {
            out.insert("maxItems".into(), length.into());
        }
    }

    pub(super) fn object(&mut self, form: &Form<'a>, out: &mut Map<String, Value>, depth: usize) {
        let complete = self.properties(form, out, depth);
        // Of two parts with patterns, only those of one are published.
        let has_further_patterns = form.conflicts.iter().any(|(keyword, _)| *keyword == "patternProperties");
        let complete = self.patterns(form, out, depth) && complete && !has_further_patterns;
        match form.keywords.get("propertyNames") {
            Some(names @ Value::Object(_)) => {
                let names = self.schema_at(&[Step::Keyword("propertyNames")], &[names], depth);
                // Names are always strings, so this schema would restrict nothing.
                if names != json!({"type": "string"}) && names != Value::Object(any_value()) {
                    out.insert("propertyNames".into(), names);
                }
            }
            Some(Value::Bool(false)) => {
                out.insert("maxProperties".into(), 0.into());
            }
            _ => {}
        }
        self.needs(form, out);
        let others = form.keywords.get("additionalProperties").or_else(|| {
            let unevaluated = form.keywords.get("unevaluatedProperties")?;
            form.evaluates().then_some(unevaluated)
        });
        match others {
            _ if !complete => {
                out.insert("additionalProperties".into(), Value::Bool(true));
            }
            Some(Value::Bool(allowed)) => {
                out.insert("additionalProperties".into(), Value::Bool(*allowed));
            }
            Some(schema @ Value::Object(_)) => {
                let values = self.schema_at(&[Step::Keyword("additionalProperties")], &[schema], depth);
                let anything = values == Value::Object(any_value());
                out.insert("additionalProperties".into(), if anything { Value::Bool(true) } else { values });
            }
            _ => {}
        }
    }

    /// Publishes the properties. Returns whether all are published.
    fn properties(&mut self, form: &Form<'a>, out: &mut Map<String, Value>, depth: usize) -> bool {
        if form.properties.is_empty() && form.required.is_empty() && !form.keywords.contains_key("properties") {
            return true;
        }
        let mut complete = true;
        let mut published = Map::new();
        let allowed = |parts: &[&Value]| !parts.iter().any(|part| **part == Value::Bool(false));
        for (name, parts) in form.properties.iter().filter(|(_, parts)| allowed(parts)) {
            if self.budget.is_exhausted() || !self.budget.afford(name.len() + 4) {
                self.budget.exhaust();
                self.lose("properties", LossReason::TooLarge, false);
                complete = false;
                break;
            }
            let property = self.schema_at(&[Step::Keyword("properties"), Step::Name(name)], parts, depth);
            published.insert((*name).to_owned(), property);
        }
        let mut seen = HashSet::new();
        let mut required: Vec<Value> = Vec::new();
        for name in form.required.iter().filter(|name| seen.insert(**name)) {
            // Open WebUI drops arguments without an entry in `properties`.
            if complete && !form.properties.contains_key(name) && form.keywords.get("additionalProperties") != Some(&&Value::Bool(false)) {
                if self.budget.is_exhausted() || !self.budget.afford(name.len() + 4) {
                    self.lose("required", LossReason::TooLarge, false);
                    break;
                }
                let others = form.keywords.get("additionalProperties").filter(|others| others.is_object());
                let others = others.filter(|_| !form.keywords.contains_key("patternProperties"));
                let parts: &[&Value] = others.map(std::slice::from_ref).unwrap_or_default();
                let property = self.schema_at(&[Step::Keyword("properties"), Step::Name(name)], parts, depth);
                published.insert((*name).to_owned(), property);
            }
            if published.contains_key(*name) {
                required.push((*name).into());
            }
        }
        out.insert("properties".into(), Value::Object(published));
        if !required.is_empty() {
            out.insert("required".into(), Value::Array(required));
        }
        complete
    }

    /// Publishes `patternProperties`. Returns whether all patterns are published.
    fn patterns(&mut self, form: &Form<'a>, out: &mut Map<String, Value>, depth: usize) -> bool {
        let Some(Value::Object(patterns)) = form.keywords.get("patternProperties") else { return true };
        let mut published = Map::new();
        for (pattern, schema) in patterns {
            if self.budget.is_exhausted() || !self.budget.afford(pattern.len() + 4) {
                self.lose("patternProperties", LossReason::TooLarge, false);
                return false;
            }
            if *schema == Value::Bool(false) {
                continue;
            }
            let value = self.schema_at(&[Step::Keyword("patternProperties"), Step::Name(pattern)], &[schema], depth);
            published.insert(pattern.clone(), value);
        }
        if !published.is_empty() {
            out.insert("patternProperties".into(), Value::Object(published));
        }
        true
    }

    /// Publishes dependencies between properties.
    fn needs(&mut self, form: &Form<'a>, out: &mut Map<String, Value>) {
        let Some(Value::Object(needs)) = form.keywords.get("dependentRequired") else { return };
        let names = |names: &Value| {
            let mut seen = HashSet::new();
            let different = names.as_array()?.iter().filter(|name| name.as_str().is_some_and(|name| seen.insert(name)));
            Some(Value::Array(different.cloned().collect()))
        };
        let needs: Map<String, Value> = needs.iter().filter_map(|(name, needed)| Some((name.clone(), names(needed)?))).collect();
        let needs = Value::Object(needs);
        if !self.budget.afford_value("dependentRequired", &needs) {
            self.lose("dependentRequired", LossReason::TooLarge, false);
        } else if needs != json!({}) {
            out.insert("dependentRequired".into(), needs);
        }
    }
}
