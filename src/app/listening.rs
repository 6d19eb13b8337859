//! The address that is listened on, who gets in, and what is behind it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use actix_web::dev::Server;
use actix_web::{App, HttpServer, middleware, web};
use arc_swap::ArcSwap;
use tokio::net::TcpSocket;
use utoipa_actix_web::AppExt;

use super::StartError;
use crate::http;
use crate::http::caller::{Access, Admission};
use crate::http::state::State;
use crate::service::keys::Keys;
use crate::settings::{HttpSettings, LiveSettings, StartSettings};

/// How long calls in flight may go on after the service was told to stop, in seconds.
pub(super) const SHUTDOWN_SECONDS: u64 = 5;
/// Connections that the system keeps for us until they are accepted.
const BACKLOG: u32 = 2048;

fn access(settings: &StartSettings) -> Access {
    let http = &settings.http;
    match (&http.api_key, &settings.mcpo) {
        (Some(key), Some(mcpo)) => Access::Mcpo { key: key.clone(), strict: mcpo.strict_auth },
        (Some(key), None) => Access::Key(Some(key.clone())),
        (None, _) if settings.access.admin_key.is_some() => Access::Key(None),
        (None, _) if http.insecure => Access::Everybody,
        (None, _) => Access::Loopback { origins: http.cors_origins.clone() },
    }
}

pub(super) fn admission(start: &StartSettings, live: &LiveSettings, keys: &Arc<Keys>) -> Admission {
    if start.http.api_key.is_some() && start.access.admin_key.is_none() {
        tracing::info!("access.admin_key is not set: nobody can administer keys");
    }
    Admission {
        access: access(start),
        keys: Arc::clone(keys),
        admin_key: start.access.admin_key.clone(),
        trust_users: start.access.trust_users,
        user_jwt_secret: start.access.user_jwt_secret.clone(),
        groups: ArcSwap::from_pointee(live.groups.clone()),
        warned: AtomicBool::new(false),
    }
}

/// Takes the address. Who connects waits until the service is there.
pub(super) fn bind(settings: &HttpSettings) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = SocketAddr::new(settings.host, settings.port);
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?.into_std()?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|source| StartError::Listen { address, source })
}

pub(super) fn listen(
    settings: &StartSettings,
    listener: TcpListener,
    address: SocketAddr,
    state: web::Data<State>,
) -> Result<Server, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let (http, as_mcpo) = (&settings.http, settings.mcpo.is_some());
    if http.public_url.is_none() {
        tracing::warn!("http.public_url is not set: answers carry no links");
    }
    let origins = http.cors_origins.clone();
    let body_limit = http.max_body_bytes;
    let server = HttpServer::new(move || {
        let layout = state.publish.layout().clone();
        App::new()
            .into_utoipa_app()
            .map(|app| {
                app.app_data(state.clone())
                    .app_data(web::PayloadConfig::new(body_limit))
                    .wrap(middleware::from_fn(http::finish::finish))
                    .wrap(middleware::from_fn(http::caller::admit))
                    .wrap(middleware::from_fn(http::meter::count))
                    .wrap(http::cors(&origins, as_mcpo))
            })
            .configure(http::configure)
            .into_app()
            .configure(|config| http::configure_servers(config, &layout))
    })
    // A caller that goes away cancels its call; half-closed connections would hide that.
    .h1_allow_half_closed(false)
    .tcp_nodelay(true)
    // It would hear them only once it is polled. `Stops` does before.
    .disable_signals()
    .shutdown_timeout(SHUTDOWN_SECONDS);
    let server = match &http.tls {
        Some(tls) => server.listen_rustls_0_23(listener, rustls::ServerConfig::clone(&tls.config)),
        None => server.listen(listener),
    };
    Ok(server.map_err(failed)?.run())
}
