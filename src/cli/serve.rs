//! `toolsieve serve`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::adapters::log;
use crate::app::{Application, StartError};
use crate::cli::{Failure, Outcome, ServiceArgs, begin_service, runtime, servers};
use crate::settings::{Settings, ToolsetFlags};

/// Time limit for work on other threads once everything else has ended.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(super) struct Serve {
    /// JSON file with an `mcpServers` map, as for mcpo, Claude Desktop and Cursor: the MCP servers
    #[arg(short, long, value_name = "FILE", env = "TOOLSIEVE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    toolsets: ToolsetArgs,
}

/// The toolsets to show, by their names in the settings.
#[derive(Args, Clone, Default)]
pub(super) struct ToolsetArgs {
    /// Show only the tools of these toolsets of the settings, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    toolsets: Vec<String>,
    /// Hide the tools of these toolsets
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Show the toolsets of this preset, in addition to --toolsets
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

/// Why the service did not start.
fn not_started(error: &StartError) -> Failure {
    let message = format!("error: {error}");
    if error.is_invalid_configuration() { Failure::invalid(message) } else { Failure::failed(message) }
}

/// Starts the service and runs it until a stop signal. Sends its address to `ready`.
pub(super) fn serve(settings: Settings, ready: impl FnOnce(&str)) -> Outcome {
    log::install(&settings.start.logging);
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let application = Application::start(settings).await.map_err(|error| not_started(&error))?;
        ready(&application.url());
        application.run().await.map_err(|error| Failure::failed(format!("error: {error}")))
    });
    // A blocked thread (a disk, a terminal) does not keep the process from ending.
    runtime.shutdown_timeout(LEAVING);
    outcome
}
