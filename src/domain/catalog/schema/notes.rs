//! Describes in words what a published schema can't express, and records the loss.

use std::ptr;

use serde_json::{Map, Value};

use crate::domain::catalog::schema::conditions::CONDITIONS;
use crate::domain::catalog::schema::form::Form;
use crate::domain::catalog::schema::keywords::allows;
use crate::domain::catalog::schema::loss::LossReason;
use crate::domain::catalog::schema::translation::Translation;
use crate::domain::catalog::schema::words;

/// Keywords that are always described in words.
const SPOKEN: [&str; 3] = ["dependentSchemas", "unevaluatedItems", "contentSchema"];

impl<'a> Translation<'a> {
    /// Whether a keyword is described in words instead of published.
    pub(super) fn speaks(&self, keyword: &str, form: &Form<'a>) -> bool {
        let whole = if matches!(keyword, "then" | "else") { "if" } else { keyword };
        SPOKEN.contains(&whole) || (CONDITIONS.contains(&whole) && !self.carries(whole, form))
    }

    /// Sentences for everything that the published form of this schema can't express.
    pub(super) fn notes(&mut self, form: &Form<'a>) -> Vec<String> {
        let mut notes = Vec::new();
        let reason = if self.is_root() { LossReason::AtRoot } else { LossReason::NoForm };
        for keyword in CONDITIONS.into_iter().chain(SPOKEN) {
            let Some(value) = form.keywords.get(keyword).filter(|_| self.speaks(keyword, form)) else { continue };
            let (then, otherwise) = (form.keywords.get("then").copied(), form.keywords.get("else").copied());
            let note = if keyword == "if" {
                if then.is_none() && otherwise.is_none() {
                    continue;
                }
                words::condition(value, then, otherwise)
            } else {
                words::sentence(keyword, value)
            };
            self.lose(keyword, reason, note.is_some());
            notes.extend(note);
        }
        // Some servers put the enum of a string under `items`. Publishing it could be stricter, so it is only described.
        let listed = form.items.iter().find_map(|(_, items)| items.get("enum").filter(|values| values.is_array()));
        if let Some(values) = listed.filter(|_| form.type_of().is_some_and(|kind| !allows(&kind, "array")))
            && let Some(note) = words::sentence("enum", values)
        {
            self.lose("items", LossReason::NoForm, true);
            notes.push(note);
        }
        if !form.evaluates()
            && let Some(value) = form.keywords.get("unevaluatedProperties")
            && let Some(note) = words::sentence("unevaluatedProperties", value)
        {
            self.lose("unevaluatedProperties", LossReason::NoForm, true);
            notes.push(note);
        }
        for (keyword, value) in &form.conflicts {
            let note = words::sentence(keyword, value);
            self.lose(keyword, LossReason::SaidTwice, note.is_some());
            notes.extend(note);
        }
        for more in form.alternatives.iter().skip(1) {
            self.lose("anyOf", LossReason::SaidTwice, true);
            notes.push(words::alternatives(more));
        }
        if let Some(Value::Object(patterns)) = form.keywords.get("patternProperties") {
            for (pattern, _) in patterns.iter().filter(|(_, schema)| **schema == Value::Bool(false)).take(8) {
                self.lose("patternProperties", reason, true);
                notes.push(format!("No name may match {pattern}."));
            }
        }
        if let Some(target) = form.cycle {
            self.lose("$ref", LossReason::Recursive, true);
            let place = self.open.iter().find(|open| ptr::eq(open.target, target)).map(|open| open.place.as_str()).unwrap_or_default();
            notes.push(if place.is_empty() {
                "The same structure as all arguments together, nested.".to_owned()
            } else {
                format!("The same structure as {}, nested.", words::quoted(place))
            });
        }
        notes
    }

    pub(super) fn describe(&mut self, out: &mut Map<String, Value>, notes: &[String]) {
        let mut description = match out.get("description") {
            Some(Value::String(text)) if !notes.is_empty() => text.clone(),
            None if !notes.is_empty() => String::new(),
            _ => return,
        };
        for note in notes {
            if self.budget.afford(note.len()) {
                words::append(&mut description, note);
            }
        }
        if !description.is_empty() {
            out.insert("description".into(), description.into());
        }
    }
}
