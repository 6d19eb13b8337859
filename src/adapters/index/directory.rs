//! A local list of the tools and servers in an index, with their visibility.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::contents::CanonicalContents;
use super::merged::{Merged, Scored};
use crate::domain::access::visibility::{Scope, Visibility, VisibilityClass};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::ports::{Coverage, IndexCandidate, IndexServerScore};

/// A tool in the index.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) tool: ToolId,
    pub(super) class: u32,
    /// Whether the tool has a dense vector.
    pub(super) embedded: bool,
}

impl Point {
    pub(super) const fn class(&self) -> VisibilityClass {
        VisibilityClass(self.class)
    }
}

/// A server in the index, which has a vector and a class.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ServerPoint {
    pub(super) server: ServerName,
    /// The visibility classes of the server's tools.
    pub(super) classes: Vec<u32>,
}

/// All tools of an index in order of position, followed by all servers.
pub(super) struct Directory {
    points: Vec<Point>,
    servers: Vec<ServerPoint>,
    /// The servers and classes of the tools.
    names: BTreeSet<ServerName>,
    classes: BTreeSet<VisibilityClass>,
    /// The number of tools with a dense vector.
    embedded: usize,
}

/// The part of an index that a view may see.
pub(super) enum Restriction {
    Nothing,
    Everything,
    Some(Values),
}

/// The permitted servers and classes of a point; `None` permits all. At least one is not `None`.
pub(super) struct Values {
    pub(super) servers: Option<Vec<String>>,
    pub(super) classes: Option<Vec<u32>>,
}

impl Directory {
    pub(super) fn new(points: Vec<Point>, servers: Vec<ServerPoint>) -> Self {
        let names = points.iter().map(|point| point.tool.server.clone()).collect();
        let classes = points.iter().map(Point::class).collect();
        let embedded = points.iter().filter(|point| point.embedded).count();
        Self { points, servers, names, classes, embedded }
    }

    pub(super) fn of(contents: &CanonicalContents) -> Self {
        let (points, servers) = points(contents);
        Self::new(points, servers)
    }

    /// Number of tools.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// The number of tools with a dense vector.
    pub(super) fn embedded(&self) -> usize {
        self.embedded
    }

    /// The tools, in order.
    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// The servers, in order.
    pub(super) fn servers(&self) -> &[ServerPoint] {
        &self.servers
    }

    /// The tool at a position.
    pub(super) fn tool(&self, point: usize) -> &ToolId {
        &self.points[point].tool
    }

    /// The position of a tool. Positions are in the order of the tools.
    pub(super) fn position(&self, tool: &ToolId) -> Option<usize> {
        self.points.binary_search_by(|point| point.tool.cmp(tool)).ok()
    }

    /// The number of the caller's visible tools, and how many have a dense vector.
    pub(super) fn coverage(&self, visibility: &Visibility) -> Coverage {
        if self.embedded == self.points.len() {
            return Coverage { tools: self.embedded, embedded: self.embedded };
        }
        let visible = (0..self.len()).filter(|&point| self.is_visible(point, visibility));
        visible.fold(Coverage::default(), |sum, point| Coverage {
            tools: sum.tools + 1,
            embedded: sum.embedded + usize::from(self.is_embedded(point)),
        })
    }

    pub(super) fn is_embedded(&self, point: usize) -> bool {
        self.points.get(point).is_some_and(|point| point.embedded)
    }

    pub(super) fn restriction(&self, visibility: &Visibility) -> Restriction {
        let (Ok(servers), Ok(classes)) = (allowed(&self.names, &visibility.servers), allowed(&self.classes, &visibility.classes)) else {
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

    /// Converts points to candidates. The query already filters by visibility; this second check is cheap and ensures that a
    /// damaged engine can hide a tool but never reveal one.
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

    /// The positions of servers with at least one visible tool.
    pub(super) fn visible_servers(&self, visibility: &Visibility) -> Vec<usize> {
        let visible = self.servers.iter().zip(self.points.len()..).filter(|(server, _)| server.is_visible(visibility));
        visible.map(|(_, position)| position).collect()
    }

    /// The best score of each visible server, checked a second time as for tools.
    pub(super) fn server_scores(&self, found: impl IntoIterator<Item = Scored>, visibility: &Visibility) -> Vec<IndexServerScore> {
        let mut best: Vec<Option<f32>> = vec![None; self.servers.len()];
        for (position, score) in found {
            let place = position.checked_sub(self.points.len());
            if let Some(best) = place.and_then(|place| best.get_mut(place)) {
                *best = Some(best.map_or(score, |known| known.max(score)));
            }
        }
        let visible = self.servers.iter().zip(best).filter(|(server, _)| server.is_visible(visibility));
        visible.filter_map(|(server, best)| Some(IndexServerScore { server: server.server.clone(), dense: best? })).collect()
    }
}

impl ServerPoint {
    fn is_visible(&self, visibility: &Visibility) -> bool {
        let allowed = |class: &u32| visibility.classes.contains(&VisibilityClass(*class));
        visibility.servers.contains(&self.server) && self.classes.iter().any(allowed)
    }
}

/// Lists the tools and servers of these contents, in order.
pub(super) fn points(contents: &CanonicalContents) -> (Vec<Point>, Vec<ServerPoint>) {
    let tools = contents.documents.iter().map(|document| Point {
        tool: document.tool.clone(),
        class: document.class.0,
        embedded: !document.dense.is_empty(),
    });
    let servers = contents
        .servers
        .iter()
        .map(|server| ServerPoint { server: server.server.clone(), classes: server.classes.iter().map(|class| class.0).collect() });
    (tools.collect(), servers.collect())
}

/// The permitted values that occur in the index: `Ok(None)` if all do, `Err` if none does.
fn allowed<T: Ord + Clone>(occurring: &BTreeSet<T>, scope: &Scope<T>) -> Result<Option<Vec<T>>, ()> {
    let Scope::Only(values) = scope else { return Ok(None) };
    let left: Vec<T> = occurring.intersection(values).cloned().collect();
    match left.len() {
        0 => Err(()),
        all if all == occurring.len() => Ok(None),
        _ => Ok(Some(left)),
    }
}
