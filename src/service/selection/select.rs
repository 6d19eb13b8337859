//! Selection: which of the functions on offer stay on offer for this message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use indexmap::IndexMap;
use uuid::Uuid;

use crate::domain::access::principal::Principal;
use crate::domain::access::visibility::{Scope, Visibility};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::naming::{
    DESCRIBE_TOOLS, ENABLE_TOOL_GROUP, FIND_TOOLS, LIST_AVAILABLE_TOOLSETS, LOAD_TOOLSET, RUN_TOOL, SMART_SELECT_TOOLS, UNLOAD_TOOLSET,
};
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::records::conversation::Conversation;
use crate::domain::selection::chat::{ChatKey, ChatSet, Wanted};
use crate::domain::selection::experiment::Arm;
use crate::domain::selection::relevance::{
    CutCandidate, CutParameters, GAP, GAP_OF_PARTS, PREFERENCE, PREFERENCE_IN_CONTEXT, QueryPlan, Ranked, Role, companions, cut, prefer,
    readable_score,
};
use crate::domain::selection::selection::{Disclosed, Reason, Selected};
use crate::domain::toolsets::session::Session;
use crate::service::catalog::current::{CurrentCatalog, LiveSelection};
use crate::service::ports::{Advisor, OfferedTools, SelectionEvent, SelectionEventKind};
use crate::service::publishing::meta_tokens::{Costs, MetaTokens};
use crate::service::records::metrics::{SelectionFigures, SelectionKind};
use crate::service::records::record::Recorder;
use crate::service::selection::chats::Chats;
use crate::service::selection::judges::Judges;
use crate::service::selection::offer::{Face, Offer};
use crate::service::selection::rerank::{Reranked, Reranking};
use crate::service::selection::retrieve::{Ranking, Retrieve};
use crate::settings::Rerank;

pub use crate::domain::selection::selection::Selection;
use crate::service::selection::pinned::pinned;

/// Candidates that an index list brings at most, however small the part on offer is.
const LONGEST_LIST: usize = 1_000;

/// When a chat's tools change for a message, and what comes along then for the turns to come.
///
/// Measured on 32 chats over 1,087 tools, of which 16 were written and kept back for it (`tests/it/dialogues.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChatParameters {
    /// A tool is about as good as the best one within this distance of its score: nothing changes for a message as long as the
    /// chat has such a tool.
    pub as_good: f32,
    /// The same for a message that leans on the turns before it, whose words alone say less.
    pub as_good_in_context: f32,
    /// Of the best tool's server so many tools are offered at most, those that come along included.
    pub of_server: usize,
    /// The share of the places that is kept for tools that come along, unless the message may ask for several tools.
    pub places: f32,
}

impl Default for ChatParameters {
    fn default() -> Self {
        Self { as_good: 0.3, as_good_in_context: 0.6, of_server: 8, places: 0.4 }
    }
}

/// A turn of the conversation.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub role: TurnRole,
    pub text: String,
    /// Names of the functions that an assistant's turn called.
    pub called: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnRole {
    User,
    Assistant,
    /// System, tool, and what else there may be.
    #[default]
    Other,
}

/// A function on offer: a name, or a whole definition.
#[derive(Clone, Debug)]
pub struct Offered {
    pub name: String,
    /// `Some` if it came as a definition.
    pub description: Option<String>,
}

/// What to choose for, and from what.
#[derive(Clone, Debug, Default)]
pub struct SelectRequest {
    /// Oldest first.
    pub turns: Vec<Turn>,
    /// Our tool ids, with the path of the document that each publishes.
    pub connections: IndexMap<String, String>,
    pub tool_ids: Option<Vec<String>>,
    pub offered: Option<Arc<[Offered]>>,
    /// Published names that the model found. With them the chat's tools that are not on offer are disclosed; `None`: nothing is.
    pub disclose: Option<Vec<String>>,
    /// Published names that stay on offer, as far as the caller may use them.
    pub keep: Vec<String>,
    /// Whether foreign definitions are judged too.
    pub narrow_foreign: bool,
    pub user: Option<String>,
    pub chat: Option<String>,
    pub message: Option<String>,
    pub model: Option<String>,
    pub limit: Option<usize>,
    pub token_budget: Option<usize>,
    pub rerank: Option<Rerank>,
    /// Language models on the user's own account.
    pub advisors: Vec<Advisor>,
    /// The caller's sessions among the connections, by the path of each.
    pub sessions: HashMap<String, Arc<Session>>,
}

pub struct Select {
    current: Arc<CurrentCatalog>,
    retrieve: Arc<Retrieve>,
    judges: Arc<Judges>,
    chats: Chats,
    recorder: Recorder,
    settings: LiveSelection,
    meta_tokens: MetaTokens,
    of_chats: ChatParameters,
}

/// What was chosen newly for a message. Tools of ours are positions in the catalog.
struct Chosen {
    kind: SelectionKind,
    /// Best first.
    tools: Vec<u32>,
    /// What fits the message about as well as the best does: a chat that has one of them is served.
    one_of: Vec<u32>,
    /// What the message can't do without: the best for each of its parts, or what a language model chose.
    all_of: Vec<u32>,
    /// Names of others with their scores and places in the ranking.
    foreign: Vec<(String, f32, usize)>,
    /// Names of others that were to be judged and were not.
    not_judged: Vec<String>,
    /// Places in the ranking, from 1, of what was chosen.
    ranks: HashMap<u32, usize>,
    /// Whether the message leans on the turns before it: what fits it alone says little then.
    leans: bool,
    /// Whether a language model chose.
    judged: bool,
    /// Scores of all ranked tools.
    scores: HashMap<u32, f32>,
    /// Whether more may fit once all tools are embedded.
    is_partial: bool,
    /// The message as it was searched for.
    message: String,
    warnings: Vec<String>,
}

impl Select {
    #[must_use]
    pub fn new(
        current: Arc<CurrentCatalog>,
        retrieve: Arc<Retrieve>,
        judges: Arc<Judges>,
        chats: Chats,
        recorder: Recorder,
        settings: LiveSelection,
        meta_tokens: MetaTokens,
    ) -> Self {
        Self { current, retrieve, judges, chats, recorder, settings, meta_tokens, of_chats: ChatParameters::default() }
    }

    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.snapshot()
    }

    /// Whether what is chosen from these tools now is final.
    #[must_use]
    pub fn is_complete(&self, catalog: &Catalog) -> bool {
        self.retrieve.is_complete(catalog)
    }

    /// Chooses for the last message of the user. Always answers: what is down costs a warning.
    pub async fn select(&self, request: SelectRequest, principal: &Principal) -> Selection {
        let started = Instant::now();
        let id = Uuid::now_v7().to_string();
        let catalog = self.current.snapshot();
        let visibility = self.current.visibility(principal);
        let mut offer = Offer::of(&request, &self.current, &catalog, &visibility);
        // In the order of the conversation, which is the order in which they stay on offer.
        let called = called_names(&request).filter_map(|name| match name {
            // Whoever searched needs it to run what was found, and has it in this place from now on.
            FIND_TOOLS if offer.meta.contains(&RUN_TOOL) => Some(run_tool()),
            name => catalog.operation(name).filter(|tool| visibility.allows(tool)).map(|tool| tool.id.clone()),
        });
        let called: Vec<ToolId> = called.collect();

        let static_share = self.settings.load().static_share;
        let arm = request.chat.as_ref().and_then(|chat| Arm::of(chat, static_share));
        let is_static = arm == Some(Arm::Static);
        let chosen = if is_static {
            Chosen { kind: SelectionKind::Static, ..Chosen::nothing() }
        } else {
            self.choose(&request, &called, &offer, &catalog, &visibility).await
        };
        let tool_at = |&position: &u32| catalog.tools()[position as usize].id.clone();
        let found = found(&request, &offer, &catalog, &visibility);
        let with_found = |positions: &[u32]| -> Vec<ToolId> { positions.iter().map(tool_at).chain(found.iter().cloned()).collect() };
        let (new, all_of) = (with_found(&chosen.tools), with_found(&chosen.all_of));
        let one_of: Vec<ToolId> = chosen.one_of.iter().map(tool_at).collect();
        let wanted = Wanted { offered: &new, one_of: &one_of, all_of: &all_of };
        let is_visible = |id: &ToolId| catalog.tool(id).is_some_and(|tool| visibility.allows(tool));
        let (set, mut warnings) = self.update_chat(&request, principal, &wanted, &called, is_visible).await;
        warnings.extend(chosen.warnings.iter().cloned());
        warnings.append(&mut offer.warnings);

        let mut tools = self.fixed(&offer, &catalog, principal, &visibility);
        let mut disclosed: Vec<Disclosed> = Vec::new();
        for entry in set.tools() {
            if entry.tool == run_tool() {
                if offer.meta.contains(&RUN_TOOL) && !tools.iter().any(|kept| kept.name == RUN_TOOL) {
                    tools.push(meta(RUN_TOOL, Reason::RunTool));
                }
                continue;
            }
            let Some(position) = offer.position(&entry.tool, &catalog) else {
                let hidden = request.disclose.as_ref().and_then(|_| catalog.tool(&entry.tool)).filter(|tool| visibility.allows(tool));
                if let Some((tool, known)) = hidden.and_then(|tool| Some((tool, offer.disclose(tool, &visibility.assigned)?))) {
                    let reason = match (entry.called, found.contains(&entry.tool)) {
                        (true, _) => Reason::Called,
                        (false, true) => Reason::Found,
                        (false, false) => Reason::OfferedBefore,
                    };
                    tools.push(Selected { reason, ..Selected::named(tool) });
                    disclosed.push(known);
                }
                continue;
            };
            let tool = &catalog.tools()[position as usize];
            if tools.iter().any(|kept| kept.id.as_ref() == Some(&tool.id)) {
                continue;
            }
            let reason = match chosen.ranks.get(&position) {
                Some(&rank) => chosen.reason(rank),
                None if entry.called => Reason::Called,
                None => Reason::OfferedBefore,
            };
            let score = chosen.scores.get(&position).copied();
            tools.push(Selected { name: tool.operation_id.to_string(), id: Some(tool.id.clone()), score, reason });
        }
        add_kept(&mut tools, &request.keep, &offer, &catalog);
        if is_static {
            let kept: HashSet<&ToolId> = tools.iter().filter_map(|kept| kept.id.as_ref()).collect();
            let rest = offer.tools(&catalog).filter(|tool| !kept.contains(&tool.id));
            let rest: Vec<Selected> = rest.map(|tool| Selected { reason: Reason::StaticArm, ..Selected::named(tool) }).collect();
            tools.extend(rest);
            let judged = offer.judged.iter().map(|tool| Selected { reason: Reason::StaticArm, ..meta(&tool.name, Reason::Foreign) });
            tools.extend(judged);
        }
        // When nothing else is on offer it is needed too, and with it the one that describes; and where tools are loaded, for
        // those that are not bound yet.
        if offer.ours.is_empty() || is_static || offer.meta.contains(&LOAD_TOOLSET) {
            for name in [DESCRIBE_TOOLS, RUN_TOOL].into_iter().filter(|name| offer.meta.contains(name)) {
                if !tools.iter().any(|tool| tool.name == name) {
                    tools.push(meta(name, Reason::RunTool));
                }
            }
        }
        let foreign = offer.foreign.iter().chain(&chosen.not_judged).map(|name| (name.clone(), None, Reason::Foreign));
        let judged = chosen.foreign.iter().map(|(name, score, rank)| (name.clone(), Some(*score), chosen.reason(*rank)));
        tools.extend(foreign.chain(judged).map(|(name, score, reason)| Selected { name, id: None, score, reason }));

        warnings.extend(self.retrieve.down_warnings(tools.iter().filter_map(|selected| selected.id.as_ref())));
        let tool_ids = request.tool_ids.as_ref().map(|ids| keep_tool_ids(ids, &request.connections, &offer, &tools, &catalog, &visibility));
        let (tokens_before, tokens_after) = tokens(&offer, &tools, &catalog, &self.meta_tokens.of(&catalog, &visibility));
        let (took, is_partial) = (started.elapsed(), chosen.is_partial);
        let (tools_before, tools_after) = (offer.ours.len(), tools.iter().filter(|selected| selected.id.is_some()).count());
        let figures = SelectionFigures { kind: chosen.kind, took, tools_before, tools_after, tokens_before, tokens_after };
        self.record(&id, &request, principal, &chosen, &tools, &figures, arm);
        tracing::debug!(
            selection = id,
            offered = offer.ours.len(),
            kept = tools.len(),
            tokens_before,
            tokens_after,
            took_us = took.as_micros(),
            "selection"
        );
        Selection { id, tool_ids, keeps_all: is_static, is_partial, tools, disclosed, tokens_before, tokens_after, warnings, took }
    }

    /// Ranks what is on offer and cuts the ranking to what the message needs.
    async fn choose(
        &self,
        request: &SelectRequest,
        called: &[ToolId],
        offer: &Offer,
        catalog: &Catalog,
        visibility: &Visibility,
    ) -> Chosen {
        let turns: Vec<(Role, &str)> = request.turns.iter().map(|turn| (turn.role.into(), turn.text.as_str())).collect();
        let plan = QueryPlan::of_conversation(&turns);
        if plan.is_empty() || (offer.ours.is_empty() && offer.judged.is_empty()) {
            return Chosen::nothing();
        }
        let mut is_asked = vec![false; catalog.servers().len()];
        offer.ours.iter().filter_map(|&position| catalog.server_of(position)).for_each(|server| is_asked[server as usize] = true);
        let in_scope = catalog
            .visible_positions(visibility)
            .filter(|&position| catalog.server_of(position).is_some_and(|server| is_asked[server as usize]))
            .count();
        let servers = if is_asked.iter().all(|is_asked| *is_asked) {
            visibility.servers.clone()
        } else {
            let asked = catalog.servers().iter().zip(&is_asked).filter(|(_, is_asked)| **is_asked);
            Scope::Only(asked.map(|(server, _)| server.name.clone()).collect())
        };
        let narrowed = Visibility { servers, ..visibility.clone() };
        // Where only some tools of these servers are on offer, the lists are longer, so that enough of them are left.
        let list = (self.settings.load().candidates * in_scope.div_ceil(offer.ours.len().max(1))).min(LONGEST_LIST);
        let mut ranking = self.retrieve.rank(&plan, &narrowed, catalog, Some(list), &offer.judged).await;
        if in_scope > offer.ours.len() {
            let first_foreign = catalog.tools().len();
            ranking.ranked.retain(|ranked| ranked.key as usize >= first_foreign || offer.has(ranked.key));
        }
        let used: HashSet<u32> = called.iter().filter_map(|tool| catalog.server_of(catalog.position(tool)?)).collect();
        if !used.is_empty() {
            let preference = if ranking.in_context.is_some() { PREFERENCE_IN_CONTEXT } else { PREFERENCE };
            prefer(&mut ranking.ranked, preference, |key| catalog.server_of(key).is_some_and(|server| used.contains(&server)));
        }
        let needs_tool = !self.settings.load().gate || self.retrieve.needs_tool(&ranking, offer.ours.len() + offer.judged.len());
        let scores = ranking.ranked.iter().map(|ranked| (ranked.key, readable_score(ranked.fused))).collect();
        let mut chosen = Chosen {
            kind: if ranking.warnings.is_empty() { SelectionKind::Chosen } else { SelectionKind::Degraded },
            scores,
            leans: ranking.in_context.is_some(),
            one_of: self.about_as_good(&ranking, catalog),
            is_partial: ranking.is_partial,
            message: ranking.message.clone(),
            warnings: ranking.warnings.clone(),
            not_judged: ranking.not_judged.iter().filter_map(|&place| Some(offer.judged.get(place)?.name.clone())).collect(),
            ..Chosen::nothing()
        };
        if !needs_tool {
            if chosen.kind == SelectionKind::Chosen {
                chosen.kind = SelectionKind::NoneNeeded;
            }
            return chosen;
        }
        let reranking = Reranking {
            mode: request.rerank.unwrap_or(self.settings.load().rerank),
            advisors: &request.advisors,
            ranking: &ranking,
            catalog,
            foreign: &offer.judged,
            limit: self.limit(request, &ranking.ranked, catalog),
        };
        let gap = if ranking.has_parts { GAP_OF_PARTS } else { GAP };
        match self.judges.rerank(reranking).await {
            Reranked::NotAsked => self.cut(request, offer, catalog, visibility, &ranking.ranked, gap, &mut chosen),
            Reranked::Chosen(ranked) => {
                chosen.judged = true;
                // Each was chosen on purpose, so none falls to the distance from the first.
                let ranked: Vec<Ranked<u32>> = ranked.into_iter().map(|ranked| Ranked { leads: 1, ..ranked }).collect();
                self.cut(request, offer, catalog, visibility, &ranked, gap, &mut chosen);
            }
            Reranked::Failed(warning) => {
                self.cut(request, offer, catalog, visibility, &ranking.ranked, gap, &mut chosen);
                chosen.kind = SelectionKind::Degraded;
                chosen.warnings.push(warning);
            }
        }
        chosen
    }

    #[expect(clippy::too_many_arguments, reason = "what a cut goes by")]
    fn cut(
        &self,
        request: &SelectRequest,
        offer: &Offer,
        catalog: &Catalog,
        visibility: &Visibility,
        ranking: &[Ranked<u32>],
        gap: f32,
        chosen: &mut Chosen,
    ) {
        let classes = &visibility.assigned;
        let settings = self.settings.load();
        let twins = catalog.texts().filter(|_| settings.fold_duplicates);
        let candidates: Vec<CutCandidate> = ranking
            .iter()
            .map(|ranked| CutCandidate {
                fused: ranked.fused,
                leads: ranked.leads,
                tokens: catalog.tools().get(ranked.key as usize).map_or(0, |tool| tool.tokens),
                server: catalog.server_of(ranked.key).unwrap_or(u32::MAX),
                twins: twins.map_or(ranked.key, |facts| facts.twins.group(ranked.key)),
            })
            .collect();
        let parameters = CutParameters {
            limit: self.limit(request, ranking, catalog),
            token_budget: request.token_budget.or(settings.token_budget).map(|budget| u32::try_from(budget).unwrap_or(u32::MAX)),
            per_server: settings.per_server,
            gap,
            ..CutParameters::default()
        };
        // What a chat is offered stays: where its tools change, those come along that the next turns may ask for.
        let has_company = request.chat.is_some() && !chosen.judged;
        let places = if has_company && gap < GAP_OF_PARTS { places_of(parameters.limit, self.of_chats.places) } else { 0 };
        let kept = cut(&candidates, &CutParameters { limit: parameters.limit - places, ..parameters });
        let first = ranking.iter().find_map(|ranked| catalog.server_of(ranked.key));
        let along = match first {
            Some(server) if has_company => companions(&candidates, &kept, &parameters, server, self.of_chats.of_server),
            _ => Vec::new(),
        };
        let mut close = Vec::new();
        for (rank, &position) in (1..).zip(kept.iter().chain(&along)) {
            let ranked = &ranking[position];
            let score = readable_score(ranked.fused);
            let key = ranked.key as usize;
            match catalog.tools().get(key) {
                Some(tool) => {
                    if ranked.leads != 0 || ranked.fused >= ranking[0].fused - gap {
                        close.push(Arc::clone(tool));
                    }
                    if chosen.judged || (ranked.leads & !1 != 0 && !chosen.leans) {
                        chosen.all_of.push(ranked.key);
                    }
                    chosen.ranks.insert(ranked.key, rank);
                    chosen.tools.push(ranked.key);
                }
                None => chosen.foreign.extend(offer.judged.get(key - catalog.tools().len()).map(|tool| (tool.name.clone(), score, rank))),
            }
        }
        // A few tools fill up a short list; none of them is a reason to keep a connection switched on.
        let reasons = |face: &Face| close.iter().any(|tool| face.publishes(tool, classes));
        let kept: Vec<&Face> = offer.faces().filter(|face| reasons(face)).collect();
        if !kept.is_empty() {
            let stays = |tool: &Tool| kept.iter().any(|face| face.publishes(tool, classes)) || offer.is_of_unknown(tool, classes);
            let stays = |position: &u32| stays(&catalog.tools()[*position as usize]);
            chosen.tools.retain(stays);
            chosen.one_of.retain(stays);
            chosen.all_of.retain(stays);
        }
    }

    /// What fits about as well as the best. Where that can be run, what can't be run now is no match for it.
    fn about_as_good(&self, ranking: &Ranking, catalog: &Catalog) -> Vec<u32> {
        let as_good = if ranking.in_context.is_some() { self.of_chats.as_good_in_context } else { self.of_chats.as_good };
        let mut ours = ranking.ranked.iter().filter(|ranked| (ranked.key as usize) < catalog.tools().len()).peekable();
        let Some(&best) = ours.peek() else { return Vec::new() };
        let is_down = |key| catalog.server_of(key).is_some_and(|server| ranking.is_down(server));
        let all_count = is_down(best.key);
        let near = ours.take_while(|ranked| ranked.fused >= best.fused - as_good);
        near.filter(|ranked| all_count || !is_down(ranked.key)).map(|ranked| ranked.key).collect()
    }

    /// How many tools may be newly chosen. Pinned tools among the first ranked ones come on top.
    fn limit(&self, request: &SelectRequest, ranking: &[Ranked<u32>], catalog: &Catalog) -> usize {
        let settings = self.settings.load();
        let limit = request.limit.unwrap_or(settings.limit);
        let pinned: Vec<u32> = pinned(&settings, catalog).collect();
        limit + ranking.iter().take(limit + pinned.len()).filter(|ranked| pinned.contains(&ranked.key)).count()
    }

    /// The chat's set after this message. Without a chat's id it is what the messages show as called, and what is new.
    async fn update_chat(
        &self,
        request: &SelectRequest,
        principal: &Principal,
        wanted: &Wanted<'_>,
        called: &[ToolId],
        is_visible: impl Fn(&ToolId) -> bool,
    ) -> (ChatSet, Vec<String>) {
        let Some(chat) = &request.chat else {
            let mut set = ChatSet::default();
            set.update(wanted.offered, called, self.settings.load().chat_budget);
            return (set, Vec::new());
        };
        let key = ChatKey { principal: principal.id.clone(), chat: chat.clone() };
        let updated = self.chats.take(&key, wanted, called).await;
        let mut warnings: Vec<String> = updated.warning.into_iter().collect();
        // What the caller may not see any more goes without a word.
        let names: Vec<String> = updated.dropped.iter().filter(|tool| is_visible(tool)).map(ToString::to_string).collect();
        if !names.is_empty() {
            warnings.push(format!(
                "over the chat's budget of {}, no longer offered: {}",
                self.settings.load().chat_budget,
                names.join(", ")
            ));
        }
        (updated.set, warnings)
    }

    /// What stays whatever the message says: the search tool, pinned tools, and those that are always on in a toolset. They come
    /// first and never change.
    fn fixed(&self, offer: &Offer, catalog: &Catalog, principal: &Principal, visibility: &Visibility) -> Vec<Selected> {
        let mut fixed = Vec::new();
        if offer.meta.contains(&FIND_TOOLS) {
            fixed.push(meta(FIND_TOOLS, Reason::SearchTool));
        }
        for name in [SMART_SELECT_TOOLS, LOAD_TOOLSET, UNLOAD_TOOLSET, LIST_AVAILABLE_TOOLSETS, ENABLE_TOOL_GROUP] {
            if offer.meta.contains(&name) {
                fixed.push(meta(name, Reason::SearchTool));
            }
        }
        // Without the tools themselves these are needed too, from the first message on.
        if offer.has_meta_document() {
            let needed = [DESCRIBE_TOOLS, RUN_TOOL].into_iter().filter(|name| offer.meta.contains(name));
            fixed.extend(needed.map(|name| meta(name, Reason::RunTool)));
        }
        let settings = self.settings.load();
        let pinned = pinned(&settings, catalog).filter(|&position| offer.has(position)).map(|position| &catalog.tools()[position as usize]);
        fixed.extend(pinned.map(|tool| Selected {
            name: tool.operation_id.to_string(),
            id: Some(tool.id.clone()),
            score: None,
            reason: Reason::Pinned,
        }));
        let of_connections = offer.faces().filter_map(Face::toolset);
        for name in of_connections.chain(principal.within.iter().flatten()) {
            let always = visibility.assigned.toolset(name).into_iter().flat_map(|members| &members.always);
            for tool in always.filter_map(|name| catalog.operation(name.as_str())) {
                let is_new = !fixed.iter().any(|known| known.id.as_ref() == Some(&tool.id));
                if is_new && offer.position(&tool.id, catalog).is_some() {
                    fixed.push(Selected { reason: Reason::AlwaysOn, ..Selected::named(tool) });
                }
            }
        }
        fixed
    }

    #[expect(clippy::too_many_arguments, reason = "what an event is made of")]
    fn record(
        &self,
        id: &str,
        request: &SelectRequest,
        principal: &Principal,
        chosen: &Chosen,
        kept: &[Selected],
        figures: &SelectionFigures,
        arm: Option<Arm>,
    ) {
        self.recorder.meters().selection(figures);
        let tools = kept.iter().filter_map(|selected| selected.id.clone());
        let event = SelectionEvent {
            at: SystemTime::now(),
            selection: Some(id.to_owned()),
            principal: principal.id.as_str().to_owned(),
            chat: request.chat.clone(),
            conversation: request.chat.as_deref().map(Conversation::chat),
            kind: SelectionEventKind::Offered {
                message: self.recorder.message(&chosen.message),
                tools: if arm == Some(Arm::Static) { OfferedTools::all(tools.collect()) } else { tools.collect() },
                tokens_before: figures.tokens_before,
                tokens_after: figures.tokens_after,
                arm,
            },
        };
        self.recorder.record_selection(event, principal);
    }
}

impl Chosen {
    /// Of an offer of nothing.
    fn nothing() -> Self {
        Self {
            kind: SelectionKind::NothingOnOffer,
            tools: Vec::new(),
            one_of: Vec::new(),
            all_of: Vec::new(),
            foreign: Vec::new(),
            not_judged: Vec::new(),
            ranks: HashMap::new(),
            leans: false,
            judged: false,
            scores: HashMap::new(),
            is_partial: false,
            message: String::new(),
            warnings: Vec::new(),
        }
    }

    fn reason(&self, rank: usize) -> Reason {
        if self.judged { Reason::Judged { rank } } else { Reason::Relevant { rank } }
    }
}

/// Adds what whoever asks keeps on offer.
fn add_kept(tools: &mut Vec<Selected>, keep: &[String], offer: &Offer, catalog: &Catalog) {
    if keep.is_empty() {
        return;
    }
    let mut known: HashSet<String> = tools.iter().map(|kept| kept.name.clone()).collect();
    for name in keep {
        let tool =
            catalog.operation_position(name).filter(|&position| offer.has(position)).map(|position| &catalog.tools()[position as usize]);
        let kept = match offer.meta.iter().find(|meta| *meta == name) {
            Some(name) => meta(name, Reason::Kept),
            None => match tool {
                Some(tool) => Selected { reason: Reason::Kept, ..Selected::named(tool) },
                None => continue,
            },
        };
        if known.insert(kept.name.clone()) {
            tools.push(kept);
        }
    }
}

/// So many of the places are kept for tools that come along.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a small number")]
fn places_of(limit: usize, share: f32) -> usize {
    (limit as f32 * share) as usize
}

/// What the model found that is not on offer, and that the caller can run through what is.
fn found(request: &SelectRequest, offer: &Offer, catalog: &Catalog, visibility: &Visibility) -> Vec<ToolId> {
    let named = request.disclose.iter().flatten().filter_map(|name| catalog.operation(name));
    let hidden = named.filter(|tool| visibility.allows(tool) && offer.position(&tool.id, catalog).is_none());
    hidden.filter(|tool| offer.disclose(tool, &visibility.assigned).is_some()).map(|tool| tool.id.clone()).collect()
}

/// In a chat's set, which knows tools by server and name. No server has an empty name.
fn run_tool() -> ToolId {
    ToolId::new("", RUN_TOOL)
}

fn meta(name: &str, reason: Reason) -> Selected {
    Selected { name: name.to_owned(), id: None, score: None, reason }
}

fn called_names(request: &SelectRequest) -> impl Iterator<Item = &str> {
    request.turns.iter().flat_map(|turn| turn.called.iter().map(String::as_str))
}

/// Foreign ids stay; of ours those that publish a chosen tool, and one at least, because it carries the search tool.
fn keep_tool_ids(
    ids: &[String],
    connections: &IndexMap<String, String>,
    offer: &Offer,
    tools: &[Selected],
    catalog: &Catalog,
    visibility: &Visibility,
) -> Vec<String> {
    let chosen: Vec<&Arc<Tool>> = tools.iter().filter_map(|selected| catalog.tool(selected.id.as_ref()?)).collect();
    let publishing: HashSet<&str> = offer
        .connections
        .iter()
        .filter(|(_, face)| face.as_ref().is_none_or(|face| chosen.iter().any(|tool| face.publishes(tool, &visibility.assigned))))
        .map(|(id, _)| id.as_str())
        .collect();
    let ours = |id: &String| connections.contains_key(id);
    let carrier = if publishing.is_empty() { ids.iter().find(|id| ours(id)) } else { None };
    ids.iter().filter(|id| !ours(id) || publishing.contains(id.as_str()) || carrier == Some(id)).cloned().collect()
}

fn tokens(offer: &Offer, tools: &[Selected], catalog: &Catalog, of_meta: &Costs) -> (u64, u64) {
    let meta = |name: &str| u64::from(of_meta.get(name).copied().unwrap_or_default());
    let before =
        offer.tools(catalog).map(|tool| u64::from(tool.tokens)).sum::<u64>() + offer.meta.iter().map(|name| meta(name)).sum::<u64>();
    let after = tools.iter().map(|selected| match &selected.id {
        Some(id) => catalog.tool(id).map_or(0, |tool| u64::from(tool.tokens)),
        None => meta(&selected.name),
    });
    (before, after.sum())
}

impl From<TurnRole> for Role {
    fn from(role: TurnRole) -> Self {
        match role {
            TurnRole::User => Self::User,
            TurnRole::Assistant => Self::Assistant,
            TurnRole::Other => Self::System,
        }
    }
}
