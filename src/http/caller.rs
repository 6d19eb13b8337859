//! Authentication: checks every request before routing, and passes the principal to the handlers.

use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Payload, ResponseHead, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::http::{ConnectionType, Method, StatusCode, Uri};
use actix_web::middleware::Next;
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, web};
use tokio::time::sleep;

use crate::domain::access::principal::Principal;
use crate::domain::publishing::address::{Address, AddressPrefix};
use crate::http::address;
use crate::http::admission::{Refusal, RequestCredentials};
use crate::http::area::{is_console, is_page, is_public};
use crate::http::body::Body;
use crate::http::connections::Connection;
use crate::http::console::LOGIN;
use crate::http::meter::{Known, Refused};
use crate::http::methods::head_as_get;
use crate::http::origin::Standing;
use crate::http::place;
use crate::http::problem::{Code, Problem, whole_seconds};
use crate::http::state::State;
use crate::http::traced::RequestSpan;
use crate::service::access::secrets;
use crate::service::spans;

/// The prefix of all routes for administrators.
const ADMINISTRATION: &str = "/v1/admin/";
const NOWHERE: &str = "/v1/admin/-";
/// The metrics route, which needs a key unless the settings make it public.
const METRICS: &str = "/metrics";
/// Maximum length of a form on the pages for sign-ins, in bytes.
const FORM_BYTES: usize = 4096;
/// The form in which a person stores a secret. Each byte of the secret may take three.
const SECRET_FORM: &str = "/ui/me/secret";
const SECRET_FORM_BYTES: usize = FORM_BYTES + 3 * secrets::MAX_BYTES;
/// The same for forms of the console whose session has ended.
const CONSOLE_FORM_BYTES: usize = 64 * 1024;
/// How long responses are delayed for an address that has sent too many wrong keys.
const GUESSING: Duration = Duration::from_millis(250);

/// Marks a request with a wrong key from an address that has already sent too many. The response is delayed and ends the connection.
pub(super) struct Guess;

/// Admits or rejects a request, before routing and before any byte of its body is read.
pub(crate) async fn admit(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let state = request.app_data::<web::Data<State>>().cloned();
    let Some(state) = state else { return Err(Problem::new(Code::Internal, "The service is not set up.").into()) };
    let layout = state.publish.layout();
    if let Some(path) = layout.without_root(request.path()).map(str::to_owned) {
        take_path(&mut request, &path);
    }
    let whole_path = request.path().to_owned();
    let below = AddressPrefix::split(&whole_path);
    if let Some((_, path)) = below {
        take_path(&mut request, path);
    }
    let decided = let_in(&state, &request, &whole_path, matches!(below, Some((AddressPrefix::Session(_), _))));
    // Taken away, because afterwards the mark is one of the console, which checks keys too.
    let is_guess = request.extensions_mut().remove::<Guess>().is_some();
    if is_guess {
        sleep(GUESSING).await;
    }
    let principal = match decided {
        Ok(principal) => principal,
        Err(problem) => return Ok(refuse(request, &problem, is_guess).map_into_right_body()),
    };
    let entered = match below {
        // On the heap, so that requests to other addresses stay small.
        Some((below, _)) => Box::pin(place::enter(below, &state, &principal)).await,
        None => Ok((Address::Whole, principal)),
    };
    let (address, principal) = match entered {
        Ok(entered) => entered,
        Err(problem) => {
            // Reads the body, as every route does, so that the connection can be reused.
            let _ = request.extract::<Body>().await;
            return Ok(request.into_response(problem.error_response()).map_into_right_body());
        }
    };
    if principal.views && request.path().starts_with(ADMINISTRATION) && !may_view(request.method()) {
        let _ = request.extract::<Body>().await;
        let problem = Problem::new(Code::ReadOnlyKey, "This key has the role viewer. Use the admin key to change something.");
        return Ok(request.into_response(problem.error_response()).map_into_right_body());
    }
    if !principal.sees_all() && request.path().starts_with(ADMINISTRATION) {
        // For other callers, admin routes don't exist. This path produces the same response as any unknown path.
        take_path(&mut request, NOWHERE);
    }
    if request.method() == Method::OPTIONS
        && let Some(response) = state.methods.options(request.path())
    {
        return Ok(request.into_response(response).map_into_right_body());
    }
    let was_head = head_as_get(&mut request);
    state.connections.list_by_exchange(&principal, |name| request.headers().get(name)?.to_str().ok());
    let traced = RequestSpan::start(&state, &request, &whole_path, &principal);
    let principal = Arc::new(principal);
    {
        let mut extensions = request.extensions_mut();
        if let Some(known) = extensions.get::<Rc<Known>>() {
            known.admit(&principal, traced.as_ref().map(RequestSpan::span));
        }
        extensions.insert(principal);
        extensions.insert(Arc::new(address));
        was_head.map(|head| extensions.insert(head));
    }
    let result = spans::within(traced.as_ref().map(RequestSpan::span), next.call(request)).await;
    if let Some(traced) = traced {
        traced.finish(&result);
    }
    let mut response = result?;
    let is_guess = response.request().extensions_mut().remove::<Guess>().is_some();
    if is_guess {
        sleep(GUESSING).await;
        let request = response.request().clone();
        end_connection(&request, response.response_mut().head_mut());
    }
    Ok(with_error_document(&state, response))
}

/// The response to a request that is not admitted.
fn refuse(request: ServiceRequest, problem: &Problem, is_guess: bool) -> ServiceResponse {
    request.extensions_mut().insert(Refused);
    let mut response = without_basic(problem.error_response(), request.method());
    if is_guess {
        end_connection(request.request(), response.head_mut());
    }
    request.into_response(response)
}

/// Closes the connection after this response, so that the next attempt must open a new one.
fn end_connection(request: &HttpRequest, response: &mut ResponseHead) {
    response.set_connection_type(ConnectionType::Close);
    if let Some(connection) = request.conn_data::<Arc<Connection>>() {
        connection.end_after_answer();
    }
}

/// Gives the framework's own 404 and 405 responses, which have no body, an error document.
fn with_error_document<B: MessageBody + 'static>(state: &State, response: ServiceResponse<B>) -> ServiceResponse<EitherBody<B>> {
    let code = match response.status() {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        _ => return response.map_into_left_body(),
    };
    if response.headers().contains_key(header::CONTENT_TYPE) {
        return response.map_into_left_body();
    }
    // The framework lists a method once for each route that has it, and doesn't know HEAD and OPTIONS.
    let options = if code == Code::MethodNotAllowed { state.methods.options(response.request().path()) } else { None };
    let allow = options.and_then(|options| options.headers().get(header::ALLOW).cloned());
    let mut problem = Problem::new(code, "See /openapi.json for the available tools.").error_response();
    if let Some(allow) = allow {
        problem.headers_mut().insert(header::ALLOW, allow);
    }
    response.into_response(problem).map_into_right_body()
}

/// Determines the caller of a request from its headers. `path` is the complete path below the root.
fn let_in(state: &State, request: &ServiceRequest, path: &str, is_session: bool) -> Result<Principal, Problem> {
    let headers = request.headers();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let standing = state.origins.of(request.method(), headers, path);
    let credentials = RequestCredentials {
        headers,
        // A session belongs to its owner, so even its document needs a key.
        reads_document: reads && state.publish.layout().is_document(request.path()) && !is_session,
        takes_basic: reads && standing != Standing::Any,
        is_own: standing == Standing::Own,
    };
    let decided = state.admission.decide(&credentials).map(|(principal, ungrouped)| {
        if let Some(ungrouped) = ungrouped {
            request.extensions_mut().insert(ungrouped);
        }
        principal
    });
    let decided = decided.map_err(|refusal| match refusal {
        Refusal::WrongKey(problem) => {
            let client = address::client(request.peer_addr(), headers, &state.trusted_proxies);
            state.wrong_keys.count(client).map_or(problem, |retry_after| {
                request.extensions_mut().insert(Guess);
                too_many_wrong_keys(retry_after)
            })
        }
        Refusal::Other(problem) => problem,
    });
    let session = is_console(path).then(|| state.console.of(headers, &state.keys)).flatten();
    let has_session = session.is_some();
    let principal = match (session, decided) {
        (Some(session), _) => session.principal(),
        (None, Err(_)) if is_public(request.method(), path) => Principal::nobody(),
        // The console has its own sign-in, and sends everybody else there.
        (None, Err(_)) if is_console(path) => Principal::nobody(),
        (None, Err(_)) if path == METRICS && state.metrics.public => Principal::nobody(),
        (None, decided) => decided?,
    };
    let connection = request.conn_data::<Arc<Connection>>();
    if state.admission.is_known(&principal)
        && let Some(connection) = connection
    {
        connection.know();
    }
    if (is_page(path) || (is_console(path) && !has_session)) && *request.method() == Method::POST {
        let too_large = || Problem::new(Code::BodyTooLarge, "The form is too large, or Content-Length is missing.");
        let most = match path {
            SECRET_FORM => SECRET_FORM_BYTES,
            LOGIN => FORM_BYTES,
            _ if is_console(path) => CONSOLE_FORM_BYTES,
            _ => FORM_BYTES,
        };
        let length = form_length(headers, most).ok_or_else(too_large)?;
        if let Some(connection) = connection {
            connection.take_form(length);
        }
    }
    // A compressed body can expand far beyond its length, and this service doesn't support compression.
    if headers.get_all(header::CONTENT_ENCODING).any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(Code::EncodedBody, "Send the body unencoded, without Content-Encoding."));
    }
    if headers.get_all(header::UPGRADE).any(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Err(Problem::new(Code::NoUpgrade, "WebSockets are not supported. Omit the header Upgrade."));
    }
    Ok(principal)
}

/// Whether viewers may use this method of the admin routes.
fn may_view(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Removes the Basic challenge where Basic authentication is not allowed. Otherwise browsers would ask for a password
/// repeatedly.
fn without_basic(mut response: HttpResponse, method: &Method) -> HttpResponse {
    let challenges: Vec<HeaderValue> = response.headers_mut().remove(header::WWW_AUTHENTICATE).collect();
    let reads = matches!(*method, Method::GET | Method::HEAD);
    for challenge in challenges.into_iter().filter(|challenge| reads || !challenge.as_bytes().starts_with(b"Basic")) {
        response.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

fn too_many_wrong_keys(retry_after: Duration) -> Problem {
    let seconds = whole_seconds(retry_after);
    let detail = format!("Too many wrong keys came from this address. Try again in {seconds} s, or immediately with a valid key.");
    Problem { retry_after: Some(seconds), ..Problem::new(Code::RateLimited, detail) }
}

/// The length of a form of our pages, in bytes. Strangers may send such forms. `None` if it is missing or above `most`.
fn form_length(headers: &HeaderMap, most: usize) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    (length <= most).then_some(length)
}

/// Changes the path by which the request is routed.
fn take_path(request: &mut ServiceRequest, path: &str) {
    let path_and_query = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = path_and_query.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        request.match_info_mut().get_mut().update(&uri);
        request.head_mut().uri = uri;
    }
}

/// The authenticated caller of a route.
pub(crate) struct Caller(pub Arc<Principal>);

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let extensions = request.extensions();
        if let Some(known) = extensions.get::<Rc<Known>>() {
            known.route(request);
        }
        let principal = extensions.get::<Arc<Principal>>().cloned();
        ready(principal.map(Self).ok_or_else(|| Problem::new(Code::Unauthorized, "The caller is not known.")))
    }
}

/// An authenticated caller with administrator rights, or a viewer whose request changes nothing.
pub(crate) struct Administrator(pub Arc<Principal>);

impl FromRequest for Administrator {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let caller = Caller::from_request(request, payload).into_inner();
        let is_admitted = |principal: &Principal| principal.administers || (principal.views && may_view(request.method()));
        ready(caller.and_then(|Caller(principal)| if is_admitted(&principal) { Ok(Self(principal)) } else { Err(Problem::not_found()) }))
    }
}
