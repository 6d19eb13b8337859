//! Chooses the new tools for a message: ranks them, applies the gate, lets a model judge, and cuts the ranking.

mod additions;
mod names;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use self::additions::Ground;
use self::names::{Named, name_first};

use crate::domain::access::principal::Principal;
use crate::domain::access::visibility::Scope;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::selection::relevance::{
    CutCandidate, CutParameters, CutReason, GAP, GAP_OF_PARTS, GateRule, PREFERENCE, PREFERENCE_IN_CONTEXT, QueryPlan, Ranked, Role, cut,
    cut_noting, gap_at, prefer, readable_score,
};
use crate::domain::selection::selection::Reason;
use crate::service::catalog::current::View;
use crate::service::records::metrics::SelectionKind;
use crate::service::selection::explain::Trace;
use crate::service::selection::judges::Judges;
use crate::service::selection::offer::{ConnectionAddress, Offer};
use crate::service::selection::pinned::pinned;
use crate::service::selection::request::SelectRequest;
use crate::service::selection::rerank::{Reranked, Reranking};
use crate::service::selection::retrieve::{Ranking, Retrieve, without_gate};

/// Maximum number of candidates per index query, however few tools are offered.
const LONGEST_LIST: usize = 1_000;

/// Determines when a message changes a chat's tools, and which extra tools it then adds for later turns.
///
/// Measured on 32 chats over 1,087 tools; 16 of the chats were written and held out for this test (`tests/it/dialogues.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChatParameters {
    /// Score distance within which a tool matches about as well as the best one. A chat that already has such a tool does not
    /// change.
    pub(super) as_good: f32,
    /// Like `as_good`, for a message that depends on earlier turns, whose own words are weaker evidence.
    pub(super) as_good_in_context: f32,
    /// Score distance by the message alone, for such a message. Beyond it, a tool only matches earlier turns.
    pub(super) as_good_alone: f32,
    /// The gate's margin for such a message alone, from which it begins a new topic unless it refers to something earlier.
    pub(super) new_topic: f32,
    /// The first two distances for a message that begins a new topic, as shares of the best tool's score by the message alone. In a
    /// small catalog, all scores are small.
    pub(super) of_topic: [f32; 2],
    /// Score distance from the best tool within which the tools of products that the message names replace all others.
    pub(super) as_good_named: f32,
    /// What is added to their scores, and to those of products that the message rules out, if it depends on earlier turns.
    pub(super) named: (f32, f32),
    /// The same if the message only corrects which product was meant.
    pub(super) corrected: (f32, f32),
    /// Maximum number of tools of the best tool's server, including extra tools.
    pub(super) of_server: usize,
    /// Share of the places that is reserved for extra tools, unless the message may need several tools.
    pub(super) places: f32,
}

impl Default for ChatParameters {
    fn default() -> Self {
        Self {
            as_good: 0.3,
            as_good_in_context: 0.8,
            as_good_alone: 1.5,
            new_topic: 2.0,
            of_topic: [0.15, 0.3],
            as_good_named: 1.0,
            named: (0.5, -1.0),
            corrected: (2.0, -1.0),
            of_server: 8,
            places: 0.4,
        }
    }
}

/// The inputs of a selection.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) request: &'a SelectRequest,
    pub(super) principal: &'a Principal,
    pub(super) view: &'a View,
    pub(super) offer: &'a Offer,
    /// Tools that the conversation called, in order of the calls.
    pub(super) called: &'a [ToolId],
    /// Collects what decides, if somebody asks for an explanation.
    pub(super) trace: Option<&'a Mutex<Trace>>,
}

/// The new tools for a message. Our own tools are positions in the catalog.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one choice")]
pub(super) struct Chosen {
    pub(super) kind: SelectionKind,
    /// The tools, best first.
    pub(super) tools: Vec<u32>,
    /// Tools that match the message about as well as the best one. A chat with one of them needs no new tool.
    pub(super) one_of: Vec<u32>,
    /// Tools that the message needs: the best one for each of its parts, or the choice of a language model.
    pub(super) all_of: Vec<u32>,
    /// Names of chosen foreign tools, with scores and ranks.
    pub(super) foreign: Vec<(String, f32, usize)>,
    /// Names of foreign tools that could not be judged and are kept.
    pub(super) not_judged: Vec<String>,
    /// Ranks of the chosen tools, starting at 1.
    pub(super) ranks: HashMap<u32, usize>,
    /// For tools that learning raised, the number of similar messages with evidence for them.
    pub(super) learned: HashMap<u32, u32>,
    /// For tools that were chosen beside the ranking, the reason.
    pub(super) additions: HashMap<u32, Reason>,
    /// The best tools without learning, with their scores. Empty if learning is off.
    pub(super) plain: Vec<(u32, f32)>,
    /// The vector of the message.
    pub(super) vector: Option<Arc<[f32]>>,
    /// Whether the message depends on earlier turns, so that its own match says little.
    pub(super) leans: bool,
    /// Whether the message needs a tool, as far as the ranking shows.
    pub(super) needs_tool: bool,
    /// Whether a language model made the choice.
    pub(super) judged: bool,
    /// Scores of all our ranked tools.
    pub(super) scores: HashMap<u32, f32>,
    /// Whether more tools may match once all of them are embedded.
    pub(super) is_partial: bool,
    /// The text of the message that was searched.
    pub(super) message: String,
    pub(super) warnings: Vec<String>,
}

/// Chooses the new tools for messages.
pub(super) struct Choose {
    pub(super) retrieve: Arc<Retrieve>,
    pub(super) judges: Arc<Judges>,
    pub(super) of_chats: ChatParameters,
}

impl Choose {
    /// Ranks the offered tools and cuts the ranking to what the message needs.
    pub(super) async fn choose(&self, message: &Message<'_>) -> Chosen {
        let Message { request, principal, view: View { catalog, settings, .. }, offer, .. } = *message;
        let plan = plan(message);
        if plan.is_empty() || (offer.ours.is_empty() && offer.judged.is_empty()) {
            return Chosen::nothing();
        }
        let named = Named::of(message, &plan);
        let mut ranking = self.rank(message, &plan, &named).await;
        let tools = offer.ours.len() + offer.judged.len();
        let verdict = settings.gate.then(|| self.retrieve.verdict(&ranking, tools)).flatten();
        let is_closed = verdict.is_some_and(|verdict| !verdict.needs_tool);
        // Nobody wants the tool of an earlier "Good morning!" again.
        let is_polite = verdict.is_some_and(|verdict| verdict.by == GateRule::Courtesy);
        let is_learned = is_closed && !is_polite && !ranking.learned.needed.is_empty();
        let named_tools = name_first(message, &plan, &mut ranking);
        let is_named = is_closed && !named_tools.is_empty();
        let is_corrected = is_closed && !is_polite && named.is_correction;
        let needs_tool = !is_closed || is_learned || is_named || is_corrected;
        if let Some(trace) = message.trace {
            let gate = match (settings.gate, is_named || is_corrected, is_learned) {
                (false, ..) => without_gate(GateRule::Off),
                (true, true, _) => without_gate(GateRule::Named),
                (true, false, true) => without_gate(GateRule::Learned),
                (true, false, false) => self.retrieve.explain_gate(&ranking, tools),
            };
            trace.lock().ranked(&ranking.ranked, &ranking.learned, &offer.judged, gate);
        }
        let scores = ranking.ranked.iter().map(|ranked| (ranked.key, readable_score(ranked.fused))).collect();
        let mut chosen = Chosen {
            kind: if ranking.warnings.is_empty() { SelectionKind::Chosen } else { SelectionKind::Degraded },
            scores,
            learned: ranking.learned.messages.clone(),
            plain: ranking.plain.clone(),
            vector: ranking.vector.clone(),
            leans: ranking.in_context.is_some() && !ranking.is_new_topic,
            needs_tool,
            one_of: self.about_as_good(&ranking, catalog, &named.wanted),
            is_partial: ranking.is_partial,
            message: ranking.message.clone(),
            warnings: ranking.warnings.clone(),
            not_judged: ranking.not_judged.iter().filter_map(|&place| Some(offer.judged.get(place)?.name.clone())).collect(),
            ..Chosen::nothing()
        };
        if (is_learned || is_named) && !is_corrected {
            // The message itself fits no tool, so its other ranks say nothing.
            let Ranking { ranked, learned, .. } = &mut ranking;
            ranked.retain(|ranked| (is_learned && learned.needed.contains(&ranked.key)) || named_tools.contains(&ranked.key));
            chosen.one_of = self.about_as_good(&ranking, catalog, &named.wanted);
        }
        if !needs_tool {
            if chosen.kind == SelectionKind::Chosen {
                chosen.kind = SelectionKind::NoneNeeded;
            }
            return chosen;
        }
        let reranking = Reranking {
            mode: request.rerank.unwrap_or(settings.rerank),
            // The person in whose place an administrator asks doesn't pay for the answer.
            principal: Some(principal).filter(|_| message.trace.is_none()),
            advisors: &request.advisors,
            ranking: &ranking,
            catalog,
            foreign: &offer.judged,
            limit: limit(message, &ranking.ranked),
        };
        match self.judges.rerank(reranking).await {
            Reranked::NotAsked => self.cut(message, &ranking.ranked, &ranking, &mut chosen),
            Reranked::Chosen(ranked) => {
                chosen.judged = true;
                if let Some(trace) = message.trace {
                    trace.lock().judged(&ranked);
                }
                // The model chose each tool deliberately, so the distance from the best score does not matter.
                let ranked: Vec<Ranked<u32>> = ranked.into_iter().map(|ranked| Ranked { leads: 1, ..ranked }).collect();
                self.cut(message, &ranked, &ranking, &mut chosen);
            }
            Reranked::Failed(warning) => {
                self.cut(message, &ranking.ranked, &ranking, &mut chosen);
                chosen.warnings.push(warning);
            }
        }
        let named_tools: Vec<u32> = named_tools.into_iter().filter(|tool| chosen.tools.contains(tool)).collect();
        chosen.all_of.extend(named_tools);
        chosen
    }

    /// The choice if all our tools stay because they are small: ranks only to choose among foreign tools.
    pub(super) async fn among_small(&self, message: &Message<'_>) -> Chosen {
        if message.offer.judged.is_empty() && message.trace.is_none() {
            let message = plan(message).whole().to_owned();
            return Chosen { kind: SelectionKind::Small, message, ..Chosen::nothing() };
        }
        let Chosen { foreign, not_judged, judged, is_partial, message, warnings, .. } = self.choose(message).await;
        Chosen { kind: SelectionKind::Small, foreign, not_judged, judged, is_partial, message, warnings, ..Chosen::nothing() }
    }

    /// Ranks the offered tools. Among near ties, servers that the chat has called come first. Calls since the message don't count, so that
    /// all model calls of a turn get the same ranking.
    async fn rank(&self, message: &Message<'_>, plan: &QueryPlan, named: &Named) -> Ranking {
        let Message { request, view, offer, .. } = *message;
        let View { catalog, settings, .. } = view;
        let (narrowed, in_scope) = narrowed(view, offer);
        // If only some tools of these servers are offered, request more candidates, so that enough offered ones remain.
        let list = (settings.candidates * in_scope.div_ceil(offer.ours.len().max(1))).min(LONGEST_LIST);
        let mut ranking = self.retrieve.rank_noting(plan, &narrowed, Some(list), &offer.judged, message.trace).await;
        if !named.wanted.is_empty() {
            ranking.ignore_text();
        }
        // Before learning, so that what it does to other tools affects neither the gate nor the cut.
        if in_scope > offer.ours.len() {
            let first_foreign = catalog.tools().len();
            ranking.ranked.retain(|ranked| ranked.key as usize >= first_foreign || offer.has(ranked.key));
        }
        if !named.is_correction && self.is_new_topic(plan, &ranking, offer.ours.len() + offer.judged.len()) {
            ranking.begin_topic(catalog);
        }
        self.retrieve.apply_learning(&mut ranking, &narrowed, message.principal, |key| offer.has(key));
        let used = request.called_earlier().filter_map(|name| catalog.server_of(catalog.position(&view.operation(name)?.id)?));
        let used: HashSet<u32> = used.filter(|server| named.wanted.is_empty() || named.wanted.contains(server)).collect();
        // Earlier turns raise the tools of the products that they name.
        if ranking.in_context.is_some() {
            let (wanted, ruled_out) = if named.is_correction { self.of_chats.corrected } else { self.of_chats.named };
            let is_of = |servers: &BTreeSet<u32>, key| catalog.server_of(key).is_some_and(|server| servers.contains(&server));
            prefer(&mut ranking.ranked, wanted, |key| is_of(&named.wanted, key));
            prefer(&mut ranking.ranked, ruled_out, |key| is_of(&named.ruled_out, key));
        }
        if !used.is_empty() {
            let preference = if ranking.in_context.is_some() { PREFERENCE_IN_CONTEXT } else { PREFERENCE };
            prefer(&mut ranking.ranked, preference, |key| catalog.server_of(key).is_some_and(|server| used.contains(&server)));
        }
        let states = self.retrieve.connection_states(message.principal).await;
        Retrieve::prefer_ready(&mut ranking.ranked, &states, view);
        self.retrieve.prefer_better(&mut ranking, view, message.principal);
        ranking
    }

    /// Cuts a ranking to what the message needs, and adds tools that later turns may need. `whole` is the ranking of the search.
    fn cut(&self, message: &Message<'_>, ranking: &[Ranked<u32>], whole: &Ranking, chosen: &mut Chosen) {
        let Message { request, view: View { catalog, settings, .. }, offer, .. } = *message;
        let has_parts = whole.has_parts;
        let gap = whole.learned.allowance + gap_at(if has_parts { GAP_OF_PARTS } else { GAP }, settings.strictness);
        let candidates: Vec<CutCandidate> = ranking.iter().map(|ranked| candidate(ranked, message.view)).collect();
        let parameters = CutParameters {
            limit: limit(message, ranking),
            token_budget: request.token_budget.or(settings.token_budget).map(|budget| u32::try_from(budget).unwrap_or(u32::MAX)),
            per_server: settings.per_server,
            gap,
            ..CutParameters::default()
        };
        // A chat keeps its tools. So when it changes, also add tools that later turns may need.
        let has_company = request.chat.is_some() && !chosen.judged;
        let places = if has_company && !has_parts { places_of(parameters.limit, self.of_chats.places) } else { 0 };
        let of_message = CutParameters { limit: parameters.limit - places, ..parameters };
        let kept = match message.trace {
            None => cut(&candidates, &of_message),
            Some(trace) => cut_noting(&candidates, &of_message, Some(&mut |place, reason| trace.lock().cut(ranking[place].key, reason))),
        };
        let on = Ground { ranking, whole, candidates: &candidates, kept: &kept, parameters: &parameters, has_company };
        let additions = self.additions(message, &on);
        // The best tool for each part of the message, or for what a message may answer that depends on earlier turns.
        let needed = if whole.in_context.is_some() { 1 << 2 } else { !1 };
        let mut close = Vec::new();
        for (rank, &position) in (1..).zip(kept.iter().chain(&additions.along)) {
            let ranked = &ranking[position];
            let score = readable_score(ranked.fused);
            let key = ranked.key as usize;
            match catalog.tools().get(key) {
                Some(tool) => {
                    if ranked.leads != 0 || ranked.fused >= ranking[0].fused - gap {
                        close.push(Arc::clone(tool));
                    }
                    if chosen.judged || ranked.leads & needed != 0 {
                        chosen.all_of.push(ranked.key);
                    }
                    chosen.ranks.insert(ranked.key, rank);
                    chosen.tools.push(ranked.key);
                }
                None => chosen.foreign.extend(offer.judged.get(key - catalog.tools().len()).map(|tool| (tool.name.clone(), score, rank))),
            }
        }
        close.extend(additions.add_to(chosen, catalog));
        leave_out_accompanied(message, &close, chosen);
    }

    /// Whether a short message begins a new topic, although it could also depend on earlier turns: by itself, it clearly needs a tool, and
    /// no word of it refers to something earlier. Or its words ask for the time ("what time is it") or to remember something.
    fn is_new_topic(&self, plan: &QueryPlan, ranking: &Ranking, tools: usize) -> bool {
        let is_asked = ranking.asked().is_some();
        if ranking.in_context.is_none() || (!is_asked && plan.refers()) {
            return false;
        }
        let alone = self.retrieve.verdict_alone(ranking, tools);
        alone.needs_tool && (is_asked || alone.margin >= self.of_chats.new_topic)
    }

    /// Tools that match about as well as the best one. If the best one's server is up, unavailable tools do not count.
    ///
    /// If the message depends on earlier turns, these turns raise the scores of the tools that served them. So for a message that is
    /// clearly about something else, such a tool does not count. Nor does one of another product than those that the message names
    /// (`named`: their servers), if these have a tool that matches nearly as well.
    fn about_as_good(&self, ranking: &Ranking, catalog: &Catalog, named: &BTreeSet<u32>) -> Vec<u32> {
        let ChatParameters { as_good, as_good_in_context, as_good_alone, as_good_named, of_topic, .. } = self.of_chats;
        let is_named = |ranked: &&Ranked<u32>| catalog.server_of(ranked.key).is_some_and(|server| named.contains(&server));
        let ours = || ranking.ranked.iter().filter(|ranked| (ranked.key as usize) < catalog.tools().len());
        let Some(best_of_all) = ours().next() else { return Vec::new() };
        let best_named = ours().find(is_named).filter(|ranked| ranked.fused >= best_of_all.fused - as_good_named);
        let best = best_named.unwrap_or(best_of_all);
        let ours = ours().filter(|ranked| best_named.is_none() || is_named(ranked)).skip_while(|ranked| ranked.key != best.key);
        let is_down = |key| catalog.server_of(key).is_some_and(|server| ranking.is_down(server));
        let all_count = is_down(best.key);
        let (as_good, as_good_alone) = match ranking.in_context {
            None => (as_good, f32::INFINITY),
            Some(_) if ranking.is_new_topic => {
                let [of_score, of_alone] = of_topic.map(|share| share * best.alone.max(0.0));
                (of_score.min(as_good_in_context), of_alone.min(as_good_alone))
            }
            Some(_) => (as_good_in_context, as_good_alone),
        };
        let near = ours.take_while(|ranked| ranked.fused >= best.fused - as_good);
        let near = near.filter(|ranked| ranked.alone >= best.alone - as_good_alone);
        near.filter(|ranked| all_count || !is_down(ranked.key)).map(|ranked| ranked.key).collect()
    }
}

/// The properties of a ranked tool that affect the cut.
fn candidate(ranked: &Ranked<u32>, view: &View) -> CutCandidate {
    let View { catalog, settings, .. } = view;
    let texts = catalog.texts().filter(|_| settings.fold_duplicates);
    CutCandidate {
        fused: ranked.fused,
        leads: ranked.leads,
        tokens: catalog.tools().get(ranked.key as usize).map_or(0, |tool| tool.tokens),
        server: catalog.server_of(ranked.key).unwrap_or(u32::MAX),
        group: texts.map_or(ranked.key, |texts| texts.near_duplicates.group(ranked.key)),
    }
}

fn plan(message: &Message<'_>) -> QueryPlan {
    let turns: Vec<(Role, &str)> = message.request.turns.iter().map(|turn| (turn.role, turn.text.as_str())).collect();
    QueryPlan::of_conversation(&turns)
}

/// Limits the view to servers with offered tools. Also returns the number of visible tools on these servers.
fn narrowed<'a>(view: &'a View, offer: &Offer) -> (Cow<'a, View>, usize) {
    let visible = view.visible();
    if Arc::ptr_eq(&offer.ours, visible.positions()) {
        return (Cow::Borrowed(view), offer.ours.len());
    }
    let catalog = &view.catalog;
    let mut is_asked = vec![false; catalog.servers().len()];
    offer.ours.iter().filter_map(|&position| catalog.server_of(position)).for_each(|server| is_asked[server as usize] = true);
    let in_scope = visible.of_servers().iter().zip(&is_asked).filter(|(_, is_asked)| **is_asked).map(|(tools, _)| *tools as usize).sum();
    if is_asked.iter().all(|is_asked| *is_asked) {
        return (Cow::Borrowed(view), in_scope);
    }
    let asked = catalog.servers().iter().zip(&is_asked).filter(|(_, is_asked)| **is_asked);
    let servers = Scope::Only(asked.map(|(server, _)| server.name.clone()).collect());
    (Cow::Owned(view.of_servers(servers)), in_scope)
}

impl Chosen {
    /// The result for an empty offer.
    pub(super) fn nothing() -> Self {
        Self {
            kind: SelectionKind::NothingOnOffer,
            tools: Vec::new(),
            one_of: Vec::new(),
            all_of: Vec::new(),
            foreign: Vec::new(),
            not_judged: Vec::new(),
            ranks: HashMap::new(),
            learned: HashMap::new(),
            additions: HashMap::new(),
            plain: Vec::new(),
            vector: None,
            leans: false,
            needs_tool: true,
            judged: false,
            scores: HashMap::new(),
            is_partial: false,
            message: String::new(),
            warnings: Vec::new(),
        }
    }

    /// The reason for a tool in the ranking. `position` is its position in the catalog; `None` for foreign tools.
    pub(super) fn reason(&self, rank: usize, position: Option<u32>) -> Reason {
        let learned = position.and_then(|position| self.learned.get(&position));
        match learned {
            _ if self.judged => Reason::Judged { rank },
            Some(&messages) => Reason::Learned { rank, messages },
            None => Reason::Relevant { rank },
        }
    }
}

/// Maximum number of new tools. Pinned tools among the top ranks do not count.
fn limit(message: &Message<'_>, ranking: &[Ranked<u32>]) -> usize {
    let View { catalog, settings, .. } = message.view;
    let limit = message.request.limit.unwrap_or(settings.limit);
    let pinned: Vec<u32> = pinned(settings, catalog).collect();
    limit + ranking.iter().take(limit + pinned.len()).filter(|ranked| pinned.contains(&ranked.key)).count()
}

/// Removes extra tools whose connection no other tool needs: they may fill up a list but must not keep a connection switched on.
/// `close` contains the tools that match by themselves.
fn leave_out_accompanied(message: &Message<'_>, close: &[Arc<Tool>], chosen: &mut Chosen) {
    let (offer, catalog, classes) = (message.offer, &message.view.catalog, &message.view.visibility.assigned);
    let kept: Vec<&ConnectionAddress> =
        offer.published().filter(|published| close.iter().any(|tool| published.holds(tool, classes))).collect();
    if kept.is_empty() {
        return;
    }
    let stays = |tool: &Tool| kept.iter().any(|published| published.holds(tool, classes)) || offer.is_of_unknown(tool, classes);
    let stays = |position: &u32| stays(&catalog.tools()[*position as usize]);
    if let Some(trace) = message.trace {
        chosen.tools.iter().filter(|position| !stays(position)).for_each(|&position| trace.lock().cut(position, CutReason::FallOff));
    }
    chosen.tools.retain(stays);
    chosen.one_of.retain(stays);
    chosen.all_of.retain(stays);
}

/// The number of places reserved for extra tools.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a small number")]
fn places_of(limit: usize, share: f32) -> usize {
    (limit as f32 * share) as usize
}
