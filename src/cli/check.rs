//! `toolsieve check`: is the configuration sound?

use crate::cli::{ConfigurationArgs, Outcome};
use crate::settings::TransportSettings;

pub(super) fn run(arguments: &ConfigurationArgs) -> Outcome {
    let settings = arguments.service.load(arguments.servers()?)?;
    for server in &settings.live.servers {
        let how = match &server.transport {
            TransportSettings::Stdio { command, .. } => format!("stdio, `{command}`"),
            // The path or query of an address may hold a key.
            TransportSettings::StreamableHttp { url, .. } => format!("streamable HTTP, {}", url.origin().ascii_serialization()),
            TransportSettings::Sse { url, .. } => format!("SSE, {}", url.origin().ascii_serialization()),
        };
        println!("{}: {how}", server.name);
    }
    let http = &settings.start.http;
    let key = if http.api_key.is_some() { "with a key" } else { "without a key" };
    println!("The configuration is sound: {} servers, listening on {}:{} {key}.", settings.live.servers.len(), http.host, http.port);
    Ok(())
}
