//! The layers and who may use whom: a rule, not a hope.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that no source names: they switch on features of others (`Cargo.toml`).
const FOR_FEATURES: [&str; 4] = ["dary_heap", "getrandom", "nom", "regex-automata"];

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
const OWNED: [(&str, &[&str]); 10] = [
    ("async_openai", &["adapters/llm"]),
    ("rmcp", &["adapters/mcp", "http/mcp"]),
    ("qdrant_edge", &["adapters/index/engine.rs"]),
    ("qdrant_client", &["adapters/index/remote"]),
    ("sqlx", &["adapters/store"]),
    ("opentelemetry", &["adapters/telemetry"]),
    ("opentelemetry_proto", &["adapters/telemetry"]),
    ("opentelemetry_sdk", &["adapters/telemetry"]),
    ("prost", &["adapters/telemetry"]),
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

/// A module's path, without `crate`.
type ModulePath = Vec<String>;

/// The modules of this crate: their code, and the modules that each declares, in that order.
struct Modules(BTreeMap<ModulePath, (String, Vec<String>)>);

impl Modules {
    fn read() -> Self {
        let mut modules = BTreeMap::new();
        for file in sources(&root()) {
            let relative = file.strip_prefix(root()).unwrap().with_extension("");
            let mut path: ModulePath = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            match path.last().map(String::as_str) {
                Some("mod" | "lib") => drop(path.pop()),
                Some("main" | "tests") => continue,
                _ => {}
            }
            let code = code(&file);
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            let declared = code.lines().filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name.to_owned()));
            let declared = declared.filter(|name| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')).collect();
            modules.insert(path, (code, declared));
        }
        Self(modules)
    }

    /// For each folder its uses between siblings: who, of whom, and where.
    fn arrows(&self) -> BTreeMap<&[String], BTreeMap<(&str, String), String>> {
        let mut arrows: BTreeMap<&[String], BTreeMap<(&str, String), String>> = BTreeMap::new();
        for (module, (code, _)) in &self.0 {
            for used in used(code, module) {
                let common = module.iter().zip(&used).take_while(|(one, other)| one == other).count();
                let (Some(user), Some(target)) = (module.get(common), used.get(common)) else { continue };
                let siblings = &self.0[&module[..common]].1;
                if siblings.contains(user) && siblings.contains(target) {
                    let arrow = (user.as_str(), target.clone());
                    arrows.entry(&module[..common]).or_default().entry(arrow).or_insert_with(|| module.join("::"));
                }
            }
        }
        arrows
    }
}

/// The paths that a module's code names, without `crate`: `crate::…`, `super::…` and `self::…`, groups in braces too.
fn used(code: &str, module: &[String]) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")).chain(code.match_indices("self::")) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':' || letter == '$') {
            continue;
        }
        let mut rest = &code[at..];
        let mut base: ModulePath = if rest.starts_with("crate::") { Vec::new() } else { module.to_vec() };
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        rest = rest.strip_prefix("crate::").or_else(|| rest.strip_prefix("self::")).unwrap_or(rest);
        tree(rest, &base, &mut found);
    }
    found
}

/// A path, or the paths of a group; what follows it is left alone. Returns how much of the text it takes.
fn tree(text: &str, base: &[String], found: &mut Vec<ModulePath>) -> usize {
    let mut path = base.to_vec();
    let mut at = 0;
    loop {
        let name: String = text[at..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        at += name.len();
        if !name.is_empty() {
            path.push(name);
        }
        if let Some(after) = text[at..].strip_prefix("::") {
            at = text.len() - after.len();
        } else if text[at..].starts_with('{') {
            at += 1;
            while !text[at..].starts_with('}') && at < text.len() {
                match text[at..].chars().next() {
                    Some(letter) if letter.is_alphanumeric() || letter == '_' => at += tree(&text[at..], &path, found),
                    Some(letter) => at += letter.len_utf8(),
                    None => break,
                }
            }
            return at + 1;
        } else {
            found.push(path);
            return at;
        }
    }
}

/// Folders whose files name each other in a circle. Each is one thing in several files.
const CIRCLES: [&str; 2] = ["http", "http::mcp"];
/// Layers whose modules stand in the order in which they use each other. In `settings` the reader knows the sections, which know it;
/// `cli` and `app` use everything.
const ORDERED: [&str; 4] = ["domain", "service", "adapters", "http"];

#[test]
fn no_module_uses_one_that_is_declared_after_it() {
    let modules = Modules::read();
    let mut upward: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (folder, arrows) in modules.arrows() {
        if !folder.first().is_some_and(|layer| ORDERED.contains(&layer.as_str())) {
            continue;
        }
        let order = &modules.0[folder].1;
        let place = |name: &str| order.iter().position(|known| known == name);
        for ((user, target), by) in arrows {
            if place(user) < place(&target) {
                upward.entry(folder.join("::")).or_default().push(format!("{user} uses {target}, which is declared after it ({by})"));
            }
        }
    }
    for folder in CIRCLES {
        assert!(upward.remove(folder).is_some(), "{folder} has no circle any more: take it off the list");
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

/// The folders of each layer with what their first line says, as ARCHITECTURE.md shows them.
#[test]
fn the_map_in_the_guide_is_the_code() {
    let mut map = String::new();
    for layer in ["domain", "service"] {
        let modules = Modules::read();
        writeln!(map, "src/{layer}/").unwrap();
        for name in &modules.0[&vec![layer.to_owned()]].1 {
            let path = root().join(layer).join(name);
            let file = if path.is_dir() { path.join("mod.rs") } else { path.with_extension("rs") };
            let text = fs::read_to_string(&file).unwrap();
            let first = text.lines().next().and_then(|line| line.strip_prefix("//! ")).unwrap_or_default();
            let first = first.split_once(". ").map_or(first, |(first, _)| first).trim_end_matches(['.', ':']);
            writeln!(map, "  {name:<14}{first}").unwrap();
        }
    }
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/ARCHITECTURE.md")).unwrap();
    assert!(guide.contains(&map), "ARCHITECTURE.md does not hold this map:\n{map}");
}

/// The types that the glossary names: each exists, and no other type has its name.
#[test]
fn every_type_in_the_glossary_exists_once() {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/ARCHITECTURE.md")).unwrap();
    let glossary = guide.split("\n## Glossary\n").nth(1).and_then(|text| text.split("\n## ").next()).unwrap();
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let types: Vec<&str> = rows.map(|row| row.rsplit('`').nth(1).unwrap()).collect();
    assert!(types.len() > 20, "{types:?}");
    let mut declarations: BTreeMap<String, usize> = BTreeMap::new();
    for code in sources(&root()).iter().map(|path| code(path)) {
        for line in code.lines() {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
            if words.by_ref().any(|word| ["struct", "enum", "trait", "type"].contains(&word))
                && let Some(name) = words.next()
            {
                *declarations.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    for name in types {
        assert_eq!(declarations.get(name), Some(&1), "{name}");
    }
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
fn unsafe_is_in_two_modules_of_the_encoder() {
    let unsafe_keyword = concat!("unsafe", " ");
    let mut broken = Vec::new();
    for path in sources(&root()) {
        if ["kernels.rs", "residency.rs"].iter().any(|name| path.ends_with(format!("adapters/embed/builtin/{name}"))) {
            continue;
        }
        if code(&path).contains(unsafe_keyword) {
            broken.push(path.display().to_string());
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}

/// The crates in such a section of a manifest, for all targets and for some, by the names that sources use.
fn dependencies(manifest: &str, section: &str) -> Vec<String> {
    let is_meant = |name: &str| name.strip_suffix(section).is_some_and(|target| target.is_empty() || target.ends_with('.'));
    let sections = manifest.split("\n[").filter(|text| text.lines().next().is_some_and(is_meant));
    let lines = sections.flat_map(|text| text.lines().skip(1).filter_map(|line| line.split_once(" = ")));
    let names = lines.map(|(name, _)| name).filter(|name| !name.contains(['#', ' ']) && !FOR_FEATURES.contains(name));
    names.map(|name| if name == "md-5" { "md5".to_owned() } else { name.replace('-', "_") }).collect()
}

/// An unused dependency is built and audited for nothing.
#[test]
fn every_dependency_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut unused, mut found) = (Vec::new(), 0);
    for (manifest, section, folders) in [
        ("Cargo.toml", "dependencies]", &["src"][..]),
        ("Cargo.toml", "dev-dependencies]", &["src", "tests", "benches", "assets"]),
        ("tests/domain/Cargo.toml", "dependencies]", &["src/domain"]),
    ] {
        let code: Vec<String> = folders.iter().flat_map(|folder| sources(&root.join(folder))).map(|path| code(&path)).collect();
        let listed = dependencies(&fs::read_to_string(root.join(manifest)).unwrap(), section);
        found += listed.len();
        unused.extend(listed.into_iter().filter(|name| !code.iter().any(|code| names(code, name))));
    }
    assert!(unused.is_empty() && found > 80, "{found} dependencies, unused: {unused:?}");
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

/// Of two schemas with one name, one would replace the other in the document.
#[test]
fn every_schema_of_ours_has_a_name_of_its_own() {
    let mut names: Vec<String> = Vec::new();
    for path in sources(&root().join("http")) {
        let code = code(&path);
        let declared = code.lines().filter_map(|line| {
            let line = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            line.strip_prefix("struct ").or_else(|| line.strip_prefix("enum "))
        });
        let declared = declared.map(|rest| rest.chars().take_while(|letter| letter.is_alphanumeric()).collect::<String>());
        names.extend(declared.filter(|name| name.ends_with("Body")));
    }
    names.sort_unstable();
    let repeated: Vec<&[String]> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty() && names.len() > 60, "{} schemas, repeated: {repeated:?}", names.len());
}
