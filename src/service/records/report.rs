//! What sessions cost and brought, side by side for the two arms of a comparison.

use std::sync::Arc;

use crate::domain::selection::experiment::Arm;
use crate::service::ports::{ArmFigures, SessionFigures, SessionQuery, SessionReport, StoreError, UsageStore};

pub struct Report {
    pub store: Arc<dyn UsageStore>,
}

/// The sessions of a time.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Sessions outside of any comparison first, then the static ones, then the dynamic ones; only those that there are.
    pub arms: Vec<ArmFigures>,
    /// The last used first.
    pub latest: Vec<SessionFigures>,
}

impl Report {
    /// # Errors
    /// [`StoreError`]
    pub async fn compare(&self, query: &SessionQuery) -> Result<Compared, StoreError> {
        let SessionReport { mut arms, latest } = self.store.session_figures(query).await?;
        arms.sort_by_key(|figures| figures.arm);
        Ok(Compared { arms, latest })
    }
}

/// What the figures are called. A session outside of a comparison is in neither arm, so `all` would promise too much.
#[must_use]
pub fn arm_name(arm: Option<Arm>) -> &'static str {
    arm.map_or("uncompared", Arm::name)
}

/// The mean over the sessions of an arm; `None` without a session.
#[must_use]
pub fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}
