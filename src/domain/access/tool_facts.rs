//! Overrides of tools: tags, synonyms, descriptions, pinning and shapes set by admins.
//!
//! Rules and the server file can add tags too. An override is keyed by server and tool name, so it survives updates of the tool
//! and outages of its server. Applied to a tool, it becomes an [`Overlay`].

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use serde::{Deserialize, Serialize};

use crate::domain::access::management::ManagedBy;
use crate::domain::access::policy::Tagging;
use crate::domain::catalog::hidden_text;
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::overlay::Overlay;
use crate::domain::catalog::shape::{Shape, ShapeProblem};
use crate::domain::catalog::tool::{OperationId, ServerName, ToolId};
use crate::domain::text::analysis::Analyzer;
use crate::domain::text::json;

/// Maximum number of an admin's tags per tool, and of tags per server in the server file.
pub const MOST_TAGS: usize = 50;
/// Maximum length of a tag, in characters.
pub const TAG_CHARACTERS: usize = 64;
/// Maximum number of synonyms per tool.
pub const MOST_SYNONYMS: usize = 50;
/// Maximum length of a synonym, in characters.
pub const SYNONYM_CHARACTERS: usize = 100;
/// Maximum length of a description, in characters.
pub const DESCRIPTION_CHARACTERS: usize = 10_000;

/// An admin's override of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolOverride {
    #[serde(default)]
    pub tags: Vec<String>,
    /// Additional words and short phrases by which search finds the tool.
    #[serde(default)]
    pub synonyms: Vec<String>,
    /// Replaces the server's description, if set.
    pub description: Option<String>,
    /// Whether every chat offers the tool, as with `selection.pinned`.
    #[serde(default)]
    pub pinned: bool,
    /// What callers see and send of the parameters, and whether the tool is switched off.
    #[serde(default, skip_serializing_if = "Shape::is_empty", deserialize_with = "json::from_object")]
    pub shape: Shape,
}

/// The reason why an override is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideProblem {
    #[error("{0}: at most {1}")]
    TooMany(&'static str, usize),
    #[error("{0}: \"{2}\" must have 1 to {1} characters")]
    Length(&'static str, usize, String),
    #[error("{0}: it contains invisible characters: {1}. Remove them")]
    Hidden(&'static str, String),
    #[error("{0}: it contains a line break or a control character")]
    Lines(&'static str),
    #[error("synonyms: \"{0}\" contains no searchable word")]
    NoWord(String),
    #[error("description: it is empty. Leave it out to keep the server's")]
    NoDescription,
    #[error("{}", list(.0))]
    Shape(Vec<ShapeProblem>),
}

fn list(problems: &[ShapeProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ToolOverride {
    /// Validates the override, trims its texts and removes duplicates.
    ///
    /// # Errors
    /// The first problem found.
    pub fn checked(self) -> Result<Self, OverrideProblem> {
        let tags = texts("tags", self.tags, MOST_TAGS, TAG_CHARACTERS)?;
        let synonyms = texts("synonyms", self.synonyms, MOST_SYNONYMS, SYNONYM_CHARACTERS)?;
        let analyzer = Analyzer::default();
        if let Some(synonym) = synonyms.iter().find(|synonym| analyzer.terms(synonym).is_empty()) {
            return Err(OverrideProblem::NoWord(synonym.clone()));
        }
        let description = self.description.as_deref().map(description).transpose()?;
        let shape = self.shape.checked().map_err(OverrideProblem::Shape)?;
        Ok(Self { tags, synonyms, description, pinned: self.pinned, shape })
    }
}

/// Validates a tag and trims it.
///
/// # Errors
/// The reason why it is invalid.
pub fn tag(text: &str) -> Result<String, OverrideProblem> {
    line("tags", text, TAG_CHARACTERS)
}

fn texts(what: &'static str, texts: Vec<String>, most: usize, longest: usize) -> Result<Vec<String>, OverrideProblem> {
    let mut checked: Vec<String> = Vec::with_capacity(texts.len());
    for text in texts {
        let text = line(what, &text, longest)?;
        if !checked.contains(&text) {
            checked.push(text);
        }
    }
    if checked.len() > most { Err(OverrideProblem::TooMany(what, most)) } else { Ok(checked) }
}

fn line(what: &'static str, text: &str, longest: usize) -> Result<String, OverrideProblem> {
    let text = seen(what, text)?.trim().to_owned();
    if text.is_empty() || text.chars().count() > longest {
        return Err(OverrideProblem::Length(what, longest, text.chars().take(40).collect()));
    }
    if text.chars().any(char::is_control) { Err(OverrideProblem::Lines(what)) } else { Ok(text) }
}

fn description(text: &str) -> Result<String, OverrideProblem> {
    let text = seen("description", text)?.trim().to_owned();
    match text.chars().count() {
        0 => Err(OverrideProblem::NoDescription),
        1..=DESCRIPTION_CHARACTERS => Ok(text),
        _ => Err(OverrideProblem::Length("description", DESCRIPTION_CHARACTERS, text.chars().take(40).collect())),
    }
}

fn seen<'a>(what: &'static str, text: &'a str) -> Result<&'a str, OverrideProblem> {
    match hidden_text::clean_text("", text).1 {
        Some(hidden) => Err(OverrideProblem::Hidden(what, hidden.code_points.join(", "))),
        None => Ok(text),
    }
}

/// The source of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TagSource {
    /// The server's definition of the tool.
    Tool,
    /// `tags` of the server in the server file.
    ServerFile,
    /// `[[tag]]` of the settings.
    Rule,
    /// `[[tool]]` of the settings.
    Settings,
    /// An admin.
    Admin,
}

/// The sources of all overlays: tags and overrides from the settings, and overrides of admins.
#[derive(Clone, Debug, Default)]
pub struct Overlays {
    pub tagging: Arc<Tagging>,
    /// Tags from the server file. They apply to all tools of a server.
    pub servers: HashMap<ServerName, Vec<String>, RandomState>,
    pub written: HashMap<ToolId, ToolOverride, RandomState>,
    /// Overrides in the settings file. They replace those of admins.
    pub of_files: HashMap<ToolId, ToolOverride, RandomState>,
}

impl Overlays {
    /// The override of a tool that is in force.
    pub fn written_for(&self, id: &ToolId) -> Option<(&ToolOverride, ManagedBy)> {
        let of_file = self.of_files.get(id).map(|written| (written, ManagedBy::File));
        of_file.or_else(|| self.written.get(id).map(|written| (written, ManagedBy::Api)))
    }

    /// The tags of a tool from all sources except the server itself, each with its source.
    pub fn tags<'a>(
        &'a self,
        id: &'a ToolId,
        published: &'a OperationId,
        own: &'a ToolHints,
    ) -> impl Iterator<Item = (&'a str, TagSource)> {
        let of_server = self.servers.get(&id.server).into_iter().flatten().map(|tag| (tag.as_str(), TagSource::ServerFile));
        let of_rules = self.tagging.of(id, published, own).map(|tag| (tag, TagSource::Rule));
        let written = self.written_for(id).into_iter().flat_map(|(written, managed_by)| {
            let source = if managed_by == ManagedBy::File { TagSource::Settings } else { TagSource::Admin };
            written.tags.iter().map(move |tag| (tag.as_str(), source))
        });
        of_server.chain(of_rules).chain(written)
    }

    /// The overlay of a tool. `own` contains its server's annotations and tags.
    pub fn overlay(&self, id: &ToolId, published: &OperationId, own: &ToolHints) -> Overlay {
        let mut hints = own.clone();
        hints.add_tags(self.tags(id, published, own).map(|(tag, _)| tag));
        let own_tags = own.tags().count();
        let written = self.written_for(id).map(|(written, _)| written);
        Overlay {
            tags: hints.tags().skip(own_tags).map(str::to_owned).collect(),
            synonyms: written.map(|written| written.synonyms.clone()).unwrap_or_default(),
            description: written.and_then(|written| written.description.clone()),
            pinned: written.is_some_and(|written| written.pinned),
            shape: written.map(|written| written.shape.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Overlays, OverrideProblem, TagSource, ToolOverride};
    use crate::domain::access::policy::{TagRule, Tagging};
    use crate::domain::catalog::hints::ToolHints;
    use crate::domain::catalog::overlay::Overlay;
    use crate::domain::catalog::tool::{OperationId, ToolId};
    use crate::domain::text::canonical::Fingerprint;

    fn written(value: serde_json::Value) -> ToolOverride {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_written_is_checked() {
        let good = written(
            json!({"tags": [" a ", "a", "b"], "synonyms": ["clock hand"], "description": " Tells the time.\nAlways. ", "pinned": true}),
        );
        let expected = json!({"tags": ["a", "b"], "synonyms": ["clock hand"], "description": "Tells the time.\nAlways.", "pinned": true});
        assert_eq!(good.checked(), Ok(written(expected)));
        for (value, problem) in [
            (json!({"tags": [""]}), OverrideProblem::Length("tags", 64, String::new())),
            (json!({"tags": ["a\nb"]}), OverrideProblem::Lines("tags")),
            (json!({"tags": (0..51).map(|number| number.to_string()).collect::<Vec<_>>()}), OverrideProblem::TooMany("tags", 50)),
            (json!({"synonyms": ["the"]}), OverrideProblem::NoWord("the".into())),
            (json!({"synonyms": ["cl\u{200b}ock"]}), OverrideProblem::Hidden("synonyms", "U+200B".into())),
            (json!({"description": " "}), OverrideProblem::NoDescription),
            (json!({"description": "a\u{202e}"}), OverrideProblem::Hidden("description", "U+202E".into())),
        ] {
            assert_eq!(written(value).checked(), Err(problem));
        }
    }

    #[test]
    fn tags_come_from_everywhere_and_count_once() {
        let id = ToolId::new("clock", "now");
        let mut overlays =
            Overlays { tagging: Tagging::new(&[TagRule::read(&json!({"tag": "rule"})).unwrap()]).into(), ..Overlays::default() };
        overlays.servers.insert("clock".into(), vec!["own".into(), "file".into()]);
        overlays.written.insert(id.clone(), written(json!({"tags": ["rule", "hand"]})));
        let own = ToolHints::of(&json!({"tags": ["own"]}));
        let published = OperationId::of(&id);
        assert_eq!(overlays.overlay(&id, &published, &own).tags, ["file", "rule", "hand"]);
        let sources: Vec<_> = overlays.tags(&id, &published, &own).map(|(_, source)| source).collect();
        assert_eq!(sources, [TagSource::ServerFile, TagSource::ServerFile, TagSource::Rule, TagSource::Admin, TagSource::Admin]);
        overlays.of_files.insert(id.clone(), written(json!({"tags": ["glass"], "pinned": true})));
        let overlay = overlays.overlay(&id, &published, &own);
        assert_eq!((overlay.tags, overlay.pinned), (vec!["file".to_owned(), "rule".to_owned(), "glass".to_owned()], true));
        assert_eq!(overlays.tags(&id, &published, &own).last(), Some(("glass", TagSource::Settings)));
        let other = ToolId::new("other", "now");
        assert_eq!(overlays.overlay(&other, &OperationId::of(&other), &own).tags, ["rule"]);
    }

    #[test]
    fn another_overlay_is_another_version() {
        let tool = Fingerprint::of_text("tool");
        assert_eq!(Overlay::default().version(&tool), tool);
        let pinned = Overlay { pinned: true, ..Overlay::default() };
        let tagged = Overlay { tags: vec!["a".into()], ..Overlay::default() };
        assert_ne!(pinned.version(&tool), tool);
        assert_ne!(pinned.version(&tool), tagged.version(&tool));
        assert_eq!(pinned.version(&tool), pinned.clone().version(&tool));
    }
}
