//! A small change of a large layer: a second layer with the new and changed points, searched with the first as if they were one.
//!
//! The points of the large layer that are gone or replaced stay in its engine, which is never written to. They are dropped from
//! what it finds. So every search brings the points and scores of an index that was built from the whole contents.

use std::sync::Arc;

use super::contents::CanonicalContents;
use super::directory::{Directory, Point, ServerPoint};
use super::engine::{Engine, PointFilter};
use super::layer::Layer;
use super::marker::Base;
use super::merged::Scored;
use crate::domain::selection::relevance::SparseVector;
use crate::service::ports::IndexError;

/// Number of removed points that a search asks for in addition. More of them among the best points cost a second search.
const SPARE: usize = 64;

/// How contents differ from those of a layer.
pub(super) struct Change {
    pub(super) base: Arc<Layer>,
    /// The points of the layer that are gone or replaced, ascending.
    pub(super) removed: Vec<u32>,
    /// The new and changed documents and servers.
    pub(super) added: CanonicalContents,
}

impl Change {
    /// `None` if more points changed than `most`, or if their vectors are of another kind.
    pub(super) fn of(base: &Arc<Layer>, contents: &CanonicalContents, most: usize) -> Option<Self> {
        if base.model != *contents.model || base.dimension != contents.dimension {
            return None;
        }
        let (tools, total) = (base.directory.points(), contents.documents.len());
        let known = tools.iter().map(|point| &point.tool).zip(base.hashes.iter().copied());
        let present = contents.documents.iter().map(|document| &document.tool).zip(contents.hashes.iter().copied());
        let (mut removed, documents) = differences(known, present);
        let known = base.directory.servers().iter().map(|point| &point.server).zip(base.hashes.iter().skip(tools.len()).copied());
        let present = contents.servers.iter().map(|server| &server.server).zip(contents.hashes.iter().skip(total).copied());
        let (removed_servers, servers) = differences(known, present);
        removed.extend(removed_servers.into_iter().map(|place| tools.len() + place));
        if removed.len().max(documents.len() + servers.len()) > most {
            return None;
        }
        let removed = removed.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
        Some(Self { base: Arc::clone(base), removed, added: contents.part(&documents, &servers) })
    }

    /// What the marker of the new layer says about the one below it.
    pub(super) fn marked(&self) -> Base {
        let folder = self.base.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Base { folder, contents: self.base.contents.clone(), removed: self.removed.clone() }
    }
}

/// Compares two sorted lists of keys and hashes. Returns the places in the first whose items are gone or changed, and those in the
/// second whose items are new or changed.
fn differences<'a, K: Ord + 'a>(
    known: impl Iterator<Item = (&'a K, u64)>,
    present: impl Iterator<Item = (&'a K, u64)>,
) -> (Vec<usize>, Vec<usize>) {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    let mut known = known.enumerate().peekable();
    for (place, (key, hash)) in present.enumerate() {
        while let Some((former, _)) = known.next_if(|(_, (former, _))| *former < key) {
            gone.push(former);
        }
        match known.next_if(|(_, (former, _))| *former == key) {
            Some((_, (_, former))) if former == hash => {}
            Some((former, _)) => {
                gone.push(former);
                new.push(place);
            }
            None => new.push(place),
        }
    }
    gone.extend(known.map(|(former, _)| former));
    (gone, new)
}

/// Where the points of two layers are in the directory of both.
pub(super) struct Places {
    /// The layer and id of each position.
    at: Vec<Place>,
    /// For each point of a layer, its position or [`REMOVED`].
    of_base: Vec<u32>,
    of_overlay: Vec<u32>,
    removed: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Place {
    Base(u32),
    Overlay(u32),
}

const REMOVED: u32 = u32::MAX;

impl Places {
    /// Lists the points of both layers in the order of a directory of the whole contents. `None` if the base lacks a removed point.
    pub(super) fn of(base: &Directory, removed: &[u32], overlay: &Directory) -> Option<(Directory, Self)> {
        let (tools, servers) = (base.points(), base.servers());
        let mut is_kept = vec![true; tools.len() + servers.len()];
        for point in removed {
            *is_kept.get_mut(*point as usize)? = false;
        }
        let (kept_tools, kept_servers) = is_kept.split_at(tools.len());
        let tools = (0_u32..).map(Place::Base).zip(tools).zip(kept_tools).filter(|(_, is_kept)| **is_kept).map(|(point, _)| point);
        let mut tools: Vec<(Place, &Point)> = tools.chain((0_u32..).map(Place::Overlay).zip(overlay.points())).collect();
        tools.sort_by(|one, other| one.1.tool.cmp(&other.1.tool));
        let ids = |tools: usize| Some(u32::try_from(tools).ok()?..);
        let servers = ids(kept_tools.len())?.map(Place::Base).zip(servers).zip(kept_servers);
        let servers = servers.filter(|(_, is_kept)| **is_kept).map(|(point, _)| point);
        let of_overlay = ids(overlay.len())?.map(Place::Overlay).zip(overlay.servers());
        let mut servers: Vec<(Place, &ServerPoint)> = servers.chain(of_overlay).collect();
        servers.sort_by(|one, other| one.1.server.cmp(&other.1.server));

        let at: Vec<Place> = tools.iter().map(|(place, _)| *place).chain(servers.iter().map(|(place, _)| *place)).collect();
        let mut of_base = vec![REMOVED; is_kept.len()];
        let mut of_overlay = vec![REMOVED; overlay.len() + overlay.servers().len()];
        for (position, place) in (0_u32..).zip(&at) {
            match *place {
                Place::Base(id) => of_base[id as usize] = position,
                Place::Overlay(id) => of_overlay[id as usize] = position,
            }
        }
        let tools = tools.into_iter().map(|(_, point)| point.clone()).collect();
        let servers = servers.into_iter().map(|(_, point)| point.clone()).collect();
        Some((Directory::new(tools, servers), Self { at, of_base, of_overlay, removed: removed.to_vec() }))
    }
}

/// The engine or the two engines of a generation. Points are positions in its directory.
pub(super) struct Engines<'a> {
    pub(super) base: &'a Engine,
    pub(super) overlay: Option<(&'a Engine, &'a Places)>,
}

impl Engines<'_> {
    /// The points with the largest cosines, best first.
    pub(super) fn nearest(&self, query: &[f32], filter: Option<&PointFilter>, limit: usize) -> Result<Vec<Scored>, IndexError> {
        self.best(filter, limit, |engine, filter, limit| engine.nearest(query, filter, limit))
    }

    /// The best points for a weighted query, best first.
    pub(super) fn lexical(&self, query: &SparseVector, filter: Option<&PointFilter>, limit: usize) -> Result<Vec<Scored>, IndexError> {
        self.best(filter, limit, |engine, filter, limit| engine.lexical(query, filter, limit))
    }

    /// The cosines of these points, in no defined order.
    pub(super) fn cosines(&self, query: &[f32], points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        self.exact(points, |engine, points| engine.cosines(query, points))
    }

    /// The cosines of these servers, in no defined order.
    pub(super) fn server_cosines(&self, query: &[f32], points: &[usize]) -> Result<Vec<Scored>, IndexError> {
        self.exact(points, |engine, points| engine.server_cosines(query, points))
    }

    fn best(
        &self,
        filter: Option<&PointFilter>,
        limit: usize,
        search: impl Fn(&Engine, Option<&PointFilter>, usize) -> Result<Vec<Scored>, IndexError>,
    ) -> Result<Vec<Scored>, IndexError> {
        let Some((overlay, places)) = self.overlay else { return search(self.base, filter, limit) };
        let wanted = limit + places.removed.len().min(SPARE);
        let best = search(self.base, filter, wanted)?;
        let are_all = best.len() < wanted;
        let mut found: Vec<Scored> = at(&places.of_base, best).collect();
        if found.len() < limit && !are_all {
            // The engine checks this filter for every point, which costs more.
            let filter = PointFilter::without(filter, &places.removed);
            found = at(&places.of_base, search(self.base, Some(&filter), limit)?).collect();
        }
        // Without new points, the overlay only removes some.
        if !places.of_overlay.is_empty() {
            found.extend(at(&places.of_overlay, search(overlay, filter, limit)?));
        }
        found.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        found.truncate(limit);
        Ok(found)
    }

    fn exact(
        &self,
        points: &[usize],
        scores: impl Fn(&Engine, &[usize]) -> Result<Vec<Scored>, IndexError>,
    ) -> Result<Vec<Scored>, IndexError> {
        let Some((overlay, places)) = self.overlay else { return scores(self.base, points) };
        let (mut of_base, mut of_overlay) = (Vec::with_capacity(points.len()), Vec::new());
        for point in points {
            match places.at.get(*point) {
                Some(Place::Base(id)) => of_base.push(*id as usize),
                Some(Place::Overlay(id)) => of_overlay.push(*id as usize),
                None => {}
            }
        }
        let mut found = Vec::with_capacity(points.len());
        for (engine, ids, positions) in [(self.base, of_base, &places.of_base), (overlay, of_overlay, &places.of_overlay)] {
            if !ids.is_empty() {
                found.extend(at(positions, scores(engine, &ids)?));
            }
        }
        Ok(found)
    }
}

/// Replaces the ids of an engine's points by their positions, and drops removed points.
fn at(positions: &[u32], found: Vec<Scored>) -> impl Iterator<Item = Scored> {
    let position = |id: usize| positions.get(id).copied().filter(|position| *position != REMOVED);
    found.into_iter().filter_map(move |(id, score)| Some((position(id)? as usize, score)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;

    use super::{Change, differences};
    use crate::adapters::index::contents::CanonicalContents;
    use crate::adapters::index::generation::Generation;
    use crate::adapters::index::layer::{Layer, remove};
    use crate::adapters::index::marker::Marker;
    use crate::domain::access::visibility::{Scope, Visibility, VisibilityClass};
    use crate::domain::catalog::tool::{ServerName, ToolId};
    use crate::domain::selection::relevance::SparseVector;
    use crate::service::ports::{IndexAnswer, IndexContents, IndexDocument, IndexQuery, IndexQueryText, IndexServer};

    const MODEL: &str = "m";
    const DIMENSION: usize = 16;

    /// A linear congruential generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(self.0 >> 33).unwrap() % bound
        }

        fn fraction(&mut self) -> f32 {
            self.below(1 << 20) as f32 / (1 << 20) as f32
        }

        /// A unit vector near the first axis, if it leans so much.
        fn vector(&mut self, lean: f32) -> Arc<[f32]> {
            let mut vector: Vec<f32> = (0..DIMENSION).map(|_| self.fraction() - 0.5).collect();
            vector[0] += lean;
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            vector.into_iter().map(|value| value / length).collect()
        }

        fn terms(&mut self, count: u32) -> SparseVector {
            let terms: BTreeMap<u32, f32> = (0..count).map(|_| (self.below(60), 0.2 + self.fraction())).collect();
            let (indices, values) = terms.into_iter().unzip();
            SparseVector { indices, values }
        }

        fn document(&mut self, number: u32, lean: f32) -> IndexDocument {
            let passages = if number % 7 == 6 { 0 } else { 1 + self.below(2) };
            IndexDocument {
                tool: ToolId::new(format!("server-{}", number % 5).as_str(), format!("tool-{number}")),
                class: VisibilityClass(number % 3),
                dense: (0..passages).map(|_| self.vector(lean)).collect(),
                sparse: self.terms(8),
            }
        }

        fn server(&mut self, number: u32) -> IndexServer {
            let classes = (0..3).map(VisibilityClass).collect();
            IndexServer { server: ServerName::from(format!("server-{number}").as_str()), classes, dense: vec![self.vector(0.0)] }
        }

        fn text(&mut self, lean: f32) -> IndexQueryText {
            IndexQueryText { dense: Some(self.vector(lean)), sparse: self.terms(6) }
        }
    }

    fn canonical(documents: &[IndexDocument], servers: &[IndexServer]) -> CanonicalContents {
        let (documents, servers) = (documents.to_vec(), servers.to_vec());
        CanonicalContents::of(IndexContents { model: MODEL.into(), dimension: DIMENSION, documents, servers, ..IndexContents::default() })
    }

    fn layer(folder: &Path, contents: &CanonicalContents) -> Arc<Layer> {
        Arc::new(Layer::build(folder, contents, Marker::of(contents, contents, None), &|_| ()).unwrap())
    }

    fn overlaid(folder: &Path, base: &Arc<Layer>, contents: &CanonicalContents) -> Generation {
        let change = Change::of(base, contents, usize::MAX).unwrap();
        Generation::overlay(folder, change, contents, &|_| ()).unwrap()
    }

    /// The answer in a defined order, as neither list is sorted.
    fn answer(generation: &Generation, texts: &[IndexQueryText], visibility: &Visibility, limit: usize) -> IndexAnswer {
        let mut answer = generation.search(&IndexQuery { texts, visibility, limit, servers: true }).unwrap().unwrap();
        answer.candidates.sort_by(|one, other| one.tool.cmp(&other.tool));
        answer
    }

    fn assert_alike(one: &IndexAnswer, other: &IndexAnswer) {
        let tools = |answer: &IndexAnswer| answer.candidates.iter().map(|candidate| candidate.tool.to_string()).collect::<Vec<_>>();
        assert_eq!(tools(one), tools(other));
        assert!(!one.candidates.is_empty());
        for (one, other) in one.candidates.iter().zip(&other.candidates) {
            assert_eq!(one.dense, other.dense, "{}", one.tool);
            assert!(one.lexical.iter().zip(&other.lexical).all(|(one, other)| (one - other).abs() < 1e-5), "{one:?} {other:?}");
        }
        assert_eq!(one.servers, other.servers);
    }

    #[test]
    fn an_overlay_finds_what_a_full_build_finds() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut random = Random(1);
        // The last 150 lean in one direction, so that a query finds them first.
        let former: Vec<_> = (0..500).map(|number| random.document(number, if number < 350 { 0.0 } else { 2.0 })).collect();
        let servers: Vec<_> = (0..4).map(|number| random.server(number)).collect();
        layer(&path("gen-1"), &canonical(&former, &servers));

        let few: Vec<_> = former.iter().cloned().chain([random.document(900, 0.0)]).collect();
        // Each kind of change: gone, new, and another class, vector or word; more of the leaning ones than a search asks for in addition.
        let mut many: Vec<_> = former[..350].iter().step_by(2).cloned().chain(former[400..406].to_vec()).collect();
        many[0].class = VisibilityClass(2);
        many[1].dense = vec![random.vector(0.0)];
        many[2].sparse = random.terms(8);
        many[3].dense.clear();
        many.extend((1_000..1_040).map(|number| random.document(number, 0.0)));
        let other_servers = [servers[0].clone(), IndexServer { dense: vec![random.vector(0.0)], ..servers[1].clone() }, random.server(4)];
        let fewer: Vec<_> = former[..490].to_vec();

        let rounds = [(few, &servers[..]), (many, &other_servers[..]), (fewer, &servers[..3]), (former.clone(), &servers[..2])];
        for (round, (documents, servers)) in rounds.into_iter().enumerate() {
            let contents = canonical(&documents, servers);
            let whole = Generation::build(&path(&format!("whole-{round}")), &contents, &|_| ()).unwrap();
            let overlay_folder = path(&format!("gen-{}", round + 2));
            // The engine opens a folder only once, so one generation is closed before the other is loaded.
            let built = || overlaid(&overlay_folder, &Arc::new(Layer::load(&path("gen-1")).unwrap()), &contents);
            let loaded = || Generation::load(&overlay_folder, MODEL).unwrap();
            for generation in [&built as &dyn Fn() -> Generation, &loaded] {
                let generation = generation();
                assert!(generation.holds(contents.fingerprint));
                assert!(generation.uses(&path("gen-1")) && generation.uses(&overlay_folder));
                assert_eq!((generation.state(), generation.len()), (whole.state(), documents.len()));
                let some = [ServerName::from("server-1"), ServerName::from("server-3"), ServerName::from("server-4")];
                let views = [
                    Visibility::default(),
                    Visibility { servers: Scope::Only(some.into()), ..Visibility::default() },
                    Visibility { classes: Scope::Only([VisibilityClass(0), VisibilityClass(2)].into()), ..Visibility::default() },
                ];
                for (lean, texts, limit) in [(0.0, 1, 10), (2.0, 1, 10), (2.0, 3, 25), (0.0, 2, 1_000)] {
                    let texts: Vec<_> = (0..texts).map(|_| random.text(lean)).collect();
                    for view in &views {
                        assert_alike(&answer(&generation, &texts, view, limit), &answer(&whole, &texts, view, limit));
                    }
                }
            }
        }
    }

    #[test]
    fn an_overlay_of_other_contents_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut random = Random(2);
        let documents: Vec<_> = (0..30).map(|number| random.document(number, 0.0)).collect();
        // The engine opens a folder only once, so each layer is closed before it is loaded.
        overlaid(&path("gen-2"), &layer(&path("gen-1"), &canonical(&documents, &[])), &canonical(&documents[..29], &[]));
        assert!(Generation::load(&path("gen-2"), MODEL).is_ok());
        remove(&path("gen-1"));
        assert!(Generation::load(&path("gen-2"), MODEL).is_err());
        // Another folder under the name of its base.
        layer(&path("gen-1"), &canonical(&documents[..28], &[]));
        assert!(Generation::load(&path("gen-2"), MODEL).is_err());
    }

    #[test]
    fn a_change_is_small_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(3);
        let documents: Vec<_> = (0..30).map(|number| random.document(number, 0.0)).collect();
        let base = layer(&folder.path().join("gen-1"), &canonical(&documents, &[]));
        let mut changed = documents.clone();
        changed[0].class = VisibilityClass(7);
        changed.remove(1);
        let contents = canonical(&changed, &[random.server(1)]);
        let change = Change::of(&base, &contents, 2).unwrap();
        assert_eq!((change.removed.len(), change.added.documents.len(), change.added.servers.len()), (2, 1, 1));
        assert!(Change::of(&base, &contents, 1).is_none());
        assert!(Change::of(&base, &CanonicalContents { model: "other".into(), ..contents }, 2).is_none());
        let contents = canonical(&documents, &[]);
        assert!(Change::of(&base, &CanonicalContents { dimension: 2, ..contents }, 2).is_none());
    }

    #[test]
    fn differences_are_found_at_either_end() {
        let known = [("a", 1), ("c", 1), ("d", 1), ("e", 1)];
        let present = [("b", 1), ("c", 1), ("d", 2), ("f", 1)];
        let (gone, new) = differences(known.iter().map(|(key, hash)| (key, *hash)), present.iter().map(|(key, hash)| (key, *hash)));
        assert_eq!((gone, new), (vec![0, 2, 3], vec![0, 2, 3]));
    }
}
