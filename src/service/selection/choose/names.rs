//! Tools and products that a message names.

use std::collections::BTreeSet;

use super::Message;
use crate::domain::catalog::products::NamedProducts;
use crate::domain::selection::relevance::{QueryPlan, Role, raise};
use crate::service::selection::retrieve::Ranking;

/// Maximum number of tools that a message may name.
const MOST_NAMED: usize = 8;

/// The products that a message names, as the positions of their servers in the catalog.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) wanted: BTreeSet<u32>,
    pub(super) ruled_out: BTreeSet<u32>,
    /// Whether the message only corrects which product was meant ("no, in Jira").
    pub(super) is_correction: bool,
}

impl Named {
    pub(super) fn of(message: &Message<'_>, plan: &QueryPlan) -> Self {
        let Message { request, view, .. } = message;
        let Some(texts) = view.catalog.texts() else { return Self::default() };
        let named = texts.products.named_in(plan.whole());
        // What the chat was about: the products that the message before names, otherwise those of the tools that were called.
        let earlier = || {
            let before = request.turns.iter().rev().filter(|turn| turn.role == Role::User).nth(1);
            let named =
                before.map(|turn| texts.products.named_in(QueryPlan::new(&turn.text).whole()).wanted).filter(|named| !named.is_empty());
            let of_tool = |name: &str| view.catalog.server_of(view.catalog.position(&view.operation(name)?.id)?);
            named.unwrap_or_else(|| request.called_earlier().filter_map(of_tool).collect())
        };
        let is_correction = plan.in_context().is_some() && named.corrects(plan.whole(), &earlier());
        let NamedProducts { wanted, ruled_out, .. } = named;
        Self { wanted, ruled_out, is_correction }
    }
}

/// Puts the offered tools first whose published names the message contains. Returns them.
pub(super) fn name_first(message: &Message<'_>, plan: &QueryPlan, ranking: &mut Ranking) -> Vec<u32> {
    let Message { view, offer, .. } = *message;
    let mut named = Vec::new();
    for word in words_of_names(plan.whole()) {
        let tool = view.operation(word).and_then(|tool| view.catalog.position(&tool.id));
        if let Some(tool) = tool.filter(|tool| offer.has(*tool) && !named.contains(tool) && named.len() < MOST_NAMED) {
            named.push(tool);
        }
    }
    raise(&mut ranking.ranked, &named);
    named
}

/// Words of a text that may be names of functions.
fn words_of_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')));
    words.map(|word| word.trim_matches(['-', '.'])).filter(|word| word.contains('_'))
}
