//! Builds tools from a listing, for the service and for commands that inspect tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::access::tool_facts::Overlays;
use crate::domain::catalog::catalog::{self, ServerListing, SkippedTool};
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::json_text::JsonText;
use crate::service::catalog::definitions::Seen;

/// The enabled tools of a listing.
#[derive(Default)]
pub(crate) struct Built {
    /// Tools that have not changed.
    pub kept: Vec<Arc<Tool>>,
    /// New and changed tools, without token counts.
    pub new: Vec<Tool>,
    /// For each new tool, the hash of its function, under which its token count is stored.
    pub functions: Vec<Fingerprint>,
    /// The listed definitions, including those of skipped tools.
    pub seen: Vec<Seen>,
    /// Tools that can't be published, with reasons.
    pub skipped: Vec<SkippedTool>,
}

/// Builds the enabled tools with their overlays. `former` returns the tool that was last built from a definition; it is kept if
/// its overlay is unchanged too.
pub(crate) fn build<'a>(
    listing: &ServerListing,
    disabled: Option<&BTreeSet<String>>,
    overlays: &Overlays,
    former: impl Fn(&JsonText) -> Option<&'a Arc<Tool>>,
) -> Built {
    let mut built = Built::default();
    for raw in listing.enabled(disabled) {
        let is_current = |tool: &&Arc<Tool>| {
            overlays.overlay(&tool.id, &tool.operation_id, &ToolHints::of(&tool.raw.value())).version(&tool.fingerprint) == tool.version
        };
        if let Some(tool) = former(raw).filter(is_current) {
            built.seen.push(Seen::tool(tool));
            built.kept.push(Arc::clone(tool));
            continue;
        }
        match catalog::listed_tool(&listing.server, raw) {
            Ok(tool) => {
                let overlay = overlays.overlay(&tool.id, &tool.operation_id, &tool.hints);
                let tool = tool.with(&overlay);
                built.seen.push(Seen::tool(&tool));
                built.functions.push(Fingerprint::of_text(&tool.function_text()));
                built.new.push(tool);
            }
            Err(skipped) => {
                built.seen.extend(Seen::listed(raw));
                built.skipped.push(skipped);
            }
        }
    }
    built
}
