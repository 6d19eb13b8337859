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
use super::{ACCESS, CHECK, KEYS, SECRETS, TOOLSET, TOOLSETS};

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

/// The first names of a list, and the number of the others.
fn names<T: AsRef<str>>(names: &[T]) -> Markup {
    let first: Vec<_> = names.iter().take(NAMES).map(|name| short(name.as_ref(), 100)).collect();
    html! { (first.join(", ")) @if names.len() > NAMES { " +" (names.len() - NAMES) } }
}
