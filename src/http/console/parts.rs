//! Parts that several pages share: figures, tables, forms and lists in pages.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use maud::{Markup, html};

use super::layout::Visit;
use super::text::{Texts, reason};
use crate::domain::access::management::NO_ENTRY;
pub(super) use crate::domain::text::short::short;
use crate::http::pages::browser::Fields;
use crate::http::problem::{Code, Problem};
use crate::http::routes::admin::time;
use crate::service::ports::{ServerPhase, UsageQuery};

/// What stands in place of an unknown figure.
pub(super) const UNKNOWN: &str = "–";
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// A number with thin spaces between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A share in whole per cent.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { UNKNOWN.to_owned() } else { percent(part as f64 / whole as f64) }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

pub(super) fn milliseconds(time: Option<f64>) -> String {
    time.map_or_else(|| UNKNOWN.to_owned(), |time| if time < 10.0 { format!("{time:.1}") } else { format!("{time:.0}") })
}

/// A time in UTC, to the minute.
pub(super) fn moment(at: Option<SystemTime>) -> Markup {
    moment_as(at, "%Y-%m-%d %H:%M")
}

/// A time in UTC, to the second.
pub(super) fn second(at: SystemTime) -> Markup {
    moment_as(Some(at), "%Y-%m-%d %H:%M:%S")
}

fn moment_as(at: Option<SystemTime>, format: &str) -> Markup {
    let Some(at) = at else { return html! { (UNKNOWN) } };
    let shown = Timestamp::try_from(at).unwrap_or_default().strftime(format).to_string();
    html! { time datetime=(time(at)) { (shown) } }
}

pub(super) fn day(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d").to_string())
}

pub(super) fn took(time: Duration) -> String {
    format!("{} ms", milliseconds(Some(time.as_secs_f64() * 1e3)))
}

/// The usage of all tools in the last 30 days.
pub(super) fn last_days() -> UsageQuery {
    usage_in(30)
}

/// The usage of all tools in the last days, of which today is one.
pub(super) fn usage_in(days: u64) -> UsageQuery {
    let until = SystemTime::now();
    UsageQuery { since: first_until(until, days), until, server: None, tool: None }
}

/// The start of the first of these days. The store sums up usage by day in UTC.
fn first_until(until: SystemTime, days: u64) -> SystemTime {
    let today = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / SECONDS_PER_DAY;
    SystemTime::UNIX_EPOCH + Duration::from_secs(today.saturating_sub(days.saturating_sub(1)) * SECONDS_PER_DAY)
}

pub(super) fn phase(texts: &Texts, phase: ServerPhase) -> Markup {
    let (name, class) = match phase {
        ServerPhase::Connected => (&texts.connected, "good"),
        ServerPhase::Starting => (&texts.starting, "quiet"),
        ServerPhase::Retrying => (&texts.retrying, "bad"),
    };
    html! { span class=(class) { (name) } }
}

/// The head of a column.
#[derive(Clone, Copy)]
pub(super) enum Head<'a> {
    Text(&'a str),
    Number(&'a str),
}

/// A table that scrolls by itself if the window is narrow. `label` names it for screen readers.
pub(super) fn table(label: &str, heads: &[Head<'_>], rows: &Markup) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label=(label) {
            table {
                thead { tr {
                    @for head in heads {
                        @match head {
                            Head::Text(name) => th scope="col" { (name) },
                            Head::Number(name) => th.number scope="col" { (name) },
                        }
                    }
                } }
                tbody { (rows) }
            }
        }
    }
}

/// Which part of a list a page shows.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) offset: usize,
    pub(super) limit: usize,
    pub(super) total: usize,
}

/// Links to the previous and the next part. `link` is the address of the part that begins there.
pub(super) fn pager(texts: &Texts, part: Part, link: impl Fn(usize) -> String) -> Markup {
    let Part { offset, limit, total } = part;
    let end = offset.saturating_add(limit).min(total);
    html! {
        nav.pager aria-label=(texts.parts_of_list) {
            @if offset > 0 { a href=(link(offset.saturating_sub(limit))) rel="prev" { (texts.previous) } }
            span.quiet { (grouped((offset.min(total) + usize::from(total > offset)) as u64)) "–" (grouped(end as u64)) " " (texts.of) " " (grouped(total as u64)) }
            @if end < total { a href=(link(end)) rel="next" { (texts.next) } }
        }
    }
}

/// The fields of a form, with what was entered and the error of the last attempt.
pub(super) struct Form<'a> {
    pub(super) texts: &'a Texts,
    pub(super) given: &'a Fields,
    pub(super) problem: Option<&'a Problem>,
    /// Whether the values can't be changed.
    pub(super) is_fixed: bool,
}

impl<'a> Form<'a> {
    pub(super) fn new(texts: &'a Texts, given: &'a Fields, problem: Option<&'a Problem>) -> Self {
        Self { texts, given, problem, is_fixed: false }
    }

    /// A line of text. `hint` may be empty.
    pub(super) fn line(&self, name: &str, label: &str, hint: &str) -> Markup {
        self.input(name, label, hint, "text")
    }

    pub(super) fn input(&self, name: &str, label: &str, hint: &str, kind: &str) -> Markup {
        let error = self.error_at(name);
        let describes = error.is_some().then(|| format!("{name}-error"));
        html! {
            div {
                (heading(name, label, hint))
                input id=(name) name=(name) type=(kind) value=(self.given.text(name)) aria-invalid=[error.as_ref().map(|_| "true")]
                    aria-describedby=[describes] readonly[self.is_fixed];
                (beside(name, error))
            }
        }
    }

    /// A long text.
    pub(super) fn area(&self, name: &str, label: &str, hint: &str) -> Markup {
        self.text(name, label, hint, "6")
    }

    /// A list with one entry per line.
    pub(super) fn lines(&self, name: &str, label: &str, hint: &str) -> Markup {
        self.text(name, label, hint, "2")
    }

    fn text(&self, name: &str, label: &str, hint: &str, rows: &str) -> Markup {
        let error = self.error_at(name);
        let describes = error.is_some().then(|| format!("{name}-error"));
        html! {
            div {
                (heading(name, label, hint))
                textarea id=(name) name=(name) rows=(rows) aria-invalid=[error.as_ref().map(|_| "true")] aria-describedby=[describes] readonly[self.is_fixed] {
                    // Browsers drop the first line break.
                    "\n" (self.given.text(name))
                }
                (beside(name, error))
            }
        }
    }

    pub(super) fn checkbox(&self, name: &str, label: &str) -> Markup {
        html! {
            div {
                label.check {
                    input name=(name) type="checkbox" value="true" checked[self.given.text(name) == "true"] disabled[self.is_fixed];
                    " " (label)
                }
                (beside(name, self.error_at(name)))
            }
        }
    }

    pub(super) fn choice(&self, name: &str, label: &str, options: &[(&str, &str)]) -> Markup {
        let error = self.error_at(name);
        let describes = error.is_some().then(|| format!("{name}-error"));
        html! {
            div {
                (heading(name, label, ""))
                select id=(name) name=(name) aria-invalid=[error.as_ref().map(|_| "true")] aria-describedby=[describes] {
                    @for (value, shown) in options { option value=(value) selected[self.given.text(name) == *value] { (shown) } }
                }
                (beside(name, error))
            }
        }
    }

    /// The error, unless it belongs to one of these fields.
    pub(super) fn error_beside(&self, fields: &[&str]) -> Markup {
        let shown = self.problem.filter(|problem| fields.iter().all(|name| !is_at(problem, name)));
        html! { @if let Some(problem) = shown { p.all.bad role="alert" { (reason(self.texts, problem)) } } }
    }

    fn error_at(&self, name: &str) -> Option<Markup> {
        self.problem.filter(|problem| is_at(problem, name)).map(|problem| reason(self.texts, problem))
    }
}

/// The version on which the change in a form is based. If the name of something new was taken, the form contains the version of what has
/// this name (`of`). Under another name, there must be nothing yet.
pub(super) fn based_on<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    match fields.given("of") {
        Some(of) if of != name => Some(NO_ENTRY),
        _ => fields.given("version"),
    }
}

/// The version in a form. A form that is shown again keeps the version on which its change is based, so that saving it overwrites nothing
/// unseen. After a conflict, the page shows what is stored now, and the form has its version.
pub(super) fn version_in(form: &Form<'_>, name: &str, now: String) -> String {
    let in_conflict = form.problem.is_some_and(|problem| problem.code == Code::PreconditionFailed);
    let sent = based_on(form.given, name).filter(|_| !in_conflict);
    sent.map_or(now, str::to_owned)
}

/// The error at the name of something new, if something else has this name.
pub(super) fn taken(texts: &Texts, field: &'static str, problem: Problem) -> Problem {
    Problem { parameter: Some(field.into()), detail: texts.name_taken.clone(), ..problem }
}

/// Whether the error is about this field: `tags` for an error in `tags[1]`.
fn is_at(problem: &Problem, name: &str) -> bool {
    problem.parameter.as_deref().is_some_and(|at| at.split(['[', '.']).next() == Some(name))
}

fn heading(name: &str, label: &str, hint: &str) -> Markup {
    html! { label for=(name) { (label) @if !hint.is_empty() { small { (hint) } } } }
}

fn beside(name: &str, error: Option<Markup>) -> Markup {
    html! { @if let Some(error) = error { p.bad id={ (name) "-error" } role="alert" { (error) } } }
}

/// Says that a change was made, on the page to which its form led.
pub(super) fn done(visit: &Visit<'_>, fields: &Fields) -> Markup {
    let text = match fields.text("done") {
        "approved" => &visit.texts.done_approved,
        "saved" => &visit.texts.done_saved,
        "removed" => &visit.texts.done_removed,
        "switched_on" => &visit.texts.done_switched_on,
        "switched_off" => &visit.texts.done_switched_off,
        "restarted" => &visit.texts.done_restarted,
        "missing" => &visit.texts.done_missing,
        "revoked" => &visit.texts.done_revoked,
        "forgotten" => &visit.texts.done_forgotten,
        _ => return html! {},
    };
    html! { p.good role="status" { (text) } }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{SECONDS_PER_DAY, first_until, grouped};

    #[test]
    fn the_last_days_include_today() {
        let day = |number: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(number * SECONDS_PER_DAY);
        let now = day(100) + Duration::from_secs(5);
        for (days, first) in [(1, 100), (7, 94), (30, 71), (1_000, 0)] {
            assert_eq!(first_until(now, days), day(first), "{days}");
        }
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }
}
