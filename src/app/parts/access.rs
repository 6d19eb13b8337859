//! What callers may do, and what they have of their own.

use std::sync::Arc;

use super::CatalogParts;
use crate::adapters::authorization::HttpAuthorizationClient;
use crate::app::StartError;
use crate::app::background::{Tasks, list_shared, reseal};
use crate::app::foundation::Foundation;
use crate::service::access::connections::{ConnectionParts, Connections};
use crate::service::access::keys::Keys;
use crate::service::access::policies::Policies;
use crate::service::access::secrets::Secrets;
use crate::service::access::switches::Switches;
use crate::service::toolsets::toolsets::Toolsets;

/// What callers may do.
#[derive(Clone)]
pub(in crate::app) struct AccessParts {
    pub keys: Arc<Keys>,
    pub toolsets: Arc<Toolsets>,
    pub policies: Arc<Policies>,
}

/// What users have of their own: sign-ins, secrets, and what they have switched off for themselves.
#[derive(Clone)]
pub(in crate::app) struct UserParts {
    pub connections: Arc<Connections>,
    pub secrets: Arc<Secrets>,
    pub switches: Arc<Switches>,
}

impl AccessParts {
    pub(super) async fn load(base: &Foundation<'_>, tasks: &mut Tasks) -> Result<Self, StartError> {
        let Foundation { live, store, current, .. } = base;
        let keys = tasks.keep(Keys::start(store.clone(), tasks.stop()).await.map_err(StartError::Keys)?);
        keys.configure(live);
        let toolsets = Toolsets::start(Arc::clone(current), store.clone(), live).await.map_err(StartError::Toolsets)?;
        let policies = Policies::start(Arc::clone(current), store.clone(), Arc::clone(&keys), live).await?;
        Ok(Self { keys, toolsets: Arc::new(toolsets), policies: Arc::new(policies) })
    }
}

impl UserParts {
    pub(super) async fn start(
        base: &Foundation<'_>,
        access: &AccessParts,
        catalog: &CatalogParts,
        tasks: &mut Tasks,
    ) -> Result<Self, StartError> {
        let Foundation { start, live, store, .. } = base;
        let parts = ConnectionParts {
            client: Arc::new(HttpAuthorizationClient),
            servers: Arc::clone(&catalog.servers),
            current: Arc::clone(&base.current),
            api_keys: Arc::clone(&access.keys),
            keys: start.secrets.keys.clone(),
            signer: base.links.as_ref().map(|(_, signer)| signer.clone()),
            public_url: base.public_url(),
        };
        let connections = Connections::new(store.clone(), parts, live);
        let switches = Arc::new(Switches::start(store.clone()).await.map_err(StartError::Switches)?);
        let (servers, keys) = (Arc::clone(&catalog.servers), start.secrets.keys.clone());
        let secrets = Arc::new(Secrets::new(store.clone(), servers, Arc::clone(&connections), keys, live));
        tasks.add(list_shared(Arc::clone(&connections), tasks.stop()));
        tasks.add(reseal(Arc::clone(&secrets), tasks.stop()));
        Ok(Self { connections, secrets, switches })
    }
}
