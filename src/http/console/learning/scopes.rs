//! The scopes: for whom how much was learned, and what the last replay measured.

use std::time::SystemTime;

use maud::{Markup, PreEscaped, html};

use super::words::figure;
use crate::domain::learning::replay::Replay;
use crate::domain::learning::scope::Scope;
use crate::domain::learning::verdict::{PARTS, Replayed};
use crate::http::console::LEARNING;
use crate::http::console::layout::Visit;
use crate::http::console::parts::{Head, Part, UNKNOWN, grouped, moment, pager, short, table};
use crate::http::console::text::Texts;
use crate::http::pages::plot::{Bar, Line, bars, lines};
use crate::service::learning::learn::{LearnedScope, ReplayedScope};

/// Number of scopes on a page.
const PAGE: usize = 50;
/// Number of scopes in a plot.
const PLOTTED: usize = 12;
/// Number of scopes with a curve.
const CURVES: usize = 4;
/// Maximum length of a scope's name, in characters.
const NAME: usize = 120;

/// All scopes, with links to forget them.
pub(super) fn list(visit: &Visit<'_>, all: &[LearnedScope], offset: usize) -> Markup {
    let texts = visit.texts;
    if all.is_empty() {
        return html! { p { (texts.nothing_learned) } };
    }
    let heads = [
        Head::Text(&texts.scope),
        Head::Number(&texts.messages),
        Head::Number(&texts.uses),
        Head::Number(&texts.chats),
        Head::Number(&texts.stored_messages),
        Head::Text(&texts.scope_counts),
        Head::Text(&texts.since),
        Head::Text(&texts.last_used),
        Head::Number(&texts.without_learning),
        Head::Number(&texts.with_learning),
        Head::Text(&texts.replayed_at),
        Head::Text(&texts.actions),
    ];
    let rows = html! { @for known in all.iter().skip(offset).take(PAGE) { (row(visit, known)) } };
    html! {
        p.quiet { (texts.scope_hint) }
        (table(&texts.scopes, &heads, &rows))
        @if all.len() > PAGE {
            (pager(texts, Part { offset, limit: PAGE, total: all.len() }, |at| visit.link(LEARNING, &[("offset", &at.to_string())])))
        }
    }
}

fn row(visit: &Visit<'_>, known: &LearnedScope) -> Markup {
    let (texts, name) = (visit.texts, known.scope.to_string());
    let span = visit.state.learning.span(&known.scope);
    let last: Option<(SystemTime, Replayed)> = known.last_replay;
    html! {
        tr {
            th scope="row" { code { (short(&name, NAME)) } }
            td.number { (grouped(known.messages as u64)) }
            td.number { (grouped(known.uses as u64)) }
            td.number { (grouped(known.chats as u64)) }
            td.number { (grouped(known.stored as u64)) }
            td { (counts(texts, known.on)) }
            td { (moment(span.map(|(oldest, _)| oldest))) }
            td { (moment(span.map(|(_, newest)| newest))) }
            td.number { (last.map_or_else(|| UNKNOWN.to_owned(), |(_, replayed)| figure(replayed.before))) }
            td.number { (last.map_or_else(|| UNKNOWN.to_owned(), |(_, replayed)| figure(replayed.after))) }
            td { (moment(last.map(|(at, _)| at))) }
            td {
                @if visit.may_change() {
                    a href=(visit.link(LEARNING, &[("forget", "scope"), ("value", &name)])) aria-label={ (texts.forget) ": " (short(&name, NAME)) } { (texts.forget) }
                }
            }
        }
    }
}

fn counts(texts: &Texts, on: bool) -> Markup {
    if on {
        html! { span.good { (texts.yes) } }
    } else {
        html! { span.quiet { (texts.no) } }
    }
}

/// The last replays as a plot, of the scopes with the most messages.
pub(super) fn last_replays(texts: &Texts, all: &[LearnedScope]) -> Markup {
    let mut measured: Vec<(&LearnedScope, Replayed)> = all.iter().filter_map(|known| Some((known, known.last_replay?.1))).collect();
    measured.sort_by_key(|(known, _)| std::cmp::Reverse(known.messages));
    let curves = measured.iter().take(CURVES).map(|(known, replayed)| curve(texts, &known.scope, replayed));
    let curves: Vec<Markup> = curves.collect();
    let pairs = measured.into_iter().take(PLOTTED).map(|(known, replayed)| (&known.scope, replayed));
    html! {
        h2 { (texts.last_replay) }
        (plot(texts, pairs).unwrap_or_else(|| html! { p { (texts.no_replay) } }))
        @if !curves.is_empty() {
            h3 { (texts.replay_curve) }
            p.quiet { (texts.replay_curve_hint) }
            @for curve in &curves { (curve) }
        }
    }
}

/// The results of a replay: the figures of each scope, or how many uses it lacks.
pub(super) fn results(texts: &Texts, scopes: &[ReplayedScope]) -> Markup {
    let heads = [
        Head::Text(&texts.scope),
        Head::Number(&texts.uses),
        Head::Number(&texts.uses_needed),
        Head::Number(&texts.without_learning),
        Head::Number(&texts.with_learning),
        Head::Text(&texts.scope_counts),
    ];
    let shown = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), figure);
    let rows = html! {
        @for ReplayedScope { scope, replay: Replay { uses, needed, replayed }, on } in scopes.iter().take(PAGE) {
            tr {
                th scope="row" { code { (short(&scope.to_string(), NAME)) } }
                td.number { (grouped(*uses as u64)) }
                td.number { (grouped(*needed as u64)) }
                td.number { (shown(replayed.map(|replayed| replayed.before))) }
                td.number { (shown(replayed.map(|replayed| replayed.after))) }
                td { (counts(texts, *on)) }
            }
        }
    };
    let pairs = scopes.iter().filter_map(|known| Some((&known.scope, known.replay.replayed?))).take(PLOTTED);
    html! {
        section role="status" {
            h2 { (texts.replay_results) }
            @if scopes.is_empty() { p { (texts.nothing_learned) } }
            @else {
                p.quiet { (texts.replay_results_hint) }
                (table(&texts.replay_results, &heads, &rows))
                @if scopes.len() > PAGE { p.quiet { (grouped((scopes.len() - PAGE) as u64)) " " (texts.more_scopes) } }
                (plot(texts, pairs).unwrap_or_default())
            }
        }
    }
}

/// The parts of the newer messages as two lines, without and with learning.
fn curve(texts: &Texts, scope: &Scope, replayed: &Replayed) -> Markup {
    let line =
        |label: &String, value: fn(&(f64, f64)) -> f64| Line { label: label.clone(), values: replayed.curve.iter().map(value).collect() };
    let places: Vec<String> = (1..=PARTS).map(|part| part.to_string()).collect();
    let both = [line(&texts.with_learning, |means| means.1), line(&texts.without_learning, |means| means.0)];
    let title = format!("{}: {scope}", texts.replay_curve);
    html! { p { code { (short(&scope.to_string(), NAME)) } } (PreEscaped(lines(&title, &places, &both))) }
}

/// Two bars per scope; `None` without scopes.
fn plot<'a>(texts: &Texts, pairs: impl Iterator<Item = (&'a Scope, Replayed)>) -> Option<Markup> {
    let bar = |label: String, value: f64, colour| Bar { label, value, interval: None, text: figure(value), colour };
    let of = |(scope, replayed): (&Scope, Replayed)| {
        [bar(scope.to_string(), replayed.before, 1), bar(texts.with_learning.clone(), replayed.after, 0)]
    };
    let shown: Vec<Bar> = pairs.flat_map(of).collect();
    (!shown.is_empty()).then(|| html! { p.quiet { (texts.replay_plot_hint) } (PreEscaped(bars(&texts.replay_plot, &shown))) })
}
