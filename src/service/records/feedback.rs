//! Feedback: callers' verdicts on a tool in a selection.

use std::sync::Arc;
use std::time::SystemTime;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::similar::nearest_of_family;
use crate::service::caller::CallerContext;
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{self, FeedbackStore, SelectionName, StoreError, Verdict};
use crate::service::records::record::Recorder;

/// Stores feedback. An acknowledged verdict is on disk.
pub(crate) struct Feedback {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn FeedbackStore>,
    pub recorder: Recorder,
}

/// Why feedback is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedbackError {
    /// Unknown or another caller's: both look the same.
    #[error("you have no such selection")]
    NoSelection,
    /// Unknown or denied.
    #[error("there is no such tool")]
    NoTool { did_you_mean: Option<String> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Feedback {
    /// Stores a verdict on a tool, by its published name, and returns the id of the selection. Replaces an earlier verdict on the
    /// two.
    pub(crate) async fn give(
        &self,
        named: SelectionName,
        tool: &str,
        verdict: Verdict,
        principal: &Arc<Principal>,
    ) -> Result<String, FeedbackError> {
        let tool = self.tool(tool, principal)?;
        let selection = self.selection(named, principal).await?.ok_or(FeedbackError::NoSelection)?;
        let feedback = ports::Feedback {
            at: SystemTime::now(),
            principal: principal.id.as_str().to_owned(),
            selection: selection.clone(),
            tool,
            verdict,
        };
        self.store.save_feedback(&feedback).await?;
        self.recorder.meters().feedback(verdict);
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

    /// The newest selections are in memory only, because of the write-behind.
    async fn selection(&self, named: SelectionName, principal: &Arc<Principal>) -> Result<Option<String>, StoreError> {
        let (selection, chat) = match &named {
            SelectionName::Id(id) => (Some(id.clone()), None),
            SelectionName::Chat(chat) => (None, Some(chat.clone())),
        };
        let caller = CallerContext { principal: Arc::clone(principal), headers: Arc::default(), chat, session: None, selection };
        match self.recorder.followed(&caller) {
            Some(found) => Ok(Some(found.id.to_string())),
            None => self.store.selection(principal.id.as_str(), &named).await,
        }
    }
}
