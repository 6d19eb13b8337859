//! Case-sensitive name patterns: `*` matches any text, `?` one character, and `[ab]` and `{one,two}` are alternatives.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobBuilder, GlobSet};
use indexmap::IndexMap;
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSlice as _;
use regex_automata::meta::{self, Regex};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

use crate::domain::access::principal::caller_pattern;
use crate::domain::catalog::naming;
use crate::domain::catalog::tool::{OperationId, ServerName, ToolId};
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

/// Whether a pattern is the name itself.
pub(crate) fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', '{', '\\'])
}

/// Separates server and tool in published names. Patterns that contain it are matched against published names.
const PUBLISHED: &str = "__";

/// Takes the place of the separator in published names, and in patterns for them. So a pattern can't take `__` inside a tool's own name
/// for the separator.
const BOUNDARY: char = '\u{1}';

/// Maximum number of places in a pattern that may be the separator. Server names hardly ever contain `__`.
const MOST_PLACES: usize = 16;

/// Maximum size of a regular expression over characters, in bytes.
const MAX_REGEX_BYTES: usize = 10 << 20;

/// Maximum number of patterns that are compiled together.
const MOST_TOGETHER: usize = 1_000;

/// Compiled patterns. The size of one set is limited, so many or long patterns become several sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternSet {
    /// Each set, with the position of its first pattern. `?` and `[ab]` match one byte.
    sets: Vec<(usize, GlobSet)>,
    /// The patterns with `?` or `[ab]`, for names with characters of several bytes.
    characters: Characters,
}

impl PatternSet {
    /// Compiles patterns that [`glob`] has parsed.
    pub(crate) fn new(globs: &[Glob]) -> Self {
        let sets = globs.par_chunks(MOST_TOGETHER).enumerate().flat_map_iter(|(number, globs)| {
            let mut sets = Vec::new();
            in_parts(number * MOST_TOGETHER, globs, &|globs: &[Glob]| GlobSet::new(globs).ok(), &mut sets);
            sets
        });
        Self { sets: sets.collect(), characters: Characters::new(globs) }
    }

    fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(crate) fn is_match(&self, name: &str) -> bool {
        if self.characters.apply_to(name) {
            return !self.matches(name).is_empty();
        }
        self.sets.iter().any(|(_, set)| set.is_match(name))
    }

    /// The positions of the patterns that match.
    pub(crate) fn matches(&self, name: &str) -> Vec<usize> {
        let mut found = Vec::new();
        self.matches_into(name, &mut found);
        found
    }

    fn matches_into(&self, name: &str, found: &mut Vec<usize>) {
        found.clear();
        match &self.sets[..] {
            [] => {}
            [(_, only)] => only.matches_into(name, found),
            sets => found.extend(sets.iter().flat_map(|(first, set)| set.matches(name).into_iter().map(move |position| first + position))),
        }
        if self.characters.apply_to(name) {
            self.characters.correct(name, found);
        }
    }
}

/// Compiles patterns together, or in parts if they are too large together. Each part has the position of its first pattern.
fn in_parts<P, C>(first: usize, patterns: &[P], compile: &impl Fn(&[P]) -> Option<C>, parts: &mut Vec<(usize, C)>) {
    if let Some(compiled) = compile(patterns) {
        parts.push((first, compiled));
    } else if patterns.len() > 1 {
        // Without any of them, a rule would silently not apply. One pattern of at most `MAX_BYTES` is never too large.
        let (some, others) = patterns.split_at(patterns.len() / 2);
        in_parts(first, some, compile, parts);
        in_parts(first + some.len(), others, compile, parts);
    }
}

/// Patterns that count characters, as regular expressions over characters. Most names are ASCII, so they are compiled only when needed.
#[derive(Clone, Debug, Default)]
struct Characters {
    /// The positions of the patterns in ascending order, with their expressions.
    patterns: Arc<[(usize, String)]>,
    /// The compiled expressions, each with the index of its first pattern.
    compiled: OnceLock<Arc<[(usize, Regex)]>>,
}

impl Characters {
    fn new(globs: &[Glob]) -> Self {
        let counting = globs.iter().enumerate().filter(|(_, glob)| glob.glob().contains(['?', '[']));
        Self { patterns: counting.map(|(position, glob)| (position, over_characters(glob))).collect(), compiled: OnceLock::new() }
    }

    fn apply_to(&self, name: &str) -> bool {
        !self.patterns.is_empty() && !name.is_ascii()
    }

    /// Replaces the positions of these patterns in `found` by those that match the name's characters.
    fn correct(&self, name: &str, found: &mut Vec<usize>) {
        found.retain(|position| self.patterns.binary_search_by_key(position, |(position, _)| *position).is_err());
        let compiled = self.compiled.get_or_init(|| {
            let mut compiled = Vec::new();
            for (number, patterns) in self.patterns.chunks(MOST_TOGETHER / 10).enumerate() {
                in_parts(number * (MOST_TOGETHER / 10), patterns, &compile, &mut compiled);
            }
            compiled.into()
        });
        for (first, regex) in compiled.iter() {
            let mut matching = regex_automata::PatternSet::new(regex.pattern_len());
            regex.which_overlapping_matches(&Input::new(name), &mut matching);
            found.extend(matching.iter().map(|pattern| self.patterns[first + pattern.as_usize()].0));
        }
        found.sort_unstable();
    }
}

/// Compiles patterns over characters, each with its position, into one expression. `None` if they are too large together.
fn compile(patterns: &[(usize, String)]) -> Option<Regex> {
    let texts: Vec<&str> = patterns.iter().map(|(_, text)| text.as_str()).collect();
    let config =
        meta::Config::new().match_kind(MatchKind::All).nfa_size_limit(Some(MAX_REGEX_BYTES)).hybrid_cache_capacity(MAX_REGEX_BYTES);
    let syntax = syntax::Config::new().dot_matches_new_line(true);
    Regex::builder().configure(config).syntax(syntax).build_many(&texts).ok()
}

/// The regular expression of a pattern, over characters. That of `globset` is over bytes, and contains the bytes of non-ASCII characters
/// as escapes.
fn over_characters(glob: &Glob) -> String {
    let regex = glob.regex();
    let mut rest = regex.strip_prefix("(?-u)").unwrap_or(regex);
    let (mut characters, mut bytes) = (String::with_capacity(rest.len()), Vec::new());
    while let Some(first) = rest.chars().next() {
        let escape = rest.strip_prefix("\\x").and_then(|rest| u8::from_str_radix(rest.get(..2)?, 16).ok());
        if let Some(byte) = escape {
            bytes.push(byte);
            rest = &rest[4..];
            continue;
        }
        characters.push_str(&String::from_utf8_lossy(&std::mem::take(&mut bytes)));
        // An escape's second character begins no other escape.
        let length = if first == '\\' { 2 } else { first.len_utf8() };
        let (this, others) = rest.split_at_checked(length).unwrap_or((rest, ""));
        characters.push_str(this);
        rest = others;
    }
    characters
}

/// The patterns of one condition. One matching pattern is enough; without patterns, the condition always holds.
#[derive(Clone, Debug, Default)]
pub(in crate::domain::access) struct Patterns {
    is_free: bool,
    set: PatternSet,
}

impl Patterns {
    pub(in crate::domain::access) fn new(texts: &[String]) -> Self {
        Self { is_free: texts.is_empty(), set: set(texts.iter()) }
    }

    pub(in crate::domain::access) fn hold(&self, names: impl IntoIterator<Item: AsRef<str>>) -> bool {
        self.is_free || names.into_iter().any(|name| self.set.is_match(name.as_ref()))
    }
}

/// Patterns of callers. In names that contain an e-mail address, case doesn't count. Other names match as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerPatterns {
    written: PatternSet,
    /// The same patterns in lower case, in the same order, for names with an address; `None` if no pattern changes.
    lower: Option<PatternSet>,
}

impl CallerPatterns {
    /// Compiles patterns that [`glob`] can parse.
    pub(crate) fn new<T: AsRef<str>>(texts: &[T]) -> Self {
        let in_lower_case = |text: &str| glob(&caller_pattern(text));
        let changes = texts.iter().map(AsRef::as_ref).any(|text| *caller_pattern(text) != *text);
        let lower = changes.then(|| {
            // A range such as `[Z-a]` has no form in lower case.
            let globs = texts.iter().map(AsRef::as_ref).filter_map(|text| in_lower_case(text).or_else(|_| glob(text)).ok());
            PatternSet::new(&globs.collect::<Vec<Glob>>())
        });
        Self { written: set(texts.iter()), lower }
    }

    pub(in crate::domain::access) fn is_match(&self, name: &str) -> bool {
        self.of(name).is_match(name)
    }

    /// The positions of the patterns that match.
    pub(crate) fn matches(&self, name: &str) -> Vec<usize> {
        self.of(name).matches(name)
    }

    fn of(&self, name: &str) -> &PatternSet {
        self.lower.as_ref().filter(|_| name.contains('@')).unwrap_or(&self.written)
    }
}

/// Compiles the patterns. Invalid ones were rejected earlier.
fn set(texts: impl Iterator<Item: AsRef<str>>) -> PatternSet {
    PatternSet::new(&texts.filter_map(|text| glob(text.as_ref()).ok()).collect::<Vec<Glob>>())
}

/// What `__` in the patterns of a condition may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain::access) enum Reach {
    /// Only the separator between server and tool in published names. For conditions that may allow something: servers name their tools as
    /// they like, and one could name a tool like the published name of another server's.
    Separator,
    /// Also `__` in the tools' own names. For conditions that block something.
    Anywhere,
}

/// The texts that have to be compiled for one pattern of tools' names.
#[derive(Debug, Default)]
struct Variants<'a> {
    /// Matched against tools' own names.
    own: Option<Cow<'a, str>>,
    /// Matched against published names.
    published: Option<&'a str>,
    /// Matched against published names whose separator is [`BOUNDARY`].
    split: Vec<String>,
}

impl<'a> Variants<'a> {
    fn of(text: &'a str, reach: Reach) -> Self {
        if !text.contains(PUBLISHED) {
            return Self { own: Some(text.into()), ..Self::default() };
        }
        if reach == Reach::Anywhere {
            return Self { own: Some(text.into()), published: Some(text), split: Vec::new() };
        }
        let places = (0..text.len()).filter(|place| text.as_bytes()[*place..].starts_with(PUBLISHED.as_bytes())).take(MOST_PLACES);
        let split = places.map(|place| format!("{}{BOUNDARY}{}", &text[..place], &text[place + PUBLISHED.len()..])).collect();
        // An alternative without `__`, as in `{git__push,send}`, means tools' own names.
        let own = text.contains('{').then(|| text.replace(PUBLISHED, BOUNDARY.encode_utf8(&mut [0; 4])).into());
        Self { own, published: None, split }
    }
}

/// Writes a published name with [`BOUNDARY`] as its separator.
fn write_split(published: &str, server: &ServerName, out: &mut String) {
    out.clear();
    match naming::split(published, server.as_str()) {
        Some((of_server, of_tool)) => {
            out.push_str(of_server);
            out.push(BOUNDARY);
            out.push_str(of_tool);
        }
        // All of it comes from the server's name, which is too long.
        None => out.push_str(&published.replacen(PUBLISHED, BOUNDARY.encode_utf8(&mut [0; 4]), 1)),
    }
}

/// A tool's own name, which could contain any character.
fn own(name: &str) -> Cow<'_, str> {
    if name.contains(BOUNDARY) { name.replace(BOUNDARY, "\u{fffd}").into() } else { name.into() }
}

/// The patterns of one condition on tools' names. Without patterns, the condition always holds.
#[derive(Debug)]
pub(in crate::domain::access) struct ToolPatterns {
    is_free: bool,
    own: PatternSet,
    published: PatternSet,
    split: PatternSet,
}

impl ToolPatterns {
    pub(in crate::domain::access) fn new(texts: &[String], reach: Reach) -> Self {
        let variants: Vec<Variants<'_>> = texts.iter().map(|text| Variants::of(text, reach)).collect();
        Self {
            is_free: texts.is_empty(),
            own: set(variants.iter().filter_map(|variants| variants.own.as_ref())),
            published: set(variants.iter().filter_map(|variants| variants.published)),
            split: set(variants.iter().flat_map(|variants| &variants.split)),
        }
    }

    pub(in crate::domain::access) fn hold(&self, id: &ToolId, published: &OperationId) -> bool {
        if self.is_free || self.own.is_match(&own(&id.name)) || self.published.is_match(published.as_str()) {
            return true;
        }
        if self.split.is_empty() {
            return false;
        }
        let mut split = String::new();
        write_split(published.as_str(), &id.server, &mut split);
        self.split.is_match(&split)
    }
}

/// The patterns of many rules, compiled together. Finds the rules that match a name.
#[derive(Clone, Debug, Default)]
struct Matcher {
    set: PatternSet,
    /// For each pattern in the set, the rules that contain it.
    rules: Vec<Arc<[usize]>>,
}

impl Matcher {
    fn new<T: AsRef<str>>(patterns: &IndexMap<T, Vec<usize>>) -> Self {
        let (globs, rules): (Vec<Glob>, Vec<Arc<[usize]>>) =
            patterns.iter().filter_map(|(text, rules)| Some((glob(text.as_ref()).ok()?, rules.as_slice().into()))).unzip();
        Self { set: PatternSet::new(&globs), rules }
    }

    fn add(&self, name: &str, Scratch { holds, found, .. }: &mut Scratch) {
        self.set.matches_into(name, found);
        for rule in found.iter().flat_map(|&pattern| self.rules[pattern].iter()) {
            holds.set(*rule);
        }
    }
}

/// One kind of condition, such as `servers`, for many rules at once.
#[derive(Clone, Debug, Default)]
pub(in crate::domain::access) struct Conditions {
    names: Matcher,
    /// Rules without this condition.
    free: Bits,
}

/// The conditions on the names of tools, for many rules at once.
#[derive(Clone, Debug, Default)]
pub(in crate::domain::access) struct ToolConditions {
    own: Matcher,
    published: Matcher,
    /// Matches published names whose separator is [`BOUNDARY`].
    split: Matcher,
    free: Bits,
}

/// Buffers that are reused for every tool.
#[derive(Debug)]
pub(in crate::domain::access) struct Scratch {
    holds: Bits,
    found: Vec<usize>,
    name: String,
}

impl Scratch {
    pub(in crate::domain::access) fn new(rules: usize) -> Self {
        Self { holds: Bits::new(rules), found: Vec::new(), name: String::new() }
    }
}

impl Conditions {
    pub(in crate::domain::access) fn new<'a>(rules: impl Iterator<Item = &'a [String]>, count: usize) -> Self {
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
        Self { names: Matcher::new(&patterns), free }
    }

    /// Removes from `bits` the rules whose condition matches none of the names.
    pub(in crate::domain::access) fn keep<'a>(&self, names: impl IntoIterator<Item = &'a str>, bits: &mut Bits, scratch: &mut Scratch) {
        self.hold(names, scratch);
        bits.and(&scratch.holds);
    }

    /// The rules whose condition matches at least one of the names, and the rules without this condition.
    pub(in crate::domain::access) fn of<'a>(&self, names: impl IntoIterator<Item = &'a str>, scratch: &mut Scratch) -> Bits {
        self.hold(names, scratch);
        scratch.holds.clone()
    }

    fn hold<'a>(&self, names: impl IntoIterator<Item = &'a str>, scratch: &mut Scratch) {
        scratch.holds.copy_from(&self.free);
        for name in names {
            self.names.add(name, scratch);
        }
    }
}

impl ToolConditions {
    pub(in crate::domain::access) fn new<'a>(rules: impl Iterator<Item = (&'a [String], Reach)>, count: usize) -> Self {
        let mut own: IndexMap<Cow<'_, str>, Vec<usize>> = IndexMap::new();
        let mut published: IndexMap<&str, Vec<usize>> = IndexMap::new();
        let mut split: IndexMap<String, Vec<usize>> = IndexMap::new();
        let mut free = Bits::new(count);
        for (number, (texts, reach)) in rules.enumerate() {
            if texts.is_empty() {
                free.set(number);
            }
            for variants in texts.iter().map(|text| Variants::of(text, reach)) {
                variants.own.into_iter().for_each(|text| own.entry(text).or_default().push(number));
                variants.published.into_iter().for_each(|text| published.entry(text).or_default().push(number));
                variants.split.into_iter().for_each(|text| split.entry(text).or_default().push(number));
            }
        }
        Self { own: Matcher::new(&own), published: Matcher::new(&published), split: Matcher::new(&split), free }
    }

    /// Removes from `bits` the rules whose condition matches neither the own nor the published name of a tool.
    pub(in crate::domain::access) fn keep(&self, server: &ServerName, tool: Traits<'_>, bits: &mut Bits, scratch: &mut Scratch) {
        scratch.holds.copy_from(&self.free);
        self.add(server, tool, scratch);
        bits.and(&scratch.holds);
    }

    /// Sets `bits` to the rules with a pattern that matches the tool. Excludes rules without patterns.
    pub(in crate::domain::access) fn find(&self, server: &ServerName, tool: Traits<'_>, bits: &mut Bits, scratch: &mut Scratch) {
        scratch.holds.clear();
        self.add(server, tool, scratch);
        bits.copy_from(&scratch.holds);
    }

    fn add(&self, server: &ServerName, tool: Traits<'_>, scratch: &mut Scratch) {
        self.own.add(&own(tool.name), scratch);
        self.published.add(tool.published, scratch);
        if !self.split.set.is_empty() {
            let mut name = std::mem::take(&mut scratch.name);
            write_split(tool.published, server, &mut name);
            self.split.add(&name, scratch);
            scratch.name = name;
        }
    }
}

/// A set of rule numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::domain::access) struct Bits(Vec<u64>);

impl Bits {
    pub(in crate::domain::access) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(in crate::domain::access) fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// Copies another set, which must have the same size.
    pub(in crate::domain::access) fn copy_from(&mut self, other: &Self) {
        self.0.copy_from_slice(&other.0);
    }

    pub(in crate::domain::access) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(in crate::domain::access) fn or(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    pub(in crate::domain::access) fn and_not(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
    }

    pub(in crate::domain::access) fn and(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// The numbers in ascending order.
    pub(in crate::domain::access) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
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

#[cfg(test)]
mod tests {
    use super::{CallerPatterns, MOST_TOGETHER, PatternSet, glob};

    fn set(patterns: &[&str]) -> PatternSet {
        PatternSet::new(&patterns.iter().map(|pattern| glob(pattern).unwrap()).collect::<Vec<_>>())
    }

    /// Regression test: `?` and `[ab]` matched one byte of a character.
    #[test]
    fn a_question_mark_is_one_character() {
        for (pattern, name, expected) in [
            ("m?ller", "müller", true),
            ("m??ller", "müller", false),
            ("?", "時", true),
            ("???", "時", false),
            ("??", "🕐b", true),
            ("a?b", "a\nb", true),
            ("m[uü]ller", "müller", true),
            ("m[!u]ller", "müller", true),
            ("m[à-ü]ller", "müller", true),
            ("m[à-ä]ller", "müller", false),
            ("[日時]間*", "時間を", true),
            ("{m?ller,x}\\?ä*", "müller?äöü", true),
            ("{m?ller,x}.ä", "müller-ä", false),
            ("m*ller", "müller", true),
            ("\\[?", "[ü", true),
            ("\\\\?", "\\ü", true),
            ("?xc3", "üxc3", true),
        ] {
            let set = set(&["other", pattern, "*none"]);
            assert_eq!(set.is_match(name), expected, "{pattern} {name}");
            assert_eq!(set.matches(name), if expected { vec![1] } else { vec![] }, "{pattern} {name}");
        }
        // Those that count no characters keep their places.
        assert_eq!(set(&["*ü*", "?", "m?ller", "müller", "m*"]).matches("müller"), [0, 2, 3, 4]);
    }

    #[test]
    fn case_counts_in_names_without_an_address() {
        let patterns = CallerPatterns::new(&["user:{U1,anna@Example.org}", "user:[Z-a]?@x.org", "user:U*"]);
        for (name, expected) in [
            ("user:U1", vec![0, 2]),
            ("user:u1", vec![]),
            ("user:anna@example.org", vec![0]),
            ("user:ab@x.org", vec![1]),
            ("user:Uwe@example.org", vec![2]),
        ] {
            assert_eq!((patterns.matches(name), patterns.is_match(name)), (expected.clone(), !expected.is_empty()), "{name}");
        }
        assert!(CallerPatterns::new(&["user:U*", "user:*@example.org"]).lower.is_none());
    }

    /// Regression: patterns that were too large together all matched nothing, so that their rules silently did not apply.
    #[test]
    fn many_long_patterns_still_match() {
        let long = (0..998).map(|number| format!("{}{number}*[a-z]", "?".repeat(490)));
        let short = (0..=MOST_TOGETHER).map(|number| format!("*tool{number}"));
        let texts: Vec<String> = ["plain".to_owned()].into_iter().chain(long).chain(short).collect();
        let globs: Vec<_> = texts.iter().map(|text| glob(text).unwrap()).collect();
        let set = PatternSet::new(&globs);
        assert!(set.sets.len() > 2, "the first thousand are too large for one set");
        let name = format!("{}7_x", "a".repeat(490));
        for (name, expected) in [("plain", vec![0]), (name.as_str(), vec![8]), ("a_tool1000", vec![999 + 1_000]), ("other", vec![])] {
            assert_eq!((set.matches(name), set.is_match(name)), (expected.clone(), !expected.is_empty()), "{name}");
        }
    }
}
