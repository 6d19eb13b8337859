//! What selections save and what language models cost: tokens, and money for models with a known price.
//!
//! The stored sums contain only tokens. Money is computed when somebody reads them, so a corrected price also applies to past
//! days. Tokens of models without a price are counted, but never turned into money.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use serde_json::Value;

use serde::{Deserialize, Serialize};

use crate::domain::access::principal::Principal;
use crate::domain::access::rule::{PatternSet, glob};
use crate::domain::records::usage::counts;
use crate::domain::text::named::named;
use crate::domain::text::similar::nearest;

/// Number of tokens to which a price applies.
const PRICED_TOKENS: f64 = 1e6;
/// Maximum price per million tokens. A higher one is a typing error.
const MAX_PRICE: f64 = 1e6;
/// Maximum number of a caller's groups to which one event is attributed.
const MAX_GROUPS: usize = 32;
/// The known fields of a price.
const KNOWN: [&str; 3] = ["model", "input", "output"];

named! {
    /// Whose usage is summed up separately, besides the sums over all callers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum UsageBy {
        #[default]
        None = "none",
        /// Each group.
        Group = "group",
        /// Each group, and each user.
        User = "user",
    }

    /// The callers over which a sum goes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CostScope {
        All = "all",
        Group = "group",
        User = "user",
    }

    /// What tokens were used for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Purpose {
        /// The chat's own model, which reads the definitions of tools.
        Chat = "chat",
        /// A language model that reranked tools for a message.
        Judge = "judge",
        /// A language model that described tools for the search.
        Enrich = "enrich",
        /// A language model that selected tools for a task.
        SmartSelect = "smart_select",
    }
}

counts! {
    pub struct CostCounts {
        /// Messages of a chat, or answers of a language model.
        pub requests,
        /// Answers of a language model whose tokens are estimated.
        pub estimated,
        /// Tool calls.
        pub calls,
        pub input_tokens,
        pub output_tokens,
        /// Tokens of definitions that a selection left out.
        pub saved_tokens,
    }
}

/// The groups and the user to which an event is attributed, as far as the settings allow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// The groups; a single empty name for callers without a group.
    pub groups: Vec<String>,
    pub user: Option<String>,
}

impl Attribution {
    pub fn of(principal: &Principal, by: UsageBy) -> Self {
        let groups = match by {
            UsageBy::None => Vec::new(),
            UsageBy::Group | UsageBy::User if principal.groups.is_empty() => vec![String::new()],
            UsageBy::Group | UsageBy::User => principal.groups.iter().take(MAX_GROUPS).cloned().collect(),
        };
        Self { groups, user: (by == UsageBy::User).then(|| principal.id.as_str().to_owned()) }
    }

    /// The scopes of the sums to which an event adds, without [`CostScope::All`].
    pub fn scopes(&self) -> impl Iterator<Item = (CostScope, &str)> {
        let groups = self.groups.iter().map(|group| (CostScope::Group, group.as_str()));
        groups.chain(self.user.iter().map(|user| (CostScope::User, user.as_str())))
    }
}

/// The tokens of one answer of a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerTokens {
    pub input: u64,
    pub output: u64,
    /// Whether they were counted here, because the model's endpoint does not report them.
    pub is_estimated: bool,
}

/// The price of the models whose names match a pattern, per million tokens.
#[derive(Clone)]
pub struct Price {
    pattern: String,
    matcher: PatternSet,
    input: f64,
    output: f64,
}

impl Price {
    /// Parses a price: a pattern `model`, with the prices `input` and `output`.
    ///
    /// # Errors
    /// A description of the problem for the author of the price.
    pub fn read(value: &Value) -> Result<Self, String> {
        let Some(object) = value.as_object() else { return Err("it is not a table".to_owned()) };
        if let Some(name) = object.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let hint = nearest(name, KNOWN.into_iter())
                .map_or_else(|| "it has no meaning here".to_owned(), |near| format!("did you mean `{near}`?"));
            return Err(format!("unknown field `{name}`: {hint}"));
        }
        let pattern = match object.get("model").map(Value::as_str) {
            None => return Err("it has no model: write model = \"…\"".to_owned()),
            Some(Some(pattern)) => pattern.to_owned(),
            Some(None) => return Err("its model is not a text".to_owned()),
        };
        let matcher = PatternSet::new(&[glob(&pattern).map_err(|problem| format!("model: {problem}"))?]);
        Ok(Self { input: amount(object.get("input"), "input")?, output: amount(object.get("output"), "output")?, pattern, matcher })
    }

    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    fn of(&self, input_tokens: u64, output_tokens: u64) -> f64 {
        (input_tokens as f64 * self.input + output_tokens as f64 * self.output) / PRICED_TOKENS
    }
}

/// Omits the compiled pattern.
impl fmt::Debug for Price {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} input, {} output", self.pattern, self.input, self.output)
    }
}

/// Reads a price. A variable may have become a text such as `"1.25"`.
fn amount(value: Option<&Value>, name: &str) -> Result<f64, String> {
    let Some(value) = value else { return Err(format!("it has no {name}: write the price of a million tokens, {name} = 1.25")) };
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let number = number.filter(|number: &f64| (0.0..=MAX_PRICE).contains(number));
    number.ok_or_else(|| format!("{name} is not a price: write a number from 0 to {MAX_PRICE}, for a million tokens"))
}

/// The prices of models. The first pattern that matches a model's name decides.
#[derive(Clone, Default)]
pub struct Prices(Vec<Price>);

impl fmt::Debug for Prices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Prices {
    pub fn new(prices: Vec<Price>) -> Self {
        Self(prices)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, model: Option<&str>) -> Option<&Price> {
        let model = model?;
        self.0.iter().find(|price| price.matcher.is_match(model))
    }
}

/// A stored sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRow {
    /// The start of the day (UTC); `None` for sums over several days.
    pub day: Option<SystemTime>,
    pub scope: CostScope,
    /// The name of the group or user; empty for [`CostScope::All`], and for callers without a group.
    pub name: String,
    pub purpose: Purpose,
    /// Whether a user paid, with a key of their own.
    pub is_own: bool,
    /// The model; `None` if it is unknown.
    pub model: Option<String>,
    pub counts: CostCounts,
}

/// An amount of money.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Money {
    /// The amount for tokens of models with a price; `None` if there are no such models.
    pub known: Option<f64>,
    /// Number of tokens of models without a price, which the amount does not contain.
    pub unpriced_tokens: u64,
}

impl Money {
    fn add(&mut self, price: Option<&Price>, input_tokens: u64, output_tokens: u64) {
        match price {
            Some(price) => *self.known.get_or_insert(0.0) += price.of(input_tokens, output_tokens),
            None => self.unpriced_tokens += input_tokens + output_tokens,
        }
    }
}

/// What language models consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spending {
    /// Number of answers.
    pub requests: u64,
    /// Number of answers whose tokens are estimated.
    pub estimated: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub money: Money,
}

impl Spending {
    fn add(&mut self, counts: &CostCounts, price: Option<&Price>) {
        self.requests += counts.requests;
        self.estimated += counts.estimated;
        self.input_tokens += counts.input_tokens;
        self.output_tokens += counts.output_tokens;
        self.money.add(price, counts.input_tokens, counts.output_tokens);
    }
}

/// Savings beside costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Number of messages for which tools were selected.
    pub messages: u64,
    /// Number of tool calls, counted only for groups and users.
    pub calls: u64,
    /// Tokens of definitions that selections left out.
    pub saved_tokens: u64,
    /// The price of the saved tokens as input of the chat's model.
    pub saved: Money,
    pub judge: Spending,
    pub enrich: Spending,
    pub smart_select: Spending,
    /// The sum of `judge`, `enrich` and `smart_select`.
    pub service: Spending,
    /// What users paid with keys of their own. `service` does not contain it.
    pub own_keys: Spending,
}

impl Costs {
    fn add(&mut self, row: &CostRow, prices: &Prices) {
        let (counts, price) = (&row.counts, prices.of(row.model.as_deref()));
        let purpose = match row.purpose {
            Purpose::Chat => {
                self.messages += counts.requests;
                self.calls += counts.calls;
                self.saved_tokens += counts.saved_tokens;
                return self.saved.add(price, counts.saved_tokens, 0);
            }
            _ if row.is_own => return self.own_keys.add(counts, price),
            Purpose::Judge => &mut self.judge,
            Purpose::Enrich => &mut self.enrich,
            Purpose::SmartSelect => &mut self.smart_select,
        };
        purpose.add(counts, price);
        self.service.add(counts, price);
    }

    /// The sort key. Larger keys come first.
    fn weight(&self) -> (u64, u64) {
        let spent = [&self.service, &self.own_keys].map(|spent| spent.input_tokens + spent.output_tokens);
        (self.saved_tokens + spent.iter().sum::<u64>(), self.messages + self.calls)
    }

    /// Whether some tokens have no price.
    pub fn unpriced_tokens(&self) -> u64 {
        [&self.saved, &self.service.money, &self.own_keys.money].iter().map(|money| money.unpriced_tokens).sum()
    }
}

/// Savings beside costs in a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostReport {
    pub totals: Costs,
    /// Days (UTC) with messages or answers, oldest first.
    pub days: Vec<(SystemTime, Costs)>,
    /// Models, largest number of tokens first. `None` is an unknown model.
    pub models: Vec<(Option<String>, Costs)>,
    /// Groups, largest number of tokens first. `None` stands for callers without a group.
    pub groups: Vec<(Option<String>, Costs)>,
    pub users: Vec<(String, Costs)>,
}

impl CostReport {
    pub fn of(rows: &[CostRow], prices: &Prices) -> Self {
        let mut totals = Costs::default();
        let mut days: BTreeMap<SystemTime, Costs> = BTreeMap::new();
        let mut models: BTreeMap<Option<String>, Costs> = BTreeMap::new();
        let mut groups: BTreeMap<Option<String>, Costs> = BTreeMap::new();
        let mut users: BTreeMap<String, Costs> = BTreeMap::new();
        for row in rows {
            match row.scope {
                CostScope::All => {
                    totals.add(row, prices);
                    models.entry(row.model.clone()).or_default().add(row, prices);
                    if let Some(day) = row.day {
                        days.entry(day).or_default().add(row, prices);
                    }
                }
                CostScope::Group => groups.entry(Some(row.name.clone()).filter(|name| !name.is_empty())).or_default().add(row, prices),
                CostScope::User => users.entry(row.name.clone()).or_default().add(row, prices),
            }
        }
        Self {
            totals,
            days: days.into_iter().collect(),
            models: largest_first(models),
            groups: largest_first(groups),
            users: largest_first(users),
        }
    }
}

/// The entries by number of tokens. Equal ones stay in the order of their names.
fn largest_first<K>(entries: BTreeMap<K, Costs>) -> Vec<(K, Costs)> {
    let mut entries: Vec<(K, Costs)> = entries.into_iter().collect();
    entries.sort_by_key(|(_, costs)| Reverse(costs.weight()));
    entries
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::{Attribution, CostCounts, CostReport, CostRow, CostScope, Money, Price, Prices, Purpose, UsageBy};
    use crate::domain::access::principal::{GroupTable, Principal, User};

    fn prices() -> Prices {
        let prices = [
            json!({"model": "gpt-5-mini", "input": "0.25", "output": "2"}),
            json!({"model": "gpt-5*", "input": 1.25, "output": 10}),
            json!({"model": "local", "input": 0, "output": 0}),
        ];
        Prices::new(prices.iter().map(|price| Price::read(price).unwrap()).collect())
    }

    fn row(day: u64, scope: (CostScope, &str), purpose: Purpose, model: Option<&str>, counts: CostCounts) -> CostRow {
        CostRow {
            day: Some(SystemTime::UNIX_EPOCH + Duration::from_hours(24 * day)),
            scope: scope.0,
            name: scope.1.to_owned(),
            purpose,
            is_own: false,
            model: model.map(str::to_owned),
            counts,
        }
    }

    const ALL: (CostScope, &str) = (CostScope::All, "");

    fn chat(messages: u64, saved_tokens: u64) -> CostCounts {
        CostCounts { requests: messages, saved_tokens, ..CostCounts::default() }
    }

    fn answer(input_tokens: u64, output_tokens: u64) -> CostCounts {
        CostCounts { requests: 1, input_tokens, output_tokens, ..CostCounts::default() }
    }

    #[test]
    fn savings_and_costs_have_the_prices_of_their_models() {
        let rows = [
            row(1, ALL, Purpose::Chat, Some("gpt-5-mini"), chat(2, 1_000_000)),
            row(2, ALL, Purpose::Chat, Some("gpt-5.1"), chat(1, 2_000_000)),
            row(2, ALL, Purpose::Judge, Some("gpt-5-mini"), answer(400_000, 100_000)),
            row(2, ALL, Purpose::Enrich, Some("local"), answer(5_000, 1_000)),
            CostRow { is_own: true, ..row(2, ALL, Purpose::SmartSelect, Some("gpt-5.1"), answer(0, 100_000)) },
        ];
        let CostReport { totals, days, models, .. } = CostReport::of(&rows, &prices());
        assert_eq!((totals.messages, totals.saved_tokens, totals.saved), (3, 3_000_000, Money { known: Some(2.75), unpriced_tokens: 0 }));
        assert_eq!(totals.judge.money.known.map(|money| (money * 1e6).round()), Some(300_000.0));
        assert_eq!((totals.enrich.money.known, totals.enrich.requests), (Some(0.0), 1), "a price of 0 is a price");
        assert_eq!((totals.own_keys.money.known, totals.own_keys.requests), (Some(1.0), 1));
        assert_eq!((totals.service.requests, totals.smart_select.requests), (2, 0), "users' own keys are not the service's costs");
        assert_eq!(days.iter().map(|(_, costs)| costs.messages).collect::<Vec<_>>(), [2, 1]);
        let names: Vec<_> = models.iter().map(|(model, _)| model.as_deref().unwrap()).collect();
        assert_eq!(names, ["gpt-5.1", "gpt-5-mini", "local"]);
    }

    #[test]
    fn an_unknown_price_makes_no_money() {
        let rows = [
            row(1, ALL, Purpose::Chat, None, chat(1, 500)),
            row(1, ALL, Purpose::Chat, Some("llama"), chat(1, 700)),
            row(1, ALL, Purpose::Judge, Some("llama"), answer(30, 4)),
        ];
        let totals = CostReport::of(&rows, &prices()).totals;
        assert_eq!((totals.saved_tokens, totals.saved), (1_200, Money { known: None, unpriced_tokens: 1_200 }));
        assert_eq!((totals.service.money, totals.unpriced_tokens()), (Money { known: None, unpriced_tokens: 34 }, 1_234));
        let priced = row(1, ALL, Purpose::Chat, Some("gpt-5"), chat(1, 1_000_000));
        let totals = CostReport::of(&[rows[0].clone(), priced], &prices()).totals;
        assert_eq!(totals.saved, Money { known: Some(1.25), unpriced_tokens: 500 }, "the rest has its price");
    }

    #[test]
    fn groups_and_users_stand_apart_from_the_totals() {
        let rows = [
            row(1, ALL, Purpose::Chat, Some("gpt-5"), chat(3, 300)),
            row(1, (CostScope::Group, "ops"), Purpose::Chat, Some("gpt-5"), chat(1, 100)),
            row(1, (CostScope::Group, ""), Purpose::Chat, Some("gpt-5"), chat(2, 200)),
            row(1, (CostScope::User, "user:anna"), Purpose::Chat, Some("gpt-5"), chat(1, 100)),
            row(1, (CostScope::User, "user:anna"), Purpose::Chat, None, CostCounts { calls: 4, ..CostCounts::default() }),
        ];
        let report = CostReport::of(&rows, &prices());
        assert_eq!((report.totals.messages, report.totals.calls, report.days.len()), (3, 0, 1));
        let groups: Vec<_> = report.groups.iter().map(|(group, costs)| (group.as_deref(), costs.messages)).collect();
        assert_eq!(groups, [(None, 2), (Some("ops"), 1)]);
        assert_eq!((report.users[0].0.as_str(), report.users[0].1.messages, report.users[0].1.calls), ("user:anna", 1, 4));
    }

    #[test]
    fn nobody_is_named_unless_the_settings_want_it() {
        let key = Principal { vouches: true, ..Principal::service_key() };
        let anna = User { id: "anna".into(), groups: ["ops", "dev"].map(str::to_owned).into(), ..User::default() };
        let anna = key.on_behalf_of(anna, &GroupTable::default());
        let scopes = |principal: &Principal, by| {
            let attribution = Attribution::of(principal, by);
            attribution.scopes().map(|(scope, name)| format!("{} {name}", scope.name())).collect::<Vec<_>>()
        };
        assert_eq!(scopes(&anna, UsageBy::None), [""; 0]);
        assert_eq!(scopes(&anna, UsageBy::Group), ["group dev", "group ops"]);
        assert_eq!(scopes(&anna, UsageBy::User), ["group dev", "group ops", "user user:anna"]);
        assert_eq!(scopes(&key, UsageBy::User), ["group ", "user service-key"]);
    }

    #[test]
    fn what_is_no_price_says_why() {
        for (price, reason) in [
            (json!("x"), "not a table"),
            (json!({"input": 1, "output": 1}), "it has no model"),
            (json!({"model": 5, "input": 1, "output": 1}), "its model is not a text"),
            (json!({"model": "", "input": 1, "output": 1}), "model: a pattern has 1 to 512 bytes"),
            (json!({"model": "a[", "input": 1, "output": 1}), "a["),
            (json!({"model": "a", "output": 1}), "it has no input"),
            (json!({"model": "a", "input": 1}), "it has no output"),
            (json!({"model": "a", "input": -1, "output": 1}), "input is not a price"),
            (json!({"model": "a", "input": "cheap", "output": 1}), "input is not a price"),
            (json!({"model": "a", "input": 1, "output": "inf"}), "output is not a price"),
            (json!({"model": "a", "input": "nan", "output": 1}), "input is not a price"),
            (json!({"model": "a", "inptu": 1, "output": 1}), "unknown field `inptu`: did you mean `input`?"),
        ] {
            let found = Price::read(&price).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
    }
}
