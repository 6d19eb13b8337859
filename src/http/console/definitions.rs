//! Changed definitions: what differs, and the button that approves it.

use maud::{Markup, html};

use super::SERVERS;
use super::layout::Visit;
use super::parts::short;
use super::text::Texts;
use crate::domain::catalog::definition::{Change, Difference};
use crate::service::catalog::definitions::DefinitionState;

/// What an approval is about, for its form.
pub(super) struct Approval<'a> {
    pub(super) server: &'a str,
    pub(super) tool: &'a str,
    pub(super) prompt: &'a str,
    pub(super) fingerprint: &'a str,
    /// Which page the form leads back to: `servers` or `tool`.
    pub(super) back: &'a str,
}

/// Whether an administrator should look at the definition.
pub(super) fn is_open(state: Option<DefinitionState>) -> bool {
    matches!(state, Some(DefinitionState::New | DefinitionState::Changed | DefinitionState::Withheld))
}

/// The state in words; empty if definitions are not compared.
pub(super) fn state(texts: &Texts, state: Option<DefinitionState>) -> Markup {
    let (name, class) = match state {
        None => return html! {},
        Some(DefinitionState::Same) => (&texts.state_same, "quiet"),
        Some(DefinitionState::New) => (&texts.state_new, "notable"),
        Some(DefinitionState::Changed) => (&texts.state_changed, "bad"),
        Some(DefinitionState::Withheld) => (&texts.state_withheld, "bad"),
    };
    html! { span class=(class) { (name) } }
}

/// The first `most` changes, each with its place and both values.
pub(super) fn difference(texts: &Texts, difference: &Difference, most: usize) -> Markup {
    let more = difference.changes.len().saturating_sub(most) + difference.more;
    html! {
        dl.diff {
            @for change in difference.changes.iter().take(most) {
                @let (before, after) = marked(change);
                dt { code { (short(&change.pointer, 200)) } }
                dd {
                    @if change.before.is_some() { del { (before) } } @else { p.quiet { (texts.added) } }
                    @if change.after.is_some() { ins { (after) } } @else { p.quiet { (texts.removed) } }
                }
            }
        }
        @if more > 0 { p.quiet { (more) " " (texts.more_changes) } }
    }
}

/// Both values, with the part that differs marked.
fn marked(change: &Change) -> (Markup, Markup) {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        let whole = |text: &Option<String>| html! { (text.as_deref().unwrap_or_default()) };
        return (whole(&change.before), whole(&change.after));
    };
    let same: usize = before.chars().zip(after.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum();
    let ends = before[same..].chars().rev().zip(after[same..].chars().rev());
    let end: usize = ends.take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum();
    let part = |text: &str| {
        let middle = &text[same..text.len() - end];
        html! { (text[..same]) @if !middle.is_empty() { mark { (middle) } } (text[text.len() - end..]) }
    };
    (part(before), part(after))
}

/// The button that approves a definition.
pub(super) fn approve(visit: &Visit<'_>, approval: &Approval<'_>) -> Markup {
    if !visit.may_change() {
        return html! {};
    }
    let Approval { server, tool, prompt, fingerprint, back } = approval;
    let fields = [("server", server), ("tool", tool), ("prompt", prompt), ("fingerprint", fingerprint), ("back", back)];
    let name = [*server, *tool, *prompt].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    html! {
        form method="post" action=(visit.at(SERVERS)) {
            (visit.token())
            @for (name, value) in fields { @if !value.is_empty() { input type="hidden" name=(name) value=(value); } }
            button aria-label={ (visit.texts.approve) ": " (short(&name, 200)) } { (visit.texts.approve) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::marked;
    use crate::domain::catalog::definition::Change;

    #[test]
    fn the_part_that_differs_is_marked() {
        let mark = |before: &str, after: &str| {
            let change = Change { pointer: String::new(), before: Some(before.into()), after: Some(after.into()) };
            let (before, after) = marked(&change);
            (before.into_string(), after.into_string())
        };
        assert_eq!(mark("Reads a file.", "Reads any file."), ("Reads a file.".into(), "Reads a<mark>ny</mark> file.".into()));
        assert_eq!(mark("aa", "aaa"), ("aa".into(), "aa<mark>a</mark>".into()));
        assert_eq!(mark("ä<b>", "ö<b>"), ("<mark>ä</mark>&lt;b&gt;".into(), "<mark>ö</mark>&lt;b&gt;".into()));
        assert_eq!(mark("é", "è"), ("<mark>é</mark>".into(), "<mark>è</mark>".into()));
    }
}
