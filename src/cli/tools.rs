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
        // Offline, the data folder is enough.
        let mut settings = if self.offline { self.configuration.load_any()? } else { self.configuration.load()? };
        let known = runtime()?.block_on(async {
            catalog::merge_stored_of_data_dir(&mut settings).await?;
            if catalog::has_servers_file(&settings) {
                only(&mut settings.live.servers, &self.server)?;
            }
            if self.offline { catalog::last_good(&settings, catalog::START_OR_ASK).await } else { catalog::ask(&settings).await }
        })?;
        if !catalog::has_servers_file(&settings) {
            let listed: Vec<&str> = known.catalog.servers().iter().map(|server| server.name.as_str()).collect();
            check_names(&listed, &self.server)?;
        }
        let is_meant = |name: &str| self.server.is_empty() || self.server.iter().any(|server| server == name);
        let tools = known.catalog.tools().iter().filter(|tool| is_meant(tool.id.server.as_str()));
        let rows: Vec<Row<'_>> = tools.map(|tool| row(tool)).collect();
        let servers = known.catalog.servers().iter().filter(|server| is_meant(server.name.as_str())).count();
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
            let total = format!("{} tools from {servers} servers, {tokens} tokens", rows.len());
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
    let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    check_names(&known, names)?;
    servers.retain(|server| names.is_empty() || names.iter().any(|name| name == server.name.as_str()));
    Ok(())
}

/// Checks the values of `--server`.
pub(super) fn check_names(known: &[&str], names: &[String]) -> Outcome {
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Failure::invalid(format!(
            "error: --server: there is no server `{name}`, or it is switched off. Known servers: {}. Servers that were added over the API or \
             in the console are known if --data-dir or --settings names the service's state.",
            known.join(", ")
        ))),
        None => Ok(()),
    }
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
