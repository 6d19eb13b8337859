//! `toolsieve openwebui install` and `toolsieve openwebui uninstall`

use clap::{Args, Subcommand, ValueEnum};
use secrecy::{ExposeSecret, SecretString};

use crate::adapters::openwebui::{self, Audience, Change, InstallOptions, OpenWebUiAccess, OpenWebUiError};
use crate::cli::mode::ModeArg;
use crate::cli::{Failure, Outcome, runtime};
use crate::domain::toolsets::mode::Mode;

#[derive(Subcommand)]
pub(super) enum OpenWebUi {
    /// Register the tool server and the filter; a second run changes nothing
    Install {
        #[command(flatten)]
        access: Access,
        /// Address at which Open WebUI reaches Toolsieve
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
        toolsieve_url: String,
        /// API key of Toolsieve, if it requires one
        #[arg(short = 'k', long, value_name = "KEY", env = "TOOLSIEVE_API_KEY", hide_env_values = true)]
        key: Option<SecretString>,
        /// Also register this toolset as a separate tool server; may be repeated
        #[arg(long = "toolset", value_name = "NAME")]
        toolsets: Vec<String>,
        /// Register MCP connections instead of OpenAPI tool servers, for Open WebUI 0.9.6 to 0.11.1
        #[arg(long)]
        mcp: bool,
        /// Mode of the registered document [default: all tools, or the mode already registered]
        #[arg(long, value_enum, conflicts_with = "mcp")]
        mode: Option<ModeArg>,
        /// Who may use the tool server [default: everybody, or the setting already registered]
        #[arg(long, value_enum)]
        audience: Option<AudienceArg>,
    },
    /// Remove the tool server and the filter, and keep everything else
    Uninstall {
        #[command(flatten)]
        access: Access,
    },
}

#[derive(Args)]
pub(super) struct Access {
    /// Address of Open WebUI
    #[arg(long, value_name = "URL")]
    url: String,
    /// API key or session token of an Open WebUI administrator
    #[arg(long, env = "OPENWEBUI_TOKEN", hide_env_values = true)]
    token: SecretString,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum AudienceArg {
    Everybody,
    Administrators,
}

impl OpenWebUi {
    pub(super) fn run(self) -> Outcome {
        let runtime = runtime()?;
        match self {
            Self::Install { access, toolsieve_url, key, toolsets, mcp, mode, audience } => {
                let options = InstallOptions {
                    open_webui: access.into(),
                    toolsieve_url,
                    key: key.map(|key| key.expose_secret().to_owned()),
                    toolsets,
                    mcp,
                    mode: mode.map(Mode::from),
                    audience: audience.map(Audience::from),
                };
                let report = runtime.block_on(openwebui::install(&options)).map_err(failure)?;
                println!("Open WebUI {}", report.version);
                println!("tool server: {}", changed(report.connection));
                println!("filter:      {}", changed(report.filter));
                for warning in report.warnings {
                    eprintln!("warning: {warning}");
                }
            }
            Self::Uninstall { access } => {
                let report = runtime.block_on(openwebui::uninstall(&access.into())).map_err(failure)?;
                let removed = |was_there| if was_there { "removed" } else { "was not registered" };
                println!("tool server: {}", removed(report.connection));
                println!("filter:      {}", removed(report.filter));
            }
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
fn failure(error: OpenWebUiError) -> Failure {
    let message = format!("error: {error}");
    match error {
        OpenWebUiError::Address { .. } | OpenWebUiError::Toolset(_) => Failure::invalid(message),
        _ => Failure::failed(message),
    }
}

fn changed(change: Change) -> &'static str {
    match change {
        Change::Created => "added",
        Change::Updated => "updated",
        Change::Unchanged => "unchanged",
    }
}

impl From<Access> for OpenWebUiAccess {
    fn from(access: Access) -> Self {
        Self { url: access.url, token: access.token.expose_secret().to_owned() }
    }
}

impl From<AudienceArg> for Audience {
    fn from(audience: AudienceArg) -> Self {
        match audience {
            AudienceArg::Everybody => Self::Everybody,
            AudienceArg::Administrators => Self::Administrators,
        }
    }
}
