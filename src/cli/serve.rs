//! `toolsieve serve`

use clap::Args;

use crate::app::{Application, StartError};
use crate::cli::{ConfigurationArgs, Failure, Outcome, log, runtime};
use crate::settings::Settings;

#[derive(Args)]
pub(super) struct Serve {
    #[command(flatten)]
    configuration: ConfigurationArgs,
}

impl Serve {
    pub(super) fn run(self) -> Outcome {
        let settings = self.configuration.service.load(self.configuration.servers()?)?;
        serve(settings, |_| {})
    }
}

/// Why the service is not there.
pub(super) fn not_started(error: &StartError) -> Failure {
    let message = format!("error: {error}");
    if error.is_invalid_configuration() { Failure::invalid(message) } else { Failure::failed(message) }
}

/// Starts the service and runs it until it is told to stop. `ready` gets its address.
pub(super) fn serve(settings: Settings, ready: impl FnOnce(&str)) -> Outcome {
    log::install(&settings.start.logging);
    runtime()?.block_on(async {
        let application = Application::start(settings).await.map_err(|error| not_started(&error))?;
        ready(&application.url());
        application.run().await.map_err(|error| Failure::failed(format!("error: {error}")))
    })
}
