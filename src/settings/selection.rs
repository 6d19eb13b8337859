//! Section `[selection]`: how tools are selected for a message.

use crate::domain::selection::experiment::Mode;
use crate::domain::selection::relevance::Synonyms;
use crate::domain::text::analysis::Analyzer;
use crate::domain::text::named::named;
use crate::settings::Settings;
use crate::settings::values::{Reader, section};

section! {
    /// The settings in section `[selection]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SelectionSettings = values(reader) {
        /// Whether the selection applies, or is only recorded.
        pub mode: Mode = reader.choice("selection.mode", Mode::of_name, ("unknown mode", "write \"on\" or \"shadow\"")),
        /// Maximum number of tokens in the definitions of all offered tools up to which every message gets all of them.
        pub narrow_above: Option<usize> = Some(reader.whole("selection.narrow_above_tokens", 0..=10_000_000)).filter(|tokens| *tokens > 0),
        /// Maximum number of newly selected tools per message.
        pub limit: usize = reader.whole("selection.limit", 1..=128),
        /// Maximum number of tools that a chat keeps.
        pub chat_budget: usize = reader.whole("selection.chat_budget", 1..=512),
        /// Maximum number of candidates in each list from the index.
        pub candidates: usize = reader.whole("selection.candidates", 1..=1000),
        /// Weight of the dense score, from 0 to 1. The lexical score has the remaining weight.
        pub dense_weight: f32 = dense_weight(reader),
        /// Whether messages that need no tool get none.
        pub gate: bool = reader.switch("selection.gate"),
        /// Precision against recall, from -2 (more tools for more messages) to 2 (fewer tools for fewer messages).
        pub strictness: f32 = strictness(reader),
        /// Maximum number of tokens in newly selected definitions.
        pub token_budget: Option<usize> = Some(reader.whole("selection.token_budget", 0..=10_000_000)).filter(|budget| *budget > 0),
        /// Public names of tools that every chat gets.
        pub pinned: Vec<String> = pinned(reader),
        /// Synonyms for words in messages.
        pub synonyms: Synonyms = synonyms(reader),
        /// Whether to offer only one of several near duplicates from different servers.
        pub fold_duplicates: bool = reader.switch("selection.fold_duplicates"),
        /// Share of users, from 0 to 1, for whom tools are selected. The others get all tools, for a comparison.
        pub share: f64 = share(reader),
        /// Maximum number of newly selected tools per server.
        pub per_server: Option<usize> = Some(reader.whole("selection.per_server", 0..=128)).filter(|most| *most > 0),
        /// When a language model reranks the candidates, if one is available.
        pub rerank: Rerank = reader.choice("selection.rerank", Rerank::of_name, ("unknown mode", "write \"auto\", \"off\" or \"always\"")),
    }
}

named! {
    /// When a language model reranks the best candidates.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Rerank {
        Off = "off",
        /// Only if the ranking is ambiguous.
        #[default]
        Auto = "auto",
        /// For every message that needs a tool.
        Always = "always",
    }
}

impl Default for SelectionSettings {
    /// The values in `defaults.toml`.
    fn default() -> Self {
        Settings::defaults().unwrap_or_else(|error| unreachable!("the defaults are tested: {error}")).live.selection
    }
}

impl SelectionSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let settings = Self::values(reader);
        for (key, value) in [("selection.chat_budget", settings.chat_budget), ("selection.candidates", settings.candidates)] {
            if value < settings.limit {
                let remedy = format!("write at least {}, or lower selection.limit", settings.limit);
                reader.problem(key, "smaller than selection.limit", remedy);
            }
        }
        settings
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a number from -2 to 2")]
fn strictness(reader: &mut Reader<'_>) -> f32 {
    reader.fraction("selection.strictness", -2.0..=2.0) as f32
}

#[expect(clippy::cast_possible_truncation, reason = "a weight between 0 and 1")]
fn dense_weight(reader: &mut Reader<'_>) -> f32 {
    reader.fraction("selection.dense_weight", 0.0..=1.0) as f32
}

/// `selection.share`, or its former counterpart `selection.static_share`.
fn share(reader: &mut Reader<'_>) -> f64 {
    let share = reader.fraction("selection.share", 0.0..=1.0);
    let all = reader.fraction("selection.static_share", 0.0..=1.0);
    if all <= 0.0 {
        return share;
    }
    if share < 1.0 {
        reader.problem("selection.static_share", "is set together with selection.share", "set selection.share alone");
    } else {
        reader.warning("selection.static_share", "is replaced by selection.share", format!("write share = {}", 1.0 - all));
    }
    1.0 - all
}

fn synonyms(reader: &mut Reader<'_>) -> Synonyms {
    let groups = reader.list("selection.synonyms");
    Synonyms::new(&Analyzer::default(), &groups).unwrap_or_else(|problem| {
        reader.problem("selection.synonyms", problem.to_string(), "write groups of single-word synonyms, such as \"mail email\"");
        Synonyms::default()
    })
}

fn pinned(reader: &mut Reader<'_>) -> Vec<String> {
    let names = reader.list("selection.pinned");
    let is_published = |name: &str| {
        name.len() <= 64
            && name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_' || character == '-')
    };
    if !names.iter().all(|name| is_published(name)) {
        reader.problem(
            "selection.pinned",
            "contains a name that no published tool can have",
            "write names as in /openapi.json, such as time__get_current_time",
        );
    }
    names
}
