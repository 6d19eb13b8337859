//! `toolsieve mcp-stdio`: connects a running service to MCP clients that can only start processes.

use clap::Args;
use secrecy::SecretString;
use url::Url;

use crate::adapters::log;
use crate::adapters::mcp::Bridge;
use crate::cli::{Failure, Outcome, begin_service, runtime, service_url};

#[derive(Args)]
pub(super) struct McpStdio {
    /// MCP address of the running service, such as /mcp, /mcp?mode=meta, /toolsets/NAME/mcp or /SERVER/mcp
    #[arg(long, value_name = "URL", env = "TOOLSIEVE_MCP_URL", default_value = "http://127.0.0.1:8000/mcp", value_parser = service_url)]
    url: Url,
    /// API key of the service, if it requires one; preferably set the variable `TOOLSIEVE_API_KEY` instead
    #[arg(long, value_name = "KEY", env = "TOOLSIEVE_API_KEY", hide_env_values = true)]
    key: Option<SecretString>,
}

impl McpStdio {
    pub(super) fn run(self) -> Outcome {
        begin_service()?;
        log::install_plain();
        let runtime = runtime()?;
        let outcome = runtime.block_on(Bridge::run(self.url, self.key, tokio::io::stdin(), tokio::io::stdout()));
        // A pending read of standard input can't be cancelled.
        runtime.shutdown_background();
        outcome.map_err(|error| Failure::failed(format!("error: {error}")))
    }
}
