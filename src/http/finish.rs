//! Completes changes that have begun, even after the caller has disconnected.
//!
//! When a connection closes, its handler stops, and this cancels a running tool call. But a change must not stop after
//! it was stored and before the service's memory and the audit log reflect it. So requests that change something run as
//! separate tasks.

use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, rt, web};

use crate::domain::publishing::address::AddressPrefix;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;
use crate::service::spans;

/// Requests below these paths change stored data, unless their method is GET or HEAD.
const CHANGES: [&str; 13] = [
    "/v1/admin/",
    "/v1/secrets/",
    "/v1/sessions",
    "/v1/toolsets/",
    "/v1/feedback",
    "/ui/server",
    "/ui/tool",
    "/ui/access",
    "/ui/activity",
    "/ui/learning",
    "/ui/me/selection",
    "/ui/me/forget",
    "/ui/me/secret",
];

/// In a request whose change is stored, while its number could not be read.
pub(crate) struct UnknownNumber;

/// Forwards a request. If the request changes stored data, it is completed even if its caller disconnects.
///
/// # Errors
/// The errors of the routes. If a route panics, the error is an internal error.
pub(crate) async fn finish(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody + 'static>, Error> {
    if !is_change(request.method(), request.path()) {
        return next.call(request).await;
    }
    let shared = request.app_data::<web::Data<State>>().map(|state| Arc::clone(&state.shared));
    let changing = async move {
        let response = next.call(request).await?;
        // The response's number includes this change.
        if let Some(shared) = shared.filter(|_| has_changed(response.status()))
            && !shared.has_changed().await
        {
            response.request().extensions_mut().insert(UnknownNumber);
        }
        Ok(response)
    };
    rt::spawn(spans::within(spans::current(), changing)).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a change failed before its end");
        Err(Problem::new(Code::Internal, "The service failed during this change. Read the current state again.").into())
    })
}

/// Whether a response confirms a change. The console leads on to a page that shows it.
fn has_changed(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

fn is_change(method: &Method, path: &str) -> bool {
    let path = AddressPrefix::split(path).map_or(path, |(_, path)| path);
    !matches!(*method, Method::GET | Method::HEAD) && CHANGES.iter().any(|change| path.starts_with(change))
}

#[cfg(test)]
mod tests {
    use actix_web::http::Method;

    use super::is_change;

    #[test]
    fn changes_differ_from_calls_and_reading() {
        for (method, path) in [
            (Method::PUT, "/v1/admin/policy"),
            (Method::DELETE, "/v1/admin/keys/x"),
            (Method::POST, "/v1/sessions"),
            (Method::DELETE, "/v1/sessions/x"),
            (Method::POST, "/s/abc/v1/toolsets/load"),
            (Method::PUT, "/toolsets/mail/v1/secrets/a/b"),
            (Method::POST, "/v1/feedback"),
            (Method::POST, "/ui/access/keys"),
            (Method::POST, "/ui/learning"),
            (Method::POST, "/ui/me/secret/remove"),
            (Method::POST, "/ui/activity"),
        ] {
            assert!(is_change(&method, path), "{method} {path}");
        }
        for (method, path) in [
            (Method::GET, "/v1/admin/policy"),
            (Method::POST, "/v1/filter"),
            (Method::POST, "/v1/tools/call"),
            (Method::POST, "/github/create_issue"),
            (Method::POST, "/mcp"),
            (Method::POST, "/ui/playground"),
            (Method::POST, "/ui/me/enter"),
            (Method::POST, "/ui/run"),
        ] {
            assert!(!is_change(&method, path), "{method} {path}");
        }
    }
}
