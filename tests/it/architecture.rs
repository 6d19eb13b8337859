//! The layers and who may use whom: a rule, not a hope.

use std::fs;
use std::path::{Path, PathBuf};

/// A layer, and the layers and crates that it must not name.
struct Rule {
    layer: &'static str,
    layers: &'static [&'static str],
    crates: &'static [&'static str],
}

/// `settings` is plain data that every layer but `domain` may read.
const RULES: [Rule; 5] = [
    Rule {
        layer: "domain",
        layers: &["service", "adapters", "http", "app", "cli", "settings"],
        crates: &[
            "tokio",
            "actix_web",
            "rmcp",
            "qdrant_edge",
            "qdrant_client",
            "sqlx",
            "reqwest",
            "moka",
            "tracing",
            "utoipa",
            "async_trait",
        ],
    },
    Rule {
        layer: "settings",
        layers: &["service", "adapters", "http", "app", "cli"],
        crates: &["actix_web", "rmcp", "qdrant_edge", "qdrant_client", "sqlx", "reqwest"],
    },
    Rule {
        layer: "service",
        layers: &["adapters", "http", "app", "cli"],
        crates: &["actix_web", "rmcp", "qdrant_edge", "qdrant_client", "sqlx", "reqwest", "utoipa", "indicatif"],
    },
    Rule { layer: "http", layers: &["adapters", "app", "cli"], crates: &["qdrant_edge", "qdrant_client", "sqlx", "reqwest"] },
    Rule { layer: "adapters", layers: &["http", "app", "cli"], crates: &["actix_web", "utoipa"] },
];

/// Crates whose types stay inside one adapter; those of MCP also where it is spoken to clients.
const OWNED: [(&str, &[&str]); 6] = [
    ("async_openai", &["adapters/llm"]),
    ("rmcp", &["adapters/mcp", "http/mcp"]),
    ("qdrant_edge", &["adapters/index/engine.rs"]),
    ("qdrant_client", &["adapters/index/remote"]),
    ("sqlx", &["adapters/store"]),
    ("tiktoken_rs", &["adapters/tokens.rs"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Code without comments: a `//!` may speak of other layers.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Whether the code names the path `name::…` as a whole word.
fn names(code: &str, name: &str) -> bool {
    let pattern = format!("{name}::");
    code.match_indices(&pattern).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
        || code.contains(&format!("use {name};"))
}

#[test]
fn every_layer_keeps_to_its_side() {
    let mut broken = Vec::new();
    for rule in RULES {
        for path in sources(&root().join(rule.layer)) {
            let code = code(&path);
            for layer in rule.layers {
                if code.contains(&format!("crate::{layer}::")) || code.contains(&format!("crate::{layer};")) {
                    broken.push(format!("{} names the layer {layer}", path.display()));
                }
            }
            for name in rule.crates {
                if names(&code, name) {
                    broken.push(format!("{} names the crate {name}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn foreign_types_stay_in_their_adapter() {
    let mut broken = Vec::new();
    for path in sources(&root()) {
        let relative = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let code = code(&path);
        for (name, homes) in OWNED {
            if names(&code, name) && !homes.iter().any(|home| relative.starts_with(home)) {
                broken.push(format!("{relative} names {name}, which belongs to {homes:?}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn traits_are_only_seams() {
    let mut broken = Vec::new();
    for path in sources(&root().join("service")) {
        if path.components().any(|part| part.as_os_str() == "ports") {
            continue;
        }
        if code(&path).lines().any(|line| line.starts_with("pub trait ") || line.starts_with("trait ")) {
            broken.push(path.display().to_string());
        }
    }
    assert!(broken.is_empty(), "traits outside service/ports: {broken:?}");
}

#[test]
fn unsafe_is_in_one_module() {
    let unsafe_keyword = concat!("unsafe", " ");
    let mut broken = Vec::new();
    for path in sources(&root()) {
        if path.ends_with("adapters/embed/builtin/kernels.rs") {
            continue;
        }
        if code(&path).contains(unsafe_keyword) {
            broken.push(path.display().to_string());
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn every_route_of_ours_has_a_name_of_its_own() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/service.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let mut names: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(all > 10 && names.len() == all, "{names:?}");
}
