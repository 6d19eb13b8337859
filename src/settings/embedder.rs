//! What turns texts into vectors.

use crate::settings::values::Reader;

/// Section `[embedder]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedderSettings {
    pub provider: EmbedderProvider,
    /// Which of the compiled-in models is used.
    pub model: BuiltinModel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedderProvider {
    /// Compiled in.
    Builtin,
}

/// A model whose weights are compiled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuiltinModel {
    /// all-MiniLM-L6-v2, fine-tuned for finding tools.
    #[default]
    ToolsieveMinilm,
    /// The stock model.
    AllMinilmL6V2,
}

impl BuiltinModel {
    pub const ALL: [Self; 2] = [Self::ToolsieveMinilm, Self::AllMinilmL6V2];

    /// The name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToolsieveMinilm => "toolsieve-minilm",
            Self::AllMinilmL6V2 => "all-minilm-l6-v2",
        }
    }
}

impl EmbedderSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        if reader.text("embedder.provider") != "builtin" {
            reader.problem("embedder.provider", "no known provider", "write \"builtin\"");
        }
        Self { provider: EmbedderProvider::Builtin, model: model(reader) }
    }
}

fn model(reader: &mut Reader<'_>) -> BuiltinModel {
    let name = reader.text("embedder.model");
    BuiltinModel::ALL.into_iter().find(|model| model.name() == name).unwrap_or_else(|| {
        let known = BuiltinModel::ALL.map(|model| format!("{:?}", model.name())).join(" or ");
        reader.problem("embedder.model", "no built-in model", format!("write {known}"));
        BuiltinModel::default()
    })
}
