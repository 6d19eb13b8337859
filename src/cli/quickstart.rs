//! `toolsieve quickstart`: installs a few real MCP servers if necessary, and starts the service with them.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::adapters::{desktop, log};
use crate::cli::serve::serve;
use crate::cli::{Failure, Outcome, ServiceArgs, begin_service, print, read};
use crate::settings::{ServersSource, ToolsetFlags};

/// The npm packages, in tested versions.
const NPM_PACKAGES: [&str; 3] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];
/// The address that `toolsieve openwebui install` registers by default.
const INSTALLED_URL: &str = "http://127.0.0.1:8000";
const PYPI_PACKAGES: [&str; 2] = ["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"];

#[derive(Args)]
pub(super) struct Quickstart {
    #[command(flatten)]
    service: ServiceArgs,
    /// Folder in which to install the servers [default: quickstart/ in the data folder]
    #[arg(long, value_name = "DIR", env = "TOOLSIEVE_QUICKSTART_DIR")]
    servers_dir: Option<PathBuf>,
    /// Install the servers and print the path of their configuration, without starting the service
    #[arg(long)]
    install_only: bool,
    /// Don't open the page with all tools in the browser; without a desktop, in CI and over SSH, it never opens
    #[arg(long)]
    no_open: bool,
}

impl Quickstart {
    pub(super) fn run(self) -> Outcome {
        begin_service()?;
        // Later code prints the warnings about these settings, so they are ignored here.
        let sources = self.service.sources.sources(ServersSource::Nothing, None, self.service.listen.overrides());
        let (settings, _) = read(&sources)?;
        let folder = self.servers_dir.clone().unwrap_or_else(|| settings.start.store.data_dir.join("quickstart"));
        let folder = std::path::absolute(&folder).map_err(|error| Failure::failed(format!("error: {}: {error}", folder.display())))?;
        let servers = Servers { folder };
        servers.install()?;
        let path = servers.folder.join("mcp.json");
        let configuration = servers.configuration();
        let text = format!("{configuration:#}\n");
        fs::write(&path, &text).map_err(|error| Failure::failed(format!("error: {}: {error}", path.display())))?;
        if self.install_only {
            return print(&path.display().to_string());
        }
        let settings = self.service.load(ServersSource::File(path.clone()), ToolsetFlags::default())?;
        let opens = !self.no_open && desktop::is_here();
        let has_key = settings.start.http.api_key.is_some();
        serve(settings, |url| {
            log::say(&welcome(url, &path, opens, has_key));
            if opens {
                desktop::open(&docs(url));
            }
        })
    }
}

/// The address of the page that lists all tools.
fn docs(url: &str) -> String {
    format!("{url}/docs/")
}

fn welcome(url: &str, configuration: &Path, opens: bool, has_key: bool) -> String {
    let docs = docs(url);
    let opened = if opens { " (opens in your browser)" } else { "" };
    let key = if has_key { " --key KEY" } else { "" };
    let address = if url == INSTALLED_URL { String::new() } else { format!(" --toolsieve-url {url}") };
    format!(
        "\nToolsieve listens on {url}\n\
         \n\
         See the tools:  {docs}{opened}\n\
         Find a tool:    curl -s {url}/v1/tools/search -d '{{\"queries\": [\"what time is it in Tokyo\"]}}'\n\
         Servers:        {}\n\
         Stop:           Ctrl-C\n\
         \n\
         Next step: connect Open WebUI. Create an API key there (Settings, Account), and run this command in a second terminal:\n\
         \n\
         \x20 toolsieve openwebui install --url http://localhost:3000 --token API_KEY{address}{key}\n",
        configuration.display()
    )
}

/// The folder in which the servers are installed.
struct Servers {
    folder: PathBuf,
}

impl Servers {
    /// Installs missing packages, and reuses packages from earlier runs.
    fn install(&self) -> Outcome {
        let files = self.folder.join("files");
        fs::create_dir_all(&files).map_err(|error| Failure::failed(format!("error: {}: {error}", self.folder.display())))?;
        let sample = files.join("hello.txt");
        if !sample.exists() {
            fs::write(&sample, "The filesystem server of the quickstart may read and write in this folder.\n")
                .map_err(|error| Failure::failed(format!("error: {}: {error}", sample.display())))?;
        }
        self.step("npm", &NPM_PACKAGES, |folder| {
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(folder).args(NPM_PACKAGES);
            vec![npm]
        })?;
        self.step("python", &PYPI_PACKAGES, |folder| {
            let mut venv = Command::new("python3");
            venv.args(["-m", "venv"]).arg(folder.join("venv"));
            let mut pip = Command::new(folder.join("venv/bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PYPI_PACKAGES);
            vec![venv, pip]
        })
    }

    /// Installs one kind of package, unless a marker file shows that it is already installed.
    fn step(&self, kind: &str, packages: &[&str], commands: impl FnOnce(&Path) -> Vec<Command>) -> Outcome {
        let folder = self.folder.join(kind);
        let marker = folder.join("installed");
        let wanted = packages.join("\n");
        if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        let error = |error: std::io::Error| Failure::failed(format!("error: {}: {error}", folder.display()));
        fs::create_dir_all(&folder).map_err(error)?;
        let progress = spinner(format!("installing {}", packages.join(", ")));
        for mut command in commands(&folder) {
            let program = command.get_program().to_string_lossy().into_owned();
            let output = command.stdin(Stdio::null()).output().map_err(|error| {
                Failure::failed(format!(
                    "error: `{program}` can't be started: {error}. The quickstart needs Node.js 20 with npm, and Python 3.11 with venv."
                ))
            })?;
            if !output.status.success() {
                let words = String::from_utf8_lossy(&output.stderr);
                return Err(Failure::failed(format!("error: `{program}` could not install {}:\n{words}", packages.join(", "))));
            }
        }
        fs::write(&marker, wanted).map_err(error)?;
        progress.finish_with_message(format!("installed {}", packages.join(", ")));
        Ok(())
    }

    fn configuration(&self) -> Value {
        let npm = |package: &str| self.folder.join("npm/node_modules/@modelcontextprotocol").join(package).join("dist/index.js");
        let python = |program: &str| self.folder.join("python/venv/bin").join(program);
        json!({"mcpServers": {
            "everything": {"command": "node", "args": [npm("server-everything"), "stdio"]},
            "filesystem": {"command": "node", "args": [npm("server-filesystem"), self.folder.join("files")]},
            "memory": {
                "command": "node",
                "args": [npm("server-memory")],
                "env": {"MEMORY_FILE_PATH": self.folder.join("memory.jsonl")}
            },
            "time": {"command": python("mcp-server-time"), "args": ["--local-timezone", "UTC"]},
            "git": {"command": python("mcp-server-git"), "args": []}
        }})
    }
}

fn spinner(message: String) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        log::say(&message);
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let progress = ProgressBar::new_spinner().with_style(style).with_message(message);
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_welcome_says_the_next_step() {
        let text = welcome(INSTALLED_URL, Path::new("mcp.json"), true, false);
        assert!(text.contains("http://127.0.0.1:8000/docs/ (opens in your browser)\n"), "{text}");
        assert!(text.contains("\n  toolsieve openwebui install --url http://localhost:3000 --token API_KEY\n"), "{text}");
        let text = welcome("http://127.0.0.1:9000", Path::new("mcp.json"), false, true);
        assert!(text.contains("/docs/\n") && text.contains("API_KEY --toolsieve-url http://127.0.0.1:9000 --key KEY\n"), "{text}");
    }
}
