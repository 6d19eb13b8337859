//! The parts of the retrieval that a benchmark can switch off to measure their contribution. One line per part.

use crate::cli::retrieval::{Recipe, Vectors};
use crate::domain::selection::relevance::Synonyms;

/// A part of the retrieval that can be switched off.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The part's name on the command line.
    pub(super) name: &'static str,
    /// Describes the retrieval without this part.
    pub(super) without: &'static str,
    pub(super) leave_out: fn(&mut Recipe),
}

pub(super) const PARTS: &[Part] = &[
    Part { name: "lexical", without: "vectors alone", leave_out: |recipe| recipe.words = false },
    Part { name: "dense", without: "words alone", leave_out: |recipe| recipe.vectors = Vectors::None },
    Part {
        name: "first-sentence-vector",
        without: "one vector per tool: server, name and description",
        leave_out: |recipe| recipe.vectors = Vectors::Full,
    },
    Part {
        name: "description-vector",
        without: "one vector per tool: name and first sentence",
        leave_out: |recipe| recipe.vectors = Vectors::Short,
    },
    Part { name: "enrichment", without: "no texts by a model or an admin", leave_out: |recipe| recipe.enrichment = false },
    Part { name: "sentences", without: "long messages ranked as a whole", leave_out: |recipe| recipe.fusion.sentence_weight = 0.0 },
    Part {
        name: "coverage",
        without: "no preference for needs that no earlier tool covers",
        leave_out: |recipe| recipe.fusion.coverage_weight = 0.0,
    },
    Part {
        name: "servers",
        without: "no preference for the servers a message is about",
        leave_out: |recipe| recipe.fusion.server_weight = 0.0,
    },
    Part { name: "synonyms", without: "no synonyms", leave_out: |recipe| recipe.settings.live.selection.synonyms = Synonyms::default() },
    Part { name: "corrections", without: "no correction of misspelt words", leave_out: |recipe| recipe.corrections = false },
    Part {
        name: "folding",
        without: "near duplicates offered separately",
        leave_out: |recipe| recipe.settings.live.selection.fold_duplicates = false,
    },
    Part { name: "stemming", without: "no stemming", leave_out: |recipe| recipe.stems = false },
    Part { name: "parameters", without: "no words of parameters", leave_out: |recipe| recipe.lexical.parameters.weight = 0.0 },
    Part { name: "server-names", without: "no words of servers' names", leave_out: |recipe| recipe.lexical.server.weight = 0.0 },
    Part { name: "gate", without: "tools for every message", leave_out: |recipe| recipe.settings.live.selection.gate = false },
];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// Finds the parts with these names.
pub(super) fn named(names: &[String]) -> Vec<Part> {
    PARTS.iter().filter(|part| names.iter().any(|name| name == part.name)).copied().collect()
}
