//! What is laid over a tool as its server sent it.

use crate::domain::text::canonical::Fingerprint;

/// What is laid over one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overlay {
    /// Beside the server's own.
    pub tags: Vec<String>,
    pub synonyms: Vec<String>,
    pub description: Option<String>,
    pub pinned: bool,
}

impl Overlay {
    /// What names a tool with this laid over it. Without anything, it is that of the tool alone.
    #[must_use]
    pub fn version(&self, tool: &Fingerprint) -> Fingerprint {
        if *self == Self::default() {
            return *tool;
        }
        let mut bytes = tool.as_bytes().to_vec();
        bytes.extend_from_slice(format!("{self:?}").as_bytes());
        Fingerprint::of_bytes(&bytes)
    }
}
