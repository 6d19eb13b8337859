//! Modes of documents and MCP lists: which tools they contain.

use crate::domain::catalog::tool::Tool;
use crate::domain::text::named::named;

named! {
    /// Selects the tools in a document or an MCP list, in addition to meta-tools.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Mode {
        /// Every tool that the caller may see.
        #[default]
        Full = "full",
        /// Only the meta-tools: find, describe, run.
        Meta = "meta",
        /// Like `meta`, plus the meta-tool that selects tools for a whole task.
        Smart = "smart",
        /// The meta-tools to find, load, unload and run tools, plus the loaded tools.
        Dynamic = "dynamic",
    }
}

/// The mode of an address, for requests that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DefaultMode {
    /// Documents are full. MCP lists are full up to a limit, and dynamic beyond it.
    #[default]
    Auto,
    Named(Mode),
}

impl DefaultMode {
    pub const AUTO: &'static str = "auto";

    /// Parses `auto`, or the name of a mode.
    pub fn of_name(name: &str) -> Option<Self> {
        if name == Self::AUTO { Some(Self::Auto) } else { Mode::of_name(name).map(Self::Named) }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => Self::AUTO,
            Self::Named(mode) => mode.name(),
        }
    }

    /// The mode of documents.
    pub fn of_documents(self) -> Mode {
        match self {
            Self::Auto => Mode::Full,
            Self::Named(mode) => mode,
        }
    }
}

/// The longest list that MCP clients get in full, if no mode is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullList {
    /// Maximum number of tools; `None` disables the limit.
    pub tools: Option<usize>,
    /// Maximum number of tokens (cl100k) in their definitions; `None` disables the limit.
    pub tokens: Option<u64>,
}

impl FullList {
    /// The mode of a list: `full` if these tools are within both limits, and otherwise `dynamic`. Reads no more tools than needed.
    pub fn mode<'a>(self, tools: impl Iterator<Item = &'a Tool>) -> Mode {
        let (mut count, mut tokens) = (0, 0);
        for tool in tools {
            count += 1;
            tokens += u64::from(tool.tokens);
            if self.tools.is_some_and(|most| count > most) || self.tokens.is_some_and(|most| tokens > most) {
                return Mode::Dynamic;
            }
        }
        Mode::Full
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DefaultMode, FullList, Mode};
    use crate::domain::catalog::catalog;
    use crate::domain::catalog::tool::{ServerName, Tool};

    fn tools(tokens: &[u32]) -> Vec<Tool> {
        let raw = json!({"name": "echo", "inputSchema": {"type": "object"}});
        let tool = |tokens| Tool { tokens, ..catalog::tool(&ServerName::from("one"), &raw).unwrap() };
        tokens.iter().map(|&tokens| tool(tokens)).collect()
    }

    #[test]
    fn a_list_is_full_within_both_limits() {
        let limits = FullList { tools: Some(3), tokens: Some(100) };
        let mode = |limits: FullList, tokens: &[u32]| limits.mode(tools(tokens).iter());
        assert_eq!(mode(limits, &[]), Mode::Full);
        assert_eq!(mode(limits, &[50, 25, 25]), Mode::Full, "both limits are reached, and none is exceeded");
        assert_eq!(mode(limits, &[1, 1, 1, 1]), Mode::Dynamic);
        assert_eq!(mode(limits, &[50, 51]), Mode::Dynamic);
        assert_eq!(mode(FullList { tools: None, ..limits }, &[1; 50]), Mode::Full);
        assert_eq!(mode(FullList { tokens: None, ..limits }, &[u32::MAX, u32::MAX]), Mode::Full);
    }

    #[test]
    fn a_default_mode_has_a_name() {
        for name in ["auto", "full", "meta", "smart", "dynamic"] {
            assert_eq!(DefaultMode::of_name(name).map(DefaultMode::name), Some(name));
        }
        assert_eq!(DefaultMode::of_name("lazy"), None);
        assert_eq!(DefaultMode::Auto.of_documents(), Mode::Full);
        assert_eq!(DefaultMode::Named(Mode::Dynamic).of_documents(), Mode::Dynamic);
    }
}
