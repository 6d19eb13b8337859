//! Forgetting: what to forget, a page that asks again, and the form that does it.

use maud::{Markup, html};

use crate::http::console::LEARNING;
use crate::http::console::layout::Visit;
use crate::http::console::parts::{Form, short};
use crate::http::console::text::Texts;
use crate::http::pages::browser::Fields;
use crate::http::problem::Problem;
use crate::http::routes::admin::learning::{ForgetQuery, to_forget};

/// Maximum length of a name, in characters.
const NAME: usize = 200;

/// What a form or a link asks to forget; `None` if it asks for nothing. `forget` names the kind, and `value` which one.
pub(super) fn asked(fields: &Fields) -> Option<ForgetQuery> {
    let value = || Some(fields.text("value").to_owned());
    let nothing = ForgetQuery::default();
    match fields.text("forget") {
        "principal" => Some(ForgetQuery { principal: value(), ..nothing }),
        "tool" => Some(ForgetQuery { tool: value(), ..nothing }),
        "scope" => Some(ForgetQuery { scope: value(), ..nothing }),
        "all" => Some(ForgetQuery { all: Some(true), ..nothing }),
        _ => None,
    }
}

/// The error in what was asked, at its field.
pub(super) fn problem(visit: &Visit<'_>, fields: &Fields) -> Option<Problem> {
    let asked = asked(fields)?;
    if asked.all.is_none() && fields.given("value").is_none() {
        return Some(Problem::invalid("value", visit.texts.forget_needs_name.as_str()));
    }
    Some(at_value(to_forget(visit.state, asked).err()?))
}

/// The error at the one field of the form.
pub(super) fn at_value(problem: Problem) -> Problem {
    Problem { parameter: Some("value".into()), ..problem }
}

/// The form that leads to the question.
pub(super) fn form(visit: &Visit<'_>, given: &Fields, problem: Option<&Problem>) -> Markup {
    let (texts, form) = (visit.texts, Form::new(visit.texts, given, problem));
    if !visit.may_change() {
        return html! {};
    }
    let kinds = [("principal", texts.caller.as_str()), ("tool", &texts.tool), ("scope", &texts.scope)];
    html! {
        h2 { (texts.forget) }
        form.columns method="get" action=(visit.at(LEARNING)) {
            (form.error_beside(&["forget", "value"]))
            (form.choice("forget", &texts.forget_what, &kinds))
            (form.line("value", &texts.name, &texts.forget_value_hint))
            p.all.buttons {
                button { (texts.forget_next) }
                a href=(visit.link(LEARNING, &[("forget", "all")])) { (texts.forget_all) }
            }
        }
    }
}

/// Asks whether to forget.
pub(super) fn question(visit: &Visit<'_>, fields: &Fields) -> Markup {
    let (texts, kind, value) = (visit.texts, fields.text("forget"), fields.text("value"));
    html! {
        form.buttons method="post" action=(visit.at(LEARNING)) {
            (visit.token())
            input type="hidden" name="do" value="forget";
            input type="hidden" name="forget" value=(kind);
            input type="hidden" name="value" value=(value);
            h2 { (texts.forget) ": " (what(texts, kind)) @if kind != "all" { " " (short(value, NAME)) } }
            p { (texts.forget_hint) }
            button { (texts.forget) }
            a href=(visit.at(LEARNING)) { (texts.cancel) }
        }
    }
}

fn what<'a>(texts: &'a Texts, kind: &str) -> &'a str {
    match kind {
        "principal" => &texts.caller,
        "tool" => &texts.tool,
        "scope" => &texts.scope,
        _ => &texts.forget_all,
    }
}
