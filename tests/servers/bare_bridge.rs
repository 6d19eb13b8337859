//! The least that can stand between HTTP and an MCP server, to measure the service against: `POST /{tool}` → `tools/call`
//! by rmcp over standard streams → JSON. No validation, no key, no names, no record, no limits.
//!
//! `bare-bridge PORT COMMAND [ARGUMENTS]…`; prints its address when it listens. Port 0 takes a free one.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test server may panic and prints its address")]

use actix_web::{App, HttpResponse, HttpServer, web};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, JsonObject};
use rmcp::service::{Peer, RoleClient};
use rmcp::transport::TokioChildProcess;
use tokio::process::Command;

async fn call(peer: web::Data<Peer<RoleClient>>, tool: web::Path<String>, arguments: web::Json<JsonObject>) -> HttpResponse {
    let params = CallToolRequestParams::new(tool.into_inner()).with_arguments(arguments.into_inner());
    match peer.call_tool(params).await {
        Ok(result) => HttpResponse::Ok().json(result),
        Err(error) => HttpResponse::BadGateway().body(error.to_string()),
    }
}

// The runtime of several threads on which the service itself lives.
#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let port: u16 = words.next().and_then(|word| word.parse().ok()).expect("a port");
    let mut command = Command::new(words.next().expect("a command"));
    command.args(words);
    let running = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
    let peer = web::Data::new(running.peer().clone());
    let server = HttpServer::new(move || App::new().app_data(peer.clone()).route("/{tool}", web::post().to(call)))
        .tcp_nodelay(true)
        .bind(("127.0.0.1", port))
        .unwrap();
    println!("http://{}", server.addrs()[0]);
    server.run().await.unwrap();
}
