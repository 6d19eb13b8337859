//! The least that can stand between MCP clients and an MCP server, to measure the service against: `tools/list` and `tools/call`
//! by rmcp over streamable HTTP → rmcp over standard streams. No key, no rules, no names, no validation, no record, no limits.
//!
//! `bare-gateway PORT COMMAND [ARGUMENTS]…`; prints its address when it listens. Port 0 takes a free one.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test server may panic and prints its address")]

use std::sync::Arc;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use http_body_util::{BodyExt, Full};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, RoleClient, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, TokioChildProcess};
use rmcp::{ServerHandler, ServiceExt};
use tokio::process::Command;

#[derive(Clone)]
struct Gateway(Peer<RoleClient>);

impl ServerHandler for Gateway {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.list_tools(params).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn call_tool(&self, request: CallToolRequestParams, _: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let result = self.0.call_tool(request).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(result.into())
    }
}

type Service = StreamableHttpService<Gateway, NeverSessionManager>;

async fn serve(service: web::Data<Service>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let mut asked = http::Request::builder().method(request.method().as_str()).uri(request.uri().to_string());
    for (name, value) in request.headers() {
        asked = asked.header(name.as_str(), value.as_bytes());
    }
    let (parts, body) = service.handle(asked.body(Full::new(body)).unwrap()).await.into_parts();
    let mut response = HttpResponse::build(actix_web::http::StatusCode::from_u16(parts.status.as_u16()).unwrap());
    for (name, value) in &parts.headers {
        response.append_header((name.as_str(), value.as_bytes()));
    }
    response.body(body.collect().await.unwrap().to_bytes())
}

// The runtime of several threads on which the service itself lives.
#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let port: u16 = words.next().and_then(|word| word.parse().ok()).expect("a port");
    let mut command = Command::new(words.next().expect("a command"));
    command.args(words);
    let running = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
    let gateway = Gateway(running.peer().clone());
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let service = Service::new(move || Ok(gateway.clone()), Arc::new(NeverSessionManager::default()), config);
    let service = web::Data::new(service);
    let server = HttpServer::new(move || App::new().app_data(service.clone()).route("/mcp", web::post().to(serve)))
        .tcp_nodelay(true)
        .bind(("127.0.0.1", port))
        .unwrap();
    println!("http://{}", server.addrs()[0]);
    server.run().await.unwrap();
}
