//! Search in the embedded index: how long a message waits for its candidates.
//!
//! `cargo bench --bench index`: 200 and 2,000 tools with two passages of 384 dimensions and 60 terms each, 50
//! candidates per list, all tools visible or those of ten servers out of thirty, one text or four. The servers are scored
//! with every search; without them the same search shows what that costs.

#![expect(clippy::expect_used, reason = "a bench may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use toolsieve::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions};
use toolsieve::domain::access::visibility::{Scope, Visibility, VisibilityClass};
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::domain::selection::relevance::SparseVector;
use toolsieve::service::ports::{IndexContents, IndexDocument, IndexQuery, IndexQueryText, IndexServer, ToolIndex};

const DIMENSION: usize = 384;
const SERVERS: u32 = 30;
const LIMIT: usize = 50;

fn search(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let third: BTreeSet<_> = (0..SERVERS / 3).map(server).collect();
    let views = [
        ("all", Visibility::default()),
        ("a third", Visibility { servers: Scope::Only(third), classes: Scope::All, ..Visibility::default() }),
    ];
    for (tools, servers) in [(200, SERVERS), (2_000, SERVERS), (2_000, 0)] {
        let (index, _folder) = built(&runtime, tools, servers);
        let mut group = criterion.benchmark_group(format!("index/search/{tools} tools, {servers} servers"));
        for (view, visibility) in &views {
            for texts in [1, 4] {
                let mut random = Random(99);
                let queries: Vec<Vec<IndexQueryText>> = (0..64).map(|_| (0..texts).map(|_| random.text()).collect()).collect();
                let mut queries = queries.iter().cycle();
                group.bench_function(BenchmarkId::new(format!("{texts} texts"), view), |bencher| {
                    bencher.iter(|| {
                        let texts = queries.next().map_or(&[][..], Vec::as_slice);
                        let found = runtime.block_on(index.search(&IndexQuery { texts, visibility, limit: LIMIT, servers: true }));
                        black_box(found.expect("candidates"))
                    });
                });
            }
        }
        group.finish();
    }
}

fn built(runtime: &Runtime, tools: u32, servers: u32) -> (Arc<EmbeddedIndex>, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = EmbeddedIndexOptions { folder: folder.path().join("index"), model: "bench".into(), progress: Arc::new(|_| ()) };
    let index = EmbeddedIndex::open(options).expect("an index");
    let mut random = Random(1);
    let documents = (0..tools)
        .map(|number| IndexDocument {
            tool: ToolId::new(server(number % SERVERS), format!("tool-{number}")),
            class: VisibilityClass(number % 4),
            dense: vec![random.unit_vector(), random.unit_vector()],
            sparse: random.terms(60),
        })
        .collect();
    let servers = (0..servers)
        .map(|number| IndexServer {
            server: server(number),
            classes: (0..4).map(VisibilityClass).collect(),
            dense: vec![random.unit_vector()],
        })
        .collect();
    let contents = IndexContents { model: "bench".into(), dimension: DIMENSION, documents, servers, ..IndexContents::default() };
    runtime.block_on(index.replace(contents)).expect("a build");
    (index, folder)
}

fn server(number: u32) -> ServerName {
    ServerName::new(format!("server-{number}"))
}

/// `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    /// Between 0 and 1.
    fn fraction(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) >> 40) as f32 / (1_u32 << 24) as f32
    }

    fn unit_vector(&mut self) -> Arc<[f32]> {
        let vector: Vec<f32> = (0..DIMENSION).map(|_| self.fraction() - 0.5).collect();
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.into_iter().map(|value| value / length).collect()
    }

    /// Terms of a vocabulary of 5,000 in which, as in a language, a term's frequency falls with its rank.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 5,000")]
    fn terms(&mut self, count: usize) -> SparseVector {
        let terms: BTreeMap<u32, f32> = (0..count).map(|_| (5000_f32.powf(self.fraction()) as u32, 0.2 + self.fraction())).collect();
        let (indices, values) = terms.into_iter().unzip();
        SparseVector { indices, values }
    }

    fn text(&mut self) -> IndexQueryText {
        IndexQueryText { dense: Some(self.unit_vector()), sparse: self.terms(10) }
    }
}

criterion_group!(benches, search);
criterion_main!(benches);
