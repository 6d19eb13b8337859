//! Requests that vectors hardly recognise: to remember something, and for the time. Their words are known in many languages.

use std::collections::HashSet;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::selection::builtins::Families;
use crate::domain::selection::relevance::{Asked, Ranked};
use crate::domain::selection::remembering::Remembering;
use crate::domain::text::words::split_identifier;
use crate::service::selection::foreign::ForeignTool;

/// The family of Open WebUI's own tools for the time.
const TIME: &str = "time";

/// What a message asks for by its words, with the ranked tools that do it. `None` if no ranked tool does.
pub(super) fn asked(message: &str, catalog: &Catalog, ranked: &[Ranked<u32>], foreign: &[ForeignTool]) -> Option<(Asked, HashSet<u32>)> {
    let families = Families::all();
    let (asked, does): (_, fn(&str) -> bool) = if Remembering::of(message).is_some() {
        (Asked::Memory, is_memory)
    } else if families.with_cue(message).iter().any(|&family| families.name(family) == TIME) {
        (Asked::Time, is_clock)
    } else {
        return None;
    };
    let text = |key: u32| match catalog.tools().get(key as usize) {
        Some(tool) => Some(words(&[tool.id.server.as_str(), &tool.id.name, &tool.description])),
        None => foreign.get((key as usize).checked_sub(catalog.tools().len())?).map(|tool| words(&[&tool.name, &tool.description])),
    };
    let tools: HashSet<u32> = ranked.iter().map(|ranked| ranked.key).filter(|&key| text(key).is_some_and(|text| does(&text))).collect();
    (!tools.is_empty()).then_some((asked, tools))
}

/// The words of texts in lower case, with a space around each.
fn words(texts: &[&str]) -> String {
    let words = texts.iter().map(|text| split_identifier(text)).collect::<Vec<_>>().join(" ");
    format!(" {} ", words.to_lowercase())
}

/// Whether a tool's words say that it remembers something about people.
fn is_memory(words: &str) -> bool {
    let has = |one_of: &[&str]| one_of.iter().any(|word| words.contains(&format!(" {word} ")));
    has(&["knowledge graph", "observation", "observations"])
        || (has(&["memory", "memories"]) && has(&["add", "store", "save", "create", "remember", "remembers", "delete", "forget", "user"]))
}

/// Whether a tool's words say that it tells the time.
fn is_clock(words: &str) -> bool {
    [" timezone ", " timezones ", " time zone ", " time zones ", " current time ", " current date ", " current timestamp "]
        .iter()
        .any(|phrase| words.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::{is_clock, is_memory, words};

    #[test]
    fn a_memory_and_a_clock_are_known_by_their_words() {
        for texts in [
            ["memory", "create_entities", "Create multiple new entities in the knowledge graph"],
            ["mem0", "addMemory", "Store what the user says"],
        ] {
            assert!(is_memory(&words(&texts)), "{texts:?}");
        }
        assert!(!is_memory(&words(&["k8s", "top_pods", "Shows the memory usage of pods"])));
        assert!(is_clock(&words(&["time", "convert_time", "Convert time between timezones"])));
        assert!(is_clock(&words(&["clock", "getCurrentTime", "What a clock shows"])));
        assert!(!is_clock(&words(&["calendar", "update_event", "Updates an event, such as its time"])));
    }
}
