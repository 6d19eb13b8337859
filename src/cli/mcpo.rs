//! mcpo's command line, which this program accepts without a subcommand.
//!
//! Every valid mcpo command line also starts this program: the flags, short forms, repeatable flags, variables and
//! defaults are the same. Where mcpo ignores a mistake or prints a stack trace, this program exits with code 2 and
//! explains the fix.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::cli::serve::serve;
use crate::cli::{Failure, Outcome, begin_service, launcher, warn_in_log};
use crate::domain::catalog::tool::ServerName;
use crate::settings::mcpo::{log_level, path};
use crate::settings::{Environment, McpoSettings, Overrides, ServersSource, Settings, Sources};

/// Name of a single server from the command line, in `/readyz` and for `run_tool`.
const SINGLE: &str = "server";

/// Serve one MCP server, or all servers in a file, as OpenAPI tool servers, with mcpo's command line
#[derive(Parser)]
#[command(
    name = "toolsieve",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    override_usage = "toolsieve [OPTIONS] --config FILE\n       toolsieve [OPTIONS] -- COMMAND [ARGUMENT]...\n       toolsieve [OPTIONS] --type sse|streamable-http -- URL",
    after_help = "This is mcpo's command line. For Toolsieve's own commands, run: toolsieve --help"
)]
pub(super) struct Mcpo {
    /// Address to listen on [default: 0.0.0.0]
    #[arg(short = 'h', long)]
    host: Option<String>,
    /// Port to listen on [default: 8000]
    #[arg(short, long)]
    port: Option<u16>,
    /// Allow browser pages from this origin; may be repeated [default: *]
    #[arg(long, value_name = "ORIGIN", action = ArgAction::Append)]
    cors_allow_origins: Vec<String>,
    /// API key that callers must send
    #[arg(short = 'k', long, value_name = "KEY")]
    api_key: Option<SecretString>,
    /// Require the API key for documents and pages too
    #[arg(long)]
    strict_auth: bool,
    /// Set an environment variable for the servers; may be repeated
    #[arg(short = 'e', long, value_name = "NAME=VALUE", action = ArgAction::Append)]
    env: Vec<SecretString>,
    /// Read environment variables for the servers from this file with NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    env_path: Option<PathBuf>,
    /// Transport of a single server: stdio, sse or streamable-http [default: stdio]
    #[arg(long = "type", visible_alias = "server-type", value_name = "TYPE")]
    server_type: Option<String>,
    /// JSON file with an `mcpServers` map that lists the MCP servers
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Reload the servers file when it changes
    #[arg(long)]
    hot_reload: bool,
    /// Title of the document that contains all servers
    #[arg(short, long)]
    name: Option<String>,
    /// Description of the document that contains all servers
    #[arg(short, long)]
    description: Option<String>,
    /// Version of the document that contains all servers
    #[arg(short = 'v', long = "version", value_name = "VERSION")]
    document_version: Option<String>,
    /// TLS certificate file for HTTPS, in PEM format
    #[arg(short = 't', long, value_name = "FILE")]
    ssl_certfile: Option<String>,
    /// Private key file of the TLS certificate
    #[arg(short = 'K', long, value_name = "FILE")]
    ssl_keyfile: Option<String>,
    /// Path prefix at which a proxy publishes the service
    #[arg(long, value_name = "PATH")]
    root_path: Option<String>,
    /// Prefix for the path of each server in the servers file
    #[arg(long, value_name = "PATH")]
    path_prefix: Option<String>,
    /// Headers for a single server, as a JSON object
    #[arg(short = 'H', long, value_name = "JSON")]
    header: Option<SecretString>,
    /// Log level: DEBUG, INFO, WARNING, ERROR or CRITICAL
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// TOML file with all other settings; not a flag of mcpo
    #[arg(long, value_name = "FILE", env = "TOOLSIEVE_SETTINGS")]
    settings: Option<PathBuf>,
    /// Data folder, which only one process can use; not a flag of mcpo [default: ./toolsieve-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Command that starts a single server, or the server's address
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Mcpo {
    /// Recognises mcpo's command line: it starts with `mcpo`, or with a flag other than help and version.
    pub(super) fn meant(words: &[OsString]) -> Option<Vec<OsString>> {
        let (program, arguments) = words.split_first()?;
        let text: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        match text.as_slice() {
            [first, ..] if first == "mcpo" => Some(std::iter::once(program).chain(&arguments[1..]).cloned().collect()),
            [only] if matches!(only.as_ref(), "-h" | "--help" | "-V" | "--version") => None,
            [first, ..] if first.starts_with('-') => Some(words.to_vec()),
            _ => None,
        }
    }

    pub(super) fn run(self) -> Outcome {
        begin_service()?;
        let (settings, warnings) = self.load(&Environment::of_process())?;
        warn_in_log(&warnings, &settings);
        serve(settings, |_| {})
    }

    fn load(self, process: &Environment) -> Result<(Settings, Vec<String>), Failure> {
        let mut warnings = Vec::new();
        let environment = self.variables(process)?;
        let servers = self.servers(&mut warnings)?;
        let single = matches!(servers, ServersSource::Text { .. }).then(|| ServerName::from(SINGLE));
        let sources = Sources {
            settings: self.settings,
            environment: environment.iter().fold(process.clone(), |all, (name, value)| all.with(name, value.expose_secret())),
            mcpo: Some(McpoSettings {
                // mcpo ignores the path prefix for a single server.
                path_prefix: if single.is_some() { String::new() } else { path(&self.path_prefix.unwrap_or_default()) },
                root_path: path(&self.root_path.unwrap_or_default()),
                single,
                strict_auth: self.strict_auth,
                title: self.name,
                description: self.description,
                version: self.document_version,
                environment,
            }),
            servers,
            overrides: Overrides {
                host: self.host,
                port: self.port,
                // An empty key counts as no key, as in `--api-key "$KEY"` when `KEY` is unset.
                api_key: self.api_key.filter(|key| !key.expose_secret().is_empty()),
                insecure: false,
                data_dir: self.data_dir,
                log_level: self.log_level.map(|level| log_level(&level).map_or(level, str::to_owned)),
                cors_origins: self.cors_allow_origins,
                tls_certificate: self.ssl_certfile,
                tls_key: self.ssl_keyfile,
                watch: self.hot_reload,
                launcher: launcher(),
                ..Overrides::default()
            },
            never_listens: false,
        };
        let (settings, findings) = Settings::load(&sources).map_err(|problems| Failure::invalid(problems.to_string()))?;
        warnings.extend(findings.iter().map(ToString::to_string));
        Ok((settings, warnings))
    }

    /// The variables from `--env` and the environment file. As in mcpo, the file overrides `--env`, and the environment
    /// of this process overrides the file.
    fn variables(&self, process: &Environment) -> Result<IndexMap<String, SecretString>, Failure> {
        let mut out = IndexMap::new();
        for pair in &self.env {
            match pair.expose_secret().split_once('=') {
                Some((name, value)) if !name.is_empty() => {
                    out.insert(name.to_owned(), SecretString::from(value));
                }
                _ => {
                    return Err(Failure::invalid(
                        "error: --env: not NAME=VALUE. Write it like this: --env API_TOKEN=abc. You may repeat the flag.",
                    ));
                }
            }
        }
        if let Some(path) = &self.env_path {
            let unreadable = |error: dotenvy::Error| {
                let what = match error {
                    dotenvy::Error::LineParse(_, place) => format!("a line can't be read, at its character {place}"),
                    other => other.to_string(),
                };
                Failure::invalid(format!("error: --env-path: {}: {what}. Use a file with NAME=VALUE lines.", path.display()))
            };
            for pair in dotenvy::from_path_iter(path).map_err(unreadable)? {
                let (name, value) = pair.map_err(unreadable)?;
                let value = process.variable(&name).map_or(value, str::to_owned);
                out.insert(name, SecretString::from(value));
            }
        }
        Ok(out)
    }

    fn servers(&self, warnings: &mut Vec<String>) -> Result<ServersSource, Failure> {
        if let Some(config) = &self.config {
            let unused = [
                ("the command after --", !self.command.is_empty()),
                ("--type", self.server_type.is_some()),
                ("--header", self.header.is_some()),
            ];
            for (what, _) in unused.iter().filter(|(_, given)| *given) {
                warnings.push(format!("{what} has no effect together with --config\n    add the server to that file"));
            }
            return Ok(ServersSource::File(config.clone()));
        }
        let Some((first, rest)) = self.command.split_first() else {
            return Err(Failure::invalid(
                "error: no MCP server is given. Name a file of servers: --config mcp.json, or a program after --: \
                 toolsieve --port 8000 -- uvx mcp-server-time, or try `toolsieve quickstart`.",
            ));
        };
        let kind = self.server_type.as_deref().unwrap_or("stdio");
        let entry = match kind {
            "stdio" => {
                if self.header.is_some() {
                    warnings
                        .push("--header has no effect on a local program\n    use it with --type sse or --type streamable-http".to_owned());
                }
                json!({"type": "stdio", "command": literal(first), "args": rest.iter().map(|word| literal(word)).collect::<Vec<_>>()})
            }
            "sse" | "streamable-http" | "streamable_http" | "streamablehttp" => {
                if !rest.is_empty() {
                    return Err(Failure::invalid(format!(
                        "error: --type {kind}: expected one address after --, got {}.",
                        self.command.len()
                    )));
                }
                json!({"type": kind, "url": literal(first), "headers": self.headers()?})
            }
            _ => return Err(Failure::invalid("error: --type: unknown transport. Write stdio, sse or streamable-http.")),
        };
        Ok(ServersSource::Text { name: "command line".to_owned(), text: json!({"mcpServers": {SINGLE: entry}}).to_string() })
    }

    fn headers(&self) -> Result<Map<String, Value>, Failure> {
        let Some(text) = &self.header else { return Ok(Map::new()) };
        let headers =
            serde_json::from_str::<Map<String, Value>>(text.expose_secret()).ok().filter(|map| map.values().all(Value::is_string));
        let Some(mut headers) = headers else {
            return Err(Failure::invalid(
                r#"error: --header: not a JSON object with text values. Write it like this: --header '{"Authorization": "Bearer abc"}'."#,
            ));
        };
        for value in headers.values_mut() {
            *value = literal(value.as_str().unwrap_or_default()).into();
        }
        Ok(headers)
    }
}

/// Escapes `${`, because the shell has already expanded the variables in arguments.
fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{CommandFactory, Parser};
    use secrecy::ExposeSecret;

    use super::Mcpo;
    use crate::settings::{Environment, Settings, TransportSettings};

    fn load_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
        let words = std::iter::once("toolsieve").chain(arguments.iter().copied());
        let environment: Environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let parsed = Mcpo::try_parse_from(words).map_err(|error| error.to_string())?;
        parsed.load(&environment).map_err(|failure| {
            assert_eq!(failure.code, 2, "{}", failure.message);
            failure.message
        })
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    fn load(arguments: &[&str]) -> Settings {
        load_with(arguments, &[]).unwrap_or_else(|error| panic!("{arguments:?}: {error}")).0
    }

    #[test]
    fn the_flags_make_sense() {
        Mcpo::command().debug_assert();
    }

    #[test]
    fn what_is_mcpo_s_and_what_is_ours() {
        let meant = |line: &str| {
            let words: Vec<_> = std::iter::once("toolsieve").chain(line.split_whitespace()).map(OsString::from).collect();
            Mcpo::meant(&words).map(|words| words[1..].iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
        };
        for line in ["--config c.json", "-p 8000 -- uvx x", "--version 1.2 -- x", "-h 0.0.0.0 -- x", "-- x"] {
            assert_eq!(meant(line).as_deref(), Some(line));
        }
        assert_eq!(meant("mcpo --help").as_deref(), Some("--help"));
        for line in ["", "-h", "--help", "-V", "--version", "serve --config c.json", "doctor"] {
            assert_eq!(meant(line), None, "{line}");
        }
    }

    #[test]
    fn the_defaults_are_mcpo_s() {
        let (settings, warnings) = load_with(&["--", "run"], &[]).unwrap();
        let http = &settings.start.http;
        assert_eq!((http.host.to_string().as_str(), http.port, &http.cors_origins), ("0.0.0.0", 8000, &vec!["*".to_owned()]));
        assert!(http.api_key.is_none() && http.insecure && http.tls.is_none());
        let mcpo = settings.start.mcpo.unwrap();
        assert!(!mcpo.strict_auth && mcpo.path_prefix.is_empty() && mcpo.root_path.is_empty());
        assert_eq!(warnings.len(), 4, "no key, every interface, every origin, the whole environment: {warnings:#?}");
        let closed = "-h 127.0.0.1 -k a-key-that-nobody-guesses --strict-auth --cors-allow-origins https://a.example --type \
            streamable-http -- http://h/";
        let closed = load_with(&words(closed), &[]);
        assert_eq!(closed.map(|(_, warnings)| warnings), Ok(Vec::new()));
    }

    #[test]
    fn every_flag_in_both_forms() {
        let long = load(&words(
            "--host=1.2.3.4 --port 9 --api-key k --cors-allow-origins https://a.example --cors-allow-origins \
             https://b.example --strict-auth --name N --description D --version 9.9 --root-path r/ --log-level \
             WARNING --hot-reload --env A=1 --env B=x=y --server-type stdio --data-dir d -- uvx -p ${HOME} --name \
             x",
        ));
        let short = load(&words(
            "-h 1.2.3.4 -p9 -kk --cors-allow-origins https://a.example --cors-allow-origins https://b.example \
             --strict-auth -n N -d D -v 9.9 --root-path /r --log-level warn --hot-reload -e A=1 -eB=x=y --type \
             stdio --data-dir d -- uvx -p ${HOME} --name x",
        ));
        assert_eq!(format!("{long:?}"), format!("{short:?}"));
        let (start, server) = (&long.start, &long.live.servers[0]);
        assert_eq!((start.http.host.to_string().as_str(), start.http.port), ("1.2.3.4", 9));
        assert_eq!(start.http.api_key.as_ref().unwrap().expose_secret(), "k");
        assert_eq!(start.http.cors_origins, ["https://a.example", "https://b.example"]);
        assert_eq!((start.logging.filter.as_str(), start.reload.watch), ("warn", true));
        let mcpo = start.mcpo.as_ref().unwrap();
        assert_eq!((mcpo.root_path.as_str(), mcpo.strict_auth), ("/r", true));
        assert_eq!([&mcpo.title, &mcpo.description, &mcpo.version].map(|text| text.as_deref().unwrap()), ["N", "D", "9.9"]);
        let TransportSettings::Stdio { command, args, env, .. } = &server.transport else { panic!("{server:?}") };
        assert_eq!((command.as_str(), args.join(" ").as_str()), ("uvx", "-p ${HOME} --name x"));
        assert_eq!((env["A"].expose_secret(), env["B"].expose_secret()), ("1", "x=y"));
    }

    #[test]
    fn one_remote_server() {
        for kind in ["streamable-http", "streamable_http", "streamablehttp"] {
            let settings = load(&["--type", kind, "-H", r#"{"X-Key": "${K}"}"#, "--", "http://h.example/mcp"]);
            let TransportSettings::StreamableHttp { url, headers } = &settings.live.servers[0].transport else { panic!("{settings:?}") };
            assert_eq!((url.as_str(), headers["X-Key"].expose_secret()), ("http://h.example/mcp", "${K}"));
        }
    }

    #[test]
    fn a_file_of_servers_with_its_prefix_variables_and_renamed_servers() {
        let folder = tempfile::tempdir().unwrap();
        let (file, variables) = (folder.path().join("c.json"), folder.path().join(".env"));
        std::fs::write(&file, r#"{"mcpServers": {"docs": {"command": "x", "env": {"T": "${A}", "B": "own"}}, "b": {"command": "y"}}}"#)
            .unwrap();
        std::fs::write(&variables, "A=from-file\nexport B='from file'\n# nothing\nC=from-file\n").unwrap();
        let (file, variables) = (file.to_str().unwrap(), variables.to_str().unwrap());
        let arguments = ["-c", file, "--env-path", variables, "-e", "A=flag", "-e", "D=flag"];
        let (settings, warnings) =
            load_with(&arguments, &[("C", "from-process"), ("LOG_LEVEL", "DEBUG"), ("CONNECTION_TIMEOUT", "7")]).unwrap();
        let servers = &settings.live.servers;
        assert_eq!(servers[0].name.as_str(), "docs-server");
        assert!(warnings.iter().any(|warning| warning.contains("docs-server")), "{warnings:#?}");
        let TransportSettings::Stdio { env, .. } = &servers[0].transport else { panic!() };
        let values = ["T", "A", "B", "C", "D"].map(|name| env[name].expose_secret());
        assert_eq!(values, ["from-file", "from-file", "own", "from-process", "flag"]);
        assert_eq!((settings.start.logging.filter.as_str(), servers[0].start_timeout.as_secs()), ("debug", 7));

        let below = load(&["-c", file, "-e", "A=1", "--path-prefix", "pre/"]);
        assert_eq!(below.live.servers[0].name.as_str(), "docs", "below a prefix no name is taken");
        assert_eq!(below.start.mcpo.unwrap().path_prefix, "/pre");
        let (_, warnings) =
            load_with(&["-c", file, "-e", "A=1", "--type", "sse", "--", "x"], &[("LOG_LEVEL", "loud"), ("CONNECTION_TIMEOUT", "x")])
                .unwrap();
        for word in ["LOG_LEVEL", "CONNECTION_TIMEOUT", "--type", "after --"] {
            assert!(warnings.iter().any(|warning| warning.contains(word)), "{word}: {warnings:#?}");
        }
    }

    #[test]
    fn wrong_use_says_what_to_do() {
        for (arguments, words) in [
            (&["-p", "8000"][..], &["--config", "--"][..]),
            (&["--"], &["--config"]),
            (&["--port", "x", "--", "run"], &["--port"]),
            (&["--nonsense", "--", "run"], &["--nonsense"]),
            (&["--hots", "h", "--", "run"], &["--host"]),
            (&["-c", "no/such/file.json"], &["no/such/file.json", "check the path"]),
            (&["-e", "BAD", "--", "run"], &["--env", "NAME=VALUE"]),
            (&["--env-path", "no/such/.env", "--", "run"], &["--env-path", "no/such/.env"]),
            (&["--type", "carrier", "--", "run"], &["--type", "streamable-http"]),
            (&["--type", "sse", "--", "http://a/", "http://b/"], &["one address"]),
            (&["--type", "streamable-http", "--", "not a url"], &["http"]),
            (&["--type", "sse", "-H", "{bad", "--", "http://a/"], &["--header", "JSON"]),
            (&["--ssl-certfile", "cert.pem", "--", "run"], &["--ssl-keyfile"]),
            (&["-t", "no/cert.pem", "-K", "no/key.pem", "--", "run"], &["no/cert.pem", "no/key.pem", "access rights"]),
            (&["--cors-allow-origins", "https://a.example/path", "--", "run"], &["--cors-allow-origins", "origin"]),
            (&["--host", "nowhere.example", "--", "run"], &["--host", "0.0.0.0"]),
            (&["--log-level", "loud", "--", "run"], &["--log-level"]),
            (&["-p", "1", "serve"], &["serve"]),
        ] {
            let error = load_with(arguments, &[]).map(|_| ()).expect_err("a problem");
            for word in words {
                assert!(error.contains(word), "{arguments:?}: {word} is not in {error}");
            }
        }
    }
}
