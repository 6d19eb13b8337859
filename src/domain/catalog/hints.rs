//! Annotations and tags: what rules match in a tool besides its names.

use serde_json::Value;

use crate::domain::text::named::named;

named! {
    /// A server's claim about a tool's behaviour (MCP specification, `ToolAnnotations`). It may be wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::domain) enum Hint {
        ReadOnly = "readOnlyHint",
        Destructive = "destructiveHint",
        Idempotent = "idempotentHint",
        OpenWorld = "openWorldHint",
    }
}

impl Hint {
    /// Parses `readOnlyHint` or `readOnlyHint=false` into the hint and its expected value.
    pub(in crate::domain) fn read(text: &str) -> Option<(Self, bool)> {
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let hint = Self::ALL.into_iter().find(|hint| hint.name() == name.trim())?;
        match value.trim() {
            "true" => Some((hint, true)),
            "false" => Some((hint, false)),
            _ => None,
        }
    }

    /// The value of this hint for a tool. The specification's defaults apply: not read-only, destructive, not idempotent, open
    /// world. A read-only tool is never destructive.
    fn of(self, raw: &Value) -> bool {
        let stated = |hint: Self| raw.get("annotations")?.get(hint.name())?.as_bool();
        let reads = stated(Self::ReadOnly).unwrap_or(false);
        match self {
            Self::ReadOnly => reads,
            Self::Destructive => !reads && stated(Self::Destructive).unwrap_or(true),
            Self::Idempotent => stated(Self::Idempotent).unwrap_or(false),
            Self::OpenWorld => stated(Self::OpenWorld).unwrap_or(true),
        }
    }
}

/// The number of possible combinations of hints.
pub(in crate::domain) const COMBINATIONS: usize = 1 << Hint::ALL.len();

/// Whether a tool with this combination of hints satisfies all annotations of a rule.
pub(in crate::domain) fn hold(annotations: &[String], hints: usize) -> bool {
    annotations.iter().all(|text| {
        Hint::read(text).is_some_and(|(hint, stated)| {
            let bit = Hint::ALL.iter().position(|known| *known == hint).unwrap_or_default();
            (hints >> bit & 1 == 1) == stated
        })
    })
}

/// A tool's annotations and tags, parsed once because rules match them often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// The values of the four hints, one bit each.
    hints: u8,
    tags: Vec<Box<str>>,
}

impl ToolHints {
    /// Parses a raw tool. Tags are a list of strings in `_meta.tags`, in `tags`, or in `FastMCP`'s member of `_meta`.
    pub fn of(raw: &Value) -> Self {
        const PLACES: [&str; 4] = ["/_meta/tags", "/tags", "/_meta/_fastmcp/tags", "/_meta/fastmcp/tags"];
        let tags = PLACES.into_iter().filter_map(|place| raw.pointer(place)?.as_array()).flatten().filter_map(Value::as_str);
        let hints = Hint::ALL.into_iter().enumerate().filter(|(_, hint)| hint.of(raw)).map(|(bit, _)| 1 << bit).sum();
        Self { hints, tags: tags.map(Into::into).collect() }
    }

    /// Adds tags that do not come from the server, without duplicates.
    pub fn add_tags<'a>(&mut self, tags: impl IntoIterator<Item = &'a str>) {
        for tag in tags {
            if self.tags.iter().all(|known| **known != *tag) {
                self.tags.push(tag.into());
            }
        }
    }

    /// The values of all hints as a number below [`COMBINATIONS`].
    pub(in crate::domain) fn combination(&self) -> usize {
        self.hints.into()
    }

    /// Whether the tool claims to be read-only.
    pub fn reads_only(&self) -> bool {
        self.has(Hint::ReadOnly)
    }

    /// Whether the tool may be destructive. True unless it claims otherwise.
    pub fn is_destructive(&self) -> bool {
        self.has(Hint::Destructive)
    }

    fn has(&self, hint: Hint) -> bool {
        let bit = Hint::ALL.iter().position(|known| *known == hint).unwrap_or_default();
        self.hints >> bit & 1 == 1
    }

    pub(super) fn tag_list(&self) -> &[Box<str>] {
        &self.tags
    }

    /// All tags, with the server's own first.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().map(AsRef::as_ref)
    }
}
