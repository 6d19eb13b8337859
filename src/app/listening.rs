//! The listening socket, its limits, and the HTTP server that uses it.

use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actix_http::{HttpService, Protocol};
use actix_service::{IntoServiceFactory as _, Service, ServiceFactory, ServiceFactoryExt as _, fn_factory, fn_service, map_config};
use actix_web::dev::{AppConfig, Server};
use actix_web::http::header::HeaderValue;
use actix_web::{App, middleware, web};
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use utoipa_actix_web::AppExt;

use super::StartError;
use crate::adapters::descriptors::{self, Descriptors};
use crate::http;
use crate::http::admission::{Access, Admission};
use crate::http::connections::{Connection, ConnectionLimits, Connections, Io, KEEP_ALIVE};
use crate::http::state::State;
use crate::service::access::keys::Keys;
use crate::settings::{LiveSettings, StartSettings};

/// Maximum number of connections that wait in the kernel to be accepted.
const BACKLOG: u32 = 2048;
/// Time limit for receiving the first request's headers on a connection. [`Connections`] limits the time for later
/// requests.
const FIRST_HEAD: Duration = Duration::from_secs(5);
/// How long a connection stays open after its request was rejected without reading the whole body.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of connections, even if the system allows more.
const MOST: usize = 51_200;
/// Minimum number of connections, even if the system allows fewer.
const FEWEST: usize = 16;
/// Maximum number of connections without an authenticated request. A normal client authenticates within milliseconds.
const STRANGERS: usize = 1_024;
/// File descriptors that are reserved for MCP servers, files and the store.
const RESERVED: u64 = 24;

fn access(settings: &StartSettings) -> Access {
    let http = &settings.http;
    match (&http.api_key, &settings.mcpo) {
        (Some(key), Some(mcpo)) => Access::Mcpo { key: key.clone(), strict: mcpo.strict_auth },
        (Some(key), None) => Access::Key(Some(key.clone())),
        (None, _) if settings.access.admin_key.is_some() => Access::Key(None),
        (None, _) if http.insecure => Access::Everybody,
        (None, _) => Access::Loopback,
    }
}

/// The name of this process in responses. By default, it tells nothing about the machine.
pub(super) fn replica(name: Option<&str>) -> HeaderValue {
    let random = || format!("{:08x}", rand::random::<u32>());
    HeaderValue::from_str(&name.map_or_else(random, str::to_owned)).unwrap_or(HeaderValue::from_static("-"))
}

pub(super) fn admission(start: &StartSettings, live: &LiveSettings, keys: &Arc<Keys>) -> Admission {
    if start.http.api_key.is_some() && start.access.admin_key.is_none() {
        tracing::info!("access.admin_key is not set: keys can't be managed");
    }
    Admission {
        access: access(start),
        keys: Arc::clone(keys),
        admin_key: start.access.admin_key.clone(),
        trust_users: start.access.trust_users,
        user_jwt_secret: start.access.user_jwt_secret.clone(),
        groups: ArcSwap::from_pointee(live.groups.clone()),
    }
}

/// Uses the passed socket, or binds the address. Clients can connect from now on, and wait until the service is ready.
pub(super) fn bind(settings: &StartSettings, passed: Option<TcpListener>) -> Result<(TcpListener, SocketAddr), StartError> {
    let http = &settings.http;
    let address = SocketAddr::new(http.host, http.port);
    if let Some(listener) = passed {
        let bound = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let needs_key = http.api_key.is_some() || settings.access.admin_key.is_some();
        // The settings have been checked for the address in the settings.
        if !bound.ip().is_loopback() && !needs_key && !http.insecure {
            return Err(StartError::Exposed { address: bound });
        }
        tracing::info!("listening on the socket that was passed to the service: http.host and http.port have no effect");
        return Ok((listener, bound));
    }
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
) -> Result<(Server, Arc<Connections>), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let (http, as_mcpo) = (&settings.http, settings.mcpo.is_some());
    if http.public_url.is_none() {
        tracing::warn!("http.public_url is not set: responses contain no links");
    }
    let workers = thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let (limits, each) = connection_limits(descriptors::raised(), workers);
    let connections = Connections::new(limits, Arc::clone(&state.meters));
    let table = Arc::clone(&connections);
    let tls = http.tls.as_ref().map(|tls| {
        let mut config = ServerConfig::clone(&tls.config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let origins = http.cors_origins.clone();
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(each)
        // The server would handle signals only after its start. `Stops` already handles them.
        .disable_signals()
        .shutdown_timeout(http.shutdown_timeout.as_secs());
    let stopping = builder.graceful_shutdown_signal();
    let builder = builder.listen("http", listener, move || {
        let layout = state.publish.layout().clone();
        let app = App::new()
            .into_utoipa_app()
            .map(|app| {
                app.app_data(state.clone())
                    .wrap(middleware::from_fn(http::finish::finish))
                    .wrap(middleware::from_fn(http::caller::admit))
                    .wrap(http::cors(&origins, as_mcpo))
                    .wrap(middleware::from_fn(http::front::enter))
                    .configure(|config| http::configure_calls(config, &layout))
            })
            .configure(http::configure)
            .into_app()
            .configure(|config| http::configure_servers(config, &layout))
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let stopping = stopping.clone();
        let service = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(FIRST_HEAD)
            .client_disconnect_timeout(LINGER)
            // A client that disconnects cancels its call. With half-closed connections, the server couldn't notice
            // this.
            .h1_allow_half_closed(false)
            .on_connect_ext(|io: &Io<Stream>, data| {
                data.insert(Arc::clone(io.connection()));
            })
            .finish(map_config(app, |()| AppConfig::default()));
        watched(service, tls.clone(), Arc::clone(&connections))
    });
    Ok((builder.map_err(failed)?.run(), table))
}

/// Returns the limits for connections, and how many connections each worker accepts. The rest of the file descriptors
/// is reserved for MCP servers, files and the store.
fn connection_limits(descriptors: Descriptors, workers: usize) -> (ConnectionLimits, usize) {
    let reserved = descriptors.open + (descriptors.most / 8).max(RESERVED);
    let room = usize::try_from(descriptors.most.saturating_sub(reserved)).unwrap_or(usize::MAX);
    let taken = room.clamp(FEWEST, MOST);
    if room < FEWEST {
        tracing::warn!(descriptors.most, connections = taken, "few file descriptors: raise the limit (ulimit -n, LimitNOFILE)");
    }
    let each = taken.div_ceil(workers);
    // Stays below the number that the workers accept, so that a caller with a key always gets a connection.
    (ConnectionLimits { most: taken - taken / 8 - 1, strangers: STRANGERS }, each)
}

/// A connection, without or with TLS.
type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Serves HTTP, with or without TLS, and adds each connection to the connection table.
fn watched<S>(
    service: S,
    tls: Option<TlsAcceptor>,
    connections: Arc<Connections>,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = (), InitError = ()>
where
    S: ServiceFactory<(Io<Stream>, Protocol, Option<SocketAddr>), Config = (), Response = (), InitError = ()> + 'static,
    S::Error: 'static,
{
    let service = Rc::new(service);
    fn_factory(move || {
        let (service, tls, connections) = (Rc::clone(&service), tls.clone(), Arc::clone(&connections));
        async move {
            let service = Rc::new(service.new_service(()).await?);
            Ok(fn_service(move |stream: TcpStream| {
                let (service, tls, connections) = (Rc::clone(&service), tls.clone(), Arc::clone(&connections));
                async move {
                    connections.attend(|connection| speak(stream, tls, service, connection)).await;
                    Ok::<_, ()>(())
                }
            }))
        }
    })
}

async fn speak<S>(stream: TcpStream, tls: Option<TlsAcceptor>, service: Rc<S>, connection: Arc<Connection>)
where
    S: Service<(Io<Stream>, Protocol, Option<SocketAddr>), Response = ()>,
{
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok();
    let stream = match tls {
        None => Either::Left(stream),
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => Either::Right(Box::new(stream)),
            Err(error) => return tracing::debug!(%error, "TLS handshake with a client failed"),
        },
    };
    if poll_fn(|context| service.poll_ready(context)).await.is_ok() {
        // The peer decides how the connection ends, so an error here means nothing.
        let _ = service.call((Io::new(stream, connection), Protocol::Http1, peer)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::connection_limits;
    use crate::adapters::descriptors::Descriptors;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        for (most, open, workers) in [(120, 50, 2), (256, 60, 8), (1_024, 60, 2), (65_536, 60, 64)] {
            let (limits, each) = connection_limits(Descriptors { most, open }, workers);
            assert!(limits.most >= 13 && limits.most < each * workers, "{most}: {limits:?}");
            assert!((each * workers) as u64 + open + 16 <= most, "{most}: {each} on each of {workers}");
        }
        assert!(connection_limits(Descriptors { most: 64, open: 60 }, 2).1 > 0);
    }
}
