//! Publishes `not`, `if` and `contains` exactly or not at all, because a weaker condition could make the schema stricter.

use serde_json::{Map, Value};

use crate::domain::catalog::schema::form::Form;
use crate::domain::catalog::schema::keywords::is_closed;
use crate::domain::catalog::schema::loss::LossReason;
use crate::domain::catalog::schema::translation::Translation;

pub(super) const CONDITIONS: [&str; 3] = ["not", "if", "contains"];

impl<'a> Translation<'a> {
    /// Copies the conditions that can be published exactly.
    pub(super) fn conditions(&mut self, form: &Form<'a>, out: &mut Map<String, Value>) {
        for keyword in CONDITIONS {
            if !self.carries(keyword, form) {
                continue;
            }
            let with = match keyword {
                "if" => &["if", "then", "else"][..],
                "contains" => &["contains", "minContains", "maxContains"],
                _ => &["not"],
            };
            let values: Vec<(&str, &Value)> = with.iter().filter_map(|part| Some((*part, *form.keywords.get(part)?))).collect();
            if values.iter().all(|(part, value)| self.budget.afford_value(part, value)) {
                out.extend(values.into_iter().map(|(part, value)| (part.to_owned(), value.clone())));
            } else {
                self.lose(keyword, LossReason::TooLarge, false);
            }
        }
    }

    /// Whether a condition is published unchanged. At the root none is, because providers reject conditions there.
    pub(super) fn carries(&self, keyword: &str, form: &Form<'a>) -> bool {
        let closed = |keyword: &str| form.keywords.get(keyword).is_none_or(|schema| is_closed(schema));
        let count = |keyword: &str| form.keywords.get(keyword).is_none_or(|count| count.is_u64());
        form.keywords.contains_key(keyword)
            && match keyword {
                "if" => !self.is_root() && ["if", "then", "else"].into_iter().all(closed) && form.keywords.contains_key("then"),
                "contains" => closed("contains") && count("minContains") && count("maxContains"),
                _ => !self.is_root() && closed(keyword),
            }
    }
}
