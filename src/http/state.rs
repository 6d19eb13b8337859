//! The state that all routes share: the use cases and a few settings.

use std::sync::Arc;

use actix_web::http::header::HeaderValue;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::http::access_log::AccessLog;
use crate::http::admission::Admission;
use crate::http::body::Bodies;
use crate::http::console::session::ConsoleSessions;
use crate::http::mcp::Finished;
use crate::http::methods::Methods;
use crate::http::origin::Origins;
use crate::service::access::connections::Connections;
use crate::service::access::keys::Keys;
use crate::service::access::limits::Limits;
use crate::service::access::policies::Policies;
use crate::service::access::secrets::Secrets;
use crate::service::access::switches::Switches;
use crate::service::access::wrong_keys::WrongKeys;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::admin::EnrichmentAdmin;
use crate::service::catalog::status::Status;
use crate::service::catalog::tool_admin::ToolAdmin;
use crate::service::execution::execute::Execute;
use crate::service::execution::files::Files;
use crate::service::learning::learn::Learning;
use crate::service::mcp::mcp_sessions::McpSessions;
use crate::service::mcp::passthrough::Passthrough;
use crate::service::mcp::subscriptions::Subscriptions;
use crate::service::mcp::waiting_calls::WaitingCalls;
use crate::service::meta_tools::describe::Describe;
use crate::service::meta_tools::find::Find;
use crate::service::meta_tools::smart_select::SmartSelect;
use crate::service::ports::Tracer;
use crate::service::publishing::publish::Publish;
use crate::service::records::activity::Activity;
use crate::service::records::audit::Audit;
use crate::service::records::costs::CostReports;
use crate::service::records::feedback::Feedback;
use crate::service::records::metrics::Meters;
use crate::service::records::prometheus::PrometheusExport;
use crate::service::records::report::Report;
use crate::service::records::usage::Usage;
use crate::service::selection::message_selections::MessageSelections;
use crate::service::selection::offers::OfferCache;
use crate::service::selection::select::Select;
use crate::service::selection::trial::TextTrials;
use crate::service::servers::Servers;
use crate::service::sharing::SharedState;
use crate::service::toolsets::loading::Loading;
use crate::service::toolsets::sessions::Sessions;
use crate::service::toolsets::toolsets::Toolsets;
use crate::settings::MetricsSettings;

pub(crate) struct State {
    pub admission: Arc<Admission>,
    pub current: Arc<CurrentCatalog>,
    pub bodies: Bodies,
    pub origins: Origins,
    /// Proxies whose headers are trusted to contain clients' addresses.
    pub trusted_proxies: Vec<IpNet>,
    pub wrong_keys: WrongKeys,
    pub methods: Methods,
    pub policies: Arc<Policies>,
    pub publish: Publish,
    pub execute: Arc<Execute>,
    /// The files behind signed links; `None` if there is no public URL for such links.
    pub files: Option<Arc<Files>>,
    pub audit: Audit,
    pub keys: Arc<Keys>,
    /// What other services on the same store change.
    pub shared: Arc<SharedState>,
    /// The name of this process in responses.
    pub replica: HeaderValue,
    /// Who is signed in to the console.
    pub console: ConsoleSessions,
    pub secrets: Arc<Secrets>,
    /// What callers have switched off for themselves.
    pub switches: Arc<Switches>,
    pub connections: Arc<Connections>,
    pub find: Find,
    pub describe: Describe,
    /// The URL at which callers reach the service, for links.
    pub public_url: Option<String>,
    pub select: Arc<Select>,
    pub message_selections: MessageSelections,
    pub offers: OfferCache,
    pub sessions: Sessions,
    pub toolsets: Arc<Toolsets>,
    pub loading: Arc<Loading>,
    pub smart_select: SmartSelect,
    pub status: Status,
    /// Cancelled when the service begins to stop.
    pub draining: CancellationToken,
    pub enrichment: Arc<EnrichmentAdmin>,
    pub tool_admin: ToolAdmin,
    /// The servers that the API manages.
    pub servers: Arc<Servers>,
    pub metrics: MetricsSettings,
    pub meters: Arc<Meters>,
    pub access_log: AccessLog,
    /// Starts the traces of requests; `None` if traces are off.
    pub tracer: Option<Arc<dyn Tracer>>,
    pub prometheus: PrometheusExport,
    pub limits: Arc<Limits>,
    pub mcp_sessions: Arc<McpSessions>,
    /// Calls that are suspended until an MCP client has answered a question.
    pub waiting_calls: Arc<WaitingCalls<Finished>>,
    pub passthrough: Arc<Passthrough>,
    pub subscriptions: Arc<Subscriptions>,
    pub learning: Learning,
    pub feedback: Feedback,
    pub activity: Activity,
    pub text_trials: TextTrials,
    pub usage: Usage,
    pub report: Report,
    pub costs: CostReports,
}
