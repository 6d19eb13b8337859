//! Requests that vectors hardly recognise: to remember something, and for the time. Their words are known in many languages.

use std::collections::HashSet;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::selection::builtins::Families;
use crate::domain::selection::relevance::{Asked, Ranked};
use crate::domain::selection::remembering::Remembering;
use crate::domain::text::words::split_identifier;
use crate::service::catalog::current::View;
use crate::service::selection::foreign::ForeignTool;

/// The family of Open WebUI's own tools for the time.
const TIME: &str = "time";

/// What a message asks for by its words, with the ranked tools that do it. `None` if no ranked tool does.
pub(super) fn asked(message: &str, catalog: &Catalog, ranked: &[Ranked<u32>], foreign: &[ForeignTool]) -> Option<(Asked, HashSet<u32>)> {
    let (asked, does): (_, fn(&Texts<'_>) -> bool) = if Remembering::of(message).is_some() {
        (Asked::Memory, is_memory)
    } else if asks_for_time(message) {
        (Asked::Time, is_clock)
    } else {
        return None;
    };
    let does = |key: u32| match catalog.tools().get(key as usize) {
        Some(tool) => does(&[tool.id.server.as_str(), &tool.id.name, &tool.description]),
        None => (key as usize)
            .checked_sub(catalog.tools().len())
            .and_then(|place| foreign.get(place))
            .is_some_and(|tool| does(&["", &tool.name, &tool.description])),
    };
    let tools: HashSet<u32> = ranked.iter().map(|ranked| ranked.key).filter(|&key| does(key)).collect();
    (!tools.is_empty()).then_some((asked, tools))
}

/// Whether the caller sees a tool that remembers something about people.
pub(super) fn has_memory(view: &View, foreign: &[ForeignTool]) -> bool {
    let tools = view.catalog.tools();
    let ours = |&key: &u32| {
        let tool = &tools[key as usize];
        is_memory(&[tool.id.server.as_str(), &tool.id.name, &tool.description])
    };
    view.visible().positions().iter().any(ours) || foreign.iter().any(|tool| is_memory(&["", &tool.name, &tool.description]))
}

/// A tool's server, name and description.
type Texts<'a> = [&'a str; 3];

/// Whether a message asks for the time or the date, and doesn't only need the date or mention a timestamp.
fn asks_for_time(message: &str) -> bool {
    let families = Families::all();
    let mut asked = message.to_lowercase().replace("current timestamp", "current time");
    for other in ["timestamp", "how old", "born in", "born on", "this year"] {
        asked = asked.replace(other, " x ");
    }
    families.with_cue(&asked).iter().any(|&family| families.name(family) == TIME)
}

/// The words of texts in lower case, with a space around each.
fn words(texts: &[&str]) -> String {
    let words = texts.iter().map(|text| split_identifier(text)).collect::<Vec<_>>().join(" ");
    format!(" {} ", words.to_lowercase())
}

/// Whether words contain one of these.
fn has(words: &str, one_of: &[&str]) -> bool {
    one_of.iter().any(|word| words.contains(&format!(" {word} ")))
}

/// Whether a tool's words say that it remembers something about people, and not that a machine has memory or that something was observed.
fn is_memory(texts: &Texts<'_>) -> bool {
    // Most tools are told by this, without splitting their words.
    if !texts.iter().any(|text| ["emor", "EMOR", "bservation", "nowledge"].iter().any(|part| text.contains(part))) {
        return false;
    }
    let words = words(texts);
    let is_graph = has(&words, &["knowledge graph"]) && has(&words, &["entity", "entities", "observation", "observations", "memory"]);
    let is_observation = has(&words, &["observation", "observations"]) && has(&words, &["entity", "entities"]);
    let does = ["add", "store", "save", "create", "remember", "remembers", "delete", "forget", "user"];
    let of_machine = [
        "usage",
        "cpu",
        "cpus",
        "ram",
        "vm",
        "vms",
        "size",
        "limit",
        "limits",
        "pod",
        "pods",
        "heap",
        "leak",
        "leaks",
        "cache",
        "container",
    ];
    is_graph || is_observation || has(&words, &["memory", "memories"]) && has(&words, &does) && !has(&words, &of_machine)
}

/// Whether a tool's name or the first sentence about it says that it tells the time.
fn is_clock(&[_, name, description]: &Texts<'_>) -> bool {
    let first_sentence = description.split(['.', '\n']).next().unwrap_or_default();
    let words = words(&[name, first_sentence]);
    let tells = ["current time", "current date", "current datetime", "current timestamp", "convert time", "converts time", "date today"];
    has(&words, &tells) && !has(&words, &["event", "events", "calendar", "meeting", "reminder"])
}

#[cfg(test)]
mod tests {
    use super::{asks_for_time, is_clock, is_memory};

    #[test]
    fn a_memory_and_a_clock_are_known_by_their_words() {
        for texts in [
            ["memory", "create_entities", "Create multiple new entities in the knowledge graph"],
            ["memory", "add_observations", "Add new observations to existing entities in the knowledge graph"],
            ["mem0", "addMemory", "Store what the user says"],
        ] {
            assert!(is_memory(&texts), "{texts:?}");
        }
        for texts in [
            ["k8s", "top_pods", "Shows the memory usage of pods"],
            ["cloud", "create_vm", "Create a VM with CPU and memory"],
            ["fhir", "search_observations", "Search observations of a patient"],
            ["weather", "latest", "The latest observation of a station"],
        ] {
            assert!(!is_memory(&texts), "{texts:?}");
        }
        assert!(is_clock(&["time", "convert_time", "Convert time between timezones"]));
        assert!(is_clock(&["clock", "getCurrentTime", "What a clock shows"]));
        for texts in [
            ["calendar", "update_event", "Updates an event, such as its time"],
            ["calendar", "create_event", "Creates an event. The timezone is the user's. Default: the current time"],
            ["calendar", "create_event", "Creates an event in the current time zone"],
        ] {
            assert!(!is_clock(&texts), "{texts:?}");
        }
    }

    #[test]
    fn a_timestamp_or_an_age_is_no_question_for_the_time() {
        assert!(asks_for_time("what time is it?"));
        for message in ["add a timestamp column to the table", "how old is Bob", "list this year's invoices"] {
            assert!(!asks_for_time(message), "{message}");
        }
    }
}
