//! Prints what selections saved beside what language models cost, for `usage` and `report`.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::table;
use crate::cli::table::cell as text;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// Purposes of language models: each field in the response, and its label.
const PURPOSES: [(&str, &str); 3] = [("judge", "reranking"), ("smart_select", "smart_select"), ("enrich", "enrichment")];

/// The start of the first of the last days, of which today is one. The service sums up usage by day in UTC.
pub(super) fn first_of(days: u32) -> Timestamp {
    first_until(Timestamp::now(), days)
}

fn first_until(now: Timestamp, days: u32) -> Timestamp {
    let earlier = now.saturating_sub(SignedDuration::from_hours(24 * i64::from(days.saturating_sub(1)))).unwrap_or(Timestamp::UNIX_EPOCH);
    let second = earlier.as_second();
    Timestamp::from_second(second - second.rem_euclid(SECONDS_PER_DAY)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A table with one row per day, model, group or user.
pub(super) fn as_table(costs: &Value, by: &str) -> String {
    let (head, list, key) = match by {
        "day" => ("Day", "days", "day"),
        "model" => ("Model", "models", "model"),
        "group" => ("Group", "groups", "group"),
        _ => ("User", "users", "user"),
    };
    if let Some(remedy) = not_stored(costs, by) {
        return remedy;
    }
    let currency = costs["currency"].as_str();
    // Calls are counted only by group and by user.
    let has_calls = matches!(by, "group" | "user");
    let calls: &[&str] = if has_calls { &["Calls"] } else { &[] };
    let heads = ["Tokens saved", "Saved", "LLM answers", "LLM tokens", "LLM cost", "Own keys", "Own cost"];
    let heads = [[head, "Messages"].as_slice(), calls, &heads].concat();
    let rows = table::of_list(&heads, &costs[list], |row| {
        let name = text(&row[key]);
        let (llm, own) = (&row["llm"], &row["own_keys"]);
        let first = [if name.is_empty() { "(none)".to_owned() } else { name }, text(&row["messages"])];
        let rest = [
            text(&row["tokens_saved"]),
            money(&row["money_saved"], currency),
            text(&llm["requests"]),
            tokens(llm).to_string(),
            money(&llm["cost"], currency),
            tokens(own).to_string(),
            money(&own["cost"], currency),
        ];
        first.into_iter().chain(has_calls.then(|| text(&row["calls"]))).chain(rest)
    });
    format!("{rows}\n\n{}", as_summary(costs))
}

/// Why there are no groups or users; `None` if there are some, or if the settings allow them.
fn not_stored(costs: &Value, by: &str) -> Option<String> {
    let (list, enough): (&str, &[&str]) = match by {
        "group" => ("groups", &["group", "user"]),
        "user" => ("users", &["user"]),
        _ => return None,
    };
    let is_stored = costs["by"].as_str().is_some_and(|stored| enough.contains(&stored));
    let is_empty = costs[list].as_array().is_none_or(Vec::is_empty);
    (is_empty && !is_stored).then(|| format!("The service doesn't store usage by {by}. To store it, set by = \"{by}\" in [usage]."))
}

/// The totals in sentences. The figures of `report` have no member `totals`.
pub(super) fn as_summary(costs: &Value) -> String {
    let figures = costs.get("totals").unwrap_or(costs);
    let currency = costs["currency"].as_str();
    let mut out = format!("Selections saved {} tokens{}.", figures["tokens_saved"], in_money(&figures["money_saved"], currency));
    let llm = &figures["llm"];
    let _ = write!(out, " Language models used {} tokens{}", tokens(llm), in_money(&llm["cost"], currency));
    let parts: Vec<String> = PURPOSES
        .iter()
        .filter(|(purpose, _)| figures[*purpose]["requests"].as_u64().is_some_and(|requests| requests > 0))
        .map(|(purpose, label)| format!("{} for {label}", tokens(&figures[*purpose])))
        .collect();
    if !parts.is_empty() {
        let _ = write!(out, ": {}", parts.join(", "));
    }
    out.push('.');
    let own = &figures["own_keys"];
    if tokens(own) > 0 {
        let _ = write!(out, " With users' own keys: {} tokens{}.", tokens(own), in_money(&own["cost"], currency));
    }
    let estimated: u64 = [llm, own].iter().filter_map(|spent| spent["estimated_requests"].as_u64()).sum();
    if estimated > 0 {
        let _ = write!(out, " Estimated answers: {estimated}.");
    }
    if let Some(unpriced) = figures["unpriced_tokens"].as_u64().filter(|unpriced| *unpriced > 0 && currency.is_some()) {
        let _ = write!(out, " {unpriced} of these tokens have no price.");
    }
    out
}

fn tokens(spent: &Value) -> u64 {
    ["input_tokens", "output_tokens"].iter().filter_map(|key| spent[*key].as_u64()).sum()
}

/// An amount in brackets, or nothing if it is unknown.
fn in_money(amount: &Value, currency: Option<&str>) -> String {
    let amount = money(amount, currency);
    if amount.is_empty() { amount } else { format!(" ({amount})") }
}

/// An amount with two decimals. Amounts below one have four, because single answers cost fractions of a cent.
fn money(amount: &Value, currency: Option<&str>) -> String {
    let Some((amount, currency)) = amount.as_f64().zip(currency) else { return String::new() };
    let decimals = if amount < 1.0 { 4 } else { 2 };
    format!("{amount:.decimals$} {currency}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{as_summary, as_table, first_until};

    #[test]
    fn the_days_include_today_and_begin_at_midnight() {
        let now = "2027-01-31T23:10:05.5Z".parse().unwrap();
        for (days, first) in [(1, "2027-01-31T00:00:00Z"), (2, "2027-01-30T00:00:00Z"), (31, "2027-01-01T00:00:00Z")] {
            assert_eq!(format!("{:.0}", first_until(now, days)), first, "{days}");
        }
    }

    fn spent(requests: u64, tokens: u64, cost: &Value) -> Value {
        json!({"requests": requests, "estimated_requests": 0, "input_tokens": tokens, "output_tokens": 0, "cost": cost})
    }

    fn figures(money: &Value, cost: &Value) -> Value {
        json!({
            "messages": 3, "tokens_saved": 90_000, "money_saved": money, "unpriced_tokens": 12, "llm": spent(2, 500, cost),
            "judge": spent(2, 500, cost), "smart_select": spent(0, 0, &Value::Null), "enrich": spent(0, 0, &Value::Null),
            "own_keys": spent(1, 70, &Value::Null),
        })
    }

    #[test]
    fn money_stands_beside_tokens_where_prices_are_known() {
        let priced = json!({"by": "none", "currency": "EUR", "totals": figures(&json!(0.1125), &json!(2.5))});
        assert_eq!(
            as_summary(&priced),
            "Selections saved 90000 tokens (0.1125 EUR). Language models used 500 tokens (2.50 EUR): 500 for reranking. With users' own \
             keys: 70 tokens. 12 of these tokens have no price."
        );
        let unpriced = json!({"by": "none", "currency": null, "totals": figures(&Value::Null, &Value::Null)});
        let text = as_summary(&unpriced);
        assert_eq!(
            text,
            "Selections saved 90000 tokens. Language models used 500 tokens: 500 for reranking. With users' own keys: 70 tokens."
        );
    }

    #[test]
    fn groups_that_are_not_stored_say_how_to_store_them() {
        let none = json!({"by": "none", "groups": [], "users": []});
        assert!(as_table(&none, "group").contains("set by = \"group\" in [usage]"));
        let groups = json!({"by": "group", "currency": null, "groups": [], "users": [], "totals": figures(&Value::Null, &Value::Null)});
        assert!(as_table(&groups, "user").contains("set by = \"user\" in [usage]"));
        assert!(as_table(&groups, "group").contains("Tokens saved"));
    }

    /// Regression test: the column of calls was there for days and models too, and always empty.
    #[test]
    fn only_groups_and_users_have_calls() {
        let row = |more: &Value| {
            let mut row = figures(&Value::Null, &Value::Null);
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!([row])
        };
        let costs = json!({
            "by": "user", "currency": null, "totals": figures(&Value::Null, &Value::Null),
            "days": row(&json!({"day": "2027-01-31"})), "models": row(&json!({"model": "large"})),
            "groups": row(&json!({"group": "ops", "calls": 4711})), "users": row(&json!({"user": "user:anna", "calls": 4711})),
        });
        for (by, has_calls) in [("day", false), ("model", false), ("group", true), ("user", true)] {
            let table = as_table(&costs, by);
            assert_eq!((table.contains("Calls"), table.contains("4711")), (has_calls, has_calls), "{by}: {table}");
            assert!(table.contains("Messages") && table.contains("90000"), "{by}: {table}");
        }
    }
}
