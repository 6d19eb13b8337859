//! Selects the offered functions that stay for a message.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::domain::access::principal::{Principal, PrincipalKind};
use crate::domain::access::switches::UserSwitch;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::publishing::meta_tools::MetaTool;
use crate::domain::records::conversation::Conversation;
use crate::domain::selection::builtins::{Families, Family};
use crate::domain::selection::chat::{ChatKey, ChatSet, Wanted};
use crate::domain::selection::experiment::{Arm, Mode};
use crate::domain::selection::explanation::Explanation;
use crate::domain::selection::selection::{Reason, Selected, Selection, Shadow};
use crate::service::access::switches::Switches;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{OfferedTools, SelectionEvent, SelectionEventKind, ToolIndex};
use crate::service::publishing::meta_tokens::MetaTokens;
use crate::service::records::metrics::{Meters, SelectionFigures, SelectionKind};
use crate::service::records::record::Recorder;
use crate::service::selection::builtins::{BuiltinFamilies, BuiltinTexts};
use crate::service::selection::chats::{Chats, Updated, over_budget};
use crate::service::selection::choose::{ChatParameters, Choose, Chosen, Message};
use crate::service::selection::compose::Composition;
use crate::service::selection::explain::Trace;
use crate::service::selection::judges::Judges;
use crate::service::selection::offer::{Offer, run_tool};
use crate::service::selection::request::SelectRequest;
use crate::service::selection::retrieve::Retrieve;
use crate::service::spans;
use crate::settings::SelectionSettings;

/// Maximum number of removed tools that a warning names.
const MOST_DROPPED: usize = 10;

pub struct Select {
    current: Arc<CurrentCatalog>,
    choose: Choose,
    chats: Chats,
    recorder: Recorder,
    meta_tokens: Arc<MetaTokens>,
    switches: Option<Arc<Switches>>,
}

impl Select {
    pub fn new(
        current: Arc<CurrentCatalog>,
        retrieve: Arc<Retrieve>,
        judges: Arc<Judges>,
        chats: Chats,
        recorder: Recorder,
        meta_tokens: MetaTokens,
    ) -> Self {
        let choose = Choose { retrieve, judges, of_chats: ChatParameters::default() };
        Self { current, choose, chats, recorder, meta_tokens: Arc::new(meta_tokens), switches: None }
    }

    /// Keeps all tools for callers that have switched the selection off for themselves.
    #[must_use]
    pub fn with_switches(self, switches: Arc<Switches>) -> Self {
        Self { switches: Some(switches), ..self }
    }

    /// Whether a selection from this catalog is final, because all tools have vectors.
    pub fn is_complete(&self, catalog: &Catalog) -> bool {
        self.choose.retrieve.is_complete(catalog)
    }

    /// Tokens (cl100k) of the search tool, which every message keeps, in the view of this caller.
    pub(crate) fn search_tokens(&self, principal: &Principal) -> u64 {
        let View { catalog, visibility, .. } = self.current.view(principal);
        self.meta_tokens.of(&catalog, &visibility).get(MetaTool::FindTools.name()).copied().map_or(0, u64::from)
    }

    /// Selects tools for the user's last message. Always returns a selection; an outage only adds warnings.
    pub async fn select(&self, request: SelectRequest, principal: &Principal) -> Selection {
        let view = self.current.view(principal);
        self.run(request, principal, &view, None).await
    }

    /// Selects as [`Self::select`] does, perhaps with other settings, and explains the selection. Records nothing and changes no chat.
    pub async fn explain(
        &self,
        request: SelectRequest,
        principal: &Principal,
        change: impl FnOnce(&mut SelectionSettings),
    ) -> (Selection, Explanation) {
        let mut view = self.current.view(principal);
        change(Arc::make_mut(&mut view.settings));
        self.explain_in(request, principal, view).await
    }

    /// Explains the selection in a view that need not be the current one.
    pub(super) async fn explain_in(&self, request: SelectRequest, principal: &Principal, view: View) -> (Selection, Explanation) {
        let trace = Mutex::default();
        let selection = self.run(request, principal, &view, Some(&trace)).await;
        let explanation = trace.into_inner().explanation(&view.catalog);
        (selection, explanation)
    }

    /// The same with another index. It counts in no metrics.
    pub(super) fn trying(&self, index: Arc<dyn ToolIndex>) -> Self {
        let choose = Choose {
            retrieve: Arc::new(self.choose.retrieve.with_index(index)),
            judges: Arc::clone(&self.choose.judges),
            of_chats: self.choose.of_chats,
        };
        Self {
            current: Arc::clone(&self.current),
            choose,
            chats: self.chats.clone(),
            recorder: self.recorder.clone(),
            meta_tokens: Arc::clone(&self.meta_tokens),
            switches: self.switches.clone(),
        }
    }

    async fn run(&self, request: SelectRequest, principal: &Principal, view: &View, trace: Option<&Mutex<Trace>>) -> Selection {
        let started = Instant::now();
        let running = Running { meters: self.recorder.meters(), started, counts: trace.is_none() };
        let mut offer = Offer::of(&request, &self.current, principal, view);
        let mut warnings = std::mem::take(&mut offer.warnings);
        let called = called(request.turns.iter().flat_map(|turn| turn.called.iter().map(String::as_str)), &offer, view);
        let message = Message { request: &request, principal, view, offer: &offer, called: &called, trace };

        let is_small = is_small(&message);
        let (whole, arm) = self.whole(&message, is_small);
        let is_static = matches!(whole, Some(Whole::Static | Whole::SwitchedOff));
        let chosen = match (is_static && trace.is_none(), is_small) {
            (true, _) => Chosen::nothing(),
            (false, true) => self.choose.among_small(&message).await,
            (false, false) => self.choose.choose(&message).await,
        };
        let found = found(&message);
        let builtins = if is_static { BuiltinFamilies::default() } else { self.builtins(&message).await };
        let Updated { set, dropped, warning } = self.update_chat(&message, &chosen, &found).await;

        let mut narrowed = Composition::new(message);
        narrowed.add_fixed();
        if is_small {
            // Before the chat's tools, so that calls don't change the order.
            narrowed.add_running();
            narrowed.add_ours(&Reason::Small);
        }
        narrowed.add_chat(&set, &chosen, &found);
        narrowed.add_kept();
        // Needed to run tools that are not offered: if none of ours is, or if some are not loaded yet.
        if offer.ours.is_empty() || is_static || offer.meta.contains(&MetaTool::LoadToolset) {
            narrowed.add_running();
        }
        narrowed.add_foreign(&chosen);
        narrowed.add_builtins(&builtins.needed, &Reason::MayNeed);
        narrowed.add_builtins(&builtins.staying, &Reason::OfferedBefore);
        narrowed.add_builtins(&builtins.searched, &Reason::Found);
        if let Some(trace) = trace {
            trace.lock().selected(&narrowed.tools);
        }
        let costs = self.meta_tokens.of(&view.catalog, &view.visibility);
        let (tokens_before, tokens_narrowed) = narrowed.tokens(&costs);
        let shadow = (whole == Some(Whole::Shadow)).then(|| Shadow { tools: narrowed.tools.clone(), tokens_after: tokens_narrowed });
        let (answer, tokens_after) = match whole {
            None => (narrowed, tokens_narrowed),
            Some(whole) => {
                let all = narrowed.with_all(&set, &found, &whole.reason());
                let tokens = all.tokens(&costs).1;
                if let Some(trace) = trace.filter(|_| whole == Whole::SwitchedOff) {
                    trace.lock().selected(&all.tools);
                }
                (all, tokens)
            }
        };

        let gone = no_longer_offered(&message, &dropped, &answer);
        warnings.splice(0..0, warning.into_iter().chain(gone).chain(chosen.warnings.iter().cloned()));
        let tools = answer.tools.iter().filter_map(|selected| selected.id.as_ref());
        warnings.extend(self.choose.retrieve.down_warnings(tools.clone()));
        let figures = SelectionFigures {
            kind: whole.map_or(chosen.kind, Whole::kind),
            took: started.elapsed(),
            tools_before: offer.ours.len(),
            tools_after: tools.count(),
            tokens_before,
            tokens_after,
        };
        let id = Uuid::now_v7().to_string();
        running.end();
        if trace.is_none() {
            let recorded = shadow.as_ref().map_or(&answer.tools, |shadow| &shadow.tools);
            self.record(&id, &message, &chosen, recorded, &figures, arm.filter(|_| whole != Some(Whole::Shadow)));
        }
        let keeps_all = figures.kind.keeps_all();
        Selection {
            id,
            tool_ids: if is_small || whole.is_some() { request.tool_ids.clone() } else { answer.tool_ids() },
            keeps_all,
            needs_tool: whole.is_some() || chosen.needs_tool || !builtins.needed.is_empty(),
            is_partial: chosen.is_partial,
            tools: answer.tools,
            disclosed: answer.disclosed,
            tokens_before,
            tokens_after,
            shadow,
            warnings,
            took: figures.took,
        }
    }

    /// Why all tools stay, if they do, and the chat's arm of the experiment.
    fn whole(&self, message: &Message<'_>, is_small: bool) -> (Option<Whole>, Option<Arm>) {
        let Message { principal, view, .. } = *message;
        let is_off = self.switches.as_ref().is_some_and(|switches| switches.is_off(&principal.id, UserSwitch::Narrowing));
        // If all tools stay anyway, the chat says nothing about the effect of the selection.
        let arm = Some(view.settings.share).filter(|_| !is_small && !is_off).and_then(|share| Arm::of(subject(message)?, share));
        let whole = match (view.settings.mode, arm) {
            _ if is_off => Some(Whole::SwitchedOff),
            (Mode::Shadow, _) => Some(Whole::Shadow),
            (Mode::On, Some(Arm::Static)) => Some(Whole::Static),
            (Mode::On, _) => None,
        };
        (whole, arm)
    }

    /// The families of Open WebUI's own tools that stay. A family stays as a whole if the chat called one of its tools, or if the
    /// caller keeps one.
    async fn builtins(&self, message: &Message<'_>) -> BuiltinFamilies {
        let Message { request, offer, .. } = *message;
        if offer.builtins.is_empty() {
            return BuiltinFamilies::default();
        }
        let all = Families::all();
        let called = request.turns.iter().flat_map(|turn| &turn.called);
        let stay = called.chain(&offer.foreign).filter_map(|name| all.of_function(name)).collect();
        let BuiltinFamilies { mut needed, mut staying, mut searched } = self.choose.retrieve.builtins(&BuiltinTexts::of(request)).await;
        let offered: BTreeSet<Family> = offer.builtins.iter().map(|(_, family)| *family).collect();
        needed.retain(|family| offered.contains(family));
        staying.extend(all.with_needed(stay));
        staying.retain(|family| !needed.contains(family));
        searched.retain(|family| !needed.contains(family) && !staying.contains(family));
        BuiltinFamilies { needed, staying, searched }
    }

    /// Updates the chat's set. Without a chat id, the set consists of the called tools and the new ones.
    async fn update_chat(&self, message: &Message<'_>, chosen: &Chosen, found: &[ToolId]) -> Updated {
        let Message { request, principal, view, offer, called, trace } = *message;
        let ids = |positions: &[u32]| -> Vec<ToolId> {
            positions.iter().map(|&position| view.catalog.tools()[position as usize].id.clone()).collect()
        };
        let (new, one_of) = ([ids(&chosen.tools).as_slice(), found].concat(), ids(&chosen.one_of));
        let all_of = [ids(&chosen.all_of).as_slice(), found].concat();
        let budget = view.settings.chat_budget;
        let Some(chat) = &request.chat else {
            let mut set = ChatSet::default();
            // What was called for this message comes last, where it doesn't move the others.
            let (earlier, now) = called.split_at(called.len() - self::called(request.called_now(), offer, view).len());
            set.update(&[], earlier, budget);
            set.update(&new, &[], usize::MAX);
            set.update(&[], now, usize::MAX);
            return Updated { set, dropped: Vec::new(), warning: None };
        };
        // While a message is being answered, tools are only added. The next one makes room.
        let budget = if request.called_now().next().is_some() { usize::MAX } else { budget };
        let key = ChatKey::of(principal, chat);
        let wanted = Wanted { offered: &new, one_of: &one_of, all_of: &all_of };
        match trace {
            None => self.chats.take(&key, &wanted, called, budget).await,
            Some(_) => self.chats.preview(&key, &wanted, called, budget).await,
        }
    }

    fn record(&self, id: &str, message: &Message<'_>, chosen: &Chosen, kept: &[Selected], figures: &SelectionFigures, arm: Option<Arm>) {
        let Message { request, principal, view, offer, .. } = *message;
        tracing::debug!(
            selection = id,
            offered = offer.ours.len(),
            kept = kept.len(),
            tokens_before = figures.tokens_before,
            tokens_after = figures.tokens_after,
            took_us = figures.took.as_micros(),
            "selection"
        );
        self.recorder.meters().selection(figures);
        spans::note("toolsieve.selection.kind", figures.kind.name());
        spans::note("toolsieve.tools.before", figures.tools_before);
        spans::note("toolsieve.tools.after", figures.tools_after);
        spans::note("toolsieve.tokens.before", figures.tokens_before);
        spans::note("toolsieve.tokens.after", figures.tokens_after);
        let tools = kept.iter().filter_map(|selected| selected.id.clone());
        let event = SelectionEvent {
            at: SystemTime::now(),
            selection: Some(id.to_owned()),
            principal: principal.id.as_str().to_owned(),
            key: principal.key_id().map(str::to_owned),
            chat: request.chat.clone(),
            conversation: request.chat.as_deref().map(Conversation::chat),
            attribution: self.recorder.attribution(principal),
            kind: SelectionEventKind::Offered {
                message: self.recorder.message(&chosen.message),
                tools: if figures.kind.records_all() { OfferedTools::all(tools.collect()) } else { tools.collect() },
                tokens_before: figures.tokens_before,
                tokens_after: figures.tokens_after,
                tokens_saved: figures.tokens_saved(),
                model: request.model.clone(),
                arm,
            },
        };
        let of_chat = (principal, request.chat.as_deref());
        let first = chosen.tools.first().map(|&position| view.catalog.tools()[position as usize].id.clone());
        let tools = view.catalog.tools();
        let rivals = chosen.plain.iter().map(|&(position, score)| (tools[position as usize].id.clone(), score)).collect();
        let lesson = self.recorder.lesson(of_chat, (id, chosen.vector.as_deref(), chosen.leans), (first, rivals));
        self.recorder.record_selection(event, principal, (request.message.as_deref(), lesson));
    }
}

/// A selection that has not ended. If it is dropped before, the caller has disconnected.
struct Running<'a> {
    meters: &'a Meters,
    started: Instant,
    counts: bool,
}

impl Running<'_> {
    fn end(mut self) {
        self.counts = false;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.meters.selection_abandoned(self.started);
        }
    }
}

/// Why all tools stay although the selection would leave some out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// The caller belongs to the static arm.
    Static,
    /// The selection is only recorded.
    Shadow,
    /// The caller has switched the selection off for itself.
    SwitchedOff,
}

impl Whole {
    fn reason(self) -> Reason {
        match self {
            Self::Static => Reason::StaticArm,
            Self::Shadow => Reason::Shadow,
            Self::SwitchedOff => Reason::SwitchedOff,
        }
    }

    fn kind(self) -> SelectionKind {
        match self {
            Self::Static => SelectionKind::Static,
            Self::Shadow => SelectionKind::Shadow,
            Self::SwitchedOff => SelectionKind::SwitchedOff,
        }
    }
}

/// What is assigned to an arm as a whole: the user or, if the caller is not a user, the chat.
fn subject<'a>(message: &Message<'a>) -> Option<&'a str> {
    let Message { request, principal, .. } = *message;
    match principal.kind {
        PrincipalKind::User => Some(principal.id.as_str()),
        _ => request.chat.as_deref(),
    }
}

/// Whether the definitions of all offered tools of ours are small enough to show them with every message.
fn is_small(message: &Message<'_>) -> bool {
    let Message { request, view: View { catalog, settings, .. }, offer, .. } = *message;
    let Some(most) = settings.narrow_above else { return false };
    let most = request.token_budget.or(settings.token_budget).map_or(most, |budget| most.min(budget));
    let mut left = most as u64;
    // No definition has zero tokens: those were not counted. The first tools show it if there are too many.
    !offer.ours.is_empty()
        && catalog.tokens_of(&offer.ours).all(|tokens| {
            let rest = left.checked_sub(u64::from(tokens)).filter(|_| tokens > 0);
            left = rest.unwrap_or_default();
            rest.is_some()
        })
}

/// Tools that these functions are, in order of the calls. This is also the order in which they stay.
fn called<'a>(names: impl Iterator<Item = &'a str>, offer: &Offer, view: &View) -> Vec<ToolId> {
    let runs_found = offer.meta.contains(&MetaTool::RunTool);
    let called = names.filter_map(|name| {
        // After a search, `run_tool` is needed to run the found tools. From now on, this is its position.
        let is_search = runs_found && name == MetaTool::FindTools.name();
        if is_search { Some(run_tool()) } else { view.operation(name).map(|tool| tool.id.clone()) }
    });
    called.collect()
}

/// The warning about tools that left the chat's set. It leaves out those that the caller may no longer see, and those that stay for
/// another reason, such as pinned ones.
fn no_longer_offered(message: &Message<'_>, dropped: &[ToolId], answer: &Composition<'_>) -> Option<String> {
    let Message { view, .. } = *message;
    let gone = dropped.iter().filter(|id| !answer.holds(id)).filter_map(|id| view.tool(id));
    over_budget(view.settings.chat_budget, MOST_DROPPED, gone.map(|tool| tool.operation_id.to_string()).collect())
}

/// Tools that the model found, and that are offered or that an offered meta-tool can run for this caller.
fn found(message: &Message<'_>) -> Vec<ToolId> {
    let Message { request, view, offer, .. } = *message;
    let named = request.disclose.iter().flatten().filter_map(|name| view.operation(name));
    let is_within_reach =
        |tool: &&Arc<Tool>| offer.position(&tool.id, &view.catalog).is_some() || offer.disclose(tool, &view.visibility.assigned).is_some();
    named.filter(is_within_reach).map(|tool| tool.id.clone()).collect()
}
