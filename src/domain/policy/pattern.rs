//! Patterns of names: `*` is anything, `?` one character, `[ab]` and `{one,two}` alternatives. Letters count as they are
//! written.

use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Longest pattern.
const MAX_BYTES: usize = 512;

/// Reads a pattern.
///
/// # Errors
/// What is wrong with it.
pub(super) fn glob(text: &str) -> Result<Glob, String> {
    if text.is_empty() || text.len() > MAX_BYTES {
        return Err(format!("a pattern has 1 to {MAX_BYTES} bytes"));
    }
    // Names are no paths: a slash in one is a character like all others.
    GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build().map_err(|error| format!("`{text}`: {}", error.kind()))
}

/// The patterns of one condition: any of them fits. Without patterns the condition holds always.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Option<GlobSet>);

impl Patterns {
    /// Those that can't be read were refused before and fit nothing.
    pub(super) fn new(texts: &[String]) -> Self {
        Self((!texts.is_empty()).then(|| set(texts.iter())))
    }

    pub(super) fn hold<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        self.0.as_ref().is_none_or(|set| names.into_iter().any(|name| set.is_match(name)))
    }
}

fn set<'a>(texts: impl Iterator<Item = &'a String>) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    texts.filter_map(|text| glob(text).ok()).for_each(|glob| {
        builder.add(glob);
    });
    builder.build().unwrap_or_default()
}

/// One condition of many rules at once: for a name, the rules whose condition holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    set: GlobSet,
    /// For each pattern in the set the rules that have it.
    rules: Vec<Arc<[usize]>>,
    /// Rules without the condition.
    free: Bits,
}

impl Conditions {
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a [String]>, count: usize) -> Self {
        let mut patterns: indexmap::IndexMap<&str, Vec<usize>> = indexmap::IndexMap::new();
        let mut free = Bits::new(count);
        for (number, texts) in rules.enumerate() {
            if texts.is_empty() {
                free.set(number);
            }
            for text in texts {
                patterns.entry(text).or_default().push(number);
            }
        }
        let readable: Vec<(Glob, Arc<[usize]>)> =
            patterns.into_iter().filter_map(|(text, rules)| Some((glob(text).ok()?, rules.into()))).collect();
        let mut builder = GlobSetBuilder::new();
        for (glob, _) in &readable {
            builder.add(glob.clone());
        }
        Self { set: builder.build().unwrap_or_default(), rules: readable.into_iter().map(|(_, rules)| rules).collect(), free }
    }

    /// Leaves in `bits` the rules whose condition holds for one of the names.
    pub(super) fn keep<'a>(&self, names: impl IntoIterator<Item = &'a str>, bits: &mut Bits, found: &mut Vec<usize>) {
        let mut holds = self.free.clone();
        if !self.set.is_empty() {
            for name in names {
                self.set.matches_into(name, found);
                for rule in found.iter().flat_map(|&pattern| self.rules[pattern].iter()) {
                    holds.set(*rule);
                }
            }
        }
        bits.and(&holds);
    }
}

/// A set of rules by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn all(count: usize) -> Self {
        let mut bits = Self::new(count);
        (0..count).for_each(|number| bits.set(number));
        bits
    }

    pub(super) fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(super) fn and(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// In ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    at * 64 + bit
                })
            })
        })
    }
}
