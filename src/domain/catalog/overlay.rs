//! Changes on top of a tool's own definition.

use crate::domain::text::canonical::Fingerprint;

/// All changes that apply to one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overlay {
    /// In addition to the server's own.
    pub tags: Vec<String>,
    pub synonyms: Vec<String>,
    pub description: Option<String>,
    pub pinned: bool,
}

impl Overlay {
    /// A fingerprint of the tool with this overlay. An empty overlay keeps the tool's own.
    pub fn version(&self, tool: &Fingerprint) -> Fingerprint {
        if *self == Self::default() {
            return *tool;
        }
        let mut bytes = tool.as_bytes().to_vec();
        bytes.extend_from_slice(format!("{self:?}").as_bytes());
        Fingerprint::of_bytes(&bytes)
    }
}
