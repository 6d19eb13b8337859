//! How good the retrieval is on public data: the whole pipeline below HTTP (catalog, encoder, index, fusion).
//!
//! The data is no part of the project: the suite runs where `TOOLSIEVE_SHARED` names its folder, and is counted as left out elsewhere.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolsieve::adapters::embed::BuiltinEmbedder;
use toolsieve::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::service::catalog::current::CurrentCatalog;
use toolsieve::service::catalog::indexing::Indexing;
use toolsieve::service::ports::{Embedder, Store, ToolIndex};
use toolsieve::service::selection::retrieve::Retrieve;

use crate::harness::data;

/// Macro recall at 5 of the four sets, as a Python hybrid of dense and lexical search reached it.
const FLOOR: f64 = 0.825;
const SETS: [&str; 4] = ["livemcpbench", "azure_mcp", "mcpzero", "mcptoolbenchpp"];

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The set's tools as a catalog, and each tool's id in the set.
fn catalog(tools: &[Value]) -> (Catalog, HashMap<ToolId, String>) {
    let mut servers: BTreeMap<String, CatalogServer> = BTreeMap::new();
    let mut names = HashMap::new();
    let mut seen = HashSet::new();
    for tool in tools {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        let server = if text("server").is_empty() { "tools".to_owned() } else { text("server") };
        let name = ServerName::from(server.as_str());
        let schema = if tool["input_schema"].is_object() { tool["input_schema"].clone() } else { json!({"type": "object"}) };
        let raw = json!({"name": text("name"), "description": text("description"), "inputSchema": schema});
        let Ok(made) = catalog::tool(&name, &raw) else { continue };
        if !seen.insert(made.id.clone()) {
            continue;
        }
        names.insert(made.id.clone(), text("id"));
        let empty = || CatalogServer::untitled(name.clone(), Vec::new());
        servers.entry(server).or_insert_with(empty).tools.push(Arc::new(made));
    }
    (Catalog::new(servers.into_values().collect()), names)
}

/// Recall at 1, 5 and 10: groups hit over groups, the mean over the queries.
async fn recall(set: &Path) -> [f64; 3] {
    let (catalog, names) = catalog(&lines(&set.join("tools.jsonl")));
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db")).await.unwrap());
    let embedder: Arc<dyn Embedder> = Arc::new(BuiltinEmbedder::new().unwrap());
    let index: Arc<dyn ToolIndex> = EmbeddedIndex::open(EmbeddedIndexOptions {
        folder: folder.path().join("index"),
        model: embedder.model().into(),
        progress: Arc::new(|_| {}),
    })
    .unwrap();
    let current = Arc::new(CurrentCatalog::default());
    let indexing = Indexing::new(Arc::clone(&current), store, Arc::clone(&index), embedder);
    current.swap(catalog);
    let catalog = current.snapshot();
    indexing.update(&catalog).await;
    assert_eq!(index.state().embedded, catalog.tools().len());
    let retrieve = Retrieve::over(&indexing);
    let view = current.view(&Principal::anyone());

    let queries = lines(&set.join("queries.jsonl"));
    let mut sums = [0.0; 3];
    for query in &queries {
        let text = query["query"].as_str().unwrap().to_owned();
        let (found, warnings) = retrieve.search(&[text], &view, &Principal::anyone(), 10).await;
        assert!(warnings.is_empty(), "{warnings:?}");
        let found: Vec<&str> = found.iter().map(|(tool, _)| names[&tool.id].as_str()).collect();
        let relevant = query["relevant"].as_array().unwrap();
        for (sum, k) in sums.iter_mut().zip([1, 5, 10]) {
            let hit = relevant.iter().filter(|id| {
                let id = id.as_str().unwrap();
                let alternatives = query["alt"][id].as_array().into_iter().flatten().filter_map(Value::as_str);
                std::iter::once(id).chain(alternatives).any(|id| found.iter().take(k).any(|found| *found == id))
            });
            *sum += hit.count() as f64 / relevant.len() as f64;
        }
    }
    sums.map(|sum| sum / queries.len() as f64)
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_is_that_of_the_reference_or_better() {
    let Some(shared) = data::shared("recall on public sets of tools") else { return };
    let mut total = [0.0; 3];
    for set in SETS {
        let recall = recall(&shared.join("bench").join(set)).await;
        println!("{set}: R@1 {:.3}, R@5 {:.3}, R@10 {:.3}", recall[0], recall[1], recall[2]);
        total.iter_mut().zip(recall).for_each(|(total, recall)| *total += recall / SETS.len() as f64);
    }
    println!("macro: R@1 {:.3}, R@5 {:.3}, R@10 {:.3}", total[0], total[1], total[2]);
    assert!(total[1] >= FLOOR, "macro R@5 {:.3} is below {FLOOR}", total[1]);
}

/// Every tool of the real servers' lists is published, in a document that parses, under a name of its own.
#[test]
fn every_tool_of_the_real_servers_is_published() {
    let Some(shared) = data::shared("tools of real servers are published") else { return };
    let mut published = 0;
    for entry in std::fs::read_dir(shared.join("toollists")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let list: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let server = ServerName::from(list["server"].as_str().unwrap());
        for raw in list["tools"].as_array().unwrap() {
            let tool = catalog::tool(&server, raw).unwrap_or_else(|skipped| panic!("{server}: {skipped:?}"));
            let schema = tool.input.published.to_string();
            for nasty in ["\"$ref\"", "\"allOf\"", "\"oneOf\"", "\"$defs\"", ":null", "\"items\":true", "\"items\":false"] {
                let in_schema = schema.contains(nasty) && !raw.to_string().contains(&format!("\"description\":\"{nasty}"));
                assert!(!in_schema || nasty == ":null" && schema.contains("\"default\""), "{server} {}: {nasty} in {schema}", tool.id);
            }
            published += 1;
        }
    }
    assert!(published > 1_500, "only {published}");
}
