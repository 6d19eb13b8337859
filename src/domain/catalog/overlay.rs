//! Changes to a tool on top of its server's definition.

use crate::domain::catalog::shape::Shape;
use crate::domain::text::canonical::Fingerprint;

/// All changes that apply to one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overlay {
    /// Tags in addition to the server's own.
    pub tags: Vec<String>,
    pub synonyms: Vec<String>,
    pub description: Option<String>,
    pub pinned: bool,
    pub shape: Shape,
}

impl Overlay {
    /// The fingerprint of a tool with this overlay; the tool's own fingerprint if the overlay is empty.
    pub fn version(&self, tool: &Fingerprint) -> Fingerprint {
        if *self == Self::default() {
            return *tool;
        }
        let mut bytes = tool.as_bytes().to_vec();
        bytes.extend_from_slice(format!("{self:?}").as_bytes());
        Fingerprint::of_bytes(&bytes)
    }
}
