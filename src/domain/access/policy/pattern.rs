//! Name patterns: `*` matches anything, `?` one character, `[ab]` and `{one,two}` alternatives. Case-sensitive.

use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use indexmap::IndexMap;

use crate::domain::catalog::traits::Traits;

/// Longest pattern.
const MAX_BYTES: usize = 512;

/// Parses a pattern.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn glob(text: &str) -> Result<Glob, String> {
    if text.is_empty() || text.len() > MAX_BYTES {
        return Err(format!("a pattern has 1 to {MAX_BYTES} bytes"));
    }
    // Names are not paths: a slash is an ordinary character.
    GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build().map_err(|error| format!("`{text}`: {}", error.kind()))
}

/// Only published names contain this, so patterns with it are also matched against the published name.
const PUBLISHED: &str = "__";

/// The patterns of one condition; any match is enough. Without patterns the condition always holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    is_free: bool,
    set: GlobSet,
}

impl Patterns {
    pub(super) fn new(texts: &[String]) -> Self {
        Self { is_free: texts.is_empty(), set: set(texts.iter().filter_map(|text| glob(text).ok())) }
    }

    /// Only the patterns for published names. Without any, it never matches.
    pub(super) fn of_published(texts: &[String]) -> Self {
        let texts = texts.iter().filter(|text| text.contains(PUBLISHED));
        Self { is_free: false, set: set(texts.filter_map(|text| glob(text).ok())) }
    }

    pub(super) fn hold<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        self.is_free || names.into_iter().any(|name| self.set.is_match(name))
    }
}

/// Invalid patterns were rejected earlier and don't occur.
fn set(globs: impl Iterator<Item = Glob>) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        builder.add(glob);
    }
    builder.build().unwrap_or_default()
}

/// The patterns of many rules: finds the rules with a pattern that matches a name.
#[derive(Clone, Debug, Default)]
struct Matcher {
    set: GlobSet,
    /// Per pattern in the set, the rules that use it.
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

/// One condition of many rules at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    names: Matcher,
    published: Matcher,
    /// Rules without the condition.
    free: Bits,
}

/// Buffers, reused for every tool.
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

    /// Keeps in `bits` the rules whose condition matches one of the names.
    pub(super) fn keep<'a>(&self, names: impl IntoIterator<Item = &'a str>, bits: &mut Bits, scratch: &mut Scratch) {
        self.hold(names, scratch);
        bits.and(&scratch.holds);
    }

    /// The rules whose condition matches one of the names.
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

    /// The same for a tool with its raw and published name.
    pub(super) fn keep_tool(&self, tool: Traits<'_>, bits: &mut Bits, scratch: &mut Scratch) {
        scratch.holds.copy_from(&self.free);
        self.names.add(tool.name, scratch);
        self.published.add(tool.published, scratch);
        bits.and(&scratch.holds);
    }

    /// The rules with a pattern that matches the tool. Rules without patterns are excluded.
    pub(super) fn match_tool(&self, tool: Traits<'_>, bits: &mut Bits, scratch: &mut Scratch) {
        scratch.holds.clear();
        self.names.add(tool.name, scratch);
        self.published.add(tool.published, scratch);
        bits.copy_from(&scratch.holds);
    }
}

/// A set of rules by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// Both sets must have the same size.
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
