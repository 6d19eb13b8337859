//! OAuth tokens for servers: imported from mcpo, and renewed with a refresh token.
//!
//! mcpo stores two files per server in its user's home, named by the MD5 of the server's name: one with the tokens, one with the
//! client registration. The token file contains the token's lifetime but no expiry; it was written when the token was issued.
//! Renewed tokens are stored in our own folder. The newer of the two files is used, so a new sign-in with mcpo takes effect.
//! Signing in is deliberately absent.

mod issuer;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::CONTENT_TYPE;
use md5::{Digest, Md5};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;
use url::form_urlencoded;

use self::issuer::Finder;
use crate::adapters::mcp::transport::client::ConnectionFailure;
use crate::settings::OAuthSettings;

/// A token that expires within this time is renewed before its use.
const MARGIN: Duration = Duration::from_mins(1);
/// Maximum size of a response from an authorisation server, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why no token is available.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum TokenError {
    #[error("it requires a sign-in (OAuth), and mcpo has stored no token for it: sign in once with mcpo, as this user")]
    Missing,
    #[error("its OAuth token has expired, and there is no refresh token: sign in again with mcpo, as this user")]
    Expired,
    #[error("its OAuth token was rejected, and renewing it failed with HTTP {0}: sign in again with mcpo, as this user")]
    Refused(StatusCode),
    #[error("its OAuth token could not be renewed: {0}")]
    NotRenewed(String),
}

/// The tokens of all servers. Connections to the same server share theirs: a refresh token may be used only once.
pub(in crate::adapters::mcp) struct TokenStore {
    /// The folder for renewed tokens.
    folder: Option<PathBuf>,
    /// By the name under which they are stored, as long as a connection uses them.
    shared: parking_lot::Mutex<HashMap<String, Weak<Shared>>>,
    renewals: TaskTracker,
}

type Shared = Mutex<Option<Held>>;

impl TokenStore {
    /// Renewals run as tasks of `renewals`.
    pub(in crate::adapters::mcp) fn new(folder: Option<PathBuf>, renewals: TaskTracker) -> Self {
        Self { folder, shared: parking_lot::Mutex::default(), renewals }
    }

    /// The tokens of the server with these settings.
    pub(in crate::adapters::mcp) fn tokens(&self, settings: &OAuthSettings) -> Arc<Tokens> {
        let own = self.folder.as_ref().map(|folder| folder.join(format!("{}.json", file_stem(&settings.stored_as))));
        let mut shared = self.shared.lock();
        shared.retain(|_, held| held.strong_count() > 0);
        let held = shared.get(&settings.stored_as).and_then(Weak::upgrade).unwrap_or_default();
        shared.insert(settings.stored_as.clone(), Arc::downgrade(&held));
        Arc::new(Tokens { settings: settings.clone(), own, held, renewals: self.renewals.clone() })
    }
}

/// The tokens of one server.
pub(in crate::adapters::mcp) struct Tokens {
    settings: OAuthSettings,
    /// The file for renewed tokens.
    own: Option<PathBuf>,
    held: Arc<Shared>,
    renewals: TaskTracker,
}

/// A token with the data needed to renew it.
#[derive(Clone)]
struct Held {
    /// When it was issued, or the file with it was written.
    written: SystemTime,
    access: SecretString,
    refresh: Option<SecretString>,
    expires: Option<SystemTime>,
    client_id: Option<String>,
    client_secret: Option<SecretString>,
    /// Whether the authorisation server expects the client secret in a Basic authorisation header.
    basic: bool,
    /// The issuer that renewed the token; `None` if it was not renewed since the sign-in.
    issuer: Option<String>,
}

/// The format of mcpo's `…_tokens.json`, a response of a token endpoint (RFC 6749, section 5.1), and of our own file.
#[derive(Serialize, Deserialize)]
struct StoredToken {
    access_token: String,
    /// In seconds. Some servers write the number as a text.
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<f64>,
    refresh_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<StoredClient>,
    /// The issuer that renewed the token, only in our own file. No other issuer may receive the refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
}

/// The lifetime of a token; `None` if it is missing or odd.
fn seconds<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<f64>, D::Error> {
    let value = Value::deserialize(reader)?;
    Ok(value.as_f64().or_else(|| value.as_str()?.parse().ok()))
}

/// The format of mcpo's `…_client.json` (RFC 7591).
#[derive(Serialize, Deserialize)]
struct StoredClient {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

impl Tokens {
    /// Returns the token to send. Renews it if it is about to expire.
    pub(in crate::adapters::mcp) async fn bearer(self: &Arc<Self>) -> Result<SecretString, TokenError> {
        self.token(|present| present.expires.is_none_or(|expires| expires > SystemTime::now() + MARGIN)).await
    }

    /// Returns a token other than the one that the server has rejected.
    pub(in crate::adapters::mcp) async fn instead_of(self: &Arc<Self>, refused: &SecretString) -> Result<SecretString, TokenError> {
        self.token(|present| present.access.expose_secret() != refused.expose_secret()).await
    }

    /// Returns the present token if it will do, and otherwise a renewed one.
    async fn token(self: &Arc<Self>, will_do: impl Fn(&Held) -> bool) -> Result<SecretString, TokenError> {
        let mut held = Arc::clone(&self.held).lock_owned().await;
        if let Some(present) = held.as_ref().filter(|present| will_do(present)) {
            return Ok(present.access.clone());
        }
        // The user may have signed in again.
        let present = self.newer_than(held.as_ref()).or_else(|| held.clone()).ok_or(TokenError::Missing)?;
        *held = Some(present.clone());
        if will_do(&present) {
            return Ok(present.access);
        }
        // A task of its own: the authorisation server has used up the refresh token even if the caller no longer waits.
        let tokens = Arc::clone(self);
        let renewal = self.renewals.spawn(async move {
            let renewed = tokens.renewed(present).await?;
            let access = renewed.access.clone();
            *held = Some(renewed);
            Ok::<_, TokenError>(access)
        });
        renewal.await.unwrap_or_else(|_| Err(TokenError::NotRenewed("an internal error of the service".to_owned())))
    }

    /// Looks for a newer sign-in in the files. A new connection needs this too: the one that shares its tokens may be older.
    pub(in crate::adapters::mcp) async fn reload(&self) {
        let mut held = self.held.lock().await;
        if let Some(newer) = self.newer_than(held.as_ref()) {
            *held = Some(newer);
        }
    }

    /// The stored token, if it is newer than this one.
    fn newer_than(&self, held: Option<&Held>) -> Option<Held> {
        self.load().filter(|stored| held.is_none_or(|held| held.written < stored.written))
    }

    /// The newer of mcpo's token and our own.
    fn load(&self) -> Option<Held> {
        let theirs = self.settings.tokens.as_ref().and_then(|folder| {
            let stem = file_stem(&self.settings.stored_as);
            let (mut stored, written) = read(&folder.join(format!("{stem}_tokens.json")))?;
            stored.issuer = None;
            stored.client = fs::read(folder.join(format!("{stem}_client.json"))).ok().and_then(|text| serde_json::from_slice(&text).ok());
            Some((stored, written))
        });
        let ours = self.own.as_deref().and_then(read);
        let (stored, written) = theirs.into_iter().chain(ours).max_by_key(|(_, written)| *written)?;
        Some(Held::of(stored, written))
    }

    async fn renewed(&self, present: Held) -> Result<Held, TokenError> {
        let refresh = present.refresh.as_ref().ok_or(TokenError::Expired)?;
        let finder = Finder::new(&self.settings).await?;
        let issuer = finder.issuer(present.issuer.as_deref()).await?;
        let secret = present.client_secret.as_ref().map(ExposeSecret::expose_secret);
        let mut request = finder
            .client()
            .post(issuer.token_endpoint)
            .timeout(ANSWER_TIMEOUT)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(self.form(&present, refresh));
        if let (Some(id), true) = (&present.client_id, present.basic) {
            request = request.basic_auth(id, secret);
        }
        let response = request.send().await.map_err(|error| TokenError::NotRenewed(ConnectionFailure::from(error).to_string()))?;
        let status = response.status();
        if !status.is_success() {
            return Err(TokenError::Refused(status));
        }
        let unreadable = || TokenError::NotRenewed("the authorisation server's response is not a token".to_owned());
        let mut stored: StoredToken = body(response).await.and_then(|body| serde_json::from_slice(&body).ok()).ok_or_else(unreadable)?;
        stored.issuer = Some(issuer.name);
        // If the refresh token stays the same, servers may omit it.
        stored.refresh_token = stored.refresh_token.or_else(|| Some(refresh.expose_secret().to_owned()));
        stored.client = present.client_id.clone().map(|client_id| StoredClient {
            client_id,
            client_secret: secret.map(str::to_owned),
            token_endpoint_auth_method: present.basic.then(|| BASIC.to_owned()),
        });
        if let Some(path) = &self.own
            && let Err(error) = write(path, &stored)
        {
            tracing::warn!(%error, "could not store a renewed OAuth token; the next start will use the old one");
        }
        Ok(Held::of(stored, SystemTime::now()))
    }

    /// The body of a renewal request (RFC 6749, section 6; RFC 8707).
    fn form(&self, present: &Held, refresh: &SecretString) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", refresh.expose_secret());
        form.append_pair("resource", self.settings.server_url.as_str());
        if let (Some(id), false) = (&present.client_id, present.basic) {
            form.append_pair("client_id", id);
            if let Some(secret) = &present.client_secret {
                form.append_pair("client_secret", secret.expose_secret());
            }
        }
        form.finish()
    }
}

const BASIC: &str = "client_secret_basic";

impl Held {
    fn of(stored: StoredToken, written: SystemTime) -> Self {
        let client = stored.client;
        Self {
            written,
            access: stored.access_token.into(),
            refresh: stored.refresh_token.map(SecretString::from),
            expires: stored.expires_in.and_then(|seconds| written.checked_add(Duration::try_from_secs_f64(seconds).ok()?)),
            issuer: stored.issuer,
            basic: client.as_ref().and_then(|client| client.token_endpoint_auth_method.as_deref()) == Some(BASIC),
            client_id: client.as_ref().map(|client| client.client_id.clone()),
            client_secret: client.and_then(|client| client.client_secret).map(SecretString::from),
        }
    }
}

/// The stem of mcpo's file names for a server.
fn file_stem(server: &str) -> String {
    let digest = Md5::digest(server.as_bytes());
    let first = digest.iter().take(4).fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    format!("{first:08x}")
}

/// Reads a stored token with the time at which it was written.
fn read(path: &Path) -> Option<(StoredToken, SystemTime)> {
    let text = fs::read(path).ok()?;
    let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    Some((serde_json::from_slice(&text).ok()?, written))
}

/// Writes a token file atomically, readable only by its owner.
fn write(path: &Path, stored: &StoredToken) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = path.with_extension("part");
    let _ = fs::remove_file(&part);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(&serde_json::to_vec(stored)?)?;
    fs::rename(part, path)
}

async fn body(mut response: reqwest::Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_LIMIT {
            return None;
        }
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn files_are_named_as_mcpo_names_them() {
        // python3 -c 'import hashlib; print(hashlib.md5(b"github").hexdigest()[:8])'
        assert_eq!(file_stem("github"), "bf215181");
    }

    /// Regression test: a lifetime beyond all clocks was stored, and let each connection panic, also after a restart. A lifetime as a text
    /// made the service discard the token.
    #[test]
    fn an_odd_lifetime_makes_no_token_unusable() {
        let written = SystemTime::UNIX_EPOCH;
        for (lifetime, expires) in [
            ("3600", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("0", Some(0)),
            ("1e19", None),
            ("1e300", None),
            ("-1", None),
            ("null", None),
            ("[]", None),
        ] {
            let text = format!("{{\"access_token\":\"a\",\"expires_in\":{lifetime}}}");
            let held = Held::of(serde_json::from_str(&text).unwrap(), written);
            assert_eq!(held.expires, expires.map(|seconds| written + Duration::from_secs(seconds)), "{lifetime}");
        }
        assert!(serde_json::from_str::<StoredToken>("{\"access_token\":\"a\"}").is_ok_and(|stored| stored.expires_in.is_none()));
    }

    /// An authorisation server without metadata, which accepts each refresh token once and then issues the next one.
    struct Issuer {
        renewals: AtomicUsize,
        /// One permit for each renewal that has arrived, and for each that may be answered.
        arrived: Semaphore,
        answers: Semaphore,
    }

    impl Issuer {
        async fn start() -> (Arc<Self>, String) {
            let issuer = Arc::new(Self { renewals: AtomicUsize::new(1), arrived: Semaphore::new(0), answers: Semaphore::new(0) });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}/mcp", listener.local_addr().unwrap());
            let serving = Arc::clone(&issuer);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let issuer = Arc::clone(&serving);
                    tokio::spawn(async move { issuer.answer(stream).await });
                }
            });
            (issuer, address)
        }

        async fn answer(&self, mut stream: TcpStream) {
            let mut request = String::new();
            while !request.starts_with("GET") && !request.contains("refresh_token=refresh-") {
                let mut part = [0; 4096];
                let count = stream.read(&mut part).await.unwrap();
                assert_ne!(count, 0, "{request}");
                request.push_str(std::str::from_utf8(&part[..count]).unwrap());
            }
            let mut answer = ("404 Not Found", String::new());
            if request.starts_with("POST") {
                self.arrived.add_permits(1);
                self.answers.acquire().await.unwrap().forget();
                let number = self.renewals.load(Ordering::Relaxed);
                answer = ("400 Bad Request", String::new());
                if request.contains(&format!("refresh_token=refresh-{number}")) {
                    let next = self.renewals.fetch_add(1, Ordering::Relaxed) + 1;
                    let token = serde_json::json!({
                        "access_token": format!("access-{next}"), "refresh_token": format!("refresh-{next}"), "expires_in": 3600,
                    });
                    answer = ("200 OK", token.to_string());
                }
            }
            let (status, body) = answer;
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    }

    /// The settings of a server whose stored token has expired.
    fn signed_in(folder: &Path, address: &str) -> OAuthSettings {
        let token = serde_json::json!({"access_token": "access-1", "refresh_token": "refresh-1", "expires_in": 0});
        fs::write(folder.join(format!("{}_tokens.json", file_stem("remote"))), token.to_string()).unwrap();
        OAuthSettings {
            server_url: address.parse().unwrap(),
            tokens: Some(folder.to_owned()),
            stored_as: "remote".to_owned(),
            issuer: None,
            private_addresses: None,
        }
    }

    #[tokio::test]
    async fn connections_to_a_server_renew_its_token_once() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (issuer, address) = Issuer::start().await;
        issuer.answers.add_permits(10);
        let folder = tempfile::tempdir().unwrap();
        let settings = signed_in(folder.path(), &address);
        let store = TokenStore::new(Some(folder.path().join("own")), TaskTracker::new());
        let (one, other) = (store.tokens(&settings), store.tokens(&settings));
        let both = tokio::join!(one.bearer(), other.bearer());
        assert_eq!([both.0.unwrap(), both.1.unwrap()].map(|token| token.expose_secret().to_owned()), ["access-2", "access-2"]);
        assert_eq!(one.instead_of(&"access-2".into()).await.unwrap().expose_secret(), "access-3");
        assert_eq!(other.instead_of(&"access-2".into()).await.unwrap().expose_secret(), "access-3");
        assert_eq!(issuer.arrived.available_permits(), 2);
    }

    /// A rotated refresh token was lost if the caller left while the token was renewed.
    #[tokio::test]
    async fn a_renewal_outlives_its_caller() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (issuer, address) = Issuer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let settings = signed_in(folder.path(), &address);
        let store = TokenStore::new(Some(folder.path().join("own")), TaskTracker::new());
        let tokens = store.tokens(&settings);
        let calling = Arc::clone(&tokens);
        let caller = tokio::spawn(async move { calling.bearer().await });
        issuer.arrived.acquire().await.unwrap().forget();
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        issuer.answers.add_permits(10);
        assert_eq!(tokens.bearer().await.unwrap().expose_secret(), "access-2");
        let stored = read(tokens.own.as_deref().unwrap()).unwrap().0;
        assert_eq!(stored.refresh_token.as_deref(), Some("refresh-2"));
    }
}
