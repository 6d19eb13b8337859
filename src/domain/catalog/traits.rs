//! The attributes of tools that rules and toolsets match, except the server.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ahash::RandomState;

use crate::domain::catalog::tool::Tool;

/// The attributes of one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct Traits<'a> {
    pub(in crate::domain) name: &'a str,
    pub(in crate::domain) published: &'a str,
    /// The values of its hints as a number below [`COMBINATIONS`](crate::domain::catalog::hints::COMBINATIONS).
    pub(in crate::domain) hints: usize,
    pub(in crate::domain) tags: &'a [Box<str>],
}

impl<'a> Traits<'a> {
    pub(in crate::domain) fn of(tool: &'a Tool) -> Self {
        Self { name: &tool.id.name, published: tool.operation_id.as_str(), hints: tool.hints.combination(), tags: tool.hints.tag_list() }
    }
}

/// Struct-of-arrays copy of all tools' attributes: walking `Arc<Tool>`s would miss the cache several times per tool.
#[derive(Debug, Default)]
pub struct TraitTable {
    /// The raw and the published name of each tool, concatenated.
    names: String,
    rows: Vec<Row>,
    /// All distinct tag lists. Many tools have the same tags.
    tags: Vec<Box<[Box<str>]>>,
}

#[derive(Debug)]
struct Row {
    /// The tool's names, as a range in `names`.
    name: Range<usize>,
    published: Range<usize>,
    hints: usize,
    /// The tool's tag list, as a position in `tags`.
    tags: usize,
}

impl TraitTable {
    /// Builds the table in catalog order.
    pub fn of(tools: &[Arc<Tool>]) -> Self {
        let (mut names, mut tags) = (String::new(), Vec::new());
        let mut known: HashMap<&[Box<str>], usize, RandomState> = HashMap::default();
        let rows = tools.iter().map(|tool| {
            let Traits { name, published, hints, tags: own } = Traits::of(tool);
            let mut add = |name: &str| {
                let begin = names.len();
                names.push_str(name);
                begin..names.len()
            };
            let number = *known.entry(own).or_insert_with(|| {
                tags.push(own.into());
                tags.len() - 1
            });
            Row { name: add(name), published: add(published), hints, tags: number }
        });
        let rows = rows.collect();
        Self { names, rows, tags }
    }

    /// The tools at these positions: each with its position, its attributes and the position of its tag list. Tools with the same
    /// tags share a tag list.
    pub(in crate::domain) fn at(&self, places: Range<usize>) -> impl Iterator<Item = (usize, Traits<'_>, usize)> {
        let rows = self.rows.get(places.clone()).unwrap_or_default();
        places.zip(rows).map(|(place, row)| {
            let (name, published) = (&self.names[row.name.clone()], &self.names[row.published.clone()]);
            (place, Traits { name, published, hints: row.hints, tags: &self.tags[row.tags] }, row.tags)
        })
    }
}
