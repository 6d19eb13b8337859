//! `toolsieve openapi`: prints the OpenAPI document of the configured servers' tools, or of the service's own routes.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::app;
use crate::cli::mode::ModeArg;
use crate::cli::{Failure, Outcome, SourceArgs, catalog, load, print, runtime, tools};
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::http;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::publishing::publish::{DocumentOf, Publish};
use crate::settings::{McpoSettings, Overrides, ServersSource};

#[derive(Args)]
pub(super) struct Openapi {
    /// Print the document of the tools of the MCP servers in this file, instead of the service's own routes
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    config: Option<PathBuf>,
    #[command(flatten)]
    sources: SourceArgs,
    /// Print only the document of this server
    #[arg(long, value_name = "NAME", requires = "config")]
    server: Option<String>,
    /// Which tools the document lists: all tools, or only meta-tools
    #[arg(long, value_enum, default_value = "full", requires = "config")]
    mode: ModeArg,
    /// Print the document that the service publishes when it runs with mcpo's command line
    #[arg(long, requires = "server")]
    as_mcpo: bool,
    /// Use the tools that the service stored last, and start no servers
    #[arg(long, requires = "config")]
    offline: bool,
    /// Compare the document of the service's own routes with this file, and exit with code 1 if they differ
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

impl Openapi {
    pub(super) fn run(self) -> Outcome {
        if let Some(config) = self.config.clone() {
            return self.tools(config);
        }
        let document = http::service_document();
        let Some(path) = self.check else {
            return print(&document);
        };
        let committed = fs::read_to_string(&path).map_err(|error| Failure::invalid(format!("error: {}: {error}", path.display())))?;
        if committed.trim_end() == document {
            return Ok(());
        }
        Err(Failure::failed(format!("{} is not what the routes say. Write it anew: toolsieve openapi > {0}", path.display())))
    }

    fn tools(self, config: PathBuf) -> Outcome {
        let mcpo = self.as_mcpo.then(McpoSettings::default);
        let mut settings = load(&self.sources.sources(ServersSource::File(config), mcpo, Overrides::default()))?;
        let known = runtime()?.block_on(async {
            catalog::merge_stored_of_data_dir(&mut settings).await?;
            tools::only(&mut settings.live.servers, self.server.as_slice())?;
            if self.offline { catalog::last_good(&settings, catalog::START_OR_ASK).await } else { catalog::ask(&settings).await }
        })?;
        let current = Arc::new(CurrentCatalog::default());
        current.swap(known.catalog);
        let part = self.server.as_deref().map_or(DocumentOf::Root, |name| DocumentOf::Server(ServerName::from(name)));
        let publish = Publish::new(current, app::publish_options(&settings.start));
        if let Some(document) = publish.document(&Address::Whole, &part, &Visibility::default(), self.mode.into()) {
            print(&String::from_utf8_lossy(&document.body))?;
        }
        let missing: Vec<String> = known.missing.iter().map(|(server, reason)| format!("error: {server}: {reason}")).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failure::failed(missing.join("\n"))) }
    }
}
