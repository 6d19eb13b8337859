//! Costs and results of conversations, for both arms of a comparison.

use std::sync::Arc;

use crate::domain::selection::experiment::Arm;
use crate::service::ports::{ArmFigures, ConversationFigures, ConversationQuery, ConversationReport, StoreError, UsageStore};

pub(crate) struct Report {
    pub store: Arc<dyn UsageStore>,
}

/// The conversations of a period.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// Without a comparison first, then static, then dynamic; empty arms are left out.
    pub arms: Vec<ArmFigures>,
    /// Last used first.
    pub latest: Vec<ConversationFigures>,
}

impl Report {
    pub(crate) async fn compare(&self, query: &ConversationQuery) -> Result<Compared, StoreError> {
        let ConversationReport { mut arms, latest } = self.store.conversation_figures(query).await?;
        arms.sort_by_key(|figures| figures.arm);
        Ok(Compared { arms, latest })
    }
}

/// The name of an arm in the report. Conversations without a comparison are in neither arm, so `all` would be wrong.
pub(crate) fn arm_name(arm: Option<Arm>) -> &'static str {
    arm.map_or("uncompared", Arm::name)
}

/// The mean over the conversations of an arm; `None` without conversations.
pub(crate) fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}
