//! What selections saved and what language models cost, as parts of other responses.

use serde::Serialize;
use utoipa::ToSchema;

use super::time;
use crate::domain::records::costs::{CostReport, Costs, Money, Spending};
use crate::service::records::costs::PricedCosts;

/// Savings beside costs. The sums go over all tools, even if the request names a server or a tool.
#[derive(Serialize, ToSchema)]
pub(super) struct CostsBody {
    /// Whose usage is stored separately: `none`, `group` or `user`.
    by: &'static str,
    /// The currency of all amounts; null if no model has a price.
    currency: Option<String>,
    totals: FiguresBody,
    days: Vec<CostDayBody>,
    /// Models, largest number of tokens first.
    models: Vec<CostModelBody>,
    /// Groups, largest number of tokens first. A user may belong to several groups, so their sum may exceed the totals.
    groups: Vec<CostGroupBody>,
    /// Number of all groups.
    group_count: usize,
    /// Users and keys, largest number of tokens first.
    users: Vec<CostUserBody>,
    /// Number of all users and keys.
    user_count: usize,
}

/// Savings beside costs, over all callers.
#[derive(Serialize, ToSchema)]
pub(super) struct CostSummaryBody {
    /// The currency of all amounts; null if no model has a price.
    pub(super) currency: Option<String>,
    #[serde(flatten)]
    pub(super) figures: FiguresBody,
}

/// Savings and costs. Amounts of money contain only tokens of models that have a price.
#[derive(Serialize, ToSchema)]
pub(super) struct FiguresBody {
    /// Number of messages for which tools were selected.
    pub(super) messages: u64,
    /// Number of tool calls; only for groups and users.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    /// Tokens of definitions that selections left out. Messages that kept all tools saved none.
    pub(super) tokens_saved: u64,
    /// The price of the saved tokens as input of the chat's model; null if it is unknown.
    pub(super) money_saved: Option<f64>,
    /// What language models cost the service in total.
    pub(super) llm: SpendingBody,
    /// The part of `llm` for reranking.
    pub(super) judge: SpendingBody,
    /// The part of `llm` for descriptions of tools.
    pub(super) enrich: SpendingBody,
    /// The part of `llm` for `smart_select`.
    pub(super) smart_select: SpendingBody,
    /// What users paid with their own keys. `llm` does not contain it.
    pub(super) own_keys: SpendingBody,
    /// Tokens, saved or used, of models without a price. No amount contains them.
    pub(super) unpriced_tokens: u64,
}

/// What language models used.
#[derive(Serialize, ToSchema)]
pub(super) struct SpendingBody {
    /// Number of answers.
    pub(super) requests: u64,
    /// Number of answers without token counts, for which the service estimated the tokens.
    pub(super) estimated_requests: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    /// null if the price is unknown.
    pub(super) cost: Option<f64>,
}

#[derive(Serialize, ToSchema)]
struct CostDayBody {
    /// The UTC date.
    day: String,
    #[serde(flatten)]
    figures: FiguresBody,
}

#[derive(Serialize, ToSchema)]
struct CostModelBody {
    /// The name of the model; null if requests named none. `(other)` stands for further models.
    model: Option<String>,
    #[serde(flatten)]
    figures: FiguresBody,
}

#[derive(Serialize, ToSchema)]
struct CostGroupBody {
    /// The name of the group; null for callers without a group. `(other)` stands for further groups.
    group: Option<String>,
    #[serde(flatten)]
    figures: FiguresBody,
}

#[derive(Serialize, ToSchema)]
struct CostUserBody {
    /// `user:ID`, `key:NAME` or another caller. `(other)` stands for further users.
    user: String,
    #[serde(flatten)]
    figures: FiguresBody,
}

impl CostsBody {
    /// At most `limit` models, groups and users.
    pub(super) fn of(costs: PricedCosts, limit: usize) -> Self {
        let PricedCosts { by, currency, report: CostReport { totals, days, models, groups, users } } = costs;
        let (group_count, user_count) = (groups.len(), users.len());
        let figures = |costs: &Costs| FiguresBody { calls: Some(costs.calls), ..FiguresBody::from(costs) };
        let day = |day| time(day).chars().take("2027-01-31".len()).collect();
        Self {
            by: by.name(),
            currency,
            totals: FiguresBody::from(&totals),
            days: days.iter().map(|(at, costs)| CostDayBody { day: day(*at), figures: costs.into() }).collect(),
            models: models.into_iter().take(limit).map(|(model, costs)| CostModelBody { model, figures: (&costs).into() }).collect(),
            groups: groups.into_iter().take(limit).map(|(group, costs)| CostGroupBody { group, figures: figures(&costs) }).collect(),
            group_count,
            users: users.into_iter().take(limit).map(|(user, costs)| CostUserBody { user, figures: figures(&costs) }).collect(),
            user_count,
        }
    }
}

impl From<PricedCosts> for CostSummaryBody {
    fn from(costs: PricedCosts) -> Self {
        Self { currency: costs.currency, figures: FiguresBody::from(&costs.report.totals) }
    }
}

impl From<&Costs> for FiguresBody {
    fn from(costs: &Costs) -> Self {
        Self {
            messages: costs.messages,
            calls: None,
            tokens_saved: costs.saved_tokens,
            money_saved: amount(costs.saved),
            llm: SpendingBody::from(&costs.service),
            judge: SpendingBody::from(&costs.judge),
            enrich: SpendingBody::from(&costs.enrich),
            smart_select: SpendingBody::from(&costs.smart_select),
            own_keys: SpendingBody::from(&costs.own_keys),
            unpriced_tokens: costs.unpriced_tokens(),
        }
    }
}

impl From<&Spending> for SpendingBody {
    fn from(spending: &Spending) -> Self {
        let Spending { requests, estimated, input_tokens, output_tokens, money } = *spending;
        Self { requests, estimated_requests: estimated, input_tokens, output_tokens, cost: amount(money) }
    }
}

/// The known amount, in millionths.
fn amount(money: Money) -> Option<f64> {
    money.known.map(|amount| (amount * 1e6).round() / 1e6)
}
