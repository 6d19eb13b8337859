//! Configurations as data: every folder below `tests/cases/settings` is one case.
//!
//! A case has `mcp.json` and `settings.toml` (each may be missing), `environment` with lines `NAME=value`, and
//! `flags` with lines `--flag=value`. Its snapshot is what a user would read.

use std::fs;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;
use toolsieve::settings::{Environment, Overrides, ServerSettings, ServersSource, Settings, Sources, TransportSettings};

#[test]
fn cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/settings");
    let mut cases: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() > 15, "{} cases", cases.len());
    let mut failed = Vec::new();
    for case in cases {
        let answer = answer(&case);
        let checked = std::panic::catch_unwind(|| {
            let mut insta = insta::Settings::new();
            insta.set_snapshot_path(&case);
            insta.set_prepend_module_to_snapshot(false);
            insta.set_omit_expression(true);
            insta.bind(|| insta::assert_snapshot!("expected", answer));
        });
        if checked.is_err() {
            failed.push(case);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// What the command line would print: the findings, and the servers, or without any the settings.
fn answer(case: &Path) -> String {
    let text = |name: &str| fs::read_to_string(case.join(name)).unwrap_or_default();
    let existing = |name: &str| Some(case.join(name)).filter(|path| path.exists());
    let sources = Sources {
        servers: existing("mcp.json").map_or(ServersSource::Nothing, ServersSource::File),
        settings: existing("settings.toml"),
        environment: pairs(&text("environment")).collect(),
        overrides: flags(&text("flags")),
        ..Sources::default()
    };
    let (result, warnings) = match Settings::load(&sources) {
        Ok((settings, warnings)) if existing("mcp.json").is_some() => (servers(&settings.live.servers), warnings),
        Ok((settings, warnings)) => (format!("{settings:#?}"), warnings),
        Err(errors) => (errors.to_string(), errors.warnings),
    };
    let warnings = warnings.iter().map(|warning| format!("warning: {warning}"));
    let parts: Vec<String> = std::iter::once(result).chain(warnings).collect();
    let answer = parts.join("\n\n").replace(&format!("{}/", case.display()), "");
    for (name, value) in pairs(&text("environment")) {
        let is_secret = value.contains("secret");
        assert!(!is_secret || !answer.contains(&value), "the value of {name} is printed");
    }
    answer
}

/// The servers with what their `Debug` form leaves out, because it may hold secrets.
fn servers(servers: &[ServerSettings]) -> String {
    let whole = |server: &ServerSettings| match &server.transport {
        TransportSettings::Stdio { args, env, directory, .. } => {
            format!("{server:#?}\nargs: {args:?}\nenv: {:?}\ndirectory: {directory:?}", env.keys().collect::<Vec<_>>())
        }
        TransportSettings::StreamableHttp { url, headers } | TransportSettings::Sse { url, headers } => {
            format!("{server:#?}\nurl: {url}\nheaders: {:?}", headers.keys().collect::<Vec<_>>())
        }
    };
    servers.iter().map(whole).collect::<Vec<_>>().join("\n\n")
}

fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect::<Vec<_>>().into_iter()
}

fn flags(text: &str) -> Overrides {
    let mut overrides = Overrides::default();
    for (flag, value) in pairs(text) {
        match flag.as_str() {
            "--host" => overrides.host = Some(value),
            "--port" => overrides.port = Some(value.parse().unwrap()),
            "--api-key" => overrides.api_key = Some(value.into()),
            "--insecure" => overrides.insecure = true,
            "--data-dir" => overrides.data_dir = Some(value.into()),
            "--log-level" => overrides.log_level = Some(value),
            "--toolsets" => overrides.toolsets.toolsets = value.split(',').map(str::to_owned).collect(),
            "--exclude" => overrides.toolsets.exclude = value.split(',').map(str::to_owned).collect(),
            "--preset" => overrides.toolsets.preset = Some(value),
            other => panic!("{other}"),
        }
    }
    overrides
}

#[test]
fn later_sources_win() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.toml");
    fs::write(&file, "[http]\nport = 1\nhost = \"::1\"\nmax_body_bytes = 5000\napi_key = \"from-file\"\n").unwrap();
    let sources = Sources {
        settings: Some(file),
        environment: pairs("TOOLSIEVE_PORT=9\nTOOLSIEVE_HTTP__PORT=2\nTOOLSIEVE_HOST=127.0.0.2\nTOOLSIEVE_API_KEY=").collect(),
        overrides: Overrides { port: Some(3), ..Overrides::default() },
        ..Sources::default()
    };
    let http = Settings::load(&sources).unwrap().0.start.http;
    assert_eq!((http.port, http.max_body_bytes), (3, 5000));
    assert_eq!(http.host.to_string(), "127.0.0.2");
    assert_eq!(http.api_key.unwrap().expose_secret(), "from-file", "an empty variable takes no key away");

    let without_flag = Sources { overrides: Overrides::default(), ..sources };
    assert_eq!(Settings::load(&without_flag).unwrap().0.start.http.port, 2, "the long name goes before the short one");
}

#[test]
fn every_key_can_be_set_by_its_variable() {
    let defaults: toml::Table = toml::from_str(toolsieve::settings::DEFAULTS).unwrap();
    let mut keys = 0;
    for (section, table) in &defaults {
        for (key, default) in table.as_table().unwrap() {
            let value = match default {
                toml::Value::String(text) => text.clone(),
                toml::Value::Array(_) => ",".to_owned(),
                other => other.to_string(),
            };
            let variable = format!("TOOLSIEVE_{}__{}", section.to_uppercase(), key.to_uppercase());
            let environment: Environment = [(variable.clone(), value)].into_iter().collect();
            let sources = Sources { environment, ..Sources::default() };
            Settings::load(&sources).unwrap_or_else(|errors| panic!("{variable}: {errors}"));
            let environment: Environment = [(format!("{variable}X"), "1".to_owned())].into_iter().collect();
            Settings::load(&Sources { environment, ..Sources::default() }).unwrap_err();
            keys += 1;
        }
    }
    assert!(keys > 20, "{keys}");
}

/// Keys of the configuration and of servers, each from its source, without the line break at its end.
#[cfg(unix)]
#[test]
fn keys_come_from_files() {
    use std::os::unix::fs::PermissionsExt as _;

    const STRONG: &str = "4f2a9c1be07d58364f2a9c1be07d5836";
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, format!("{STRONG}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file = write("key", 0o600);
    write("toolsieve.api_key", 0o400);
    let credentials = folder.path().to_str().unwrap().to_owned();
    let settings = folder.path().join("settings.toml");
    let load = |text: String, variables: &[(&str, &str)]| {
        fs::write(&settings, text).unwrap();
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::load(&Sources { settings: Some(settings.clone()), environment, ..Sources::default() })
    };
    let api_key = |loaded: &Settings| loaded.start.http.api_key.as_ref().map(|key| key.expose_secret().to_owned());
    for (text, variables) in [
        (format!("[http]\napi_key_file = \"{file}\""), vec![]),
        (format!("[http]\napi_key = \"${{file:{file}}}\""), vec![]),
        (String::new(), vec![("TOOLSIEVE_API_KEY_FILE", file.as_str())]),
        (String::new(), vec![("TOOLSIEVE_HTTP__API_KEY_FILE", file.as_str())]),
        (String::new(), vec![("CREDENTIALS_DIRECTORY", credentials.as_str())]),
    ] {
        let (loaded, warnings) = load(text.clone(), &variables).unwrap_or_else(|errors| panic!("{text} {variables:?}: {errors}"));
        assert_eq!(api_key(&loaded).as_deref(), Some(STRONG), "{text} {variables:?}");
        assert_eq!(warnings, [], "{text} {variables:?}");
    }
    let admin = load(String::new(), &[("TOOLSIEVE_ADMIN_KEY_FILE", &file)]).unwrap().0.start.access.admin_key;
    assert_eq!(admin.unwrap().expose_secret(), STRONG);
    let jwt = load(String::new(), &[("TOOLSIEVE_ACCESS__USER_JWT_SECRET_FILE", &file)]).unwrap().0.start.access.user_jwt_secret;
    assert_eq!(jwt.unwrap().expose_secret(), STRONG);
    let over = load(String::new(), &[("CREDENTIALS_DIRECTORY", &credentials), ("TOOLSIEVE_API_KEY", "another-key-1234567890")]).unwrap().0;
    assert_eq!(api_key(&over).as_deref(), Some("another-key-1234567890"), "a variable goes before a credential");

    let open = write("open", 0o644);
    for (text, variables) in [
        (format!("[http]\napi_key_file = \"{open}\""), vec![]),
        (format!("[http]\napi_key = \"${{file:{open}}}\""), vec![]),
        (String::new(), vec![("TOOLSIEVE_API_KEY_FILE", open.as_str())]),
    ] {
        let warnings = load(text, &variables).unwrap().1;
        assert!(matches!(&warnings[..], [one] if one.message.ends_with("other users of this machine can read it")), "{warnings:?}");
    }
    let servers = ServersSource::Text {
        name: "mcp.json".into(),
        text: format!("{{\"mcpServers\": {{\"one\": {{\"command\": \"one\", \"env\": {{\"TOKEN\": \"<${{file:{file}}}>\"}}}}}}}}"),
    };
    let (loaded, _) = Settings::load(&Sources { servers, ..Sources::default() }).unwrap();
    let TransportSettings::Stdio { env, .. } = &loaded.live.servers[0].transport else { panic!("not stdio") };
    assert_eq!(env["TOKEN"].expose_secret(), format!("<{STRONG}>"));
}
