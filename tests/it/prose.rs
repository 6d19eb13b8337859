//! What people are told to type or to trust exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use toolsieve::settings::{Environment, ServersSource, Settings, Sources};

const BINARY: &str = env!("CARGO_BIN_EXE_toolsieve");
/// What the pages that a program writes begin with, below their title.
const GENERATED: &str = "<!-- Generated from ";

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The files of a kind below a folder, by their paths in the repository.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut folders) = (Vec::new(), vec![root.join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|known| known == extension) {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The pages that people write: path and text.
fn pages() -> Vec<(String, String)> {
    let listed = ["README.md", "CONTRIBUTING.md"].map(str::to_owned).into_iter().chain(files("docs/src", "md"));
    let written: Vec<_> = listed.map(|path| (path.clone(), text(&path))).filter(|(_, text)| !text.contains(GENERATED)).collect();
    assert!(written.len() > 20, "{}", written.len());
    written
}

/// The code blocks of a page in one of these languages.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fences: Vec<&str> = page.split("\n```").collect();
    assert_eq!(fences.len() % 2, 1, "a block has no end");
    let inside = fences.into_iter().skip(1).step_by(2);
    inside.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Words such as `git__git_status`. Placeholders are in capitals.
fn published_names(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || matches!(character, '_' | '-');
    let words = text.split(|character: char| !is_part(character));
    words
        .filter(|word| word.split_once("__").is_some_and(|(server, tool)| !server.is_empty() && !tool.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// L14: somebody who typed the README's example after the quickstart was told that there is no such tool.
#[test]
fn every_tool_that_is_named_is_one_of_the_quickstart() {
    let listed = text("tests/data/quickstart/tools.txt");
    let known: BTreeSet<String> = listed.lines().map(|line| line.replacen('/', "__", 1)).collect();
    let defaults = "src/settings/defaults.toml".to_owned();
    for (file, text) in pages().into_iter().chain([(defaults.clone(), text(&defaults))]) {
        let named = published_names(&text);
        let names_some = ["README.md", &defaults].contains(&file.as_str());
        assert!(!names_some || named.contains("git__git_commit"), "{file} names no tool any more: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// The commands of the program in a text of code, each with its words.
fn commands(code: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for line in code.lines() {
        let mut words = line.split(" #").next().unwrap_or_default().split_whitespace();
        let mut begins = true;
        while let Some(word) = words.next() {
            let is_ours = (begins && word == "toolsieve") || word.ends_with("$(toolsieve");
            if is_ours || (word == "--" && line.starts_with("cargo run ")) {
                let rest = words.by_ref().take_while(|word| !["|", ">", "\\"].contains(word));
                found.push(rest.map(|word| word.trim_end_matches([')', '"'])).collect());
            }
            begins = word == "--";
        }
    }
    found
}

fn help(words: &[&str]) -> Option<String> {
    let output = Command::new(BINARY).args(words).arg("--help").output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// The commands that a help text lists.
fn subcommands(help: &str) -> BTreeSet<&str> {
    let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_command_and_flag_in_the_pages_exists() {
    let mut known: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut checked = 0;
    for (file, text) in pages() {
        let in_lines = text.split("\n```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
        let code: Vec<&str> = blocks(&text, "sh").into_iter().chain(in_lines.filter(|code| code.starts_with("toolsieve "))).collect();
        for command in code.into_iter().flat_map(commands) {
            let mut path: Vec<&str> = Vec::new();
            let mut words = command.iter().copied().peekable();
            let mut shown = known.entry(Vec::new()).or_insert_with(|| help(&[]).unwrap()).clone();
            while let Some(word) = words.next_if(|word| subcommands(&shown).contains(word)) {
                path.push(word);
                let key = path.iter().map(|word| (*word).to_owned()).collect();
                shown = known.entry(key).or_insert_with(|| help(&path).unwrap()).clone();
            }
            if path.is_empty() {
                // Without a command, flags are mcpo's.
                assert!(
                    words.next_if_eq(&"mcpo").is_some() || words.peek().is_none_or(|word| word.starts_with('-')),
                    "{file}: {command:?}"
                );
                shown = help(&["mcpo"]).unwrap();
            }
            let is_complete = subcommands(&shown).is_empty() || words.peek().is_none_or(|word| word.starts_with('-'));
            assert!(is_complete, "{file}: {command:?}");
            for flag in words.take_while(|word| *word != "--").filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or_default();
                let is_known = shown.split(|character: char| character.is_whitespace() || character == ',').any(|word| word == flag);
                assert!(is_known || flag == "--help", "{file}: {flag} is no flag of {path:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn every_configuration_in_the_pages_is_sound() {
    let variables = [
        ("HOME", "/home/me"),
        ("CRM_READER_TOKEN", "a-token"),
        ("OPENAI_API_KEY", "a-key"),
        ("GEMINI_API_KEY", "a-key"),
        ("VOYAGE_API_KEY", "a-key"),
        ("TOOLSIEVE_SECRETS_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        ("TOOLSIEVE_HTTP__PUBLIC_URL", "https://tools.example.org"),
        ("GITHUB_CLIENT_ID", "an-id"),
        ("GITHUB_CLIENT_SECRET", "a-secret"),
        ("GOOGLE_CLIENT_ID", "an-id"),
        ("GOOGLE_CLIENT_SECRET", "a-secret"),
        ("TICKETS_CLIENT_SECRET", "a-secret"),
    ];
    let environment: Environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let folder = tempfile::tempdir().unwrap();
    let (mut of_settings, mut of_servers) = (0, 0);
    for (file, text) in pages() {
        for block in blocks(&text, "toml") {
            let path = folder.path().join("toolsieve.toml");
            fs::write(&path, block).unwrap();
            let sources = Sources { settings: Some(path), environment: environment.clone(), ..Sources::default() };
            Settings::load(&sources).unwrap_or_else(|errors| panic!("{file}: {errors}\n{block}"));
            of_settings += 1;
        }
        for block in blocks(&text, "json") {
            let servers = ServersSource::Text { name: file.clone(), text: block.to_owned() };
            let sources = Sources { servers, environment: environment.clone(), ..Sources::default() };
            let (_, warnings) = Settings::load(&sources).unwrap_or_else(|errors| panic!("{file}: {errors}\n{block}"));
            assert_eq!(warnings, [], "{file}: {block}");
            of_servers += 1;
        }
    }
    assert!(of_settings > 10 && of_servers > 3, "{of_settings} {of_servers}");
}

#[test]
fn the_readme_is_short_and_lines_are_too() {
    assert!(text("README.md").lines().count() <= 200);
    for (file, text) in pages() {
        let long = text.lines().filter(|line| !line.starts_with(['|', '!']) && line.chars().count() > 140);
        assert_eq!(long.collect::<Vec<_>>(), [""; 0], "{file}");
    }
}

/// What the contents leave out is in no book.
#[test]
fn every_page_is_in_the_contents() {
    let contents = text("docs/src/SUMMARY.md");
    for path in files("docs/src", "md").iter().filter(|path| !path.ends_with("SUMMARY.md")) {
        assert!(contents.contains(&format!("]({})", path.trim_start_matches("docs/src/"))), "{path}");
    }
}

#[test]
fn every_path_that_the_guide_names_exists() {
    let guide = text("CONTRIBUTING.md");
    let named = guide.split('`').skip(1).step_by(2).filter_map(|code| code.split_whitespace().next());
    let folders = ["assets/", "bench/", "docs/", "openapi/", "src/", "tests/", "webui-filter/"];
    let paths: Vec<&str> = named.filter(|word| folders.iter().any(|folder| word.starts_with(folder))).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
}

#[test]
fn the_picture_shows_what_was_measured() {
    let (picture, figures) = (text("docs/src/images/before-after.svg"), text("docs/src/explanation/figures.md"));
    let counted = picture.split(" tokens</tspan>").filter_map(|before| before.rsplit('>').next());
    let shown: Vec<&str> = counted.filter(|number| number.starts_with(|character: char| character.is_ascii_digit())).collect();
    let in_row = |row: &str| {
        let row = figures.lines().find_map(|line| line.strip_prefix(row)).unwrap();
        row.trim_matches([' ', '|']).rsplit(" | ").next().unwrap().split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, after) = (in_row("| without the filter |"), in_row("| with the filter |"));
    let expected: Vec<&String> = before.iter().zip(&after).flat_map(|(before, after)| [before, after]).collect();
    assert_eq!(shown, expected);
}

/// Every test function in `tests/it`, as `file::name`.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in files("tests/it", "rs") {
        let module = path.trim_start_matches("tests/it/").trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
        let source = text(&path);
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            is_test = is_test || line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
            if let (true, Some(name)) = (is_test, name.and_then(|rest| rest.split('(').next())) {
                found.insert(format!("{module}::{name}"));
                is_test = false;
            }
        }
    }
    found
}

/// A promise that is held by a test which is gone is held by nothing.
#[test]
fn every_test_that_the_threat_model_names_exists() {
    let (known, security) = (tests(), text("SECURITY.md"));
    let table = security.lines().filter(|line| line.starts_with('|'));
    let named: BTreeSet<String> =
        table.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| word.contains("::")).map(str::to_owned).collect();
    assert!(named.len() > 20, "{named:?}");
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let rows = security.lines().filter(|line| line.matches(" | ").count() == 3);
    for row in rows.skip(2) {
        assert!(row.contains("::"), "no test holds this: {row}");
    }
}
