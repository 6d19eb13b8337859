//! The ports: what use cases need from the outside.
//!
//! `adapters` implements them; use cases hold them as `Arc<dyn _>`.

mod audit;
mod authorization;
mod embedder;
mod enricher;
mod events;
mod exchange;
mod files;
mod index;
mod judge;
mod limit;
mod process;
mod servers;
mod spool;
mod store;
mod tracer;

pub use self::audit::{AuditAction, AuditEntry, AuditQuery, StoredAuditEntry};
pub use self::authorization::{
    AuthorizationClient, AuthorizationError, AuthorizationServer, ClientMethod, OAuthClient, TokenAnswer, TokenRequest,
};
pub use self::embedder::{EmbedError, Embedder, recovered};
pub use self::enricher::{EnrichError, Enricher};
pub use self::events::{
    CallOutcome, EventMessage, EventQuery, OfferedTools, SelectionEvent, SelectionEventKind, SelectionName, StoredEvent, StoredEventKind,
};
pub use self::exchange::{Answered, Exchange, ExchangeTokens};
pub use self::files::{FileStore, FileStoreError, StoredFile};
pub use self::index::{
    Coverage, IndexAnswer, IndexCandidate, IndexContents, IndexDocument, IndexError, IndexQuery, IndexQueryText, IndexServer,
    IndexServerScore, IndexState, QdrantState, ToolIndex,
};
pub use self::judge::{Advisor, Judge, JudgeError};
pub use self::limit::Limit;
pub use self::process::{DiskSpace, ProcessState};
pub use self::servers::{
    CallContext, CallError, Credentials, LogLine, NewsKind, Offers, Parting, PassthroughKind, PassthroughRequest, Progress, Refusal, Round,
    ServerChange, ServerChangeKind, ServerEvent, ServerMessage, ServerNews, ServerPhase, ServerQuestion, ServerState, SignInToken,
    ToolServers,
};
pub use self::spool::{Spool, SpoolError, SpoolSegment, SpoolState};
pub use self::store::{
    AuditStore, CLOCK_SKEW, CalledInChat, ChangeStore, ChatStore, ComputedStore, ConnectVisit, ConnectionStore, DefinitionStore,
    EarlierUse, EnrichmentStore, EventStore, FeedbackStore, FilledCall, FollowedName, Forgotten, KeyStore, LeaderStore, LearnedUse,
    LearningStore, ListingStore, Overwrites, PendingSignIn, PolicyStore, RateKey, RateReport, RateStore, SecretStore, ServerStore,
    SessionCaps, SessionSaved, SessionStore, SharedRate, SharedRates, StateChange, StatePart, StateVersions, Store, StoreError,
    StoreFailures, StoredChat, StoredConnection, StoredDefinition, StoredPolicy, StoredScope, StoredSecret, StoredServer,
    StoredToolOverride, SwitchStore, ToolOverrideStore, ToolsetStore, Unfollowed, UpkeepStore, UsageStore, VisitCaller, VisitKey,
};
pub use self::tracer::{Span, SpanKind, SpanValue, TraceContext, Tracer};
pub use crate::domain::catalog::catalog::{ServerListing, SkippedTool};
pub use crate::domain::records::conversation_figures::{
    ArmFigures, ConversationCounts, ConversationFigures, ConversationQuery, ConversationReport,
};
pub use crate::domain::records::costs::{AnswerTokens, Attribution, CostCounts, CostRow, CostScope, Purpose};
pub use crate::domain::records::feedback::{Feedback, Verdict};
pub use crate::domain::records::usage::{DayUsage, MessageCounts, ToolCounts, ToolUsage, Usage, UsageQuery};
