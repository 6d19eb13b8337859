//! Case-sensitive name patterns: `*` matches any text, `?` one character, and `[ab]` and `{one,two}` are alternatives.

use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use indexmap::IndexMap;

use crate::domain::catalog::traits::Traits;

/// Maximum length of a pattern, in bytes.
const MAX_BYTES: usize = 512;

/// Parses a pattern.
///
/// # Errors
/// The reason why the pattern is invalid.
pub(crate) fn glob(text: &str) -> Result<Glob, String> {
    if text.is_empty() || text.len() > MAX_BYTES {
        return Err(format!("a pattern has 1 to {MAX_BYTES} bytes"));
    }
    // Names are not paths: a slash is an ordinary character.
    GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build().map_err(|error| format!("`{text}`: {}", error.kind()))
}

/// A part of published names only. Patterns that contain it are also matched against published names.
const PUBLISHED: &str = "__";

/// The patterns of one condition. One matching pattern is enough; without patterns, the condition always holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    is_free: bool,
    set: GlobSet,
}

impl Patterns {
    pub(super) fn new(texts: &[String]) -> Self {
        Self { is_free: texts.is_empty(), set: set(texts.iter().filter_map(|text| glob(text).ok())) }
    }

    /// Only the patterns for published names. Without such patterns, the condition never holds.
    pub(super) fn of_published(texts: &[String]) -> Self {
        let texts = texts.iter().filter(|text| text.contains(PUBLISHED));
        Self { is_free: false, set: set(texts.filter_map(|text| glob(text).ok())) }
    }

    pub(super) fn hold(&self, names: impl IntoIterator<Item: AsRef<str>>) -> bool {
        self.is_free || names.into_iter().any(|name| self.set.is_match(name.as_ref()))
    }
}

/// Builds the set. Invalid patterns were rejected earlier.
fn set(globs: impl Iterator<Item = Glob>) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        builder.add(glob);
    }
    builder.build().unwrap_or_default()
}

/// The patterns of many rules, compiled into one set. Finds the rules that match a name.
#[derive(Clone, Debug, Default)]
struct Matcher {
    set: GlobSet,
    /// For each pattern in the set, the rules that contain it.
    rules: Vec<Arc<[usize]>>,
}

impl Matcher {
    fn new(patterns: &IndexMap<&str, Vec<usize>>, is_wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = patterns.iter().filter(|(text, _)| is_wanted(text));
        let (globs, rules): (Vec<Glob>, Vec<Arc<[usize]>>) =
            wanted.filter_map(|(text, rules)| Some((glob(text).ok()?, rules.as_slice().into()))).unzip();
        Self { set: set(globs.into_iter()), rules }
    }

    fn add(&self, name: &str, scratch: &mut Scratch) {
        if self.set.is_empty() {
            return;
        }
        self.set.matches_into(name, &mut scratch.found);
        for rule in scratch.found.iter().flat_map(|&pattern| self.rules[pattern].iter()) {
            scratch.holds.set(*rule);
        }
    }
}

/// One kind of condition, such as `servers`, for many rules at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    names: Matcher,
    published: Matcher,
    /// Rules without this condition.
    free: Bits,
}

/// Buffers that are reused for every tool.
#[derive(Debug)]
pub(super) struct Scratch {
    holds: Bits,
    found: Vec<usize>,
}

impl Scratch {
    pub(super) fn new(rules: usize) -> Self {
        Self { holds: Bits::new(rules), found: Vec::new() }
    }
}

impl Conditions {
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a [String]>, count: usize) -> Self {
        let mut patterns: IndexMap<&str, Vec<usize>> = IndexMap::new();
        let mut free = Bits::new(count);
        for (number, texts) in rules.enumerate() {
            if texts.is_empty() {
                free.set(number);
            }
            for text in texts {
                patterns.entry(text).or_default().push(number);
            }
        }
        Self { names: Matcher::new(&patterns, |_| true), published: Matcher::new(&patterns, |text| text.contains(PUBLISHED)), free }
    }

    /// Removes from `bits` the rules whose condition matches none of the names.
    pub(super) fn keep<'a>(&self, names: impl IntoIterator<Item = &'a str>, bits: &mut Bits, scratch: &mut Scratch) {
        self.hold(names, scratch);
        bits.and(&scratch.holds);
    }

    /// The rules whose condition matches at least one of the names, and the rules without this condition.
    pub(super) fn of<'a>(&self, names: impl IntoIterator<Item = &'a str>, scratch: &mut Scratch) -> Bits {
        self.hold(names, scratch);
        scratch.holds.clone()
    }

    fn hold<'a>(&self, names: impl IntoIterator<Item = &'a str>, scratch: &mut Scratch) {
        scratch.holds.copy_from(&self.free);
        for name in names {
            self.names.add(name, scratch);
        }
    }

    /// Like [`Self::keep`], for the raw and the published name of a tool.
    pub(super) fn keep_tool(&self, tool: Traits<'_>, bits: &mut Bits, scratch: &mut Scratch) {
        scratch.holds.copy_from(&self.free);
        self.names.add(tool.name, scratch);
        self.published.add(tool.published, scratch);
        bits.and(&scratch.holds);
    }

    /// Sets `bits` to the rules with a pattern that matches the tool. Excludes rules without patterns.
    pub(super) fn match_tool(&self, tool: Traits<'_>, bits: &mut Bits, scratch: &mut Scratch) {
        scratch.holds.clear();
        self.names.add(tool.name, scratch);
        self.published.add(tool.published, scratch);
        bits.copy_from(&scratch.holds);
    }
}

/// A set of rule numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// Copies another set, which must have the same size.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.0.copy_from_slice(&other.0);
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(super) fn or(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    pub(super) fn and_not(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
    }

    pub(super) fn and(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// The numbers in ascending order.
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
