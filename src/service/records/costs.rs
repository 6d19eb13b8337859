//! Reports what selections saved and what language models cost.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;

use crate::domain::access::principal::PrincipalId;
use crate::domain::records::costs::{CostReport, UsageBy};
use crate::service::ports::{StoreError, UsageStore};
use crate::settings::UsageSettings;

pub(crate) struct CostReports {
    pub store: Arc<dyn UsageStore>,
    pub settings: Arc<ArcSwap<UsageSettings>>,
}

/// The costs in a period, at current prices.
#[derive(Clone, Debug)]
pub(crate) struct PricedCosts {
    pub by: UsageBy,
    /// The currency; `None` if no model has a price.
    pub currency: Option<String>,
    pub report: CostReport,
}

impl CostReports {
    /// Reports the costs on the days (UTC) that overlap the period.
    pub(crate) async fn report(&self, since: SystemTime, until: SystemTime) -> Result<PricedCosts, StoreError> {
        let rows = self.store.costs(since, until).await?;
        let settings = self.settings.load();
        Ok(PricedCosts {
            by: settings.by,
            currency: Some(settings.currency.clone()).filter(|_| !settings.prices.is_empty()),
            report: CostReport::of(&rows, &settings.prices),
        })
    }

    /// Deletes the sums of one user or named key. Returns the number of sums.
    pub(crate) async fn forget(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        self.store.forget_usage_of(owner).await
    }
}
