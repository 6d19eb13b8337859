//! Which tools an index holds and who may see them: what is known without asking an engine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::merged::Merged;
use crate::domain::principal::{Scope, Visibility, VisibilityClass};
use crate::domain::tool::{ServerName, ToolId};
use crate::service::ports::{IndexCandidate, IndexDocument};

/// One tool of an index.
#[derive(Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) tool: ToolId,
    pub(super) class: u32,
    /// Whether it has a dense vector.
    pub(super) embedded: bool,
}

impl Point {
    pub(super) const fn class(&self) -> VisibilityClass {
        VisibilityClass(self.class)
    }
}

/// All tools of an index, by position.
pub(super) struct Directory {
    pub(super) points: Vec<Point>,
    servers: BTreeSet<ServerName>,
    classes: BTreeSet<VisibilityClass>,
}

/// What a view leaves of an index.
pub(super) enum Restriction {
    Nothing,
    Everything,
    Some(Values),
}

/// Values of which a point must have one each; `None` is no condition. One of them is a condition.
pub(super) struct Values {
    pub(super) servers: Option<Vec<String>>,
    pub(super) classes: Option<Vec<u32>>,
}

impl Directory {
    pub(super) fn new(points: Vec<Point>) -> Self {
        let servers = points.iter().map(|point| point.tool.server.clone()).collect();
        let classes = points.iter().map(Point::class).collect();
        Self { points, servers, classes }
    }

    pub(super) fn of(documents: &[IndexDocument]) -> Self {
        let point =
            |document: &IndexDocument| Point { tool: document.tool.clone(), class: document.class.0, embedded: !document.dense.is_empty() };
        Self::new(documents.iter().map(point).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// How many tools have a dense vector.
    pub(super) fn embedded(&self) -> usize {
        self.points.iter().filter(|point| point.embedded).count()
    }

    pub(super) fn is_embedded(&self, point: usize) -> bool {
        self.points.get(point).is_some_and(|point| point.embedded)
    }

    pub(super) fn restriction(&self, visibility: &Visibility) -> Restriction {
        let (Ok(servers), Ok(classes)) = (allowed(&self.servers, &visibility.servers), allowed(&self.classes, &visibility.classes)) else {
            return Restriction::Nothing;
        };
        if servers.is_none() && classes.is_none() {
            return Restriction::Everything;
        }
        let servers = servers.map(|servers| servers.into_iter().map(|server| server.as_str().to_owned()).collect());
        let classes = classes.map(|classes| classes.into_iter().map(|class| class.0).collect());
        Restriction::Some(Values { servers, classes })
    }

    pub(super) fn is_visible(&self, point: usize, visibility: &Visibility) -> bool {
        let point = self.points.get(point);
        point.is_some_and(|point| visibility.servers.contains(&point.tool.server) && visibility.classes.contains(&point.class()))
    }

    /// Points become tools. The filter was part of the query; asking again costs nothing and means that damage to
    /// what an engine holds can hide a tool but never show one.
    pub(super) fn candidates(&self, merged: &Merged, visibility: &Visibility) -> Vec<IndexCandidate> {
        let visible = merged.rows().filter(|(point, ..)| self.is_visible(*point, visibility));
        visible
            .map(|(point, dense, lexical)| IndexCandidate {
                tool: self.points[point].tool.clone(),
                dense: dense.to_vec(),
                lexical: lexical.to_vec(),
            })
            .collect()
    }
}

/// What a scope leaves of the values that occur: `Ok(None)` for all of them, `Err` for none.
fn allowed<T: Ord + Clone>(occurring: &BTreeSet<T>, scope: &Scope<T>) -> Result<Option<Vec<T>>, ()> {
    let Scope::Only(values) = scope else { return Ok(None) };
    let left: Vec<T> = occurring.intersection(values).cloned().collect();
    match left.len() {
        0 => Err(()),
        all if all == occurring.len() => Ok(None),
        _ => Ok(Some(left)),
    }
}
