//! The command line: parses the flags, loads the configuration and runs the command.
//!
//! Exit codes: 0 for success, 1 for a failure or a reported problem, 2 for wrong usage or an invalid configuration.

mod admin;
mod audit;
mod backup;
mod bench;
mod catalog;
mod check;
mod costs;
mod doctor;
mod embedder;
mod enrichment;
mod feedback;
mod keys;
mod learn;
mod mcp_stdio;
mod mcpo;
mod mode;
mod model;
mod openapi;
mod openwebui;
mod policy;
mod quickstart;
mod report;
mod restore;
mod retrieval;
mod search;
mod secrets;
mod serve;
mod servers;
mod sessions;
mod store;
mod stored;
mod table;
mod tool_facts;
mod tools;
mod toolsets;
mod unmatched;
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
use crate::settings::{Environment, Finding, LogFormat, McpoSettings, Overrides, ServersSource, Settings, Sources, ToolsetFlags};

/// Put all MCP servers behind one tool server for Open WebUI, and show the model only the tools that a message needs
///
/// Without a command, Toolsieve accepts mcpo's flags, for example: toolsieve --port 8000 --api-key KEY --config
/// mcp.json, or toolsieve --port 8000 -- uvx mcp-server-time. To list these flags, run: toolsieve mcpo --help
#[derive(Parser)]
#[command(version = env!("BUILD_VERSION"), propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the service with the MCP servers in a configuration file
    Serve(serve::Serve),
    /// Install five MCP servers for a first try, and start the service with them
    Quickstart(quickstart::Quickstart),
    /// Find problems that would keep the service from working, or compare Toolsieve with mcpo
    Doctor(doctor::Doctor),
    /// List the tools and their token costs; show or change a tool's metadata on a running service
    Tools(tools::Tools),
    /// Rank the tools for a message, with scores and reasons
    Search(search::Search),
    /// Check the configuration without starting anything; with --tools, also check the servers' tools
    Check(check::Check),
    /// Print the OpenAPI document that describes the servers' tools, or the one for the service's own routes
    Openapi(openapi::Openapi),
    /// Show how many tools have texts from a language model, and what the remaining texts would cost
    Enrichment(enrichment::Enrichment),
    /// Convert a sentence-transformers model to a weights file
    #[command(subcommand)]
    Model(model::Model),
    /// Register Toolsieve and its filter in Open WebUI, or remove them
    #[command(subcommand)]
    Openwebui(openwebui::OpenWebUi),
    /// Create, list, rotate and revoke API keys of a running service
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Show, test or replace the rules that decide who may call which tool on a running service
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// List, show, set and remove the toolsets of a running service
    #[command(subcommand)]
    Toolsets(toolsets::Toolsets),
    /// List, add, change, switch, restart and remove the MCP servers of a running service
    #[command(subcommand)]
    Servers(servers::Servers),
    /// Create, list and end sessions of a running service
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Show the audit log of a running service: calls and changes, and who made them
    Audit(audit::Audit),
    /// Create the key that encrypts users' secrets; delete a user's secrets on a running service
    #[command(subcommand)]
    Secrets(secrets::Secrets),
    /// Show, replay or forget what a running service learned from use
    #[command(subcommand)]
    Learn(learn::Learn),
    /// Show how often the tools of a running service were offered and called, and how the calls ended
    Usage(usage::Usage),
    /// Show the cost and results of sessions; compare sessions with all tools and sessions with selected tools
    Report(report::Report),
    /// Record whether a tool was right for a message
    Feedback(feedback::Feedback),
    /// Write a backup of the data folder to a file, even while the service runs
    Backup(backup::Backup),
    /// Restore a backup into a data folder, while no service uses it
    Restore(restore::Restore),
    /// Move the state between the data folder and a PostgreSQL database, while no service uses either
    #[command(subcommand)]
    Store(store::Store),
    /// Connect a running service to an MCP client that can only start processes
    McpStdio(mcp_stdio::McpStdio),
    /// Measure retrieval quality and token cost for messages whose right tools are known
    Bench(Box<bench::Bench>),
}

/// The configuration, for commands that don't start the service.
#[derive(Args, Clone)]
struct ConfigurationArgs {
    /// JSON file with an `mcpServers` map that lists the MCP servers, as for mcpo, Claude Desktop and Cursor
    #[arg(short, long, value_name = "FILE", env = "TOOLSIEVE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    sources: SourceArgs,
}

/// Where the settings and the data are.
#[derive(Args, Clone)]
struct SourceArgs {
    /// TOML file with all other settings; src/settings/defaults.toml lists the settings and their defaults
    #[arg(long, value_name = "FILE", env = "TOOLSIEVE_SETTINGS")]
    settings: Option<PathBuf>,
    /// Data folder, which only one process can use [default: ./toolsieve-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Where the service listens, and which key it requires.
#[derive(Args, Clone)]
struct ListenArgs {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on; 0 selects a free port [default: 8000]
    #[arg(short, long)]
    port: Option<u16>,
    /// API key that callers must send; preferably set the variable `TOOLSIEVE_API_KEY` instead
    #[arg(short = 'k', long, value_name = "KEY")]
    api_key: Option<SecretString>,
    /// Accept requests from other machines even without an API key
    #[arg(long)]
    insecure: bool,
}

/// Flags for commands that start the service.
#[derive(Args, Clone)]
struct ServiceArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    listen: ListenArgs,
    /// Reload the configuration files when they change; a SIGHUP reloads them at any time
    #[arg(long)]
    hot_reload: bool,
    /// Log level: error, warn, info, debug, or a filter such as `toolsieve=debug` [default: info]
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
}

/// The variable for the setting `logging.format`.
const LOG_FORMAT: &str = "TOOLSIEVE_LOGGING__FORMAT";

/// The result of a command.
type Outcome = Result<(), Failure>;

/// Why a command failed: the error message and the exit code.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The command failed or found a problem: exit code 1.
    fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// Wrong usage or an invalid configuration: exit code 2.
    fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }
}

/// Runs the command that this process's arguments name.
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
    // Selects the TLS implementation for all clients in this process. Two dependencies bring different ones, and rustls
    // panics if none is selected.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok());
    let outcome = command();
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                log::say_failure(failure.message.trim_end());
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
            Self::Servers(command) => command.run(),
            Self::Sessions(command) => command.run(),
            Self::Audit(command) => command.run(),
            Self::Secrets(command) => command.run(),
            Self::Learn(command) => command.run(),
            Self::Usage(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Feedback(command) => command.run(),
            Self::Backup(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Store(command) => command.run(),
            Self::McpStdio(command) => command.run(),
            Self::Bench(command) => command.run(),
        }
    }
}

/// The servers file, which these commands require.
fn servers(config: Option<&PathBuf>) -> Result<ServersSource, Failure> {
    match config {
        Some(path) => Ok(ServersSource::File(path.clone())),
        None => Err(Failure::invalid(
            "error: no MCP servers are given. Name the file with the `mcpServers` map: --config mcp.json, \
             or try `toolsieve quickstart`. If all servers are added over the API, the map may be empty: {\"mcpServers\": {}}",
        )),
    }
}

impl ConfigurationArgs {
    /// Loads the configuration and prints its warnings. Fails without a servers file.
    fn load(&self) -> Result<Settings, Failure> {
        self.sources.load(servers(self.config.as_ref())?)
    }

    /// Loads the configuration and prints its warnings. Works without a servers file if there is a data folder.
    fn load_any(&self) -> Result<Settings, Failure> {
        self.sources.load(self.config.clone().map_or(ServersSource::Nothing, ServersSource::File))
    }
}

impl SourceArgs {
    /// Loads the configuration and prints its warnings.
    fn load(&self, servers: ServersSource) -> Result<Settings, Failure> {
        load(&self.sources(servers, None, Overrides::default()))
    }

    /// The sources for a command that doesn't listen.
    fn sources(&self, servers: ServersSource, mcpo: Option<McpoSettings>, overrides: Overrides) -> Sources {
        Sources {
            servers,
            settings: self.settings.clone(),
            environment: Environment::of_process(),
            overrides: Overrides { data_dir: self.data_dir.clone(), launcher: launcher(), ..overrides },
            mcpo,
            never_listens: true,
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
    /// Loads the configuration with the toolset flags, and prints its warnings.
    fn load(&self, servers: ServersSource, toolsets: ToolsetFlags) -> Result<Settings, Failure> {
        let (settings, warnings) = read(&self.sources(servers, toolsets))?;
        warn_in_log(&warnings, &settings);
        Ok(settings)
    }

    fn sources(&self, servers: ServersSource, toolsets: ToolsetFlags) -> Sources {
        let overrides = Overrides { log_level: self.log_level.clone(), watch: self.hot_reload, toolsets, ..self.listen.overrides() };
        Sources { never_listens: false, ..self.sources.sources(servers, None, overrides) }
    }
}

/// Loads the configuration and prints its warnings.
fn load(sources: &Sources) -> Result<Settings, Failure> {
    let (settings, warnings) = read(sources)?;
    warn(&warnings);
    Ok(settings)
}

fn warn<W: ToString>(warnings: &[W]) {
    for warning in warnings {
        log::say_warning(&warning.to_string());
    }
}

/// The same for a service, whose log may be JSON.
fn warn_in_log<W: ToString>(warnings: &[W], settings: &Settings) {
    if settings.start.logging.format == LogFormat::Json {
        log::expect_json();
    }
    warn(warnings);
}

/// Loads the configuration. The second value lists the warnings.
fn read(sources: &Sources) -> Result<(Settings, Vec<Finding>), Failure> {
    Settings::load(sources).map_err(|problems| Failure::invalid(problems.to_string()))
}

/// Parses the URL of a service from an argument.
fn service_url(text: &str) -> Result<Url, String> {
    let example = "it must start with http:// or https://, such as http://127.0.0.1:8000";
    let url = Url::parse(text).map_err(|_| example.to_owned())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(example.to_owned()) }
}

/// Prints the output of a command. A closed pipe, for example after `head`, is not an error.
fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!("error: standard output: {error}"))),
        _ => Ok(()),
    }
}

/// The program that starts MCP servers: this program, even if its file has been replaced since.
fn launcher() -> Option<PathBuf> {
    cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self/exe"))
}

/// Hardens a long-running process that holds keys: logging never blocks, and other processes can't read its memory.
fn begin_service() -> Outcome {
    log::begin();
    // Problems of the configuration come before the logger.
    if Environment::of_process().variable(LOG_FORMAT).is_some_and(|format| format.trim() == LogFormat::Json.name()) {
        log::expect_json();
    }
    if SystemTime::now() < UNIX_EPOCH {
        // HTTP dates and ids count time from 1970.
        return Err(Failure::failed("error: this machine's clock is before 1970: set it"));
    }
    process::hide().map_err(|error| Failure::failed(format!("error: the process can't be hidden from others: {error}")))
}

/// Creates an async runtime for commands that send requests or start servers.
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
