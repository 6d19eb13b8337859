//! Builds tools from a listing: for the service, and for the commands that inspect its tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::access::tool_facts::Overlays;
use crate::domain::catalog::catalog::{self, ServerListing, SkippedTool};
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::tool::Tool;

/// The enabled tools of a listing.
#[derive(Default)]
pub(crate) struct Built {
    /// Unchanged ones.
    pub kept: Vec<Arc<Tool>>,
    /// The others, without token counts.
    pub new: Vec<Tool>,
    /// Tools that can't be published.
    pub skipped: Vec<SkippedTool>,
}

/// Builds the enabled tools with their overrides. `former`: the tool built from the same definition before, which is kept if its
/// override is the same too.
pub(crate) fn build<'a>(
    listing: &ServerListing,
    disabled: Option<&BTreeSet<String>>,
    overlays: &Overlays,
    former: impl Fn(&Arc<Value>) -> Option<&'a Arc<Tool>>,
) -> Built {
    let mut built = Built::default();
    for raw in listing.enabled(disabled) {
        let is_current = |tool: &&Arc<Tool>| {
            overlays.overlay(&tool.id, &tool.operation_id, &ToolHints::of(&tool.raw)).version(&tool.fingerprint) == tool.version
        };
        if let Some(tool) = former(raw).filter(is_current) {
            built.kept.push(Arc::clone(tool));
            continue;
        }
        match catalog::tool(&listing.server, raw) {
            Ok(tool) => {
                let overlay = overlays.overlay(&tool.id, &tool.operation_id, &tool.hints);
                built.new.push(tool.with(&overlay));
            }
            Err(skipped) => built.skipped.push(skipped),
        }
    }
    built
}
