//! `toolsieve tools`: lists the tools with their public names and token costs.

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::tool_facts::ToolCommand;
use crate::cli::{ConfigurationArgs, Failure, Outcome, catalog, print, runtime, table};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::Tool;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Tools {
    #[command(subcommand)]
    command: Option<ToolCommand>,
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// List only the tools of this server; may be repeated
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Use the tools that the service stored last, and start no servers
    #[arg(long)]
    offline: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row<'a> {
    server: &'a str,
    tool: &'a str,
    /// The public name, which a model sees.
    operation_id: &'a str,
    /// Size of the definition that a model gets, in cl100k tokens.
    tokens: u32,
    flags: Vec<&'static str>,
    summary: &'a str,
}

impl Tools {
    pub(super) fn run(self) -> Outcome {
        if let Some(command) = self.command {
            return command.run();
        }
        let mut settings = self.configuration.load()?;
        only(&mut settings.live.servers, &self.server)?;
        let known = runtime()?.block_on(async {
            if self.offline { catalog::last_good(&settings, catalog::START_OR_ASK).await } else { catalog::ask(&settings).await }
        })?;
        let rows: Vec<Row<'_>> = known.catalog.tools().iter().map(|tool| row(tool)).collect();
        let tokens: u64 = rows.iter().map(|row| u64::from(row.tokens)).sum();
        if self.json {
            let missing: Vec<Value> = known.missing.iter().map(|(server, reason)| json!({"server": server, "reason": reason})).collect();
            let skipped = known.skipped.iter();
            let skipped: Vec<Value> =
                skipped.map(|(server, tool)| json!({"server": server, "tool": visible(&tool.tool), "reason": tool.reason})).collect();
            print(&format!("{:#}", json!({"tools": rows, "tokens": tokens, "missing": missing, "skipped": skipped})))?;
        } else {
            let mut out = table::table(&["Server", "Tool", "Published as", "Tokens", "Flags"]);
            for row in &rows {
                out.add_row([row.server, row.tool, row.operation_id, &row.tokens.to_string(), &row.flags.join(", ")]);
            }
            let total = format!("{} tools from {} servers, {tokens} tokens", rows.len(), known.catalog.servers().len());
            print(&format!("{}\n{total}", table::text(&out)))?;
            for (server, tool) in &known.skipped {
                eprintln!("warning: {server}: {} is omitted: {}", visible(&tool.tool), tool.reason);
            }
        }
        let missing: Vec<String> = known.missing.iter().map(|(server, reason)| format!("error: {server}: {reason}")).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failure::failed(missing.join("\n"))) }
    }
}

/// Removes all servers except the named ones. An empty list keeps all servers.
pub(super) fn only(servers: &mut Vec<crate::settings::ServerSettings>, names: &[String]) -> Outcome {
    for name in names {
        if !servers.iter().any(|server| server.name.as_str() == name) {
            let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
            return Err(Failure::invalid(format!("error: --server: there is no server `{name}`. Known servers: {}.", known.join(", "))));
        }
    }
    servers.retain(|server| names.is_empty() || names.iter().any(|name| name == server.name.as_str()));
    Ok(())
}

fn row(tool: &Tool) -> Row<'_> {
    Row {
        server: tool.id.server.as_str(),
        tool: &tool.label,
        operation_id: tool.operation_id.as_str(),
        tokens: tool.tokens,
        flags: flags(tool),
        summary: tool.summary(),
    }
}

/// Properties from the server's annotations (MCP specification, "Tool annotations"), and whether the schema was
/// simplified.
fn flags(tool: &Tool) -> Vec<&'static str> {
    let raw = tool.raw.value();
    let hint = |name: &str| raw.pointer(&format!("/annotations/{name}")).and_then(Value::as_bool);
    let flags = [
        ("read-only", hint("readOnlyHint") == Some(true)),
        ("destructive", hint("destructiveHint") == Some(true) && hint("readOnlyHint") != Some(true)),
        ("idempotent", hint("idempotentHint") == Some(true)),
        ("shaped", tool.shape.changes_parameters()),
        ("wrapped", tool.input.wrapped),
        ("schema simplified", !tool.input.losses.is_empty()),
    ];
    flags.into_iter().filter(|(_, is_so)| *is_so).map(|(flag, _)| flag).collect()
}
