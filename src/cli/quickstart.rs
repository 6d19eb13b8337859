//! `toolsieve quickstart`: installs a few real MCP servers if necessary, and starts the service with them.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::adapters::private_files::create_private_folder;
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
const CONFIGURATION: &str = "mcp.json";
/// A copy of the servers file as the quickstart has written it last.
const COPY: &str = "mcp.json.written";
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
        let (settings, _) = read(&self.service.sources(ServersSource::Nothing, ToolsetFlags::default()))?;
        let servers = Servers::in_folder(self.servers_dir.as_deref(), &settings.start.store.data_dir)?;
        servers.install()?;
        let path = servers.configure()?;
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
    /// Uses the folder `given`, or else one in the data folder, which only its owner may read.
    fn in_folder(given: Option<&Path>, data_dir: &Path) -> Result<Self, Failure> {
        let error = |folder: &Path, error: io::Error| Failure::failed(format!("error: {}: {error}", folder.display()));
        if given.is_none() {
            create_private_folder(data_dir).map_err(|source| error(data_dir, source))?;
        }
        let folder = given.map_or_else(|| data_dir.join("quickstart"), Path::to_owned);
        Ok(Self { folder: std::path::absolute(&folder).map_err(|source| error(&folder, source))? })
    }

    /// Writes the servers file, and returns its path. Keeps a file that somebody has changed.
    fn configure(&self) -> Result<PathBuf, Failure> {
        // The copy shows later whether the file is still the one that the quickstart wrote.
        let (path, copy) = (self.folder.join(CONFIGURATION), self.folder.join(COPY));
        let text = format!("{:#}\n", self.configuration());
        let error = |error: io::Error| Failure::failed(format!("error: {}: {error}", path.display()));
        let is_ours = match fs::read(&path) {
            Ok(found) => found == text.as_bytes() || fs::read(&copy).is_ok_and(|written| written == found),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => true,
            Err(unreadable) => return Err(error(unreadable)),
        };
        if is_ours {
            fs::write(&path, &text).and_then(|()| fs::write(&copy, &text)).map_err(error)?;
        } else {
            log::say(&format!("note: {} was changed, so it stays as it is. To get a new one, delete it.", path.display()));
        }
        Ok(path)
    }

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
        let error = |error: io::Error| Failure::failed(format!("error: {}: {error}", folder.display()));
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
    if !io::stderr().is_terminal() {
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

    #[test]
    fn a_changed_servers_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let servers = Servers { folder: folder.path().to_owned() };
        let path = servers.configure().unwrap_or_else(|failure| panic!("{}", failure.message));
        let original = fs::read(&path).unwrap();
        let configured = |found: &str, written: &str| {
            fs::write(&path, found).unwrap();
            fs::write(folder.path().join(COPY), written).unwrap();
            assert!(servers.configure().is_ok());
            fs::read(&path).unwrap()
        };
        assert_eq!(configured("{\"mine\": {}}", "{}"), b"{\"mine\": {}}");
        assert_eq!(configured("{}", "{}"), original, "the file of a former version is replaced");
    }

    #[cfg(unix)]
    #[test]
    fn the_data_folder_is_private() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data");
        let servers = Servers::in_folder(None, &data_dir).unwrap_or_else(|failure| panic!("{}", failure.message));
        assert_eq!(servers.folder, data_dir.join("quickstart"));
        assert_eq!(fs::metadata(&data_dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
