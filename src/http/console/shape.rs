//! The part of a tool's form that shapes it: for each parameter, whether callers see it, and its fixed or default value.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{grouped, short};
use super::text::Texts;
use crate::domain::catalog::schema::parameters::{Parameter, check, parameters};
use crate::domain::catalog::shape::{ParameterShape, Shape, ShapeProblem};
use crate::domain::learning::arguments::FilledParameters;
use crate::http::pages::browser::Fields;
use crate::http::problem::Problem;
use crate::service::catalog::tool_admin::ToolView;

/// Number of parameters in a form.
const PARAMETERS: usize = 60;
/// Maximum length of a parameter's description, in characters.
const DESCRIPTION: usize = 200;

/// The form's rows: the tool's parameters, and those of its shape that the tool no longer has.
pub(super) struct ShapeRows<'a> {
    /// The server's own input schema; `null` if no server lists the tool.
    source: &'a Value,
    rows: Vec<Row<'a>>,
    /// Number of parameters that the form does not contain.
    more: usize,
}

struct Row<'a> {
    name: &'a str,
    /// `None` if the tool has no such parameter.
    known: Option<Parameter<'a>>,
}

impl<'a> ShapeRows<'a> {
    pub(super) fn of(source: &'a Value, shape: &'a Shape) -> Self {
        let mut known = parameters(source);
        let shaped = shape.parameters.keys().map(|name| Row { name, known: known.shift_remove(name.as_str()) });
        let mut rows: Vec<Row<'_>> = shaped.collect();
        rows.extend(known.into_iter().map(|(name, parameter)| Row { name, known: Some(parameter) }));
        let more = rows.len().saturating_sub(PARAMETERS);
        rows.truncate(PARAMETERS);
        Self { source, rows, more }
    }

    /// Whether the problem is about a parameter in this form, so that it stands there.
    pub(super) fn show(&self, problem: &Problem) -> bool {
        let names: BTreeSet<String> = self.rows.iter().map(|row| pointer(row.name)).collect();
        !problem.errors.is_empty() && problem.errors.iter().all(|error| names.contains(&error.pointer))
    }

    /// Writes a shape into the fields of a form.
    pub(super) fn write(&self, shape: &Shape, fields: &mut Fields) {
        for row in &self.rows {
            let Some(shaped) = shape.parameters.get(row.name) else { continue };
            let kind = match shaped {
                ParameterShape::Hidden => "hidden",
                ParameterShape::Fixed(_) => "fixed",
                ParameterShape::Default(_) => "default",
            };
            fields.set(&kind_of(row.name), kind);
            fields.set(&value_of(row.name), shaped.value().map(|value| self.as_text(row, value)).unwrap_or_default());
        }
        fields.set("disabled", shape.disabled.to_string());
    }

    /// The shape in a form. Parameters that the form does not contain keep their former shape.
    pub(super) fn read(&self, former: &Shape, fields: &Fields) -> Shape {
        let mut parameters = former.parameters.clone();
        for row in &self.rows {
            let value = || self.as_value(row, fields.text(&value_of(row.name)));
            let shape = match fields.text(&kind_of(row.name)) {
                "hidden" => ParameterShape::Hidden,
                "fixed" => ParameterShape::Fixed(value()),
                "default" => ParameterShape::Default(value()),
                "shown" => {
                    parameters.remove(row.name);
                    continue;
                }
                _ => continue,
            };
            parameters.insert(row.name.to_owned(), shape);
        }
        Shape { parameters, disabled: fields.text("disabled") == "true" }
    }

    /// The value that a text stands for: JSON if such a value fits the parameter, otherwise the text itself. An empty text stands
    /// for null.
    fn as_value(&self, row: &Row<'_>, text: &str) -> Value {
        let fits = |value: &Value| row.known.as_ref().is_none_or(|known| check(self.source, known, value).is_ok());
        if text.is_empty() {
            return Value::Null;
        }
        let plain = Value::from(text);
        match serde_json::from_str::<Value>(text) {
            Ok(value) if fits(&value) || !fits(&plain) => value,
            _ => plain,
        }
    }

    /// The shortest text that stands for a value.
    fn as_text(&self, row: &Row<'_>, value: &Value) -> String {
        if value.is_null() {
            return String::new();
        }
        // The field is one line, and browsers drop line breaks there. JSON escapes them.
        let is_plain = |text: &&str| text.trim() == *text && !text.contains(['\n', '\r']) && self.as_value(row, text) == *value;
        let plain = value.as_str().filter(is_plain);
        plain.map_or_else(|| value.to_string(), str::to_owned)
    }

    /// `filled`: which parameters calls filled; `None` without calls.
    pub(super) fn form(
        &self,
        texts: &Texts,
        filled: Option<&FilledParameters>,
        (given, problem): (&Fields, Option<&Problem>),
        is_fixed: bool,
    ) -> Markup {
        html! {
            @if !self.rows.is_empty() {
                fieldset.all {
                    legend { (texts.shape) }
                    p.all { small { (texts.shape_hint) } }
                    @for (number, row) in self.rows.iter().enumerate() { (fields(texts, row, number, filled, (given, problem), is_fixed)) }
                    @if self.more > 0 { p.quiet { (self.more) " " (texts.more_parameters) } }
                }
            }
        }
    }
}

fn fields(
    texts: &Texts,
    row: &Row<'_>,
    number: usize,
    filled: Option<&FilledParameters>,
    (given, problem): (&Fields, Option<&Problem>),
    is_fixed: bool,
) -> Markup {
    let kinds = [("shown", &texts.shown), ("hidden", &texts.hidden), ("fixed", &texts.fixed_value), ("default", &texts.default_value)];
    let chosen = given.given(&kind_of(row.name)).unwrap_or("shown");
    let description = row.known.iter().flat_map(|known| &known.schemas).find_map(|schema| schema.get("description")?.as_str());
    let at = pointer(row.name);
    let errors: Vec<&str> = problem
        .into_iter()
        .flat_map(|problem| &problem.errors)
        .filter(|error| error.pointer == at)
        .map(|error| error.message.as_str())
        .collect();
    let (kind, value, wrong) = (format!("kind-{number}"), format!("value-{number}"), format!("shape-{number}-error"));
    let (invalid, describes) = ((!errors.is_empty()).then_some("true"), (!errors.is_empty()).then_some(wrong.as_str()));
    html! {
        div.shaped {
            label for=(kind) {
                code { (short(row.name, 100)) }
                @if row.known.as_ref().is_some_and(|known| known.required) { small { (texts.required) } }
                @if row.known.is_none() { small.notable { (texts.no_longer) } }
                @if let Some(filled) = filled {
                    small { (texts.filled) ": " (grouped(filled.parameters.get(row.name).copied().unwrap_or_default())) " / " (grouped(filled.calls)) }
                }
                @if let Some(description) = description { small { (short(description, DESCRIPTION)) } }
            }
            select id=(kind) name=(kind_of(row.name)) disabled[is_fixed] aria-invalid=[invalid] aria-describedby=[describes] {
                @for (kind, shown) in kinds { option value=(kind) selected[chosen == kind] { (shown) } }
            }
            input id=(value) name=(value_of(row.name)) value=(given.text(&value_of(row.name))) readonly[is_fixed]
                aria-label={ (texts.value) ": " (short(row.name, 100)) } aria-invalid=[invalid] aria-describedby=[describes];
            @if !errors.is_empty() { p.bad id=(wrong) role="alert" { (errors.join("; ")) } }
        }
    }
}

/// What of a shape does not fit the current definition.
pub(super) fn misfits(texts: &Texts, problems: &[ShapeProblem]) -> Markup {
    html! {
        @if !problems.is_empty() {
            div.notice {
                p { (texts.shape_misfits) }
                ul { @for problem in problems.iter().take(PARAMETERS) { li { (short(&problem.to_string(), 300)) } } }
            }
        }
    }
}

/// A shape as terms and descriptions of a list, for a comparison of two versions.
pub(super) fn facts(texts: &Texts, view: &ToolView) -> Markup {
    let shape = view.written.as_ref().map(|written| written.shape.clone()).unwrap_or_default();
    html! {
        @for (name, shaped) in shape.parameters.iter().take(PARAMETERS) {
            dt { code { (short(name, 100)) } }
            dd.said { (short(&serde_json::to_string(shaped).unwrap_or_default(), 300)) }
        }
        dt { (texts.switched_off) } dd { @if shape.disabled { (texts.yes) } @else { (texts.no) } }
    }
}

fn kind_of(name: &str) -> String {
    format!("kind:{name}")
}

fn value_of(name: &str) -> String {
    format!("value:{name}")
}

/// The pointer of an error about a parameter.
fn pointer(name: &str) -> String {
    ShapeProblem::at(name, String::new()).pointer()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ShapeRows, kind_of, value_of};
    use crate::domain::catalog::shape::{ParameterShape, Shape};
    use crate::http::pages::browser::Fields;

    #[test]
    fn a_text_stands_for_the_value_that_fits() {
        let source = json!({"properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "any": {}}});
        let none = Shape::default();
        let rows = ShapeRows::of(&source, &none);
        for (name, text, value) in [
            ("text", "42", json!("42")),
            ("text", "plain", json!("plain")),
            ("text", "\"\"", json!("")),
            ("text", "\"two\\nlines\"", json!("two\nlines")),
            ("any", "\"two\\r\\nlines\"", json!("two\r\nlines")),
            ("text", "", Value::Null),
            ("count", "42", json!(42)),
            ("count", "many", json!("many")),
            ("any", "[1]", json!([1])),
            ("any", "\"42\"", json!("42")),
        ] {
            let mut fields = Fields::default();
            fields.set(&kind_of(name), "fixed");
            fields.set(&value_of(name), text);
            let shape = rows.read(&none, &fields);
            assert_eq!(shape.parameters[name], ParameterShape::Fixed(value), "{name}: {text}");
            let mut written = Fields::default();
            rows.write(&shape, &mut written);
            assert!(!written.text(&value_of(name)).contains(['\n', '\r']), "regression test: the field is one line: {name}: {text}");
            assert_eq!(rows.read(&none, &written), shape, "{name}: {text}");
        }
    }
}
