//! The MCP face: the same catalogue, policy and calls for MCP clients, over streamable HTTP, in both eras of the protocol.
//!
//! No session is kept, not even for clients of the older era, whose versions allow that: what a caller sees depends on its key
//! and on the address alone (MCP specification 2026-07-28, "Tools": a list must not vary by connection). So a client costs
//! nothing between its requests, and any replica answers any of them. The price: clients of the older era are not told when
//! the list changes; they list again.
//!
//! One address is different, `?mode=message`: for Open WebUI, which lists anew for each message and says in a header for which. There
//! the list is what the filter was answered for that message, and no client shall keep it.

mod definition;
mod meta;
mod server;

use std::sync::Arc;

use actix_web::body::{BodySize, BodyStream, MessageBody as _};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;

use crate::domain::document::Mode;
use crate::domain::principal::Principal;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::mcp::server::{Face, Shown};
use crate::http::place::At;
use crate::http::problem::{Code, Problem};
use crate::http::routes::execute::{context, headers};
use crate::http::state::State;

const JSON: &str = "application/json";
/// The message that Open WebUI is about to answer.
const MESSAGE_ID: &str = "x-openwebui-message-id";

#[derive(Deserialize)]
pub struct McpQuery {
    mode: Option<String>,
}

impl McpQuery {
    fn shown(&self, body: &[u8]) -> Result<Shown, Problem> {
        match self.mode.as_deref() {
            None | Some("full") => Ok(Shown::Whole(Mode::Full)),
            Some("meta") => Ok(Shown::Whole(Mode::Meta)),
            Some("smart") => Ok(Shown::Whole(Mode::Smart)),
            Some("message") => Ok(Shown::ForMessage),
            Some("lazy") => Ok(if asks_for_everything(body) { Shown::Whole(Mode::Full) } else { Shown::Stubs }),
            Some(_) => Err(Problem::new(Code::InvalidRequest, "mode is `full`, `meta`, `smart`, `lazy` or `message`.")),
        }
    }
}

/// `POST /mcp`: one message of JSON-RPC; the answer is JSON, or a stream of events where the tool tells of its progress.
///
/// # Errors
/// 422 for an unknown mode. All other errors are those of the protocol.
pub async fn serve(
    state: web::Data<State>,
    caller: Caller,
    at: At,
    query: web::Query<McpQuery>,
    request: HttpRequest,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let shown = query.shown(&body.0)?;
    let mut context = context(&caller, &request);
    // Only servers whose configuration says so get any of them.
    context.headers = Arc::new(headers(&request));
    let chosen = if shown == Shown::ForMessage { chosen(&state, &context.principal, &request) } else { None };
    let asked = to_request(&request, &context.headers, body.0)?;
    let face = Face { state, caller: context, place: at.0, shown, chosen };
    // Host and Origin were looked at before any route was, and so was the key.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_allowed_hosts(Vec::<String>::new());
    let service = StreamableHttpService::new(move || Ok(face.clone()), Arc::new(NeverSessionManager::default()), config);
    to_response(service.handle(asked).await).await
}

/// What was chosen for the message that Open WebUI lists the tools for, see [`crate::service::message_selections`].
fn chosen(state: &State, principal: &Principal, request: &HttpRequest) -> Option<Arc<[String]>> {
    let message = request.headers().get(MESSAGE_ID)?.to_str().ok()?;
    state.message_selections.of(principal, message)
}

/// `tools/list` with `"lazy": false`: a client of the lazy mode wants all definitions for once. The SDK drops that member.
fn asks_for_everything(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Asked {
        params: Option<Params>,
    }
    #[derive(Deserialize)]
    struct Params {
        lazy: Option<bool>,
    }
    let asked: Option<Asked> = serde_json::from_slice(body).ok();
    asked.and_then(|asked| asked.params?.lazy) == Some(false)
}

fn to_request(request: &HttpRequest, headers: &http::HeaderMap, body: Bytes) -> Result<http::Request<Full<Bytes>>, Problem> {
    let mut builder = http::Request::builder().method(request.method().as_str()).uri(request.uri().to_string());
    if let Some(known) = builder.headers_mut() {
        known.clone_from(headers);
    }
    builder.body(Full::new(body)).map_err(|error| Problem::new(Code::InvalidRequest, format!("The request can't be read: {error}.")))
}

async fn to_response<B>(response: http::Response<B>) -> Result<HttpResponse, Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
    B::Error: std::error::Error,
{
    let (parts, body) = response.into_parts();
    let status = StatusCode::from_u16(parts.status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut builder = HttpResponse::build(status);
    for (name, value) in &parts.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_str().as_bytes()), HeaderValue::from_bytes(value.as_bytes())) {
            builder.append_header((name, value));
        }
    }
    let is_stream = parts.headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| !kind.as_bytes().starts_with(JSON.as_bytes()));
    if is_stream && status == StatusCode::OK {
        let stream = BodyStream::new(body.into_data_stream());
        debug_assert_eq!(stream.size(), BodySize::Stream, "its length is not known");
        return Ok(builder.body(stream));
    }
    let whole = body.collect().await.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(builder.body(whole.to_bytes()))
}
