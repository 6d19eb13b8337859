//! Composes the response: the kept tools in order, each with a reason.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::publishing::meta_tools::{MetaTool, Purpose};
use crate::domain::selection::builtins::Family;
use crate::domain::selection::chat::{ChatSet, ChatTool};
use crate::domain::selection::selection::{Disclosed, Reason, Selected};
use crate::service::catalog::current::View;
use crate::service::publishing::meta_tokens::Costs;
use crate::service::selection::choose::{Chosen, Message};
use crate::service::selection::offer::{ConnectionAddress, run_tool};
use crate::service::selection::pinned::pinned;

/// Collects the kept tools, in the order in which its methods are called. For the provider's prompt cache, tools that never
/// change come first.
pub(super) struct Composition<'a> {
    message: Message<'a>,
    pub(super) tools: Vec<Selected>,
    pub(super) disclosed: Vec<Disclosed>,
}

impl<'a> Composition<'a> {
    pub(super) fn new(message: Message<'a>) -> Self {
        Self { message, tools: Vec::new(), disclosed: Vec::new() }
    }

    /// Adds tools that stay regardless of the message: the search tool, pinned tools, and always-on tools of toolsets.
    pub(super) fn add_fixed(&mut self) {
        let Message { view: View { catalog, visibility, settings, .. }, offer, principal, .. } = self.message;
        self.add_meta([Purpose::Search, Purpose::Load].into_iter().flat_map(MetaTool::of_purpose), &Reason::SearchTool);
        if offer.has_meta_document() {
            // If the tools themselves are not offered, the first message already needs these meta-tools.
            self.add_running();
        }
        for position in pinned(settings, catalog).filter(|&position| offer.has(position)) {
            let tool = &catalog.tools()[position as usize];
            self.tools.push(Selected { reason: Reason::Pinned, ..Selected::named(tool) });
        }
        let of_connections = offer.published().filter_map(ConnectionAddress::toolset);
        for name in of_connections.chain(principal.within.iter().flatten()) {
            let always = visibility.assigned.toolset(name).into_iter().flat_map(|members| &members.always);
            for tool in always.filter_map(|name| catalog.operation(name.as_str())) {
                if !self.holds(&tool.id) && offer.position(&tool.id, catalog).is_some() {
                    self.tools.push(Selected { reason: Reason::AlwaysOn, ..Selected::named(tool) });
                }
            }
        }
    }

    /// Adds the chat's set, including the new tools. `found` contains tools that the model found.
    pub(super) fn add_chat(&mut self, set: &ChatSet, chosen: &Chosen, found: &[ToolId]) {
        let Message { view: View { catalog, .. }, offer, .. } = self.message;
        for entry in set.tools() {
            if entry.tool == run_tool() {
                self.add_meta([MetaTool::RunTool].into_iter(), &Reason::RunTool);
                continue;
            }
            let Some(position) = offer.position(&entry.tool, catalog) else {
                self.disclose(entry, found);
                continue;
            };
            let tool = &catalog.tools()[position as usize];
            if self.holds(&tool.id) {
                continue;
            }
            let reason = match (chosen.ranks.get(&position), chosen.additions.get(&position)) {
                (Some(&rank), _) => chosen.reason(rank, Some(position)),
                (None, Some(reason)) => reason.clone(),
                (None, None) if entry.called => Reason::Called,
                (None, None) if found.contains(&entry.tool) => Reason::Found,
                (None, None) => Reason::OfferedBefore,
            };
            self.tools.push(Selected { score: chosen.scores.get(&position).copied(), reason, ..Selected::named(tool) });
        }
    }

    /// Adds the definition of a tool that is not offered but that an offered meta-tool can run.
    fn disclose(&mut self, entry: &ChatTool, found: &[ToolId]) {
        let Message { request, view, offer, .. } = self.message;
        let tool = request.disclose.as_ref().and_then(|_| view.tool(&entry.tool));
        if let Some((tool, known)) = tool.and_then(|tool| Some((tool, offer.disclose(tool, &view.visibility.assigned)?))) {
            let reason = match (entry.called, found.contains(&entry.tool)) {
                (true, _) => Reason::Called,
                (false, true) => Reason::Found,
                (false, false) => Reason::OfferedBefore,
            };
            self.tools.push(Selected { reason, ..Selected::named(tool) });
            self.disclosed.push(known);
        }
    }

    /// Adds the tools in the request's `keep` list.
    pub(super) fn add_kept(&mut self) {
        let Message { request, view: View { catalog, .. }, offer, .. } = self.message;
        if request.keep.is_empty() {
            return;
        }
        let mut known: HashSet<String> = self.tools.iter().map(|kept| kept.name.clone()).collect();
        for name in &request.keep {
            let position = catalog.operation_position(name).filter(|&position| offer.has(position));
            let kept = match (offer.meta.iter().find(|tool| tool.name() == name), position) {
                (Some(tool), _) => meta(tool.name(), Reason::Kept),
                (None, Some(position)) => Selected { reason: Reason::Kept, ..Selected::named(&catalog.tools()[position as usize]) },
                (None, None) => continue,
            };
            if known.insert(kept.name.clone()) {
                self.tools.push(kept);
            }
        }
    }

    /// Adds all remaining tools of ours, in the order of the offer.
    pub(super) fn add_ours(&mut self, reason: &Reason) {
        let Message { view: View { catalog, .. }, offer, .. } = self.message;
        let kept: HashSet<&ToolId> = self.tools.iter().filter_map(|kept| kept.id.as_ref()).collect();
        let rest = offer.tools(catalog).filter(|tool| !kept.contains(&tool.id));
        let rest: Vec<Selected> = rest.map(|tool| Selected { reason: reason.clone(), ..Selected::named(tool) }).collect();
        self.tools.extend(rest);
    }

    /// Everything on offer instead of these tools, in an order that does not depend on the message. What the model found and
    /// what it called by `run_tool` stays too.
    pub(super) fn with_all(self, set: &ChatSet, found: &[ToolId], reason: &Reason) -> Self {
        let Message { offer, .. } = self.message;
        let mut all = Self::new(self.message);
        all.add_fixed();
        all.add_running();
        all.add_ours(reason);
        all.add_chat(set, &Chosen::nothing(), found);
        all.add_kept();
        all.add_foreign(&Chosen::nothing());
        all.tools.extend(offer.judged.iter().map(|tool| meta(&tool.name, reason.clone())));
        all.tools.extend(offer.builtins.iter().map(|(name, _)| meta(name, reason.clone())));
        all
    }

    /// Adds the meta-tools that describe and run other tools.
    pub(super) fn add_running(&mut self) {
        self.add_meta(MetaTool::of_purpose(Purpose::Run), &Reason::RunTool);
    }

    /// Adds foreign functions.
    pub(super) fn add_foreign(&mut self, chosen: &Chosen) {
        let foreign = self.message.offer.foreign.iter().chain(&chosen.not_judged).map(|name| meta(name, Reason::Foreign));
        let judged = chosen.foreign.iter();
        let judged = judged.map(|(name, score, rank)| Selected { score: Some(*score), ..meta(name, chosen.reason(*rank, None)) });
        self.tools.extend(foreign.chain(judged));
    }

    /// Adds Open WebUI's own tools of these families.
    pub(super) fn add_builtins(&mut self, families: &BTreeSet<Family>, reason: &Reason) {
        let kept = self.message.offer.builtins.iter().filter(|(_, family)| families.contains(family));
        self.tools.extend(kept.map(|(name, _)| meta(name, reason.clone())));
    }

    /// Adds those of these meta-tools that are offered, without duplicates.
    fn add_meta(&mut self, tools: impl Iterator<Item = MetaTool>, reason: &Reason) {
        for tool in tools.filter(|tool| self.message.offer.meta.contains(tool)) {
            if !self.tools.iter().any(|kept| kept.name == tool.name()) {
                self.tools.push(meta(tool.name(), reason.clone()));
            }
        }
    }

    pub(super) fn holds(&self, id: &ToolId) -> bool {
        self.tools.iter().any(|kept| kept.id.as_ref() == Some(id))
    }

    /// The ids of connections to keep switched on: foreign ones, and ours that publish a chosen tool. At least one of ours stays,
    /// because it provides the search tool.
    pub(super) fn tool_ids(&self) -> Option<Vec<String>> {
        let Message { request, view: View { catalog, visibility, .. }, offer, .. } = self.message;
        let ids = request.tool_ids.as_ref()?;
        let chosen: Vec<&Arc<Tool>> = self.tools.iter().filter_map(|selected| catalog.tool(selected.id.as_ref()?)).collect();
        let holds = |published: &ConnectionAddress| chosen.iter().any(|tool| published.holds(tool, &visibility.assigned));
        let connections = offer.connections.iter().filter(|(_, published)| published.as_ref().is_none_or(holds));
        let publishing: HashSet<&str> = connections.map(|(id, _)| id.as_str()).collect();
        let ours = |id: &String| request.connections.contains_key(id);
        let carrier = if publishing.is_empty() { ids.iter().find(|id| ours(id)) } else { None };
        Some(ids.iter().filter(|id| !ours(id) || publishing.contains(id.as_str()) || carrier == Some(id)).cloned().collect())
    }

    /// Token counts of all offered tools, and of those that are kept.
    pub(super) fn tokens(&self, of_meta: &Costs) -> (u64, u64) {
        let Message { view: View { catalog, .. }, offer, .. } = self.message;
        let meta = |name: &str| u64::from(of_meta.get(name).copied().unwrap_or_default());
        let ours = catalog.tokens_of(&offer.ours).map(u64::from).sum::<u64>();
        let before = ours + offer.meta.iter().map(|tool| meta(tool.name())).sum::<u64>();
        let after = self.tools.iter().map(|selected| match &selected.id {
            Some(id) => catalog.tool(id).map_or(0, |tool| u64::from(tool.tokens)),
            None => meta(&selected.name),
        });
        (before, after.sum())
    }
}

fn meta(name: &str, reason: Reason) -> Selected {
    Selected { name: name.to_owned(), id: None, score: None, reason }
}
