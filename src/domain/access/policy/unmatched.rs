//! Patterns of rules and toolsets that match nothing, such as misspelled names.

use std::iter::once;
use std::slice;
use std::sync::Arc;

use crate::domain::access::policy::toolsets::CompiledToolsets;
use crate::domain::access::rule::Rule;
use crate::domain::access::rule::pattern::{Patterns, Reach, ToolPatterns};
use crate::domain::access::toolset::ToolsetDefinition;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::Tool;
use crate::domain::text::similar::did_you_mean;

/// The servers and tools that patterns can match.
#[derive(Clone, Copy, Debug)]
pub struct Matchable<'a> {
    /// Includes servers whose tools are unknown.
    pub servers: &'a [&'a str],
    pub catalog: &'a Catalog,
}

impl Rule {
    /// The patterns of servers, tools and tags that match nothing, each in a sentence.
    pub fn unmatched(&self, known: Matchable<'_>) -> Vec<String> {
        let tools = known.tools_of("tools", &self.tools, self.effect.reach());
        [known.servers_of(&self.servers), tools, known.tags_of(&self.tags)].concat()
    }
}

impl ToolsetDefinition {
    /// The patterns of servers, tools and tags that match nothing, each in a sentence.
    pub fn unmatched(&self, known: Matchable<'_>) -> Vec<String> {
        let exclude = known.tools_of("exclude", &self.exclude, Reach::Anywhere);
        [self.conditions().unmatched(known), exclude, known.tools_of("always", &self.always, Reach::Separator)].concat()
    }
}

impl CompiledToolsets {
    /// The toolsets without tools.
    pub fn empty(&self, catalog: &Catalog) -> Vec<&ToolsetName> {
        let has = |name: &ToolsetName| catalog.tools().iter().any(|tool| self.names_of(tool).contains(&name.as_str()));
        self.iter().map(|(name, _)| name).filter(|name| !has(name)).collect()
    }
}

impl Matchable<'_> {
    fn servers_of(&self, patterns: &[String]) -> Vec<String> {
        let none = patterns.iter().filter(|pattern| !Patterns::new(slice::from_ref(*pattern)).hold(self.servers));
        none.map(|pattern| format!("servers: `{pattern}` matches no server{}", did_you_mean(pattern, self.servers.iter().copied())))
            .collect()
    }

    fn tools_of(&self, condition: &str, patterns: &[String], reach: Reach) -> Vec<String> {
        let is_unmatched = |pattern: &&String| {
            let patterns = ToolPatterns::new(slice::from_ref(*pattern), reach);
            !self.tools().any(|tool| patterns.hold(&tool.id, &tool.operation_id))
        };
        let names = || self.tools().flat_map(|tool| once(tool.operation_id.as_str()).chain(once(&*tool.id.name)));
        let sentence = |pattern: &String| format!("{condition}: `{pattern}` matches no current tool{}", did_you_mean(pattern, names()));
        patterns.iter().filter(is_unmatched).map(sentence).collect()
    }

    fn tags_of(&self, patterns: &[String]) -> Vec<String> {
        let is_unmatched = |pattern: &&String| {
            let patterns = Patterns::new(slice::from_ref(*pattern));
            !self.tools().any(|tool| patterns.hold(tool.hints.tags()))
        };
        let tags = || self.tools().flat_map(|tool| tool.hints.tags());
        let sentence = |pattern: &String| format!("tags: no current tool has a tag `{pattern}`{}", did_you_mean(pattern, tags()));
        patterns.iter().filter(is_unmatched).map(sentence).collect()
    }

    /// All tools, including those that are switched off.
    fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.catalog.tools().iter().chain(self.catalog.disabled())
    }
}
