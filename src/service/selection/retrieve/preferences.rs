//! What changes a ranking after the search: what use has taught, sign-ins, and which of several near duplicates answers better.

use std::collections::HashMap;

use super::{Ranking, Retrieve};
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::learning::boost::apply;
use crate::domain::learning::memory::RIVALS;
use crate::domain::learning::quality::Quality;
use crate::domain::learning::vector::MessageVector;
use crate::domain::learning::votes::Vote;
use crate::domain::selection::relevance::Ranked;
use crate::domain::selection::relevance::arrange::{prefer_better, prefer_ready};
use crate::service::access::connections::ConnectionState;
use crate::service::catalog::current::View;

/// By how much uses must prefer one of two near duplicates, in standard deviations of the candidates, so that the other one doesn't take
/// its place by better answers.
const HABIT: f32 = 0.5;
/// Number of messages that must have led to one of two near duplicates before the embedding model changed, and at least twice as many as
/// to the other one.
const EARLIER: u32 = 3;

impl Retrieve {
    /// Lets the messages that the caller may learn from change the ranking of this message. Votes for tools that are not offered don't
    /// count.
    pub(crate) fn apply_learning(&self, ranking: &mut Ranking, view: &View, principal: &Principal, is_offered: impl Fn(u32) -> bool) {
        let Some(learning) = &self.learning else { return };
        let depends = ranking.in_context.is_some() && !ranking.is_new_topic;
        let vector = if depends { &ranking.context_vector } else { &ranking.vector };
        let Some(vector) = vector.as_deref().and_then(MessageVector::of) else { return };
        let votes = learning.votes(principal, &vector);
        let View { catalog, visibility, settings, .. } = view;
        let counts = |key: &u32| visibility.allows(&catalog.tools()[*key as usize]) && is_offered(*key);
        let allowed = |(tool, vote): (ToolId, Vote)| {
            let key = catalog.position(&tool).filter(counts)?;
            // Near duplicates on available servers have taken the ranks of unavailable tools.
            let is_down = catalog.server_of(key).is_some_and(|server| ranking.is_down(server));
            (vote.delta < 0.0 || !is_down).then_some((key, vote))
        };
        let votes: HashMap<u32, Vote> = votes.into_iter().filter_map(allowed).collect();
        let is_ours = |one: &&Ranked<u32>| (one.key as usize) < catalog.tools().len();
        ranking.plain = ranking.ranked.iter().filter(is_ours).take(RIVALS).map(|one| (one.key, one.fused)).collect();
        let texts = catalog.texts().filter(|_| settings.fold_duplicates);
        let group = |key: u32| match texts {
            Some(texts) if (key as usize) < catalog.tools().len() => texts.near_duplicates.group(key),
            _ => key,
        };
        ranking.learned = apply(&mut ranking.ranked, &votes, settings.strictness, group);
    }

    /// For each server that is called with a sign-in, whether the caller may call it at once.
    pub(crate) async fn connection_states(&self, caller: &Principal) -> HashMap<ServerName, ConnectionState> {
        match &self.connections {
            Some(connections) => connections.known_states(caller).await,
            None => HashMap::new(),
        }
    }

    /// Moves tools that the caller can call at once before equally good ones that need a sign-in first.
    pub(crate) fn prefer_ready(ranked: &mut [Ranked<u32>], states: &HashMap<ServerName, ConnectionState>, view: &View) {
        if !states.values().any(|state| *state == ConnectionState::SignIn) {
            return;
        }
        let View { catalog, settings, .. } = view;
        let texts = catalog.texts().filter(|_| settings.fold_duplicates);
        let tools = catalog.tools();
        let is_ready = |key: u32| {
            let server = tools.get(key as usize).map(|tool| &tool.id.server);
            server.is_none_or(|server| states.get(server) != Some(&ConnectionState::SignIn))
        };
        let group = |key: u32| if (key as usize) < tools.len() { texts.map_or(key, |texts| texts.near_duplicates.group(key)) } else { key };
        prefer_ready(ranked, group, is_ready);
    }

    /// Among near duplicates, moves the one that fails less and answers faster to the first place, unless the caller's uses clearly
    /// prefer another one. If that is no difference, the one that the caller used more often before the embedding model changed.
    pub(crate) fn prefer_better(&self, ranking: &mut Ranking, view: &View, caller: &Principal) {
        let View { catalog, settings, .. } = view;
        let Some(learning) = &self.learning else { return };
        let (quality, earlier) = (learning.qualities(caller), learning.earlier(caller));
        if quality.is_none() && earlier.is_none() {
            return;
        }
        let Some(texts) = catalog.texts().filter(|_| settings.fold_duplicates) else { return };
        let tools = catalog.tools();
        let Ranking { ranked, learned, down, .. } = ranking;
        let is_down = |key: u32| catalog.server_of(key).is_some_and(|server| down.get(server as usize).copied().unwrap_or_default());
        let delta = |key: u32| learned.deltas.get(&key).copied().unwrap_or_default();
        let of = |key: u32| quality.as_ref()?(&tools.get(key as usize)?.id);
        let used = |key: u32| earlier.as_ref()?.get(&tools.get(key as usize)?.id).copied();
        let is_habit = |one: u32, other: u32| used(one).unwrap_or_default() >= EARLIER.max(2 * used(other).unwrap_or_default());
        let group = |key: u32| if (key as usize) < tools.len() { texts.near_duplicates.group(key) } else { key };
        prefer_better(ranked, group, |one, other| {
            let is_preferred = delta(other) > 0.0 && delta(other) - delta(one) >= HABIT;
            let is_better = Quality::is_better(of(one), of(other));
            !is_preferred && !is_down(one) && (is_better || (is_habit(one, other) && !Quality::is_better(of(other), of(one))))
        });
    }
}
