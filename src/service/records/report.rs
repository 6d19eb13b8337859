//! Reports the costs and results of conversations, for both arms of an experiment.

use std::sync::Arc;

use crate::domain::selection::experiment::Arm;
use crate::service::ports::{ArmFigures, ConversationFigures, ConversationQuery, ConversationReport, StoreError, UsageStore};

pub(crate) struct Report {
    pub store: Arc<dyn UsageStore>,
}

/// The conversations of a period, in total per arm and individually.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// The arms with conversations: first no experiment, then static, then dynamic.
    pub arms: Vec<ArmFigures>,
    /// Individual conversations, most recently used first.
    pub latest: Vec<ConversationFigures>,
}

impl Report {
    pub(crate) async fn compare(&self, query: &ConversationQuery) -> Result<Compared, StoreError> {
        let ConversationReport { mut arms, latest } = self.store.conversation_figures(query).await?;
        arms.sort_by_key(|figures| figures.arm);
        Ok(Compared { arms, latest })
    }
}

/// The name of an arm in the report. Conversations outside an experiment belong to neither arm.
pub(crate) fn arm_name(arm: Option<Arm>) -> &'static str {
    arm.map_or("uncompared", Arm::name)
}

/// The mean over the conversations of an arm; `None` if there are none.
pub(crate) fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}
