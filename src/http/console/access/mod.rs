//! Who may use what: rules, keys, toolsets and users' secrets.

mod effect;
pub(super) mod rules;
pub(super) mod keys;
pub(super) mod check;
pub(super) mod secrets;
pub(super) mod toolsets;

use maud::{Markup, html};

use super::layout::Visit;
use super::parts::short;
use super::text::Texts;
use super::{ACCESS, CHECK, KEYS, SECRETS, TOOLSET, TOOLSETS};
use crate::domain::access::rule::{Effect, PatternSet, glob};

/// Number of names in a cell of a table.
const NAMES: usize = 5;

/// The pages about access, with the current one.
fn navigation(visit: &Visit<'_>, current: &str) -> Markup {
    let texts = visit.texts;
    let links =
        [(ACCESS, &texts.rules), (CHECK, &texts.check), (KEYS, &texts.keys), (TOOLSETS, &texts.toolsets), (SECRETS, &texts.secrets)];
    html! {
        nav.sub aria-label=(texts.access) {
            @for (path, name) in links { a href=(visit.at(path)) aria-current=[(path == current).then_some("page")] { (name) } }
        }
    }
}

/// The effect of a rule or a decision, and the class that colours it.
fn effect_of(texts: &Texts, effect: Effect) -> (&str, &'static str) {
    match effect {
        Effect::Allow => (&texts.allow, "good"),
        Effect::Block => (&texts.block, "bad"),
    }
}

/// The patterns of one condition of a rule.
fn compiled(patterns: &[String]) -> PatternSet {
    PatternSet::new(&patterns.iter().filter_map(|pattern| glob(pattern).ok()).collect::<Vec<_>>())
}

/// The first names of a list, and the number of the others.
fn names<T: AsRef<str>>(names: &[T]) -> Markup {
    let first: Vec<_> = names.iter().take(NAMES).map(|name| short(name.as_ref(), 100)).collect();
    html! { (first.join(", ")) @if names.len() > NAMES { " +" (names.len() - NAMES) } }
}
