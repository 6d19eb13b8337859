//! Who calls: the check in front of every route, and the extractor that hands the principal to a handler.

use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap};
use actix_web::middleware::Next;
use actix_web::{FromRequest, HttpMessage, HttpRequest, ResponseError, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::domain::principal::Principal;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;

/// Which callers are let in.
#[derive(Clone, Debug)]
pub enum Access {
    /// Whoever has the key.
    Key(SecretString),
    /// Whoever reaches a loopback address, and of the web pages of other sites only these.
    Loopback { origins: Vec<String> },
    /// Whoever reaches the address: the administrator asked for it.
    Everybody,
}

/// Paths that answer without a key.
const PUBLIC: [&str; 2] = ["/healthz", "/readyz"];

/// Lets a request through or refuses it, before any route is looked up.
///
/// # Errors
/// Those of the routes.
pub async fn admit(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let state = request.app_data::<web::Data<State>>().cloned();
    let Some(state) = state else { return Err(Problem::new(Code::Internal, "The service is not set up.").into()) };
    let principal = match principal(&state.access, request.headers()) {
        Err(_) if PUBLIC.contains(&request.path()) => Principal::nobody(),
        decided => decided?,
    };
    request.extensions_mut().insert(Arc::new(principal));
    let response = next.call(request).await?;
    // What the framework refuses by itself has no body; it gets one like every other error.
    let code = match response.status() {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        _ => return Ok(response.map_into_left_body()),
    };
    if response.headers().contains_key(header::CONTENT_TYPE) {
        return Ok(response.map_into_left_body());
    }
    let allow = response.headers().get(header::ALLOW).cloned();
    let mut problem = Problem::new(code, "Look at /openapi.json for what there is.").error_response();
    if let Some(allow) = allow {
        problem.headers_mut().insert(header::ALLOW, allow);
    }
    Ok(response.into_response(problem).map_into_right_body())
}

fn principal(access: &Access, headers: &HeaderMap) -> Result<Principal, Problem> {
    match access {
        Access::Everybody => Ok(Principal::anyone()),
        Access::Loopback { origins } if is_local(headers, origins) => Ok(Principal::anyone()),
        Access::Loopback { .. } => {
            Err(Problem::new(Code::ForeignOrigin, "Without a key only this machine is served. Set an API key to serve other hosts."))
        }
        Access::Key(key) => {
            let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(credential);
            match given {
                Some(given) if bool::from(given.as_bytes().ct_eq(key.expose_secret().as_bytes())) => Ok(Principal::service_key()),
                Some(_) => Err(Problem::new(Code::Unauthorized, "The key is wrong.")),
                None => Err(Problem::new(Code::Unauthorized, "Send the key as `Authorization: Bearer <key>`.")),
            }
        }
    }
}

/// The key out of `Bearer key` or `Basic base64(user:key)`.
fn credential(value: &str) -> Option<String> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
        return decoded.split_once(':').map(|(_, password)| password.to_owned());
    }
    None
}

/// A page of another site may reach a loopback address through the user's browser; its `Host` (after DNS rebinding)
/// or its `Origin` gives it away.
fn is_local(headers: &HeaderMap, origins: &[String]) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).is_none_or(is_local_host);
    let origin = text(header::ORIGIN).is_none_or(|origin| {
        origins.iter().any(|known| known == "*" || known == origin) || origin.split_once("://").is_some_and(|(_, host)| is_local_host(host))
    });
    host && origin
}

fn is_local_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The caller of a route.
pub struct Caller(pub Arc<Principal>);

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let principal = request.extensions().get::<Arc<Principal>>().cloned();
        ready(principal.map(Self).ok_or_else(|| Problem::new(Code::Unauthorized, "The caller is not known.")))
    }
}

#[cfg(test)]
mod tests {
    use super::{credential, is_local_host};

    #[test]
    fn keys_come_as_bearer_or_basic() {
        assert_eq!(credential("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(credential("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(credential("Basic dTphOmI=").as_deref(), Some("a:b"));
        assert_eq!(credential("Basic ???"), None);
        assert_eq!(credential("abc"), None);
    }

    #[test]
    fn local_hosts() {
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "127.8.8.8"] {
            assert!(is_local_host(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8000", "10.0.0.1", "", "[::2]"] {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
