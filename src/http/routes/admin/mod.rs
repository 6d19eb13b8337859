//! What administrators look at and change.

pub mod audit;
pub mod enrichment;
pub mod keys;
pub mod policy;
pub mod report;
pub mod secrets;
pub mod servers;
pub mod sessions;
pub mod tools;
pub mod toolsets;
pub mod usage;

use std::time::SystemTime;

use actix_web::HttpRequest;
use actix_web::http::header;
use jiff::Timestamp;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::http::problem::{Code, Problem};

pub fn configure(config: &mut ServiceConfig<'_>) {
    config.service(keys::create).service(keys::list).service(keys::rotate).service(keys::revoke);
    config.service(policy::show).service(policy::replace).service(policy::check).service(audit::find);
    config.service(sessions::list).service(sessions::end);
    config.service(toolsets::list).service(toolsets::show).service(toolsets::replace).service(toolsets::remove);
    config.service(secrets::forget);
    config.service(usage::show).service(report::show);
    config.service(enrichment::list).service(enrichment::show).service(enrichment::replace).service(enrichment::remove);
    // Before the tool of any name.
    config.service(tools::list).service(tools::duplicates).service(tools::approve);
    config.service(tools::show).service(tools::replace).service(tools::remove).service(servers::list);
}

/// RFC 3339, to the second, in universal time.
pub fn time(at: SystemTime) -> String {
    format!("{:.0}", Timestamp::try_from(at).unwrap_or_default())
}

/// The version in `If-Match`; `*` is any.
fn expected(request: &HttpRequest) -> Result<Option<u64>, Problem> {
    let Some(value) = request.headers().get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(|| Problem::new(Code::PreconditionFailed, "If-Match is no ETag that was ever given here."))
}
