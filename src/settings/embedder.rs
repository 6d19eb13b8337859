//! What turns texts into vectors.

use crate::settings::values::Reader;

/// Section `[embedder]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedderSettings {
    pub provider: EmbedderProvider,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedderProvider {
    /// Compiled in.
    Builtin,
}

impl EmbedderSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        if reader.text("embedder.provider") != "builtin" {
            reader.problem("embedder.provider", "no known provider", "write \"builtin\"");
        }
        Self { provider: EmbedderProvider::Builtin }
    }
}
