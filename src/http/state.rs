//! What the routes share: the use cases and a few settings.

use std::sync::Arc;

use ipnet::IpNet;

use crate::http::body::Bodies;
use crate::http::caller::Admission;
use crate::http::mcp::Finished;
use crate::http::methods::Methods;
use crate::http::origin::Origins;
use crate::service::audit::Audit;
use crate::service::current::CurrentCatalog;
use crate::service::describe::Describe;
use crate::service::enrich::admin::EnrichmentAdmin;
use crate::service::execute::Execute;
use crate::service::exposition::Exposition;
use crate::service::feedback::Feedback;
use crate::service::files::Files;
use crate::service::find::Find;
use crate::service::keys::Keys;
use crate::service::limits::Limits;
use crate::service::loading::Loading;
use crate::service::mcp_sessions::McpSessions;
use crate::service::message_selections::MessageSelections;
use crate::service::meters::Meters;
use crate::service::offers::Offers;
use crate::service::passthrough::Passthrough;
use crate::service::policies::Policies;
use crate::service::publish::Publish;
use crate::service::report::Report;
use crate::service::secrets::Secrets;
use crate::service::select::Select;
use crate::service::sessions::Sessions;
use crate::service::smart_select::SmartSelect;
use crate::service::status::Status;
use crate::service::subscriptions::Subscriptions;
use crate::service::tool_admin::ToolAdmin;
use crate::service::toolsets::Toolsets;
use crate::service::usage::Usage;
use crate::service::waiting_calls::WaitingCalls;
use crate::service::wrong_keys::WrongKeys;
use crate::settings::MetricsSettings;

pub struct State {
    pub admission: Arc<Admission>,
    pub current: Arc<CurrentCatalog>,
    pub bodies: Bodies,
    pub origins: Origins,
    /// Whose word on the addresses of clients is believed.
    pub trusted_proxies: Vec<IpNet>,
    pub wrong_keys: WrongKeys,
    pub methods: Methods,
    pub policies: Arc<Policies>,
    pub publish: Publish,
    pub execute: Arc<Execute>,
    /// `None`: there is no address for links.
    pub files: Option<Arc<Files>>,
    pub audit: Audit,
    pub keys: Arc<Keys>,
    pub secrets: Arc<Secrets>,
    pub find: Find,
    pub describe: Describe,
    /// The address under which callers reach this service, for links.
    pub public_url: Option<String>,
    pub select: Arc<Select>,
    pub message_selections: MessageSelections,
    pub offers: Offers,
    pub sessions: Sessions,
    pub toolsets: Arc<Toolsets>,
    pub loading: Arc<Loading>,
    pub smart_select: SmartSelect,
    pub status: Status,
    pub enrichment: EnrichmentAdmin,
    pub tool_admin: ToolAdmin,
    pub metrics: MetricsSettings,
    pub meters: Arc<Meters>,
    pub exposition: Exposition,
    pub limits: Arc<Limits>,
    pub mcp_sessions: Arc<McpSessions>,
    /// Of MCP clients that are asked something.
    pub waiting_calls: Arc<WaitingCalls<Finished>>,
    pub passthrough: Arc<Passthrough>,
    pub subscriptions: Arc<Subscriptions>,
    pub feedback: Feedback,
    pub usage: Usage,
    pub report: Report,
}
