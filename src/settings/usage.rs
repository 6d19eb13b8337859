//! Section `[usage]` and `[[price]]`: whose usage is stored, and what models cost.

use crate::domain::records::costs::{Price, Prices, UsageBy};
use crate::settings::finding::Findings;
use crate::settings::values::{Reader, Values};

const REMEDY: &str = "write a price as described at [[price]] in the commented defaults";
/// Maximum length of a currency's name, in characters.
const MAX_CURRENCY: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct UsageSettings {
    /// Whose usage is stored separately, besides the sums over all callers.
    pub by: UsageBy,
    /// The currency of all prices.
    pub currency: String,
    /// The prices, in the order of the file.
    pub prices: Prices,
}

impl UsageSettings {
    pub(super) fn read(values: &mut Values, findings: &mut Findings) -> Self {
        let tables = values.prices.clone();
        let mut prices: Vec<Price> = Vec::new();
        for (number, (value, place)) in (1..).zip(&tables) {
            match Price::read(value) {
                Ok(price) if prices.iter().any(|other| other.pattern() == price.pattern()) => {
                    let message = format!("price {number}: `{}` has a price already", price.pattern());
                    findings.problem(place.clone(), message, "remove one of the two");
                }
                Ok(price) => prices.push(price),
                Err(reason) => findings.problem(place.clone(), format!("price {number}: {reason}"), REMEDY),
            }
        }
        let mut reader = Reader::new(values, findings);
        let by = reader.choice("usage.by", UsageBy::of_name, ("unknown value", "write \"none\", \"group\" or \"user\""));
        let currency = reader.text("usage.currency");
        if !(1..=MAX_CURRENCY).contains(&currency.chars().count()) || currency.chars().any(char::is_control) {
            let remedy = format!("write the currency of the prices, such as \"EUR\", with 1 to {MAX_CURRENCY} characters");
            reader.problem("usage.currency", "not a currency", remedy);
        }
        Self { by, currency, prices: Prices::new(prices) }
    }
}
