//! `toolsieve doctor`: finds problems that would keep the service from working on this machine, problems of an installation in
//! Open WebUI, and differences from mcpo.
//!
//! It starts and stops the configured MCP servers. The only data that it writes are renewed OAuth tokens. In a database without tables, it
//! tries to create one, and rolls back. In Open WebUI, it changes nothing.

mod checks;
mod compare;
mod documents;
mod openwebui;
mod print;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use url::Url;

use crate::adapters::data_dir;
use crate::adapters::openwebui::OpenWebUiAccess;
use crate::adapters::store::OpenedStore;
use crate::app;
use crate::cli::catalog::{Kept, Known};
use crate::cli::{self, Failure, ListenArgs, Outcome, SourceArgs, catalog, embedder, read, runtime, service_url, stored};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::publishing::publish::Publish;
use crate::settings::{McpoSettings, ServersSource, Settings};

use self::checks::Check;
use self::compare::ServerComparison;

#[derive(Args)]
pub(super) struct Doctor {
    /// JSON file with an `mcpServers` map that lists the MCP servers
    #[arg(short, long, value_name = "FILE", env = "TOOLSIEVE_CONFIG", conflicts_with = "from_mcpo")]
    config: Option<PathBuf>,
    /// Compare with mcpo: read its configuration file, and compare both programs' documents tool by tool
    #[arg(long, value_name = "FILE")]
    from_mcpo: Option<PathBuf>,
    /// Address of a running mcpo to compare with, such as <http://127.0.0.1:8000> [default: compute mcpo's documents]
    #[arg(long, value_name = "URL", requires = "from_mcpo")]
    mcpo_url: Option<String>,
    /// API key of the running mcpo, if it runs with --strict-auth
    #[arg(long, value_name = "KEY", requires = "mcpo_url", env = "MCPO_API_KEY", hide_env_values = true)]
    mcpo_key: Option<SecretString>,
    /// Address of an Open WebUI: check what `toolsieve openwebui install` registered there, and send a test message
    #[arg(long, value_name = "URL", requires = "open_webui_token")]
    open_webui: Option<String>,
    /// API key or session token of an Open WebUI administrator
    #[arg(long, value_name = "TOKEN", env = "OPENWEBUI_TOKEN", hide_env_values = true)]
    open_webui_token: Option<SecretString>,
    /// Address at which this machine reaches Toolsieve, for the test message [default: the address in Open WebUI]
    #[arg(long, value_name = "URL", requires = "open_webui", value_parser = service_url)]
    test_url: Option<Url>,
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    listen: ListenArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results of all checks.
#[derive(Serialize)]
struct Report {
    /// Whether there are no problems.
    fine: bool,
    checks: Vec<Check>,
    /// The comparison with mcpo for each server, with `--from-mcpo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mcpo: Vec<ServerComparison>,
}

/// Opens the store, and checks that it belongs to the data folder. A store that can't be opened is a problem, which the report contains
/// like all others.
async fn opened_store(settings: &Settings, report: &mut Report) -> Option<OpenedStore> {
    let start = &settings.start.store;
    let store = match stored::present(settings).await {
        Ok(store) => store,
        Err(error) => {
            report.checks.push(if error.is_older() { checks::older(&error) } else { checks::store(error.to_string()) });
            return None;
        }
    };
    if let Some(database) = &start.postgres {
        let found = match &store {
            Some(store) => Ok(format!("{store} can be used")),
            None => OpenedStore::check_creation(database)
                .await
                .map(|()| "the database can be reached; tables are created at the first start".to_owned()),
        };
        report.checks.push(found.map_or_else(|error| checks::store(error.to_string()), checks::usable_store));
    }
    let port = store.as_ref().map(OpenedStore::port);
    let file = data_dir::installation(&start.data_dir);
    if let Err(error) = app::check_installation(port.as_deref(), start.postgres.is_some(), &file).await {
        report.checks.push(checks::store(error.to_string()));
    }
    store
}

/// What a command found in the store. Damage may show only when something is read.
fn found<T>(read: Result<T, Failure>, report: &mut Report) -> Option<T> {
    let failed = |failure: Failure| report.checks.push(checks::store(failure.message.trim_start_matches("error: ").to_owned()));
    read.map_err(failed).ok()
}

impl Doctor {
    pub(super) fn run(self) -> Outcome {
        let open_webui = match (&self.open_webui, &self.open_webui_token) {
            (Some(url), Some(token)) => Some(OpenWebUiAccess { url: url.clone(), token: token.expose_secret().to_owned() }),
            _ => None,
        };
        let servers = match (&self.from_mcpo, &self.config) {
            (Some(file), _) => Some((file.clone(), Some(McpoSettings::default()))),
            (None, Some(file)) => Some((file.clone(), None)),
            (None, None) => None,
        };
        if servers.is_none() && open_webui.is_none() {
            return Err(Failure::invalid(
                "error: there is nothing to check. Name the servers file with --config mcp.json, or with --from-mcpo config.json to \
                 compare with mcpo, or name an Open WebUI with --open-webui URL.",
            ));
        }
        let mut report = Report { fine: false, checks: Vec::new(), mcpo: Vec::new() };
        if let Some((file, mcpo)) = servers {
            let (settings, warnings) = read(&self.sources.sources(ServersSource::File(file), mcpo, self.listen.overrides()))?;
            report.checks.extend(warnings.iter().map(checks::warning));
            runtime()?.block_on(self.examine(settings, &mut report))?;
        }
        if let Some(open_webui) = open_webui {
            report.checks.extend(runtime()?.block_on(openwebui::examine(&open_webui, self.test_url.as_ref())));
        }
        report.fine = !report.checks.iter().any(Check::is_problem) && !report.mcpo.iter().any(ServerComparison::is_problem);
        if self.json {
            cli::print(&serde_json::to_string_pretty(&report).map_err(|error| Failure::failed(format!("error: {error}")))?)?;
        } else {
            cli::print(&print::report(&report))?;
        }
        if report.fine { Ok(()) } else { Err(Failure::failed("")) }
    }

    async fn examine(&self, mut settings: Settings, report: &mut Report) -> Outcome {
        let replaces_mcpo = self.from_mcpo.is_some();
        let (folder, is_in_use) = checks::data_dir(&settings.start.store.data_dir);
        let user = match (replaces_mcpo, is_in_use) {
            (true, _) => Some("if mcpo uses it, stop mcpo before the start; otherwise choose another port with --port"),
            (false, true) => Some("ignore this if the service itself listens there"),
            (false, false) => None,
        };
        report.checks.push(checks::port(&settings.start.http, user));
        report.checks.push(folder);
        report.checks.extend(checks::space(&settings.start.store.data_dir));
        if replaces_mcpo {
            report.checks.extend(settings.live.servers.iter().filter_map(checks::takes_effect));
        }
        if let Some(qdrant) = &settings.start.index.qdrant {
            report.checks.extend(checks::qdrant(&qdrant.urls).await);
        }
        let store = opened_store(&settings, report).await;
        // mcpo knows only its file.
        if let Some(store) = store.as_ref().filter(|_| !replaces_mcpo) {
            let known = found(catalog::merge_stored(&mut settings, &*store.port()).await, report).unwrap_or_default();
            report.checks.extend(known.iter().filter_map(checks::not_as_in_the_file));
        }
        let settings = &settings;
        let unfound: Vec<Check> = settings.live.servers.iter().filter_map(checks::command).collect();
        let kept = match &store {
            Some(store) => found(Kept::of(&*store.port()).await, report).unwrap_or_default(),
            None => Kept::default(),
        };
        let known = catalog::answers(settings, &kept).await?;
        report.checks.extend(checks::answers(&settings.live.servers, &known, unfound));
        let tried = embedder::tried(&settings.start.embedder).await;
        let mut embedded = None;
        if let Some(store) = store {
            if tried.is_ok() {
                embedded = found(embedder::embedded_in(&store, settings, &known.catalog).await, report);
            }
            store.close().await;
        }
        report.checks.push(checks::embedder(tried, embedded, known.catalog.tools().len()));
        if !replaces_mcpo {
            return Ok(());
        }
        self.compare(settings, known, report).await;
        Ok(())
    }

    /// Compares the documents of all servers with mcpo's.
    async fn compare(&self, settings: &Settings, known: Known, report: &mut Report) {
        let current = Arc::new(CurrentCatalog::default());
        current.swap(known.catalog);
        let publish = Publish::new(Arc::clone(&current), app::publish_options(&settings.start));
        let catalog = current.snapshot();
        for server in &settings.live.servers {
            let ours = documents::ours(&publish, &server.name);
            let theirs = match &self.mcpo_url {
                Some(url) => match documents::fetched(url, &server.name, self.mcpo_key.as_ref()).await {
                    Ok(operations) => Ok(operations),
                    Err(error) => {
                        report.mcpo.push(ServerComparison::unread(&server.name, error));
                        continue;
                    }
                },
                None => catalog
                    .server(server.name.as_str())
                    .ok_or_else(|| "the server does not respond, so mcpo would publish none of its tools".to_owned())
                    .and_then(documents::computed),
            };
            report.mcpo.push(ServerComparison::of(&server.name, theirs, ours));
        }
    }
}
