//! The files in `deploy/` are read as their programs would read them, and name only what exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use toolsieve::settings::{Environment, ServersSource, Settings, Sources, TransportSettings};

use crate::harness::data::left_out;

const BINARY: &str = env!("CARGO_BIN_EXE_toolsieve");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join("deploy").join(name)).unwrap()
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_example_configurations_are_sound() {
    let sources = Sources {
        servers: ServersSource::File(root().join("deploy/mcp.example.json")),
        settings: Some(root().join("deploy/toolsieve.example.toml")),
        environment: environment(&[("TOOLSIEVE_API_KEY", "4f2a9c1be07d5836"), ("HOME", "/home/me")]),
        ..Sources::default()
    };
    let (settings, warnings) = Settings::load(&sources).unwrap();
    assert_eq!(warnings, []);
    assert!(settings.start.http.api_key.is_some() && settings.start.http.public_url.is_some());
    let names: Vec<&str> = settings.live.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["time", "files", "memory"]);
    assert_eq!(settings.live.servers[1].call_timeout.as_secs(), 20);

    let without_key = Sources { environment: environment(&[("HOME", "/home/me")]), ..sources };
    let errors = Settings::load(&without_key).unwrap_err();
    assert!(errors.to_string().contains("TOOLSIEVE_API_KEY"), "{errors}");
}

#[test]
fn the_server_that_is_switched_off_in_the_example_is_sound_too() {
    let all = text("mcp.example.json").replace("\"disabled\": true", "\"disabled\": false");
    let sources = Sources {
        servers: ServersSource::Text { name: "mcp.example.json".into(), text: all },
        environment: environment(&[("ISSUES_TOKEN", "a-token"), ("HOME", "/home/me")]),
        ..Sources::default()
    };
    let (settings, warnings) = Settings::load(&sources).unwrap();
    assert_eq!(warnings, []);
    let last = settings.live.servers.last().unwrap();
    assert!(matches!(&last.transport, TransportSettings::StreamableHttp { headers, .. } if headers.len() == 1));
}

#[test]
fn compose_builds_a_target_that_exists_and_mounts_what_the_command_reads() {
    let compose: yaml_serde::Value = yaml_serde::from_str(&text("compose.yaml")).unwrap();
    let service = &compose["services"]["toolsieve"];
    let build = &service["build"];
    let context = root().join("deploy").join(build["context"].as_str().unwrap());
    assert!(context.join(build["dockerfile"].as_str().unwrap()).is_file());
    let target = format!(" AS {}", build["target"].as_str().unwrap());
    assert!(text("Dockerfile").lines().any(|line| line.starts_with("FROM ") && line.ends_with(&target)));

    let command: Vec<&str> = strings(&service["command"]);
    assert_command_is_real(&command);
    let mounts = strings(&service["volumes"]);
    let config = command[command.iter().position(|word| *word == "--config").unwrap() + 1];
    assert!(mounts.iter().any(|mount| mount.contains(&format!(":{config}:"))), "{config} is mounted");
    assert!(text("Dockerfile").contains("TOOLSIEVE_DATA_DIR=/data"));

    let volumes = compose["volumes"].as_mapping().unwrap();
    for (_, service) in compose["services"].as_mapping().unwrap() {
        for mount in strings(&service["volumes"]) {
            let source = mount.split(':').next().unwrap();
            assert!(source.starts_with('.') || volumes.contains_key(source), "{source} is declared");
        }
    }
    for name in service["environment"].as_mapping().unwrap().keys().filter_map(|name| name.as_str()) {
        let sources = Sources { environment: environment(&[(name, "1")]), ..Sources::default() };
        Settings::load(&sources).unwrap();
    }
}

#[test]
fn the_cluster_for_compose_is_the_one_in_the_settings_of_the_service() {
    let compose: yaml_serde::Value = yaml_serde::from_str(&text("compose.qdrant.yaml")).unwrap();
    let variables = compose["services"]["toolsieve"]["environment"].as_mapping().unwrap().iter();
    let environment = variables
        .map(|(name, value)| (name.as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned()))
        // What compose puts in from its own environment.
        .map(|(name, value)| if value.starts_with("${QDRANT_API_KEY:?") { (name, "a-key".to_owned()) } else { (name, value) })
        .collect();
    let (settings, warnings) = Settings::load(&Sources { environment, ..Sources::default() }).unwrap();
    assert_eq!(warnings, []);
    let qdrant = settings.start.index.qdrant.unwrap();
    assert_eq!((qdrant.urls.len(), qdrant.replicas), (3, 2));
    let volumes = compose["volumes"].as_mapping().unwrap();
    for url in &qdrant.urls {
        let host = url.host_str().unwrap();
        let node = &compose["services"][host];
        let own = format!("http://{host}:6335");
        assert_eq!(strings(&node["command"]).last(), Some(&own.as_str()));
        assert_eq!(strings(&node["volumes"]), [format!("{host}:/qdrant/storage")]);
        assert!(volumes.contains_key(host) && node["environment"]["QDRANT__SERVICE__API_KEY"].is_string());
    }
}

#[test]
fn prometheus_asks_where_the_metrics_are() {
    let config: yaml_serde::Value = yaml_serde::from_str(&text("prometheus.yml")).unwrap();
    let job = &config["scrape_configs"][0];
    assert_eq!(job["metrics_path"].as_str(), Some("/metrics"));
    assert_eq!(job["authorization"]["type"].as_str(), Some("Bearer"));
    assert_eq!(strings(&job["static_configs"][0]["targets"]), ["toolsieve:8000"]);
    assert!(text("compose.yaml").contains("\n  toolsieve:\n"), "the service has that name there");
    for file in strings(&config["rule_files"]) {
        assert!(text(file).contains("- alert: ToolsieveDown"), "{file}");
    }
}

#[test]
fn the_dockerfile_copies_what_exists_and_ends_in_a_command_that_exists() {
    let dockerfile = text("Dockerfile");
    let lines: Vec<&str> = dockerfile.lines().collect();
    let mut copied = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with("COPY ") && !line.contains("--from=")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        for path in &words[..words.len() - 1] {
            assert!(root().join(path).exists(), "{path} exists");
            assert!(text("Dockerfile.dockerignore").lines().any(|kept| kept == format!("!{path}")), "{path} is sent");
            copied.push(*path);
        }
    }
    for path in target_paths() {
        let top = path.split('/').next().unwrap();
        assert!(copied.contains(&top), "{path} is a target of the manifest, so {top} must be copied");
    }
    let command = lines.iter().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let command: Vec<String> = serde_json::from_str(command).unwrap();
    assert_command_is_real(&command.iter().map(String::as_str).collect::<Vec<_>>());

    // What the image sets must be settings: an unknown TOOLSIEVE_ variable would keep it from starting.
    let images: Vec<Vec<(&str, &str)>> = dockerfile
        .split("\nFROM ")
        .map(|image| {
            image.split_whitespace().filter(|word| word.starts_with("TOOLSIEVE_")).filter_map(|word| word.split_once('=')).collect()
        })
        .filter(|variables: &Vec<_>| !variables.is_empty())
        .collect();
    assert_eq!(images.len(), 2);
    assert_eq!(images[0], images[1], "both images start in the same way");
    let variables = images[0].clone();
    let with_key = [variables, vec![("TOOLSIEVE_API_KEY", "4f2a9c1be07d5836")]].concat();
    let sources = Sources { environment: environment(&with_key), ..Sources::default() };
    let (settings, warnings) = Settings::load(&sources).unwrap();
    assert_eq!(warnings, []);
    assert!(!settings.start.http.is_loopback());
}

#[test]
fn the_unit_starts_a_command_that_exists_with_files_that_the_guide_installs() {
    let unit = unit("toolsieve.service");
    assert_eq!(unit.keys().collect::<Vec<_>>(), ["Install", "Service", "Unit"]);
    let service = &unit["Service"];
    let command: Vec<&str> = service["ExecStart"][0].split_whitespace().collect();
    assert_command_is_real(&command[1..]);
    let guide = text("README.md");
    for path in command.iter().filter(|word| word.starts_with("/etc/")) {
        assert!(guide.contains(path), "the guide installs {path}");
    }
    assert!(command.contains(&"/var/lib/toolsieve") && service["StateDirectory"] == ["toolsieve"]);
    assert_eq!(service["Type"], ["notify"], "the service reports that it listens");
    assert_eq!(service["RestartPreventExitStatus"], ["2"], "the exit code of an invalid configuration");
    for hardened in ["DynamicUser", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"] {
        assert_eq!(service[hardened], ["yes"], "{hardened}");
    }
}

/// Whoever switches the socket on finds the service where it was.
#[test]
fn the_socket_has_the_address_of_the_default_settings() {
    let unit = unit("toolsieve.socket");
    let (settings, _) = Settings::load(&Sources::default()).unwrap();
    let http = &settings.start.http;
    assert_eq!(unit["Socket"]["ListenStream"], [format!("{}:{}", http.host, http.port)]);
    assert_eq!(unit["Install"]["WantedBy"], ["sockets.target"]);
}

/// Where systemd is there, it reads the units itself, with the program's path replaced by one that exists.
#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("toolsieve.service");
    fs::write(&copy, text("toolsieve.service").replace("/usr/local/bin/toolsieve", BINARY)).unwrap();
    let socket = folder.path().join("toolsieve.socket");
    fs::write(&socket, text("toolsieve.socket")).unwrap();
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg("--man=no").args([&copy, &socket]).output() else {
        return left_out("the units, read by systemd", "there is no systemd-analyze");
    };
    let printed = String::from_utf8_lossy(&output.stderr);
    let about_ours: Vec<&str> =
        printed.lines().filter(|line| ["toolsieve.service", "toolsieve.socket"].iter().any(|unit| line.contains(unit))).collect();
    assert!(about_ours.is_empty(), "{printed}");
}

#[test]
fn commands_in_the_guide_exist() {
    let guide = text("README.md").replace("exec toolsieve \\\n", "\n");
    let commands: Vec<Vec<&str>> = guide
        .split(['\n', '`'])
        .map(str::trim)
        .filter_map(|line| line.strip_prefix("toolsieve "))
        .map(|line| line.strip_prefix("toolsieve ").unwrap_or(line))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(commands.len() >= 2, "{commands:?}");
    for command in commands {
        assert_command_is_real(&command);
    }
}

/// The paths of all targets in the manifest: cargo reads none of it while one is missing.
fn target_paths() -> Vec<String> {
    let manifest: toml::Table = toml::from_str(&fs::read_to_string(root().join("Cargo.toml")).unwrap()).unwrap();
    let targets = ["bin", "example", "test", "bench"].into_iter().filter_map(|kind| manifest.get(kind)?.as_array());
    let paths: Vec<String> = targets.flatten().filter_map(|target| Some(target.get("path")?.as_str()?.to_owned())).collect();
    assert!(!paths.is_empty());
    paths
}

/// The sections of a unit: each key with its values.
fn unit(name: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let mut sections: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut section = String::new();
    for line in text(name).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else {
            let (key, value) = line.split_once('=').unwrap();
            sections.entry(section.clone()).or_default().entry(key.into()).or_default().push(value.into());
        }
    }
    sections
}

fn strings(value: &yaml_serde::Value) -> Vec<&str> {
    value.as_sequence().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

/// The subcommand and every flag stand in the program's own help.
fn assert_command_is_real(words: &[&str]) {
    let subcommand: Vec<&&str> = words.iter().take_while(|word| !word.starts_with('-')).collect();
    assert!(!subcommand.is_empty(), "{words:?}");
    let output = Command::new(BINARY).args(&subcommand).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{subcommand:?}: {}", String::from_utf8_lossy(&output.stderr));
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let known = help.split(|character: char| character.is_whitespace() || character == ',').any(|word| word == *flag);
        assert!(known, "{flag} is a flag of {subcommand:?}");
    }
}
