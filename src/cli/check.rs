//! `toolsieve check`: validates the configuration and, with `--tools`, the servers' tool definitions.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::catalog::{Changed, Known, peculiarity};
use crate::cli::table::many;
use crate::cli::unmatched::{Unmatched, unmatched};
use crate::cli::{ConfigurationArgs, Failure, Outcome, catalog, embedder, print, runtime};
use crate::domain::catalog::hidden_text::{HiddenText, visible};
use crate::domain::catalog::shape::ShapeProblem;
use crate::domain::catalog::texts::NearDuplicates;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::analysis::Analyzer;
use crate::service::catalog::tool_admin::{self, Duplicates};
use crate::settings::{KnownServer, ServerSettings, Settings, TransportSettings};

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
        let mut settings = self.configuration.load()?;
        // Opening the store would be more than a check of the configuration.
        let stored = if self.tools { runtime()?.block_on(catalog::merge_stored_of_data_dir(&mut settings))? } else { Vec::new() };
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
            print(&format!("{:#}", as_json(&settings, &stored, known.as_ref(), &embedder)))?;
        } else {
            print(&as_text(&settings, &stored, known.as_ref(), &embedder))?;
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

/// Whether callers need a key.
fn is_secured(settings: &Settings) -> bool {
    let access = &settings.start.access;
    settings.start.http.api_key.is_some() || access.admin_key.is_some() || access.has_keys_in_file
}

fn as_text(settings: &Settings, stored: &[KnownServer], known: Option<&Known>, embedder: &Embedder) -> String {
    let mut lines: Vec<String> = settings.live.servers.iter().map(|server| format!("{}: {}", server.name, transport(server))).collect();
    lines.extend(stored.iter().filter_map(|server| Some(format!("{}: {}", server.name, peculiarity(server)?))));
    if let Some(known) = known {
        lines.extend(findings(known));
        lines.extend(shortened(unmatched(settings, known).into_iter().map(|Unmatched { of, reason }| format!("{of}: {reason}"))));
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
    let key = if is_secured(settings) { "with a key" } else { "without a key" };
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
    let changed = known.changed.iter().map(|Changed { tool, listed, approved_in_file, is_withheld }| {
        let tool = visible(&tool.to_string());
        let withheld = if *is_withheld { "; it is withheld" } else { "" };
        match approved_in_file {
            Some(approved) => {
                format!("{tool}: the settings file approves another definition: {approved}, not the listed {listed}{withheld}")
            }
            None => format!("{tool}: the definition has changed since it was first seen or approved{withheld}"),
        }
    });
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

fn as_json(settings: &Settings, stored: &[KnownServer], known: Option<&Known>, embedder: &Embedder) -> Value {
    let servers: Vec<Value> =
        settings.live.servers.iter().map(|server| json!({"server": server.name, "transport": transport(server)})).collect();
    let http = &settings.start.http;
    let mut out = json!({
        "servers": servers,
        "embedder": embedder.description,
        "host": http.host,
        "port": http.port,
        "key": is_secured(settings),
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
        let changed = known.changed.iter().map(|Changed { tool, listed, approved_in_file, is_withheld }| {
            json!({
                "server": tool.server,
                "tool": visible(&tool.name),
                "fingerprint": listed.to_string(),
                "approved_in_file": approved_in_file.map(|approved| approved.to_string()),
                "withheld": is_withheld,
            })
        });
        out["changed"] = changed.collect();
        out["unmatched"] = json!(unmatched(settings, known));
        let stored = stored.iter().filter_map(|server| Some(json!({"server": server.name, "reason": peculiarity(server)?})));
        out["not_used"] = stored.collect();
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
    use std::fs;

    use serde_json::json;

    use super::{Embedder, MOST, as_json, findings, shortened};
    use crate::cli::catalog::{Kept, known};
    use crate::domain::catalog::catalog::ServerListing;
    use crate::domain::text::json_text::JsonText;
    use crate::settings::{Settings, Sources};

    const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn load(text: &str) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toolsieve.toml");
        fs::write(&file, text).unwrap();
        Settings::load(&Sources { settings: Some(file), ..Sources::default() }).unwrap().0
    }

    /// Regression: only `http.api_key` counted.
    #[test]
    fn every_kind_of_key_secures_the_service() {
        let key = |settings: &str| {
            let embedder = Embedder { description: String::new(), embedded: None };
            as_json(&load(settings), &[], None, &embedder)["key"] == true
        };
        assert!(!key(""));
        assert!(key(&format!("[[key]]\nname = \"ci\"\nsha256 = \"{ZEROS}\"\n")));
        assert!(key("[access]\nadmin_key = \"c07d58364f2a9c1be07d5836\"\n"));
    }

    /// Regression: the reason was "the definition has changed since the service first saw it".
    #[test]
    fn an_approval_of_another_definition_is_the_reason() {
        let approval = format!("[[approval]]\nserver = \"git\"\ntool = \"log\"\nfingerprint = \"{ZEROS}\"\n");
        let tools = vec![JsonText::of(&json!({"name": "log", "inputSchema": {"type": "object"}}))];
        let (title, program, version, instructions) = (None, None, None, None);
        let listings = [ServerListing { server: "git".into(), title, program, version, instructions, tools, skipped: Vec::new() }];
        for (mode, end) in [("quarantine", "; it is withheld"), ("flag", "")] {
            let settings = load(&format!("[definitions]\nchanges = \"{mode}\"\n{approval}"));
            let known = known(&listings, Vec::new(), &settings, &Kept::default());
            let listed = known.changed[0].listed;
            let expected = format!("git/log: the settings file approves another definition: {ZEROS}, not the listed {listed}{end}");
            assert_eq!(findings(&known), [expected]);
        }
    }

    #[test]
    fn long_lists_end_with_the_number_of_the_rest() {
        let entries = |count: usize| (0..count).map(|number| format!("    tool {number}"));
        assert_eq!(shortened(entries(MOST + 1)).len(), MOST + 1);
        let lines = shortened(entries(MOST + 2));
        assert_eq!((lines.len(), lines[MOST].as_str()), (MOST + 1, "    and 2 more; --json lists all"));
    }
}
