//! What the routes share: the use cases and a few settings.

use std::sync::Arc;

use crate::http::caller::Access;
use crate::service::enrich::admin::EnrichmentAdmin;
use crate::service::execute::Execute;
use crate::service::files::Files;
use crate::service::meta::Meta;
use crate::service::publish::Publish;
use crate::service::select::Select;
use crate::service::smart_select::SmartSelect;
use crate::service::status::Status;

pub struct State {
    pub access: Access,
    /// Largest request body in bytes.
    pub body_limit: usize,
    pub publish: Publish,
    pub execute: Arc<Execute>,
    /// `None`: there is no address for links.
    pub files: Option<Arc<Files>>,
    pub meta: Meta,
    pub select: Select,
    pub smart_select: SmartSelect,
    pub status: Status,
    pub enrichment: EnrichmentAdmin,
}
