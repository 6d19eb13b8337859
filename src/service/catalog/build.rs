//! Builds tools from a listing, for the service and for commands that inspect tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::access::tool_facts::Overlays;
use crate::domain::catalog::catalog::{self, ServerListing, SkippedTool};
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::json_text::JsonText;

/// The enabled tools of a listing.
#[derive(Default)]
pub(crate) struct Built {
    /// Tools that have not changed.
    pub kept: Vec<Arc<Tool>>,
    /// New and changed tools, without token counts.
    pub new: Vec<Tool>,
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
            built.kept.push(Arc::clone(tool));
            continue;
        }
        match catalog::tool(&listing.server, &raw.value()) {
            Ok(tool) => {
                // The listing and the tool share the text.
                let tool = Tool { raw: raw.clone(), ..tool };
                let overlay = overlays.overlay(&tool.id, &tool.operation_id, &tool.hints);
                built.new.push(tool.with(&overlay));
            }
            Err(skipped) => built.skipped.push(skipped),
        }
    }
    built
}
