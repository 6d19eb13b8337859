//! What administrators look at and change.

pub mod audit;
pub mod enrichment;
pub mod keys;
pub mod policy;
pub mod usage;

use std::time::SystemTime;

use jiff::Timestamp;
use utoipa_actix_web::service_config::ServiceConfig;

pub fn configure(config: &mut ServiceConfig<'_>) {
    config.service(keys::create).service(keys::list).service(keys::rotate).service(keys::revoke);
    config.service(policy::show).service(policy::replace).service(policy::check).service(audit::find);
    config.service(usage::show);
    config.service(enrichment::list).service(enrichment::show).service(enrichment::replace).service(enrichment::remove);
}

/// RFC 3339, to the second, in universal time.
fn time(at: SystemTime) -> String {
    format!("{:.0}", Timestamp::try_from(at).unwrap_or_default())
}
