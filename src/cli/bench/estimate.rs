//! Means with confidence intervals, by the percentile bootstrap (Efron and Tibshirani 1993, section 13.3).

use indexmap::IndexMap;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

/// Number of bootstrap resamples.
pub(super) const RESAMPLES: usize = 1_000;
/// Seed of the random draws. Every run draws the same messages, so differences between rankings are paired.
pub(super) const SEED: u64 = 7;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Estimates by metric name.
pub(super) type Figures = IndexMap<String, Estimate>;

/// The mean of each column, over all messages and over each resample.
#[derive(Clone, Debug, Default)]
pub(super) struct Means {
    columns: Vec<String>,
    /// The means over all messages. A mean is `None` if the column is undefined for every message.
    all: Vec<Option<f64>>,
    resamples: Vec<Vec<Option<f64>>>,
}

impl Means {
    /// Each row contains one value per column. NaN marks an undefined value, which the means skip. Different salts give
    /// different messages independent draws.
    pub(super) fn of(columns: &[String], rows: &[&[f64]], salt: u64) -> Self {
        let mean = |picks: &mut dyn Iterator<Item = usize>| {
            let mut sums = vec![(0.0, 0_u32); columns.len()];
            for pick in picks {
                for ((sum, count), value) in sums.iter_mut().zip(rows[pick]) {
                    if !value.is_nan() {
                        *sum += value;
                        *count += 1;
                    }
                }
            }
            sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect::<Vec<_>>()
        };
        let mut random = StdRng::seed_from_u64(SEED.wrapping_add(salt));
        let draws = if rows.is_empty() { 0 } else { RESAMPLES };
        Self {
            columns: columns.to_vec(),
            all: mean(&mut (0..rows.len())),
            resamples: (0..draws).map(|_| mean(&mut (0..rows.len()).map(|_| random.random_range(0..rows.len())))).collect(),
        }
    }

    /// The macro average: every set has the same weight, regardless of its size.
    pub(super) fn average(all: &[&Self]) -> Self {
        let Some(first) = all.first() else { return Self::default() };
        let average = |of: &dyn Fn(&Self, usize) -> Option<f64>| {
            (0..first.columns.len())
                .map(|column| {
                    let values: Vec<f64> = all.iter().filter_map(|means| of(means, column)).collect();
                    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
                })
                .collect::<Vec<_>>()
        };
        let draws = all.iter().map(|means| means.resamples.len()).min().unwrap_or(0);
        Self {
            columns: first.columns.clone(),
            all: average(&|means, column| means.all[column]),
            resamples: (0..draws).map(|draw| average(&|means, column| means.resamples[draw][column])).collect(),
        }
    }

    /// The difference from another estimate for the same messages, computed per resample.
    pub(super) fn less(&self, other: &Self) -> Self {
        let less = |one: &[Option<f64>], other: &[Option<f64>]| {
            one.iter().zip(other).map(|(one, other)| Some((*one)? - (*other)?)).collect::<Vec<_>>()
        };
        Self {
            columns: self.columns.clone(),
            all: less(&self.all, &other.all),
            resamples: self.resamples.iter().zip(&other.resamples).map(|(one, other)| less(one, other)).collect(),
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let column = |(at, name): (usize, &String)| {
            let mean = self.all[at]?;
            let mut values: Vec<f64> = self.resamples.iter().filter_map(|means| means[at]).collect();
            values.sort_by(f64::total_cmp);
            let quantile = |share: usize| values.get(values.len() * share / 1_000).copied().unwrap_or(mean);
            Some((name.clone(), Estimate { mean, low: quantile(25), high: quantile(975) }))
        };
        self.columns.iter().enumerate().filter_map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Means;

    fn near(one: f64, other: f64, within: f64) {
        assert!((one - other).abs() < within, "{one} is not {other}");
    }

    #[test]
    fn the_interval_is_that_of_the_mean() {
        // The mean of 400 coin tosses has a standard error of 0.025, so 95 % of the means lie within 0.049 of it.
        let rows: Vec<[f64; 2]> = (0..400).map(|at| [f64::from(at % 2), f64::NAN]).collect();
        let rows: Vec<&[f64]> = rows.iter().map(<[f64; 2]>::as_slice).collect();
        let columns = ["coin".to_owned(), "never".to_owned()];
        let figures = Means::of(&columns, &rows, 0).figures();
        assert_eq!(figures.keys().collect::<Vec<_>>(), ["coin"], "what is never defined is left out");
        let coin = figures["coin"];
        near(coin.mean, 0.5, 1e-12);
        near(coin.low, 0.451, 0.006);
        near(coin.high, 0.549, 0.006);
        assert_eq!(figures, Means::of(&columns, &rows, 0).figures(), "the same draws in every run");
    }

    #[test]
    fn sets_count_alike_and_differences_are_paired() {
        let columns = ["x".to_owned()];
        let (large, small) = (vec![[1.0]; 90], vec![[0.0]; 10]);
        let means = |rows: &[[f64; 1]], salt| Means::of(&columns, &rows.iter().map(<[f64; 1]>::as_slice).collect::<Vec<_>>(), salt);
        near(Means::average(&[&means(&large, 0), &means(&small, 1)]).figures()["x"].mean, 0.5, 1e-12);
        // If one ranking is better by 0.1 for every message, it is better by 0.1 in every resample.
        let rows: Vec<[f64; 1]> = (0..50).map(|at| [f64::from(at % 7)]).collect();
        let better: Vec<[f64; 1]> = rows.iter().map(|[value]| [value + 0.1]).collect();
        let difference = means(&better, 3).less(&means(&rows, 3)).figures()["x"];
        for value in [difference.mean, difference.low, difference.high] {
            near(value, 0.1, 1e-9);
        }
    }
}
