//! Chooses tools beside the ranking, by what use has taught: those that mostly follow called or chosen tools, and one to try.

use std::sync::Arc;

use super::{Choose, Chosen, Message, candidate};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::relevance::{CutCandidate, CutParameters, Ranked, companions};
use crate::domain::selection::selection::Reason;
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::current::View;
use crate::service::selection::offer::run_tool;
use crate::service::selection::retrieve::Ranking;

/// Maximum number of followers per message.
const FOLLOWERS: usize = 3;
/// Number of a message's best tools whose followers are offered. Further tools are rarely called.
const BEST: usize = 3;
/// Number of a chat's last calls whose followers are offered.
const LAST: usize = 4;
/// Number of the next best tools among which one is tried.
const NEXT: usize = 8;

/// A ranking and what the message needs of it.
pub(super) struct Ground<'a> {
    /// The ranking that was cut.
    pub(super) ranking: &'a [Ranked<u32>],
    /// The ranking of the search.
    pub(super) whole: &'a Ranking,
    /// The properties of `ranking`.
    pub(super) candidates: &'a [CutCandidate],
    /// The positions in `ranking` of what the message needs.
    pub(super) kept: &'a [usize],
    /// The bounds of everything together.
    pub(super) parameters: &'a CutParameters,
    /// Whether later turns need further tools of the best tool's server.
    pub(super) has_company: bool,
}

/// Tools beside those that the message needs.
pub(super) struct Additions {
    followers: Vec<Following>,
    /// Further tools of the best tool's server: positions in the ranking.
    pub(super) along: Vec<usize>,
    explored: Option<u32>,
    /// Number of our own tools that the message needs.
    of_kept: usize,
}

/// A tool that mostly follows another one.
struct Following {
    /// The position in the catalog.
    position: u32,
    reason: Reason,
    /// Whether it follows a tool that the chat has called, so that it is needed next.
    is_next: bool,
}

impl Choose {
    /// What is offered beside the tools that the message needs: first what mostly follows, then further tools of the best tool's server,
    /// and perhaps one to try.
    pub(super) fn additions(&self, message: &Message<'_>, on: &Ground<'_>) -> Additions {
        let Ground { ranking, whole, candidates, kept, parameters, has_company } = *on;
        let catalog = &message.view.catalog;
        let tools = catalog.tools();
        let key = |place: &usize| ranking[*place].key;
        let mut ours: Vec<u32> = kept.iter().map(key).filter(|&key| (key as usize) < tools.len()).collect();
        let (of_kept, foreign) = (ours.len(), kept.len() - ours.len());
        let bounds = CutParameters { limit: parameters.limit.saturating_sub(foreign), ..*parameters };
        let followers = self.followers(message, whole, &ours, &bounds);
        ours.extend(followers.iter().map(|follower| follower.position));

        let candidate = |position: u32| candidate(&Ranked { key: position, ..Ranked::default() }, message.view);
        let beside = ours[of_kept..].iter().map(|&position| candidate(position));
        let chosen: Vec<CutCandidate> = kept.iter().map(|&place| candidates[place]).chain(beside).collect();
        let mut along = match ranking.iter().find_map(|ranked| catalog.server_of(ranked.key)) {
            Some(server) if has_company => companions(candidates, &chosen, parameters, server, self.of_chats.of_server),
            _ => Vec::new(),
        };
        let mut explored = self.explored(message, whole, &ours, parameters.per_server);
        if let Some(position) = explored {
            let tried = candidate(position);
            let mut room = parameters.per_server.map_or(usize::MAX, |most| {
                most.max(1).saturating_sub(1 + chosen.iter().filter(|chosen| chosen.server == tried.server).count())
            });
            along.retain(|&place| {
                let CutCandidate { server, group, .. } = candidates[place];
                let stays = group != tried.group && (server != tried.server || room > 0);
                room -= usize::from(stays && server == tried.server);
                stays
            });
            along.truncate(bounds.limit.saturating_sub(ours.len() + 1));
            let all: Vec<u32> = ours.iter().copied().chain(along.iter().map(key)).chain([position]).collect();
            let tokens = all.iter().fold(0_u32, |sum, &position| sum.saturating_add(tools[position as usize].tokens));
            let is_affordable = parameters.token_budget.is_none_or(|budget| tokens <= budget);
            explored = explored.filter(|_| all.len() <= bounds.limit && is_affordable);
        }
        Additions { followers, along, explored, of_kept }
    }

    /// Tools that mostly follow the chat's last calls or the best of the chosen tools (`kept`, best first). Limit, token budget and near
    /// duplicates apply as in the cut. Tools that the request doesn't offer are never added.
    fn followers(&self, message: &Message<'_>, ranking: &Ranking, kept: &[u32], parameters: &CutParameters) -> Vec<Following> {
        let Message { principal, view, offer, called, .. } = *message;
        let View { catalog, settings, .. } = view;
        let Some(learning) = self.retrieve.learning() else { return Vec::new() };
        let tools = catalog.tools();
        let last = called.iter().rev().filter(|tool| **tool != run_tool()).take(LAST);
        let best = kept.iter().take(BEST).map(|&position| &tools[position as usize].id);
        let anchors: Vec<ToolId> = last.chain(best).cloned().collect();
        let texts = catalog.texts().filter(|_| settings.fold_duplicates);
        let group = |position: u32| texts.map_or(position, |texts| texts.near_duplicates.group(position));
        let mut chosen = kept.to_vec();
        let mut tokens = kept.iter().fold(0_u32, |sum, &position| sum.saturating_add(tools[position as usize].tokens));
        let mut followers: Vec<Following> = Vec::new();
        for follower in learning.followers(principal, &anchors) {
            if followers.len() >= FOLLOWERS || chosen.len() >= parameters.limit {
                break;
            }
            let position = catalog.position(&follower.tool).filter(|&position| offer.has(position));
            let (Some(position), Some(after)) = (position, view.tool(&follower.after)) else { continue };
            let server = catalog.server_of(position);
            let is_known = called.contains(&follower.tool) || chosen.iter().any(|&other| group(other) == group(position));
            let of_server = chosen.iter().filter(|&&other| catalog.server_of(other) == server).count();
            let has_room = parameters.per_server.is_none_or(|most| of_server < most.max(1));
            let sum = tokens.saturating_add(tools[position as usize].tokens);
            let is_affordable = parameters.token_budget.is_none_or(|budget| sum <= budget);
            if is_known || !has_room || !is_affordable || server.is_some_and(|server| ranking.is_down(server)) {
                continue;
            }
            tokens = sum;
            chosen.push(position);
            let reason = Reason::Follows { after: Arc::from(after.operation_id.as_str()), chats: follower.chats };
            followers.push(Following { position, reason, is_next: called.contains(&follower.after) });
        }
        followers
    }

    /// For a share of the messages (`learning.explore`), one of the next best tools that the caller has never used. The message and its
    /// chat decide which one, so that it stays the same when the message is sent again. Near duplicates and the limit per server apply as
    /// in the cut.
    fn explored(&self, message: &Message<'_>, ranking: &Ranking, chosen: &[u32], per_server: Option<usize>) -> Option<u32> {
        let Message { request, principal, view: View { catalog, settings, .. }, offer, .. } = *message;
        let learning = self.retrieve.learning().filter(|learning| learning.explore() > 0.0)?;
        let texts = [principal.id.as_str(), request.chat.as_deref().unwrap_or_default(), &ranking.message].join("\n");
        let hash = |purpose: &str| Fingerprint::of_text(&format!("{purpose}\n{texts}")).prefix();
        if hash("whether to try a tool") as f64 / u64::MAX as f64 >= learning.explore() {
            return None;
        }
        let near = catalog.texts().filter(|_| settings.fold_duplicates);
        let group = |position: u32| near.map_or(position, |texts| texts.near_duplicates.group(position));
        let is_down = |position: u32| catalog.server_of(position).is_some_and(|server| ranking.is_down(server));
        let ours = ranking.ranked.iter().map(|ranked| ranked.key).filter(|&key| (key as usize) < catalog.tools().len() && offer.has(key));
        let of_server = |key: u32| chosen.iter().filter(|&&other| catalog.server_of(other) == catalog.server_of(key)).count();
        let has_room = |key: u32| per_server.is_none_or(|most| of_server(key) < most.max(1));
        let is_new = |key: u32| chosen.iter().all(|&other| group(other) != group(key));
        let next = ours.filter(|&key| !is_down(key) && has_room(key) && is_new(key)).take(NEXT);
        let tried = learning.tried(principal);
        let untried: Vec<u32> = next.filter(|&key| !tried.contains(&catalog.tools()[key as usize].id)).collect();
        let place = usize::try_from(hash("which tool to try") % (untried.len() as u64).max(1)).unwrap_or_default();
        untried.get(place).copied()
    }
}

impl Additions {
    /// Adds followers and the tool to try to what was chosen. Returns the followers, which may keep their connections switched on.
    pub(super) fn add_to(self, chosen: &mut Chosen, catalog: &Catalog) -> Vec<Arc<Tool>> {
        let Self { followers, explored, of_kept, .. } = self;
        let positions: Vec<u32> = followers.iter().map(|follower| follower.position).collect();
        let tools = positions.iter().map(|&position| Arc::clone(&catalog.tools()[position as usize])).collect();
        drop(chosen.tools.splice(of_kept..of_kept, positions));
        chosen.all_of.extend(followers.iter().filter(|follower| follower.is_next).map(|follower| follower.position));
        chosen.additions.extend(followers.into_iter().map(|follower| (follower.position, follower.reason)));
        if let Some(position) = explored {
            chosen.tools.push(position);
            chosen.additions.insert(position, Reason::Explored);
        }
        tools
    }
}
