//! `toolsieve check`: validates the configuration and, with `--tools`, the servers' tool definitions.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::catalog::Known;
use crate::cli::{ConfigurationArgs, Failure, Outcome, catalog, embedder, print, runtime};
use crate::domain::catalog::hidden_text::{HiddenText, visible};
use crate::domain::catalog::texts::NearDuplicates;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::analysis::Analyzer;
use crate::service::catalog::tool_admin::{self, Duplicates};
use crate::settings::{ServerSettings, Settings, TransportSettings};

#[derive(Args)]
pub(super) struct Check {
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// Check the servers' tools too: report simplified schemas, hidden characters, changed definitions and duplicates
    #[arg(long)]
    tools: bool,
    /// With --tools: use the tools that the service stored last, and start no servers
    #[arg(long, requires = "tools")]
    offline: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Outcome {
        let settings = self.configuration.load()?;
        let known = match (self.tools, self.offline) {
            (false, _) => None,
            (true, true) => Some(runtime()?.block_on(catalog::last_good(&settings, catalog::START_OR_ASK))?),
            (true, false) => Some(runtime()?.block_on(catalog::ask(&settings))?),
        };
        let embedded = match &known {
            Some(known) => runtime()?.block_on(embedder::embedded_tools(&settings, &known.catalog))?,
            None => None,
        };
        let embedder = Embedder { description: embedder::described(&settings.start.embedder)?, embedded };
        if self.json {
            print(&format!("{:#}", as_json(&settings, known.as_ref(), &embedder)))?;
        } else {
            print(&as_text(&settings, known.as_ref(), &embedder))?;
        }
        let missing: Vec<String> =
            known.iter().flat_map(|known| &known.missing).map(|(server, reason)| format!("error: {server}: no tools: {reason}")).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failure::failed(missing.join("\n"))) }
    }
}

/// The embedder that the settings configure.
struct Embedder {
    description: String,
    /// Number of tools with vectors. Only known with `--tools`, and if there is a data folder.
    embedded: Option<usize>,
}

fn transport(server: &ServerSettings) -> String {
    match &server.transport {
        TransportSettings::Stdio { command, .. } => format!("stdio, `{command}`"),
        // The path and query of an address may contain a key, so only its origin is printed.
        TransportSettings::StreamableHttp { url, .. } => format!("streamable HTTP, {}", url.origin().ascii_serialization()),
        TransportSettings::Sse { url, .. } => format!("SSE, {}", url.origin().ascii_serialization()),
    }
}

fn as_text(settings: &Settings, known: Option<&Known>, embedder: &Embedder) -> String {
    let mut lines: Vec<String> = settings.live.servers.iter().map(|server| format!("{}: {}", server.name, transport(server))).collect();
    if let Some(known) = known {
        for (server, tool) in &known.skipped {
            lines.push(format!("{server}/{}: not published: {}", visible(&tool.tool), tool.reason));
        }
        for tool in simplified(known) {
            lines.push(format!("{}: published with less than its server says", tool.id));
            lines.extend(tool.input.losses.iter().map(|loss| format!("    {loss}")));
        }
        for (what, hidden) in hidden(known) {
            lines.push(format!("{what}: hidden characters, which models are not shown"));
            lines.extend(hidden.iter().map(|hidden| format!("    {}: {}", hidden.pointer, hidden.code_points.join(" "))));
        }
        lines.extend(known.changed.iter().map(|tool| format!("{tool}: its definition is another one than the service saw first")));
        let Duplicates { groups, lookalikes } = duplicates(known);
        for group in lookalikes {
            let tools: Vec<String> = group.iter().map(|tool| format!("{}/{}", tool.server, visible(&tool.tool))).collect();
            lines.push(format!("{}: their names are read as the same one", tools.join(", ")));
        }
        for group in groups {
            let tools: Vec<String> = group.tools.iter().map(|tool| format!("{}/{}", tool.server, visible(&tool.tool))).collect();
            let how = if group.same_definition { "say the same" } else { "say nearly the same" };
            lines.push(format!("{}: they {how}", tools.join(", ")));
        }
        let tools = known.catalog.tools().len();
        let less = simplified(known).count();
        lines.push(format!(
            "{tools} tools are published, {} of them with all that their servers say of the input, {less} with less.",
            tools - less
        ));
    }
    lines.push(match embedder.embedded {
        Some(tools) => format!("embedder: {}; {tools} tools are embedded.", embedder.description),
        None => format!("embedder: {}", embedder.description),
    });
    let http = &settings.start.http;
    let key = if http.api_key.is_some() { "with a key" } else { "without a key" };
    let count = settings.live.servers.len();
    lines.push(format!("The configuration is sound: {count} servers, listening on {}:{} {key}.", http.host, http.port));
    lines.join("\n")
}

fn as_json(settings: &Settings, known: Option<&Known>, embedder: &Embedder) -> Value {
    let servers: Vec<Value> =
        settings.live.servers.iter().map(|server| json!({"server": server.name, "transport": transport(server)})).collect();
    let http = &settings.start.http;
    let mut out = json!({
        "servers": servers,
        "embedder": embedder.description,
        "host": http.host,
        "port": http.port,
        "key": http.api_key.is_some(),
    });
    if let Some(known) = known {
        let skipped: Vec<Value> = known
            .skipped
            .iter()
            .map(|(server, tool)| json!({"server": server, "tool": visible(&tool.tool), "reason": tool.reason}))
            .collect();
        let missing: Vec<Value> = known.missing.iter().map(|(server, reason)| json!({"server": server, "reason": reason})).collect();
        let simplified: Vec<Value> = simplified(known)
            .map(|tool| json!({"server": tool.id.server, "tool": visible(&tool.id.name), "operation_id": tool.operation_id, "losses": tool.input.losses}))
            .collect();
        out["tools"] = known.catalog.tools().len().into();
        out["embedded"] = embedder.embedded.into();
        out["not_published"] = skipped.into();
        out["missing"] = missing.into();
        out["simplified"] = simplified.into();
        let hidden: Vec<Value> = hidden(known).into_iter().map(|(what, hidden)| json!({"of": what, "places": hidden})).collect();
        out["hidden_text"] = hidden.into();
        out["changed"] = known.changed.iter().map(|tool| json!({"server": tool.server, "tool": visible(&tool.name)})).collect();
        let Duplicates { groups, lookalikes } = duplicates(known);
        out["duplicates"] = json!(groups);
        out["lookalikes"] = json!(lookalikes);
    }
    out
}

/// Servers and tools whose texts contain hidden characters.
fn hidden(known: &Known) -> Vec<(String, Vec<&HiddenText>)> {
    let of_servers = known.hidden.iter().map(|(server, hidden)| (server.to_string(), vec![hidden]));
    let tools = known.catalog.tools().iter().filter(|tool| !tool.hidden.is_empty());
    // The tool's name may contain hidden characters too.
    of_servers.chain(tools.map(|tool| (visible(&tool.id.to_string()), tool.hidden.iter().collect()))).collect()
}

fn duplicates(known: &Known) -> Duplicates {
    let near_duplicates = NearDuplicates::of(&Analyzer::default(), known.catalog.tools().iter().map(|tool| tool.text()));
    tool_admin::duplicates(&known.catalog, &near_duplicates)
}

/// Tools whose published schema is simpler than the server's schema.
fn simplified(known: &Known) -> impl Iterator<Item = &Tool> {
    known.catalog.tools().iter().map(AsRef::as_ref).filter(|tool: &&Tool| !tool.input.losses.is_empty())
}
