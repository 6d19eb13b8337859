//! Address sessions: creates and ends them, and finds them for every request to their address.
//!
//! They are in the store, so they survive a restart and all replicas share them. The cache has a short lifetime, because another
//! replica may end a session.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moka::future::Cache;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::selection::relevance::Role;
use crate::domain::selection::selection::Selected;
use crate::domain::text::similar::did_you_mean;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
use crate::domain::toolsets::session::{ID_BYTES, Session, SessionContents, SessionId};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{SessionCaps, SessionSaved, SessionStore, StoreError};
use crate::service::selection::request::{Offered, SelectRequest, Turn};
use crate::service::selection::select::Select;
use crate::service::supervision::Supervised;
use crate::service::write_behind;
use crate::settings::SessionSettings;

/// Maximum number of cached sessions.
const HELD: u64 = 10_000;
/// How long a session may stay in the cache after another replica has ended it.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Precision of the time of a session's last use.
const USED: Duration = Duration::from_mins(1);
/// Maximum number of sessions whose tools can be selected a second time. Further sessions keep their first selection.
const MOST_PARTIAL: u64 = 1_000;
/// Maximum number of queued uses.
const QUEUE: usize = 256;

/// Minimum lifetime of a session, in seconds.
pub(crate) const SHORTEST_TTL_SECONDS: usize = 1;

/// The tools to publish: those listed, plus a selection for the task. Listed toolsets and servers, if any, limit the selection.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewSession {
    pub toolsets: Vec<String>,
    pub servers: Vec<String>,
    /// Tools by published name or as `server/tool`.
    pub tools: Vec<String>,
    pub task: Option<String>,
    /// Maximum number of tools selected for the task.
    pub limit: Option<usize>,
    /// The mode for requests that name none. In `dynamic` mode, which can load tools, the session may start without tools.
    pub mode: DefaultMode,
    pub ttl: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// A property is invalid: `parameter`, if it is a single one.
    #[error("{reason}")]
    Invalid { parameter: Option<&'static str>, reason: String },
    #[error("the maximum number of sessions is reached (sessions.total)")]
    Full,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A created session with its tools.
pub(crate) struct Made {
    pub session: Arc<Session>,
    /// The published tools. Those selected for the task come first, best first.
    pub tools: Vec<Selected>,
    pub warnings: Vec<String>,
}

pub(crate) struct Sessions {
    current: Arc<CurrentCatalog>,
    select: Arc<Select>,
    store: Arc<dyn SessionStore>,
    settings: SessionSettings,
    held: Cache<SessionId, Arc<Session>>,
    /// Sessions whose use was recorded recently.
    noted: Cache<SessionId, ()>,
    used: mpsc::Sender<(SessionId, SystemTime)>,
    /// Sessions whose tools were selected before all tools had vectors.
    partial: Cache<SessionId, Arc<Partial>>,
}

/// The request that created such a session, for the second selection.
struct Partial {
    task: String,
    limit: Option<usize>,
    within: SessionContents,
    choosing: Mutex<()>,
}

impl Sessions {
    /// Starts to record the use of sessions, until `stop`.
    pub(crate) fn start(
        current: Arc<CurrentCatalog>,
        select: Arc<Select>,
        store: Arc<dyn SessionStore>,
        settings: SessionSettings,
        stop: CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (used, queue) = mpsc::channel(QUEUE);
        let noting = tokio::spawn(note_uses(Arc::clone(&store), queue, stop));
        let held = Cache::builder().max_capacity(HELD).time_to_live(REMEMBERED).support_invalidation_closures().build();
        let noted = Cache::builder().max_capacity(HELD).time_to_live(USED).build();
        let partial = Cache::builder().max_capacity(MOST_PARTIAL).time_to_live(settings.longest_ttl).build();
        (Self { current, select, store, settings, held, noted, used, partial }, noting)
    }

    /// Creates a session that belongs to this caller.
    pub(crate) async fn make(&self, new: NewSession, owner: &Principal) -> Result<Made, SessionError> {
        let ttl = self.ttl(&new)?;
        let task = new.task.as_deref().map(str::trim).filter(|task| !task.is_empty());
        let is_empty = task.is_none() && new.toolsets.is_empty() && new.servers.is_empty() && new.tools.is_empty();
        if is_empty && new.mode != DefaultMode::Named(Mode::Dynamic) {
            let reason = "name what the session publishes: toolsets, servers, tools or a task; only in mode `dynamic` it may begin empty";
            return Err(SessionError::Invalid { parameter: None, reason: reason.to_owned() });
        }
        let View { catalog, visibility, .. } = self.current.view(owner);
        let mut contents = read(&new, &catalog, &visibility)?;
        let (mut chosen, mut warnings, mut partial) = (Vec::new(), Vec::new(), None);
        if let Some(task) = task {
            let choice = self.choose(task, new.limit, &contents, owner, &catalog, &visibility).await;
            let of_choice = choice.contents(&contents, &catalog, &visibility);
            if choice.is_partial {
                let (task, limit) = (task.to_owned(), new.limit);
                partial = Some(Partial { task, limit, within: contents, choosing: Mutex::default() });
            }
            contents = of_choice;
            (chosen, warnings) = (choice.tools, choice.warnings);
        }
        let now = to_the_millisecond(SystemTime::now());
        let id = SessionId::of_bytes(rand::random::<[u8; ID_BYTES]>());
        let session = Session { id, owner: owner.id.clone(), contents, mode: new.mode, created_at: now, expires_at: now + ttl };
        let caps = SessionCaps { of_one: self.settings.per_caller, of_all: self.settings.total };
        match self.store.save_session(&session, caps).await? {
            SessionSaved::Full => return Err(SessionError::Full),
            SessionSaved::Saved { gone } => {
                if !gone.is_empty() {
                    let most = self.settings.per_caller;
                    warnings
                        .push(format!("you have {most} sessions, the maximum per caller, so the {} least recently used ended", gone.len()));
                }
                for id in gone {
                    self.held.invalidate(&id).await;
                }
            }
        }
        let session = Arc::new(session);
        self.held.insert(session.id.clone(), Arc::clone(&session)).await;
        if let Some(partial) = partial {
            self.partial.insert(session.id.clone(), Arc::new(partial)).await;
        }
        let mut tools = chosen;
        for tool in published(&session, &catalog, &visibility) {
            if !tools.iter().any(|known| known.id.as_ref() == Some(&tool.id)) {
                tools.push(Selected::named(tool));
            }
        }
        Ok(Made { session, tools, warnings })
    }

    /// How long a new session lasts.
    fn ttl(&self, new: &NewSession) -> Result<Duration, SessionError> {
        let ttl = new.ttl.unwrap_or(self.settings.ttl);
        if ttl < Duration::from_secs(SHORTEST_TTL_SECONDS as u64) || ttl > self.settings.longest_ttl {
            let reason = format!("ttl_seconds is {SHORTEST_TTL_SECONDS} to {}", self.settings.longest_ttl.as_secs());
            return Err(SessionError::Invalid { parameter: Some("ttl_seconds"), reason });
        }
        Ok(ttl)
    }

    /// Finds a session that belongs to this caller and has not expired. Records its use.
    pub(crate) async fn find(&self, id: &str, caller: &Principal) -> Result<Option<Arc<Session>>, StoreError> {
        let Some(id) = SessionId::read(id) else { return Ok(None) };
        let session = if let Some(session) = self.held.get(&id).await {
            session
        } else {
            let Some(session) = self.store.session(&id).await?.map(Arc::new) else { return Ok(None) };
            self.held.insert(id.clone(), Arc::clone(&session)).await;
            session
        };
        let now = SystemTime::now();
        if !session.is_for(&caller.id, now) {
            return Ok(None);
        }
        if self.noted.get(&id).await.is_none() {
            self.noted.insert(id.clone(), ()).await;
            // If the queue is full, the use is not recorded.
            let _ = self.used.try_send((id, now));
        }
        self.chosen_again(session, caller).await.map(Some)
    }

    /// If the session's selection was partial and all tools now have vectors, selects its tools again. Otherwise returns it
    /// unchanged.
    async fn chosen_again(&self, session: Arc<Session>, owner: &Principal) -> Result<Arc<Session>, StoreError> {
        let Some(partial) = self.partial.get(&session.id).await else { return Ok(session) };
        let View { catalog, visibility, .. } = self.current.view(owner);
        if !self.select.is_complete(&catalog) {
            return Ok(session);
        }
        let _one = partial.choosing.lock().await;
        if self.partial.get(&session.id).await.is_none() {
            return Ok(self.held.get(&session.id).await.unwrap_or(session));
        }
        let choice = self.choose(&partial.task, partial.limit, &partial.within, owner, &catalog, &visibility).await;
        if choice.is_partial {
            return Ok(session);
        }
        let contents = choice.contents(&partial.within, &catalog, &visibility);
        self.store.save_session_contents(&session.id, &contents).await?;
        let session = Arc::new(Session { contents, ..Session::clone(&session) });
        self.held.insert(session.id.clone(), Arc::clone(&session)).await;
        self.partial.invalidate(&session.id).await;
        Ok(session)
    }

    /// This caller's sessions, in order of creation.
    pub(crate) async fn of(&self, caller: &Principal) -> Result<Vec<Session>, StoreError> {
        self.store.sessions(Some(&caller.id), SystemTime::now()).await
    }

    /// The sessions of one owner or of all, in order of creation.
    pub(crate) async fn all(&self, owner: Option<&PrincipalId>) -> Result<Vec<Session>, StoreError> {
        self.store.sessions(owner, SystemTime::now()).await
    }

    /// Ends a session of this caller. Returns whether there was one.
    pub(crate) async fn end(&self, id: &str, caller: &Principal) -> Result<bool, StoreError> {
        match self.find(id, caller).await? {
            Some(session) => self.end_any(session.id.as_str()).await,
            None => Ok(false),
        }
    }

    /// The owner of a session; `None` if the session does not exist.
    pub(crate) async fn owner(&self, id: &str) -> Result<Option<PrincipalId>, StoreError> {
        let Some(id) = SessionId::read(id) else { return Ok(None) };
        Ok(self.store.session(&id).await?.filter(|session| session.expires_at > SystemTime::now()).map(|session| session.owner))
    }

    /// Ends a session of any caller. Returns whether there was one.
    pub(crate) async fn end_any(&self, id: &str) -> Result<bool, StoreError> {
        let Some(id) = SessionId::read(id) else { return Ok(false) };
        let removed = self.store.remove_session(&id).await?;
        self.held.invalidate(&id).await;
        Ok(removed)
    }

    /// Drops an owner's sessions from the cache after they were deleted from the store.
    pub(crate) fn forget(&self, owner: &PrincipalId) {
        let owner = owner.clone();
        if self.held.invalidate_entries_if(move |_, session| session.owner == owner).is_err() {
            self.held.invalidate_all();
        }
    }

    /// Selects tools for a task, best first, with the same retrieval and cut as for a message.
    async fn choose(
        &self,
        task: &str,
        limit: Option<usize>,
        within: &SessionContents,
        owner: &Principal,
        catalog: &Catalog,
        visibility: &Visibility,
    ) -> Choice {
        let is_everything = within.toolsets.is_empty() && within.servers.is_empty();
        let pool = catalog.visible(visibility).filter(|tool| is_everything || within.contain(tool, &visibility.assigned));
        let offered = pool.map(|tool| Offered { name: tool.operation_id.to_string(), description: None }).collect();
        let turn = Turn { role: Role::User, text: task.to_owned(), called: Vec::new() };
        let request = SelectRequest { turns: vec![turn], offered: Some(offered), limit, ..SelectRequest::default() };
        let selection = self.select.select(request, owner).await;
        let tools = selection.tools.into_iter().filter(|selected| selected.id.is_some()).collect();
        Choice { tools, warnings: selection.warnings, is_partial: selection.is_partial }
    }
}

struct Choice {
    /// The selected tools, best first.
    tools: Vec<Selected>,
    warnings: Vec<String>,
    /// Whether more tools may match once all of them have vectors.
    is_partial: bool,
}

impl Choice {
    /// The contents of the session: the selected tools and the always-on tools. Toolsets and servers only limited the selection.
    fn contents(&self, within: &SessionContents, catalog: &Catalog, visibility: &Visibility) -> SessionContents {
        let mut tools = within.tools.clone();
        let always = within.toolsets.iter().filter_map(|name| visibility.assigned.toolset(name)).flat_map(|members| &members.always);
        tools.extend(always.filter_map(|name| Some(catalog.operation(name.as_str())?.id.clone())));
        tools.extend(self.tools.iter().filter_map(|selected| selected.id.clone()));
        SessionContents { tools, ..SessionContents::default() }
    }
}

fn published<'a>(session: &'a Session, catalog: &'a Catalog, visibility: &'a Visibility) -> impl Iterator<Item = &'a Arc<Tool>> {
    catalog.visible(visibility).filter(|tool| session.contents.contain(tool, &visibility.assigned))
}

/// Reads the listed items that the caller sees at least partly. Hidden items cause the same error as unknown ones.
fn read(new: &NewSession, catalog: &Catalog, visibility: &Visibility) -> Result<SessionContents, SessionError> {
    let visible: Vec<&Arc<Tool>> = catalog.visible(visibility).collect();
    let (mut problems, mut parameters) = (Vec::new(), BTreeSet::new());
    let mut problem = |parameter: &'static str, kind: &str, name: &str, known: &mut dyn Iterator<Item = &str>| {
        let meant = did_you_mean(name, known);
        problems.push(format!("there is no {kind} `{name}`{meant}"));
        parameters.insert(parameter);
    };
    let mut contents = SessionContents::default();
    for name in &new.toolsets {
        let toolset = ToolsetName::from(name.as_str());
        if visible.iter().any(|tool| visibility.assigned.is_in(&toolset, tool)) {
            contents.toolsets.insert(toolset);
        } else {
            let known: BTreeSet<&ToolsetName> = visible.iter().flat_map(|tool| visibility.assigned.toolsets_of(tool)).collect();
            problem("toolsets", "toolset", name, &mut known.into_iter().map(ToolsetName::as_str));
        }
    }
    for name in &new.servers {
        if visible.iter().any(|tool| tool.id.server.as_str() == name) {
            contents.servers.insert(ServerName::from(name.as_str()));
        } else {
            let known: BTreeSet<&str> = visible.iter().map(|tool| tool.id.server.as_str()).collect();
            problem("servers", "server", name, &mut known.into_iter());
        }
    }
    for name in &new.tools {
        let is_meant =
            |tool: &ToolId| name.split_once('/').is_some_and(|(server, rest)| tool.server.as_str() == server && *tool.name == *rest);
        match visible.iter().find(|tool| tool.operation_id.as_str() == name || is_meant(&tool.id)) {
            Some(tool) => {
                contents.tools.insert(tool.id.clone());
            }
            None => problem("tools", "tool", name, &mut visible.iter().map(|tool| tool.operation_id.as_str())),
        }
    }
    if problems.is_empty() {
        return Ok(contents);
    }
    let parameter = parameters.first().copied().filter(|_| parameters.len() == 1);
    Err(SessionError::Invalid { parameter, reason: problems.join("; ") })
}

/// Rounds a time to the store's precision, so that it equals the value read back.
fn to_the_millisecond(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or_default())
}

async fn note_uses(store: Arc<dyn SessionStore>, mut queue: mpsc::Receiver<(SessionId, SystemTime)>, stop: CancellationToken) {
    let mut part = Supervised::new("use of sessions");
    while part.panicked(note(store.as_ref(), &mut queue, &stop)).await {}
}

async fn note(store: &dyn SessionStore, queue: &mut mpsc::Receiver<(SessionId, SystemTime)>, stop: &CancellationToken) {
    while let Some((id, at)) = write_behind::next(queue, stop).await {
        if let Err(error) = store.touch_session(&id, at).await {
            tracing::warn!(error = %error, "the use of a session was not recorded");
        }
    }
}
