//! Feedback from callers on a tool in a selection.

use std::sync::Arc;
use std::time::SystemTime;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::similar::nearest_of_family;
use crate::service::caller::CallerContext;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{self, FeedbackStore, SelectionName, StoreError, Verdict};
use crate::service::records::record::Recorder;

/// Stores feedback. Once acknowledged, it is on disk.
pub(crate) struct Feedback {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn FeedbackStore>,
    pub recorder: Recorder,
}

/// The reason why feedback is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedbackError {
    /// The selection is unknown or another caller's. The caller can't distinguish the two.
    #[error("you have no such selection")]
    NoSelection,
    /// The tool is unknown or denied.
    #[error("there is no such tool")]
    NoTool { did_you_mean: Option<String> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Feedback {
    /// Stores feedback on a tool, given by its published name. Replaces earlier feedback on this tool in this selection. Returns
    /// the id of the selection.
    pub(crate) async fn give(
        &self,
        named: SelectionName,
        tool: &str,
        verdict: Verdict,
        principal: &Arc<Principal>,
    ) -> Result<String, FeedbackError> {
        let tool = self.tool(tool, principal)?;
        let caller = named_by(&named, principal);
        let selection = self.selection(named, &caller).await?.ok_or(FeedbackError::NoSelection)?;
        let feedback = ports::Feedback {
            at: SystemTime::now(),
            principal: principal.id.as_str().to_owned(),
            selection: selection.clone(),
            tool,
            verdict,
        };
        self.store.save_feedback(&feedback).await?;
        self.recorder.meters().feedback(verdict);
        self.recorder.learn_verdict(&caller, &selection, (&feedback.tool, verdict));
        Ok(selection)
    }

    fn tool(&self, name: &str, principal: &Principal) -> Result<ToolId, FeedbackError> {
        let View { catalog, visibility, .. } = self.current.view(principal);
        let known = catalog.operation(name).filter(|tool| visibility.allows(tool));
        known.map(|tool| tool.id.clone()).ok_or_else(|| {
            let near = nearest_of_family(name, catalog.visible(&visibility).map(|tool| tool.operation_id.as_str()));
            FeedbackError::NoTool { did_you_mean: near.map(str::to_owned) }
        })
    }

    /// Look in memory too, because the newest selections are not written yet.
    async fn selection(&self, named: SelectionName, caller: &CallerContext) -> Result<Option<String>, StoreError> {
        match self.recorder.followed(caller) {
            Some(found) => Ok(Some(found.id.to_string())),
            None => self.store.selection(caller.principal.id.as_str(), caller.principal.key_id(), &named).await,
        }
    }
}

/// The caller, in the context of the named selection.
fn named_by(named: &SelectionName, principal: &Arc<Principal>) -> CallerContext {
    let (selection, chat) = match named {
        SelectionName::Id(id) => (Some(id.clone()), None),
        SelectionName::Chat(chat) => (None, Some(chat.clone())),
    };
    CallerContext { principal: Arc::clone(principal), headers: Arc::default(), chat, message: None, session: None, selection }
}
