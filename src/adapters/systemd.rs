//! What systemd and similar managers pass to a service: a listening socket, and an address for messages about its state.

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// The reason why the passed sockets can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("{0} sockets were passed to the service, which listens on one: leave one ListenStream= in the socket unit")]
    Several(usize),
    #[error("the socket that was passed to the service can't be used: {0}. Set ListenStream= to an address and a port")]
    Unusable(io::Error),
}

/// Takes the listening socket that the process was started with (`LISTEN_FDS`), if there is one. Removes the variables, so that no
/// other process takes the socket. Call this before other threads may read the environment.
///
/// # Errors
/// [`SocketError`]
pub(crate) fn socket() -> Result<Option<TcpListener>, SocketError> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => passed.take_tcp_listener(0).map_err(SocketError::Unusable),
        several => Err(SocketError::Several(several)),
    }
}

/// Reports that the service listens.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// Reports that the service is stopping.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Does nothing unless `NOTIFY_SOCKET` is set.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = send(state) {
        tracing::warn!(%error, "the service manager can't be notified");
    }
}

#[cfg(target_os = "linux")]
fn send(state: NotifyState<'_>) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let address = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    // The library takes the name of an abstract socket for a path.
    let Some(name) = address.as_bytes().strip_prefix(b"@") else { return sd_notify::notify(&[state]) };
    let manager = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(format!("{state}\n").as_bytes(), &manager).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn send(state: NotifyState<'_>) -> io::Result<()> {
    sd_notify::notify(&[state])
}
