//! Calls, and everything else that goes to a server for a caller.

use std::sync::Arc;

use super::{CatalogParts, RecordParts, UserParts};
use crate::app::background::{Tasks, share_limits};
use crate::app::foundation::Foundation;
use crate::service::access::limits::Limits;
use crate::service::access::rates::Rates;
use crate::service::execution::execute::Execute;
use crate::service::mcp::passthrough::Passthrough;

/// Calls, and everything else that goes to a server for a caller.
#[derive(Clone)]
pub(in crate::app) struct CallParts {
    pub limits: Arc<Limits>,
    pub execute: Arc<Execute>,
    pub passthrough: Arc<Passthrough>,
}

impl CallParts {
    pub(super) fn start(
        base: &Foundation<'_>,
        catalog: &CatalogParts,
        records: &RecordParts,
        users: &UserParts,
        tasks: &mut Tasks,
    ) -> Self {
        let Foundation { live, store, meters, current, .. } = base;
        let (CatalogParts { servers, definitions, .. }, RecordParts { recorder, audit, .. }) = (catalog, records);
        let limits = Arc::new(Limits::new(Arc::clone(meters), Rates::new(Some(store.clone()))));
        tasks.add(share_limits(Arc::clone(&limits), tasks.stop()));
        limits.configure(live);
        let files = base.links.as_ref().map(|(files, _)| Arc::clone(files));
        let secrets = &users.secrets;
        let execute = Execute::new(Arc::clone(current), Arc::clone(servers), recorder.clone(), audit.clone(), files, Arc::clone(secrets));
        let execute = execute.with_limits(Arc::clone(&limits));
        execute.configure(live);
        let passthrough = Passthrough::new(
            Arc::clone(current),
            Arc::clone(servers),
            Arc::clone(secrets),
            Arc::clone(&limits),
            audit.clone(),
            Arc::clone(definitions),
        );
        Self { limits, execute: Arc::new(execute), passthrough: Arc::new(passthrough) }
    }
}
