//! What selections save and what language models cost, by day, and the comparison of chats with all tools and with selected ones.

use std::time::SystemTime;

use maud::{Markup, PreEscaped, html};

use super::parts::{Head, UNKNOWN, day, grouped, milliseconds, percent, table};
use super::text::Texts;
use crate::domain::records::costs::{CostReport, Costs, Money, Spending};
use crate::domain::selection::experiment::Arm;
use crate::http::pages::plot::{Bar, bars};
use crate::http::routes::admin::quantile_milliseconds;
use crate::service::ports::{ArmFigures, DayUsage};
use crate::service::records::costs::PricedCosts;
use crate::service::records::report::{Compared, mean};

/// Number of days in the plots.
const DAYS: usize = 14;

/// Tokens before and after the selections of the last days.
pub(super) fn tokens(texts: &Texts, days: &[DayUsage]) -> Markup {
    let days = last(days);
    let of_day = days.iter().filter(|day| day.messages.selections > 0).flat_map(|usage| {
        let messages = &usage.messages;
        let bar = |label: String, tokens: u64, colour| Bar { label, value: tokens as f64, interval: None, text: grouped(tokens), colour };
        [bar(format!("{} {}", day(usage.day), texts.before), messages.tokens_before, 1), bar(texts.after.clone(), messages.tokens_after, 0)]
    });
    plot(&texts.token_plot, &of_day.collect::<Vec<_>>())
}

/// Savings beside costs: the sums, and the last days as plots.
pub(super) fn savings(texts: &Texts, costs: &PricedCosts) -> Markup {
    let CostReport { totals, days, .. } = &costs.report;
    let currency = costs.currency.as_deref().unwrap_or_default();
    let spent = |name: &str, spending: &Spending| {
        let tokens = spending.input_tokens + spending.output_tokens;
        html! { tr { th scope="row" { (name) } td.number { (grouped(spending.requests)) } td.number { (grouped(tokens)) } td.number { (money(spending.money, currency)) } } }
    };
    let rows = html! {
        tr {
            th scope="row" { (texts.saved_by_selections) }
            td.number { (grouped(totals.messages)) }
            td.number { (grouped(totals.saved_tokens)) }
            td.number { (money(totals.saved, currency)) }
        }
        (spent(&texts.cost_judge, &totals.judge))
        (spent(&texts.cost_enrich, &totals.enrich))
        (spent(&texts.cost_smart_select, &totals.smart_select))
        (spent(&texts.cost_own_keys, &totals.own_keys))
    };
    let heads =
        [Head::Text(&texts.kind), Head::Number(&texts.messages_or_answers), Head::Number(&texts.tokens), Head::Number(&texts.money)];
    html! {
        h2 { (texts.savings) }
        (table(&texts.savings, &heads, &rows))
        @if currency.is_empty() { p.quiet { (texts.no_prices) } }
        @else if totals.unpriced_tokens() > 0 { p.quiet { (grouped(totals.unpriced_tokens())) " " (texts.unpriced) } }
        (by_day(&texts.saved_tokens_by_day, days, 0, |costs| costs.saved_tokens as f64, |costs| grouped(costs.saved_tokens)))
        @if !currency.is_empty() {
            (by_day(&texts.saved_money_by_day, days, 2, |costs| costs.saved.known.unwrap_or_default(), |costs| money(costs.saved, currency)))
            (by_day(&texts.cost_by_day, days, 1, |costs| costs.service.money.known.unwrap_or_default(), |costs| money(costs.service.money, currency)))
        }
    }
}

/// The comparison of chats that get all tools with chats that get selected ones.
pub(super) fn comparison(texts: &Texts, compared: &Compared) -> Markup {
    if compared.arms.is_empty() {
        return html! {};
    }
    let heads = [
        Head::Text(&texts.arm),
        Head::Number(&texts.chats),
        Head::Number(&texts.messages),
        Head::Number(&texts.tools_at_first),
        Head::Number(&texts.tools_at_last),
        Head::Number(&texts.before),
        Head::Number(&texts.after),
        Head::Number(&texts.searches),
        Head::Number(&texts.calls),
        Head::Number(&texts.success),
        Head::Number("p50 / p95 ms"),
    ];
    let rows = html! { @for arm in &compared.arms { (arm_row(texts, arm)) } };
    let bar = |(colour, arm): (usize, &ArmFigures)| {
        let value = mean(arm.counts.tokens_after, arm.counts.selections)?;
        Some(Bar { label: arm_name(texts, arm.arm).to_owned(), value, interval: None, text: format!("{value:.0}"), colour })
    };
    let tokens: Vec<Bar> = compared.arms.iter().enumerate().filter_map(bar).collect();
    html! {
        h2 { (texts.comparison) }
        p.quiet { (texts.comparison_hint) }
        (table(&texts.comparison, &heads, &rows))
        @if tokens.len() > 1 { (plot(&texts.tokens_per_message, &tokens)) }
    }
}

fn arm_row(texts: &Texts, arm: &ArmFigures) -> Markup {
    let counts = &arm.counts;
    let each = |sum: u64| mean(sum, arm.conversations).map_or_else(|| UNKNOWN.to_owned(), |mean| format!("{mean:.1}"));
    let per_message = |sum: u64| mean(sum, counts.selections).map_or_else(|| UNKNOWN.to_owned(), |mean| format!("{mean:.0}"));
    let (half, most) = quantile_milliseconds(&arm.load_times);
    html! {
        tr {
            th scope="row" { (arm_name(texts, arm.arm)) }
            td.number { (grouped(arm.conversations)) }
            @for figure in [counts.selections, counts.initial_tools, counts.final_tools] { td.number { (each(figure)) } }
            @for figure in [counts.tokens_before, counts.tokens_after] { td.number { (per_message(figure)) } }
            @for figure in [counts.searches, counts.calls] { td.number { (each(figure)) } }
            td.number { (mean(counts.succeeded, counts.calls).map_or_else(|| UNKNOWN.to_owned(), percent)) }
            td.number { (milliseconds(half)) " / " (milliseconds(most)) }
        }
    }
}

fn arm_name(texts: &Texts, arm: Option<Arm>) -> &str {
    match arm {
        None => &texts.arm_none,
        Some(Arm::Static) => &texts.arm_static,
        Some(Arm::Dynamic) => &texts.arm_dynamic,
    }
}

pub(super) fn money(money: Money, currency: &str) -> String {
    money.known.map_or_else(|| UNKNOWN.to_owned(), |amount| format!("{amount:.4} {currency}"))
}

/// One bar per day; nothing if all are empty.
fn by_day(
    title: &str,
    days: &[(SystemTime, Costs)],
    colour: usize,
    value: impl Fn(&Costs) -> f64,
    text: impl Fn(&Costs) -> String,
) -> Markup {
    let bar = |(at, costs): &(SystemTime, Costs)| Bar { label: day(*at), value: value(costs), interval: None, text: text(costs), colour };
    plot(title, &last(days).iter().map(bar).filter(|bar| bar.value > 0.0).collect::<Vec<_>>())
}

fn plot(title: &str, of: &[Bar]) -> Markup {
    html! { @if !of.is_empty() { h3 { (title) } (PreEscaped(bars(title, of))) } }
}

fn last<T>(days: &[T]) -> &[T] {
    &days[days.len().saturating_sub(DAYS)..]
}
