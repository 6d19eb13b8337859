//! The rules in their order. A change stays a draft until it is saved, and the page shows its effect before.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::effect::{self, ANY_USER, CallerChange, Effect};
use super::{ACCESS, effect_of, names, navigation};
use crate::domain::access::rule::{Rule, RuleProblem};
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::console::layout::{Place, Visit};
use crate::http::console::parts::{Form, Head, done, grouped, short, table};
use crate::http::console::text::{Texts, reason};
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::{Code, Problem};
use crate::http::routes::admin::policy;
use crate::http::state::State;
use crate::service::access::policies::{CheckPrincipal, PolicyView};

/// Number of rules in the table. Whoever has more changes them by the API.
const MOST: usize = 100;
/// Number of callers in the table of effects.
const CALLERS: usize = 30;
/// Number of warnings about rules.
const WARNINGS: usize = 10;
/// The conditions of a rule, as in the API.
const CONDITIONS: [&str; 8] = ["servers", "tools", "tags", "annotations", "toolsets", "principals", "groups", "models"];

/// The rules that are being edited.
#[derive(Clone, PartialEq)]
struct Draft {
    /// The effect if no rule matches; null for the settings' own.
    default: Value,
    rules: Vec<Value>,
    /// The version that it would replace.
    version: u64,
}

impl Draft {
    fn of(view: &PolicyView) -> Self {
        Self { default: json!(view.default), rules: view.rules.iter().map(|rule| json!(rule)).collect(), version: view.version }
    }

    /// The draft of a form; the rules in effect if it contains none.
    fn read(fields: &Fields, view: &PolicyView) -> Self {
        let now = Self::of(view);
        let version = fields.text("version").parse().unwrap_or(now.version);
        let Ok(Value::Object(mut body)) = serde_json::from_str(fields.text("draft")) else { return Self { version, ..now } };
        match (body.remove("default"), body.remove("rules")) {
            (default, Some(Value::Array(rules))) => Self { default: default.unwrap_or_default(), rules, version },
            _ => Self { version, ..now },
        }
    }

    /// As the API takes it.
    fn body(&self) -> Value {
        json!({"default": self.default, "rules": self.rules})
    }

    fn is_change(&self, view: &PolicyView) -> bool {
        self.body() != Self::of(view).body()
    }
}

pub(in crate::http::console) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let (view, query) = (state.policies.view(), Fields::of_query(&request));
    let (said, fields) = (done(&visit, &query), proposed(&state, &query));
    page(&state, visit, &view, &Draft::of(&view), (&fields, None), &said).await
}

/// The fields of the rule that a link from the activity proposes: it blocks a tool for the groups of a caller, or for the caller.
fn proposed(state: &State, query: &Fields) -> Fields {
    let mut fields = Fields::default();
    for name in ["servers", "tools"] {
        fields.set(name, query.text(name));
    }
    if let Some(principal) = query.given("caller") {
        let of = CheckPrincipal { principal: principal.to_owned(), ..CheckPrincipal::default() };
        let groups = state.policies.principal_of(&of).map(|principal| principal.groups).unwrap_or_default();
        if groups.is_empty() {
            fields.set("principals", principal);
        } else {
            fields.set("groups", groups.into_iter().collect::<Vec<_>>().join("\n"));
        }
    }
    fields
}

/// Changes the draft, or saves it.
pub(in crate::http::console) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, mut fields) = match Visit::with_form(&state, &request, &body, ACCESS) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    let view = state.policies.view();
    let mut draft = Draft::read(&fields, &view);
    let wanted = fields.text("do").to_owned();
    if wanted == "save" {
        return match policy::replace(&state, &caller.0, &draft.body(), Some(draft.version)).await {
            Ok(_) => see(&state, &address(ACCESS, &[("done", "saved")])),
            Err(problem) => {
                let view = state.policies.view();
                // Whoever saves again after a conflict has seen the other version.
                if problem.code == Code::PreconditionFailed {
                    draft.version = view.version;
                }
                page(&state, visit, &view, &draft, (&Fields::default(), Some(&problem)), &html! {}).await
            }
        };
    }
    let before = draft.clone();
    edit(&mut draft, &mut fields, &wanted);
    // A mistake in the form leaves the draft as it was.
    if draft != before
        && let Err(problem) = effect::of(&state, draft.body()).await
    {
        draft = before;
        return page(&state, visit, &view, &draft, (&fields, Some(&problem)), &html! {}).await;
    }
    let keeps_fields = wanted.starts_with("edit-");
    let fields = if keeps_fields { fields } else { Fields::default() };
    page(&state, visit, &view, &draft, (&fields, None), &html! {}).await
}

/// Applies one button: `up-N`, `down-N`, `remove-N`, `edit-N`, `set` or `default`, or a rule that was dragged: `move-N-M`. N and M count
/// from 0.
fn edit(draft: &mut Draft, fields: &mut Fields, wanted: &str) {
    let (action, place_text) = wanted.split_once('-').unwrap_or((wanted, ""));
    let rules = draft.rules.len();
    let at = |text: &str| text.parse::<usize>().ok().filter(|place| *place < rules);
    let place = at(place_text);
    let dragged = || place_text.split_once('-').and_then(|(from, to)| Some((at(from)?, at(to)?)));
    match (action, place) {
        ("move", None) => {
            if let Some((from, to)) = dragged() {
                let rule = draft.rules.remove(from);
                draft.rules.insert(to, rule);
            }
        }
        ("up", Some(place)) if place > 0 => draft.rules.swap(place, place - 1),
        ("down", Some(place)) if place + 1 < draft.rules.len() => draft.rules.swap(place, place + 1),
        ("remove", Some(place)) => drop(draft.rules.remove(place)),
        ("edit", Some(place)) => {
            let rule = draft.rules[place].clone();
            fields.set("effect", rule["effect"].as_str().unwrap_or_default());
            for name in CONDITIONS {
                let patterns = rule[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                fields.set(name, patterns.collect::<Vec<_>>().join("\n"));
            }
            fields.set("place", place.to_string());
        }
        ("set", None) => {
            let rule = entered(fields);
            let place = fields.text("place").parse::<usize>().ok().filter(|place| *place < draft.rules.len());
            match place {
                Some(place) => draft.rules[place] = rule,
                None => draft.rules.push(rule),
            }
        }
        ("default", None) => draft.default = fields.given("default").map_or(Value::Null, |effect| json!(effect)),
        _ => {}
    }
}

/// The rule of the form.
fn entered(fields: &Fields) -> Value {
    let mut rule = Map::from_iter([("effect".to_owned(), json!(fields.given("effect").unwrap_or("block")))]);
    for name in CONDITIONS {
        let patterns = fields.lines(name);
        if !patterns.is_empty() {
            rule.insert(name.to_owned(), json!(patterns));
        }
    }
    Value::Object(rule)
}

async fn page(
    state: &web::Data<State>,
    visit: Visit<'_>,
    view: &PolicyView,
    draft: &Draft,
    (fields, problem): (&Fields, Option<&Problem>),
    said: &Markup,
) -> HttpResponse {
    let texts = visit.texts;
    let is_change = draft.is_change(view);
    let effect = if is_change { effect::of(state, draft.body()).await.map(Some) } else { Ok(None) };
    let effect = match effect {
        Ok(effect) => effect,
        Err(problem) => return visit.failed(&problem),
    };
    let body = html! {
        (navigation(&visit, ACCESS))
        (said)
        @if let Some(problem) = problem { p.bad role="alert" { (reason(texts, problem)) } }
        @if problem.is_some_and(|problem| problem.code == Code::PreconditionFailed) { (other_version(texts, view)) }
        @if let Some(effect) = &effect { (effects(&visit, draft, effect)) }
        // Those of a draft come with its effect.
        @if !is_change { (warnings(&view.warnings)) }
        p.quiet { (texts.rules_hint) }
        @if !view.settings_rules.is_empty() {
            h2 { (texts.settings_rules) }
            ol { @for rule in view.settings_rules.iter().take(MOST) { li { (described(texts, &rule.rule)) } } }
        }
        h2 { (texts.rules) }
        (list(&visit, view, draft))
        @if visit.may_change() {
            h2 #rule { @if fields.given("place").is_some() { (texts.change_rule) } @else { (texts.add_rule) } }
            (rule_form(&visit, draft, fields))
        }
    };
    let status = problem.map_or(StatusCode::OK, |problem| problem.code.status());
    visit.with_script().page_with(status, Place::Access, &texts.access, &body)
}

/// What every form of the page repeats: the rules that it shows, and their version. The buttons name rules by their places, which are
/// others once somebody else has changed the rules in effect.
fn carried(visit: &Visit<'_>, draft: &Draft) -> Markup {
    html! {
        (visit.token())
        input type="hidden" name="version" value=(draft.version);
        input type="hidden" name="draft" value=(draft.body());
    }
}

fn list(visit: &Visit<'_>, view: &PolicyView, draft: &Draft) -> Markup {
    let (texts, rules) = (visit.texts, &draft.rules);
    if !visit.may_change() {
        return html! {
            @if view.rules.is_empty() { p { (texts.no_rules) } }
            ol { @for rule in view.rules.iter().take(MOST) { li { (described(texts, rule)) } } }
            p.quiet { (texts.default_effect) ": " (draft.default.as_str().unwrap_or(&texts.as_in_settings)) }
        };
    }
    let button = |action: &str, place: usize, name: &str| {
        html! { button.small name="do" value={ (action) "-" (place) } aria-label={ (name) ": " (texts.rule) " " (place + 1) } { (name) } " " }
    };
    let rows = html! {
        @for (place, rule) in rules.iter().take(MOST).enumerate() {
            tr data-place=(place) {
                th.number scope="row" { (place + 1) }
                td { @match Rule::read(rule) { Ok(rule) => (described(texts, &rule)), Err(problem) => (problem) } }
                td {
                    @if place > 0 { (button("up", place, &texts.up)) }
                    @if place + 1 < rules.len() { (button("down", place, &texts.down)) }
                    (button("edit", place, &texts.change))
                    (button("remove", place, &texts.remove))
                }
            }
        }
    };
    let mut fields = Fields::default();
    fields.set("default", draft.default.as_str().unwrap_or_default());
    let defaults = [("", texts.as_in_settings.as_str()), ("allow", &texts.allow), ("block", &texts.block)];
    html! {
        form method="post" action=(visit.at(ACCESS)) data-dragged="true" {
            (carried(visit, draft))
            @if rules.len() > 1 { p.quiet hidden data-with-script="true" { (texts.drag_hint) } }
            @if rules.is_empty() { p { (texts.no_rules) } }
            @else { (table(&texts.rules, &[Head::Number("#"), Head::Text(&texts.rule), Head::Text(&texts.actions)], &rows)) }
            @if rules.len() > MOST { p.notice { (texts.too_many_rules) } }
            div.columns {
                (Form::new(texts, &fields, None).choice("default", &texts.default_effect, &defaults))
                p { button.small name="do" value="default" { (texts.set_default) } }
            }
        }
    }
}

fn rule_form(visit: &Visit<'_>, draft: &Draft, fields: &Fields) -> Markup {
    let (texts, form) = (visit.texts, Form::new(visit.texts, fields, None));
    let effects = [("block", texts.block.as_str()), ("allow", &texts.allow)];
    let labels = [
        &texts.servers,
        &texts.tools,
        &texts.tags,
        &texts.annotations,
        &texts.toolsets,
        &texts.callers,
        &texts.groups_named,
        &texts.models,
    ];
    html! {
        form.columns method="post" action=(visit.at(ACCESS)) {
            (carried(visit, draft))
            input type="hidden" name="place" value=(fields.text("place"));
            (form.choice("effect", &texts.effect, &effects))
            @for (name, label) in CONDITIONS.iter().zip(labels) {
                (form.lines(name, label, if *name == "principals" { &texts.caller_hint } else { "" }))
            }
            p.all.quiet { (texts.patterns_hint) }
            p.all { button name="do" value="set" { (texts.see_effect) } }
        }
    }
}

/// A rule in words.
pub(super) fn described(texts: &Texts, rule: &Rule) -> Markup {
    let (effect, class) = effect_of(texts, rule.effect);
    let Rule { effect: _, servers, tools, tags, annotations, toolsets, principals, groups, models } = rule;
    let conditions = [
        (&texts.servers, servers),
        (&texts.tools, tools),
        (&texts.tags, tags),
        (&texts.annotations, annotations),
        (&texts.toolsets, toolsets),
        (&texts.callers, principals),
        (&texts.groups_named, groups),
        (&texts.models, models),
    ];
    html! {
        strong class=(class) { (effect) }
        @if conditions.iter().all(|(_, patterns)| patterns.is_empty()) { " " (texts.everything) }
        @for (name, patterns) in conditions { @if !patterns.is_empty() { " · " (name) ": " (names(patterns)) } }
    }
}

fn effects(visit: &Visit<'_>, draft: &Draft, effect: &Effect) -> Markup {
    let texts = visit.texts;
    let heads = [Head::Text(&texts.caller), Head::Text(&texts.loses), Head::Text(&texts.gains)];
    let tools =
        |names_of: &[String]| html! { @if !names_of.is_empty() { strong { (grouped(names_of.len() as u64)) } ": " (names(names_of)) } };
    let rows = html! {
        @for change in effect.changes.iter().take(CALLERS) {
            tr { th scope="row" { (caller(texts, change)) } td { (tools(&change.loses)) } td { (tools(&change.gains)) } }
        }
    };
    html! {
        section.notice role="status" {
            h2 { (texts.draft) }
            p { (texts.draft_hint) }
            @if effect.changes.is_empty() {
                p { @if effect.left_out == 0 && effect.unmatched.is_empty() { (texts.no_effect) } @else { (texts.no_effect_compared) } }
            } @else { (table(&texts.effect_of_draft, &heads, &rows)) }
            @if effect.changes.len() > CALLERS { p.quiet { (grouped((effect.changes.len() - CALLERS) as u64)) " " (texts.more_callers) } }
            p.quiet {
                (texts.compared) ": " (effect.compared)
                @if effect.left_out > 0 { ". " (texts.not_compared) ": " (effect.left_out) }
            }
            @if !effect.unmatched.is_empty() { p { (texts.patterns_not_compared) ": " (names(&effect.unmatched)) } }
            (warnings(&effect.warnings))
            form.buttons method="post" action=(visit.at(ACCESS)) {
                (carried(visit, draft))
                button name="do" value="save" { (texts.save) }
                a href=(visit.at(ACCESS)) { (texts.discard) }
            }
        }
    }
}

/// The first warnings about rules.
fn warnings(warnings: &[RuleProblem]) -> Markup {
    html! { @for warning in warnings.iter().take(WARNINGS) { p.bad { (warning.to_string()) } } }
}

fn caller(texts: &Texts, change: &CallerChange) -> Markup {
    html! {
        @if change.caller != ANY_USER { code { (short(&change.caller, 100)) } }
        @else if let Some(group) = &change.group { (texts.user_of) " " (short(group, 100)) }
        @else { (texts.user_of_none) }
        @if let Some(model) = &change.model { ", " (texts.model) " " (short(model, 100)) }
    }
}

/// What another administrator has saved in the meantime.
fn other_version(texts: &Texts, view: &PolicyView) -> Markup {
    html! {
        section.notice {
            h2 { (texts.other_version) }
            ol { @for rule in view.rules.iter().take(MOST) { li { (described(texts, rule)) } } }
        }
    }
}
