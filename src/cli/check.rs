//! `toolsieve check`: validates the configuration and, with `--tools`, the servers' tool definitions.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::catalog::Known;
use crate::cli::table::many;
use crate::cli::{ConfigurationArgs, Failure, Outcome, catalog, embedder, print, runtime};
use crate::domain::catalog::hidden_text::{HiddenText, visible};
use crate::domain::catalog::shape::ShapeProblem;
use crate::domain::catalog::texts::NearDuplicates;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::analysis::Analyzer;
use crate::service::catalog::tool_admin::{self, Duplicates};
use crate::settings::{ServerSettings, Settings, TransportSettings};

/// Maximum number of entries of each kind in the text.
const MOST: usize = 12;

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
        lines.extend(findings(known));
        let tools = known.catalog.tools().len();
        let simpler = simplified(known).count();
        lines.push(format!(
            "{} published, {} with complete schemas and {simpler} with simpler ones.",
            many(tools, "tool"),
            tools - simpler
        ));
    }
    lines.push(match embedder.embedded {
        Some(tools) => format!("embedder: {}; {} embedded.", embedder.description, many(tools, "tool")),
        None => format!("embedder: {}", embedder.description),
    });
    let http = &settings.start.http;
    let access = &settings.start.access;
    let is_secured = http.api_key.is_some() || access.admin_key.is_some() || access.has_keys_in_file;
    let key = if is_secured { "with a key" } else { "without a key" };
    let servers = many(settings.live.servers.len(), "server");
    lines.push(format!("The configuration is valid: {servers}, listening on {}:{} {key}.", http.host, http.port));
    lines.join("\n")
}

/// What people should know about the tools, a few entries of each kind.
fn findings(known: &Known) -> Vec<String> {
    let skipped = known.skipped.iter().map(|(server, tool)| format!("{server}/{}: not published: {}", visible(&tool.tool), tool.reason));
    let simplified = simplified(known).map(|tool| {
        let losses = tool.input.losses.iter().map(|loss| format!("    {loss}"));
        [format!("{}: published with a simpler schema", tool.id)].into_iter().chain(shortened(losses)).collect::<Vec<_>>().join("\n")
    });
    let hidden = hidden(known).into_iter().map(|(what, hidden)| {
        let places = hidden.iter().map(|hidden| format!("    {}: {}", hidden.pointer, hidden.code_points.join(" ")));
        [format!("{what}: hidden characters, which models don't see")].into_iter().chain(shortened(places)).collect::<Vec<_>>().join("\n")
    });
    let changed = known.changed.iter().map(|tool| format!("{tool}: the definition has changed since the service first saw it"));
    let Duplicates { groups, lookalikes } = duplicates(known);
    let lookalikes = lookalikes.into_iter().map(|group| {
        let tools: Vec<String> = group.iter().map(|tool| format!("{}/{}", tool.server, visible(&tool.tool))).collect();
        format!("{}: the names look the same", tools.join(", "))
    });
    let duplicates = groups.into_iter().map(|group| {
        let tools: Vec<String> = group.tools.iter().map(|tool| format!("{}/{}", tool.server, visible(&tool.tool))).collect();
        let how = if group.same_definition { "the same definition" } else { "nearly the same definition" };
        format!("{}: {how}", tools.join(", "))
    });
    let shapes = misfits(known).map(|(tool, problem)| format!("{}: the shape does not fit: {problem}", visible(&tool.id.to_string())));
    let kinds = [
        shortened(skipped),
        shortened(simplified),
        shortened(shapes),
        shortened(hidden),
        shortened(changed),
        shortened(lookalikes),
        shortened(duplicates),
    ];
    kinds.concat()
}

/// The first entries, and how many more there are.
fn shortened(entries: impl Iterator<Item = String>) -> Vec<String> {
    let mut entries: Vec<String> = entries.collect();
    // One entry takes as much space as the note about it.
    if entries.len() > MOST + 1 {
        let more = entries.len() - MOST;
        let indent: String = entries[MOST].chars().take_while(|character| *character == ' ').collect();
        entries.truncate(MOST);
        entries.push(format!("{indent}and {more} more; --json lists all"));
    }
    entries
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
        out["shapes"] = misfits(known)
            .map(|(tool, problem)| json!({"server": tool.id.server, "tool": visible(&tool.id.name), "problem": problem}))
            .collect();
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

/// Which parts of tools' shapes don't fit the definitions.
fn misfits(known: &Known) -> impl Iterator<Item = (&Tool, &ShapeProblem)> {
    let tools = known.catalog.tools().iter().chain(known.catalog.disabled());
    tools.flat_map(|tool| tool.shape.problems.iter().map(move |problem| (&**tool, problem)))
}

/// Tools whose published schema is simpler than the server's schema.
fn simplified(known: &Known) -> impl Iterator<Item = &Tool> {
    known.catalog.tools().iter().map(AsRef::as_ref).filter(|tool: &&Tool| !tool.input.losses.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{MOST, shortened};

    #[test]
    fn long_lists_end_with_the_number_of_the_rest() {
        let entries = |count: usize| (0..count).map(|number| format!("    tool {number}"));
        assert_eq!(shortened(entries(MOST + 1)).len(), MOST + 1);
        let lines = shortened(entries(MOST + 2));
        assert_eq!((lines.len(), lines[MOST].as_str()), (MOST + 1, "    and 2 more; --json lists all"));
    }
}
