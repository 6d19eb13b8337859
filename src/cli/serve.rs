//! `toolsieve serve`: starts the service.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::adapters::{log, systemd};
use crate::app::{Application, StartError};
use crate::cli::{Failure, Outcome, ServiceArgs, begin_service, runtime, servers};
use crate::settings::{Settings, ToolsetFlags};

/// How long the process waits at its end for work on other threads.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(super) struct Serve {
    /// JSON file with an `mcpServers` map that lists the MCP servers, as for mcpo, Claude Desktop and Cursor
    #[arg(short, long, value_name = "FILE", env = "TOOLSIEVE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    toolsets: ToolsetArgs,
}

/// Which toolsets to show, by their names in the settings.
#[derive(Args, Clone, Default)]
pub(super) struct ToolsetArgs {
    /// Comma-separated names of toolsets in the settings; only their tools are visible
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    toolsets: Vec<String>,
    /// Comma-separated names of toolsets whose tools are hidden
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Preset whose toolsets are visible, in addition to those in --toolsets
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
}

impl Serve {
    pub(super) fn run(self) -> Outcome {
        begin_service()?;
        let ToolsetArgs { toolsets, exclude, preset } = self.toolsets;
        let flags = ToolsetFlags { toolsets, exclude, preset };
        let settings = self.service.load(servers(self.config.as_ref())?, flags)?;
        serve(settings, |_| {})
    }
}

/// Maps the reason for a failed start to an error message and an exit code.
fn not_started(error: &StartError) -> Failure {
    let message = format!("error: {error}");
    if error.is_invalid_configuration() { Failure::invalid(message) } else { Failure::failed(message) }
}

/// Starts the service and runs it until a stop signal. Passes the service's address to `ready`.
pub(super) fn serve(settings: Settings, ready: impl FnOnce(&str)) -> Outcome {
    // Changes the environment, so it comes before other threads may read it.
    let socket = systemd::socket().map_err(|error| Failure::invalid(format!("error: {error}")))?;
    log::install(&settings.start.logging);
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let application = Box::pin(Application::start_on(settings, socket)).await.map_err(|error| not_started(&error))?;
        ready(&application.url());
        application.run().await.map_err(|error| Failure::failed(format!("error: {error}")))
    });
    // A thread that waits for a disk or a terminal must not keep the process running.
    runtime.shutdown_timeout(LEAVING);
    outcome
}
