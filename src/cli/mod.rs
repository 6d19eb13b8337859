//! The command line: reads flags, loads the configuration, runs the command.
//!
//! Exit codes: 0 success, 1 a problem or a failure, 2 wrong use or invalid configuration.

mod admin;
mod audit;
mod backup;
mod bench;
mod catalog;
mod check;
mod doctor;
mod embedder;
mod enrichment;
mod feedback;
mod keys;
mod mcp_stdio;
mod mcpo;
mod mode;
mod model;
mod openapi;
mod openwebui;
mod policy;
mod quickstart;
mod report;
mod retrieval;
mod search;
mod secrets;
mod serve;
mod sessions;
mod table;
mod tool_facts;
mod tools;
mod toolsets;
mod usage;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use secrecy::SecretString;
use url::Url;

use crate::adapters::launch::Launch;
use crate::adapters::{log, process};
use crate::settings::{Environment, Finding, McpoSettings, Overrides, ServersSource, Settings, Sources, ToolsetFlags};

/// Put all MCP servers behind one tool server for Open WebUI, and show the model only the tools that a message needs.
///
/// Without a command, Toolsieve takes mcpo's flags: toolsieve --port 8000 --api-key KEY --config mcp.json, or
/// toolsieve --port 8000 -- uvx mcp-server-time. All of them: toolsieve mcpo --help
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the service with the servers of a configuration file
    Serve(serve::Serve),
    /// Install a few real MCP servers and start the service with them
    Quickstart(quickstart::Quickstart),
    /// Find problems that would keep the service from working, and compare with mcpo
    Doctor(doctor::Doctor),
    /// List the tools with their token costs; show or set a tool's metadata on a running service
    Tools(tools::Tools),
    /// Rank the tools for a message, with scores and reasons
    Search(search::Search),
    /// Check the configuration without starting anything; with --tools, check the servers' tools too
    Check(check::Check),
    /// Print the OpenAPI document of the configured servers' tools, or of the service's own routes
    Openapi(openapi::Openapi),
    /// Show how many tools a language model has described, and the cost of describing the others
    Enrichment(enrichment::Enrichment),
    /// Convert a sentence-transformers folder to a weights file
    #[command(subcommand)]
    Model(model::Model),
    /// Register the service and its filter in Open WebUI, or remove them
    #[command(subcommand)]
    Openwebui(openwebui::OpenWebUi),
    /// Create, list, rotate and revoke API keys of a running service
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Show, test and replace the rules of a running service: who may call which tool, and why
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// List, show, set and remove the toolsets of a running service
    #[command(subcommand)]
    Toolsets(toolsets::Toolsets),
    /// Create, list and end sessions of a running service
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Show the audit log of a running service: calls and changes, with their callers
    Audit(audit::Audit),
    /// Create the key that encrypts users' secrets; delete a user's secrets on a running service
    #[command(subcommand)]
    Secrets(secrets::Secrets),
    /// Show the usage of tools on a running service: counts and success
    Usage(usage::Usage),
    /// Compare sessions with all tools and sessions with chosen tools, by cost and result, on a running service
    Report(report::Report),
    /// Report whether a tool was right for a message
    Feedback(feedback::Feedback),
    /// Copy the database of a data folder to a new file, also while the service runs
    Backup(backup::Backup),
    /// Connect a running service to an MCP client that can only start processes
    McpStdio(mcp_stdio::McpStdio),
    /// Measure retrieval quality and cost on messages with known tools
    Bench(Box<bench::Bench>),
}

/// The subject of commands that start no service.
#[derive(Args, Clone)]
struct ConfigurationArgs {
    /// JSON file with an `mcpServers` map, as for mcpo, Claude Desktop and Cursor: the MCP servers
    #[arg(short, long, value_name = "FILE", env = "TOOLSIEVE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    sources: SourceArgs,
}

/// Locations of settings and data.
#[derive(Args, Clone)]
struct SourceArgs {
    /// TOML file with all other settings; src/settings/defaults.toml has the commented defaults
    #[arg(long, value_name = "FILE", env = "TOOLSIEVE_SETTINGS")]
    settings: Option<PathBuf>,
    /// Data folder, one process per folder [default: ./toolsieve-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The listening address and its access.
#[derive(Args, Clone)]
struct ListenArgs {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on; 0 selects a free one [default: 8000]
    #[arg(short, long)]
    port: Option<u16>,
    /// Key that callers must send; prefer the variable `TOOLSIEVE_API_KEY`
    #[arg(short = 'k', long, value_name = "KEY")]
    api_key: Option<SecretString>,
    /// Accept connections from other machines without requiring a key
    #[arg(long)]
    insecure: bool,
}

/// Flags of commands that start the service.
#[derive(Args, Clone)]
struct ServiceArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    listen: ListenArgs,
    /// Apply changes of the files while running; a SIGHUP does so at any time
    #[arg(long)]
    hot_reload: bool,
    /// Log level: error, warn, info, debug, or a filter such as `toolsieve=debug` [default: info]
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
}

/// The result of a command.
type Outcome = Result<(), Failure>;

/// A failed command: the message, and the exit code.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// Failed, or found a problem.
    fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// Wrong use, or an invalid configuration.
    fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    if let Some(launch) = Launch::read(std::env::args_os().skip(1)) {
        return launch.run();
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let command: Box<dyn FnOnce() -> Outcome> = if let Some(words) = mcpo::Mcpo::meant(&words) {
        let command = mcpo::Mcpo::parse_from(words);
        Box::new(|| command.run())
    } else {
        let Cli { command } = Cli::parse();
        Box::new(|| command.run())
    };
    // One TLS provider for every client in the process: without this, a second one among the dependencies panics.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok());
    let outcome = command();
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                log::say(failure.message.trim_end());
            }
            ExitCode::from(failure.code)
        }
    };
    log::flush();
    code
}

impl Command {
    fn run(self) -> Outcome {
        match self {
            Self::Serve(command) => command.run(),
            Self::Quickstart(command) => command.run(),
            Self::Doctor(command) => command.run(),
            Self::Tools(command) => command.run(),
            Self::Search(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Openapi(command) => command.run(),
            Self::Enrichment(command) => command.run(),
            Self::Model(command) => command.run(),
            Self::Openwebui(command) => command.run(),
            Self::Keys(command) => command.run(),
            Self::Policy(command) => command.run(),
            Self::Toolsets(command) => command.run(),
            Self::Sessions(command) => command.run(),
            Self::Audit(command) => command.run(),
            Self::Secrets(command) => command.run(),
            Self::Usage(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Feedback(command) => command.run(),
            Self::Backup(command) => command.run(),
            Self::McpStdio(command) => command.run(),
            Self::Bench(command) => command.run(),
        }
    }
}

/// The servers file, which is required.
fn servers(config: Option<&PathBuf>) -> Result<ServersSource, Failure> {
    match config {
        Some(path) => Ok(ServersSource::File(path.clone())),
        None => Err(Failure::invalid(
            "error: no MCP servers are given. Name the file with the `mcpServers` map: --config mcp.json, \
             or try `toolsieve quickstart`.",
        )),
    }
}

impl ConfigurationArgs {
    /// Loads the configuration; requires a servers file; prints warnings.
    fn load(&self) -> Result<Settings, Failure> {
        self.sources.load(servers(self.config.as_ref())?)
    }

    /// Loads the configuration; a data folder suffices in place of a servers file; prints warnings.
    fn load_any(&self) -> Result<Settings, Failure> {
        self.sources.load(self.config.clone().map_or(ServersSource::Nothing, ServersSource::File))
    }
}

impl SourceArgs {
    /// Loads the configuration; prints warnings.
    fn load(&self, servers: ServersSource) -> Result<Settings, Failure> {
        load(&self.sources(servers, None, Overrides::default()))
    }

    fn sources(&self, servers: ServersSource, mcpo: Option<McpoSettings>, overrides: Overrides) -> Sources {
        Sources {
            servers,
            settings: self.settings.clone(),
            environment: Environment::of_process(),
            overrides: Overrides { data_dir: self.data_dir.clone(), launcher: launcher(), ..overrides },
            mcpo,
        }
    }
}

impl ListenArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            host: self.host.clone(),
            port: self.port,
            api_key: self.api_key.clone(),
            insecure: self.insecure,
            ..Overrides::default()
        }
    }
}

impl ServiceArgs {
    /// Loads the configuration with the toolset flags; prints warnings.
    fn load(&self, servers: ServersSource, toolsets: ToolsetFlags) -> Result<Settings, Failure> {
        let overrides = Overrides { log_level: self.log_level.clone(), watch: self.hot_reload, toolsets, ..self.listen.overrides() };
        load(&self.sources.sources(servers, None, overrides))
    }
}

/// Loads the configuration; prints warnings.
fn load(sources: &Sources) -> Result<Settings, Failure> {
    let (settings, warnings) = read(sources)?;
    for warning in warnings {
        log::say(&format!("warning: {warning}"));
    }
    Ok(settings)
}

/// Loads the configuration. The second value holds the warnings.
fn read(sources: &Sources) -> Result<(Settings, Vec<Finding>), Failure> {
    Settings::load(sources).map_err(|problems| Failure::invalid(problems.to_string()))
}

/// The address of a service, as an argument.
fn service_url(text: &str) -> Result<Url, String> {
    let example = "it begins with http:// or https://, such as http://127.0.0.1:8000";
    let url = Url::parse(text).map_err(|_| example.to_owned())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(example.to_owned()) }
}

/// Prints a whole answer. A closed pipe, as from `head`, is no failure.
fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!("error: standard output: {error}"))),
        _ => Ok(()),
    }
}

/// The launcher of MCP servers: this program, even after its file was replaced.
fn launcher() -> Option<PathBuf> {
    cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self/exe"))
}

/// Hardens a long-running process that holds keys: its log never blocks, and other processes of its user can't look into it.
fn begin_service() -> Outcome {
    log::begin();
    if SystemTime::now() < UNIX_EPOCH {
        // HTTP dates and ids start there.
        return Err(Failure::failed("error: this machine's clock is before 1970: set it"));
    }
    process::hide().map_err(|error| Failure::failed(format!("error: the process can't be hidden from others: {error}")))
}

/// A runtime for commands that wait.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| Failure::failed(format!("error: no runtime: {error}")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, mcpo};

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        mcpo::Mcpo::command().debug_assert();
    }
}
