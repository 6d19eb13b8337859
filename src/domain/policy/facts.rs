//! What rules look at in a tool beside its names: its annotations and its tags.

use serde_json::Value;

use crate::domain::tool::Tool;

/// What a server says of a tool's behaviour (MCP specification, `ToolAnnotations`). Servers may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    ReadOnly,
    Destructive,
    Idempotent,
    OpenWorld,
}

impl Hint {
    pub(super) const ALL: [Self; 4] = [Self::ReadOnly, Self::Destructive, Self::Idempotent, Self::OpenWorld];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "readOnlyHint",
            Self::Destructive => "destructiveHint",
            Self::Idempotent => "idempotentHint",
            Self::OpenWorld => "openWorldHint",
        }
    }

    /// `readOnlyHint` or `readOnlyHint=false`.
    pub(super) fn read(text: &str) -> Option<(Self, bool)> {
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let hint = Self::ALL.into_iter().find(|hint| hint.name() == name.trim())?;
        match value.trim() {
            "true" => Some((hint, true)),
            "false" => Some((hint, false)),
            _ => None,
        }
    }

    /// What holds for a tool. A tool that says nothing is, as the specification has it, one that writes, destroys, does not
    /// bear repetition and reaches out into the world; one that only reads destroys nothing.
    fn of(self, tool: &Tool) -> bool {
        let stated = |hint: Self| tool.raw.get("annotations")?.get(hint.name())?.as_bool();
        let reads = stated(Self::ReadOnly).unwrap_or(false);
        match self {
            Self::ReadOnly => reads,
            Self::Destructive => !reads && stated(Self::Destructive).unwrap_or(true),
            Self::Idempotent => stated(Self::Idempotent).unwrap_or(false),
            Self::OpenWorld => stated(Self::OpenWorld).unwrap_or(true),
        }
    }
}

/// How many combinations of hints there are.
pub(super) const COMBINATIONS: usize = 1 << Hint::ALL.len();

/// The four hints of a tool as a number below [`COMBINATIONS`].
pub(super) fn hints(tool: &Tool) -> usize {
    Hint::ALL.into_iter().enumerate().filter(|(_, hint)| hint.of(tool)).map(|(bit, _)| 1 << bit).sum()
}

/// Whether these annotations of a rule hold for a tool with such [`hints`].
pub(super) fn hold(annotations: &[String], hints: usize) -> bool {
    annotations.iter().all(|text| {
        Hint::read(text).is_some_and(|(hint, stated)| {
            let bit = Hint::ALL.iter().position(|known| *known == hint).unwrap_or_default();
            (hints >> bit & 1 == 1) == stated
        })
    })
}

/// The tags of a tool: a list of texts in `_meta.tags`, in `tags`, or where `FastMCP` has it.
pub(super) fn tags(tool: &Tool) -> impl Iterator<Item = &str> {
    const PLACES: [&str; 4] = ["/_meta/tags", "/tags", "/_meta/_fastmcp/tags", "/_meta/fastmcp/tags"];
    PLACES.into_iter().filter_map(|place| tool.raw.pointer(place)?.as_array()).flatten().filter_map(Value::as_str)
}
