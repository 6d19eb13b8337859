//! The index on a Qdrant cluster: the contract, and what happens when nodes die, hang, lose things or are shared.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qdrant_client::Qdrant;
use qdrant_client::qdrant::{CreateAliasBuilder, CreateCollectionBuilder, SparseVectorParamsBuilder, SparseVectorsConfigBuilder};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Code;
use toolsieve::adapters::index::{RemoteIndex, RemoteIndexOptions, Spread, Timing};
use toolsieve::domain::access::visibility::Visibility;
use toolsieve::service::ports::{IndexAnswer, IndexContents, IndexDocument, IndexQuery, IndexQueryText};

use crate::harness::contracts::fixtures::{
    MODEL, Random, answer_as, assert_matches_definition, assert_servers_match_definition, collection, only_servers, replace, search,
    search_as, servers_of,
};
use crate::harness::contracts::index::{Index, Made};
use crate::harness::servers::qdrant::{Node, Storage};
use crate::harness::wait::{eventually, when};
use crate::harness::{LONG, Start, stdio};

mod contract {
    crate::harness::contracts::index::index_contract!(super::empty(1, 1));
}

/// Scores are those of all shards together, whichever holds a tool.
mod contract_on_a_cluster {
    crate::harness::contracts::index::index_contract!(super::empty(2, 3));
}

/// Waits long for answers and not at all for anything else.
const PATIENT: Timing = Timing {
    search: LONG,
    first_pause: Duration::from_millis(5),
    longest_pause: Duration::from_millis(50),
    idle: Duration::from_hours(1),
    renewal: Duration::from_hours(1),
};

fn options(nodes: &[&Node]) -> RemoteIndexOptions {
    RemoteIndexOptions {
        urls: nodes.iter().map(|node| node.url()).collect(),
        api_key: None,
        prefix: "test".into(),
        spread: Spread { shards: 1, replicas: 1 },
        timing: PATIENT,
        progress: Arc::new(|_| ()),
    }
}

/// Whether a replica marks the collection that it searches with this alias.
fn is_mark(alias: &str) -> bool {
    alias.starts_with("test_contract-model_8_used_by_")
}

fn client(node: &Node) -> Qdrant {
    Qdrant::from_url(node.url().as_str().trim_end_matches('/')).skip_compatibility_check().build().unwrap()
}

fn open(nodes: &[&Node]) -> Index {
    RemoteIndex::open(options(nodes)).unwrap()
}

fn open_with(nodes: &[&Node], timing: Timing) -> Index {
    RemoteIndex::open(RemoteIndexOptions { timing, ..options(nodes) }).unwrap()
}

fn empty(nodes: usize, shards: u32) -> Made {
    let storage = Storage::new();
    let nodes: Vec<Node> = (0..nodes).map(|_| Node::start(&storage)).collect();
    let spread = Spread { shards, replicas: 1 };
    let index = RemoteIndex::open(RemoteIndexOptions { spread, ..options(&nodes.iter().collect::<Vec<_>>()) }).unwrap();
    Made { index, _alive: Box::new((nodes, storage)) }
}

fn contents(documents: Vec<IndexDocument>) -> IndexContents {
    let servers = servers_of(&documents);
    IndexContents { model: MODEL.into(), dimension: 8, documents, servers, ..IndexContents::default() }
}

async fn answer(index: &Index, query: &[IndexQueryText]) -> IndexAnswer {
    index.search(&IndexQuery { texts: query, visibility: &Visibility::default(), limit: 10, servers: true }).await.unwrap()
}

/// By words alone, and as the definition says.
fn assert_lexical(answer: &IndexAnswer, documents: &[IndexDocument], query: &[IndexQueryText]) {
    assert!(answer.candidates.iter().all(|candidate| candidate.dense.iter().all(Option::is_none)));
    assert_eq!(answer.servers, []);
    let words: Vec<_> = query.iter().map(|text| IndexQueryText { dense: None, sparse: text.sparse.clone() }).collect();
    assert_matches_definition(&answer.candidates, documents, |_| true, &words, 10);
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_answers_for_a_dead_one_until_it_is_back() {
    let storage = Storage::new();
    let (mut one, other) = (Node::start(&storage), Node::start(&storage));
    let index = open(&[&one, &other]);
    replace(&index, 8, collection(50, 8)).await;
    let query = [Random(5).text(8)];
    let expected = search(&index, &query, 10).await.len();
    one.kill();
    for _ in 0..20 {
        // Without a warning: `search` sees to it.
        assert_eq!(search(&index, &query, 10).await.len(), expected);
    }
    let state = index.state().qdrant.unwrap();
    assert_eq!((state.nodes, state.answering, state.searched, state.error), (2, 1, true, Some("does not answer")));
    one.revive(&storage);
    eventually("both nodes answer", async || index.state().qdrant.unwrap().answering == 2).await;
    let before = one.behaviour.calls("query_batch");
    for _ in 0..4 {
        search(&index, &query, 10).await;
    }
    assert!(one.behaviour.calls("query_batch") > before, "it is asked again");
    assert_eq!(index.state().qdrant.unwrap().error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_answers_for_one_that_hangs() {
    let storage = Storage::new();
    let (one, other) = (Node::start(&storage), Node::start(&storage));
    let timing = Timing { search: Duration::from_secs(4), longest_pause: LONG, first_pause: LONG, ..PATIENT };
    let index = open_with(&[&one, &other], timing);
    replace(&index, 8, collection(50, 8)).await;
    one.behaviour.delay(LONG);
    let query = [Random(5).text(8)];
    for _ in 0..4 {
        assert!(!search(&index, &query, 10).await.is_empty());
    }
    // Once it was waited for; then it was left alone.
    assert_eq!(index.state().qdrant.unwrap().error, Some("does not answer in time"));
    let asked = one.behaviour.calls("query_batch");
    for _ in 0..4 {
        search(&index, &query, 10).await;
    }
    assert_eq!(one.behaviour.calls("query_batch"), asked, "nobody waits for it again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_cluster_costs_meaning_but_not_the_deadline() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let timing = Timing { search: Duration::from_millis(300), first_pause: LONG, longest_pause: LONG, ..PATIENT };
    let index = open_with(&[&node], timing);
    let documents = collection(200, 8);
    index.replace(contents(documents.clone())).await.unwrap();
    let query = [Random(5).text(8), Random(6).text(8)];
    node.behaviour.delay(LONG);

    let started = Instant::now();
    let slow = answer(&index, &query).await;
    let took = started.elapsed();
    // Qdrant would answer after twice the second time.
    assert!(took >= timing.search && took < LONG / 2, "{took:?}");
    assert_eq!(slow.warning, Some("ranked by words alone: Qdrant does not answer in time"));
    assert_lexical(&slow, &documents, &query);

    // The next ones do not wait, and do not ask.
    let calls = node.behaviour.calls("query_batch");
    for _ in 0..10 {
        assert_eq!(answer(&index, &query).await.warning, slow.warning);
    }
    assert_eq!(node.behaviour.calls("query_batch"), calls);
    let state = index.state();
    assert_eq!((state.documents, state.embedded), (200, 0));

    // What is hidden stays hidden without Qdrant too.
    let visibility = only_servers(&["server-1"]);
    let found = index.search(&IndexQuery { texts: &query, visibility: &visibility, limit: 10, servers: true }).await.unwrap().candidates;
    assert!(!found.is_empty() && found.iter().all(|candidate| candidate.tool.server.as_str() == "server-1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_cluster_is_searched_again_when_it_has_recovered() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let index = open_with(&[&node], Timing { search: Duration::from_secs(2), ..PATIENT });
    index.replace(contents(collection(50, 8))).await.unwrap();
    let query = [Random(5).text(8)];
    node.behaviour.fail("query_batch", Code::Unavailable, 0);
    assert_eq!(answer(&index, &query).await.warning, Some("ranked by words alone: Qdrant does not answer"));
    node.behaviour.work_again();
    eventually("the cluster is searched", async || index.state().qdrant.unwrap().searched).await;
    assert_eq!(answer(&index, &query).await.warning, None);
    assert_eq!(node.behaviour.calls("create"), 1, "nothing had to be built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_that_fail_together_lengthen_the_pause_once() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    // If each of the searches counted, the pause would be longer than this test waits.
    let timing = Timing { search: Duration::from_millis(500), longest_pause: Duration::from_hours(1), ..PATIENT };
    let index = open_with(&[&node], timing);
    index.replace(contents(collection(50, 8))).await.unwrap();
    let query = [Random(5).text(8)];
    node.behaviour.delay(Duration::from_secs(2));
    let found = futures::future::join_all((0..30).map(|_| answer(&index, &query))).await;
    assert!(found.iter().all(|found| found.warning == Some("ranked by words alone: Qdrant does not answer in time")));
    node.behaviour.work_again();
    eventually("the cluster is searched", async || index.state().qdrant.unwrap().searched).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_at_the_start_is_filled_when_it_comes() {
    let storage = Storage::new();
    let mut node = Node::dead();
    let index = open(&[&node]);
    let documents = collection(200, 8);
    let query = [Random(5).text(8)];
    assert_eq!(answer(&index, &query).await, IndexAnswer::default(), "nothing to find, nothing to warn of");
    let error = index.replace(contents(documents.clone())).await.unwrap_err();
    assert!(error.to_string().ends_with("no node answers"), "{error}");
    let found = answer(&index, &query).await;
    assert_eq!(found.warning, Some("ranked by words alone: Qdrant does not answer"));
    assert_lexical(&found, &documents, &query);
    let state = index.state();
    assert_eq!((state.documents, state.embedded, state.qdrant.unwrap().searched), (200, 0, false));

    node.revive(&storage);
    soon(index.needs_contents()).await;
    index.replace(contents(documents.clone())).await.unwrap();
    assert_matches_definition(&search(&index, &query, 10).await, &documents, |_| true, &query, 10);
    assert!(index.state().embedded > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_is_named_and_never_shown() {
    let storage = Storage::new();
    let node = Node::with_key(&storage, "the-right-key");
    let with = |key: &str| {
        let options = RemoteIndexOptions { api_key: Some(key.into()), ..options(&[&node]) };
        RemoteIndex::open(options).unwrap() as Index
    };
    let index = with("a-wrong-key");
    let error = index.replace(contents(collection(20, 8))).await.unwrap_err();
    assert!(error.to_string().contains("QDRANT_API_KEY") && !format!("{error:?}").contains("wrong"), "{error:?}");
    assert_eq!(index.state().qdrant.unwrap().error, Some("rejects the API key"));
    let found = answer(&index, &[Random(5).text(8)]).await;
    assert_eq!(found.warning, Some("ranked by words alone: Qdrant rejects the API key"));
    assert!(storage.names().is_empty());

    let index = with("the-right-key");
    index.replace(contents(collection(20, 8))).await.unwrap();
    assert_eq!(index.state().qdrant.unwrap().error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_the_same_tools_build_once() {
    let storage = Storage::new();
    let (one, other) = (Node::start(&storage), Node::start(&storage));
    replace(&open(&[&one]), 8, collection(300, 8)).await;
    assert!(one.behaviour.calls("upsert") > 0);

    let second = open(&[&other]);
    let mut documents = collection(300, 8);
    documents.reverse();
    replace(&second, 8, documents.clone()).await;
    assert_eq!((other.behaviour.calls("upsert"), other.behaviour.calls("create"), other.behaviour.calls("update_aliases")), (0, 0, 1));
    let query = [Random(5).text(8)];
    assert_matches_definition(&search(&second, &query, 10).await, &documents, |_| true, &query, 10);
    let found = answer_as(&second, &query, &Visibility::default(), 10).await;
    assert_servers_match_definition(&found, &servers_of(&collection(300, 8)), |_| true, &query);
    assert_eq!(storage.names().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_come_with_the_call_that_brings_the_tools() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let index = open(&[&node]);
    let documents = collection(50, 8);
    replace(&index, 8, documents.clone()).await;
    let query = [Random(5).text(8), Random(6).text(8)];
    let before = node.behaviour.calls("query_batch");
    // The lists bring every tool: no cosine is missing that a second call would ask for.
    let found = answer_as(&index, &query, &Visibility::default(), 50).await;
    assert_servers_match_definition(&found, &servers_of(&documents), |_| true, &query);
    assert_eq!(node.behaviour.calls("query_batch") - before, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_built_collection_is_completed_by_whoever_comes_next() {
    let storage = Storage::new();
    let (one, other) = (Node::start(&storage), Node::start(&storage));
    one.behaviour.fail("upsert", Code::InvalidArgument, 1);
    let first = open(&[&one]);
    first.replace(contents(collection(300, 8))).await.unwrap_err();
    assert_eq!((storage.names().len(), storage.aliases().len()), (1, 0), "nothing points to what is not complete");
    let found = answer(&first, &[Random(5).text(8)]).await;
    assert_eq!(found.warning, Some("ranked by words alone: the index is being built"));

    let second = open(&[&other]);
    replace(&second, 8, collection(300, 8)).await;
    assert_eq!(other.behaviour.calls("create"), 0);
    assert_eq!((storage.names().len(), storage.aliases().len()), (1, 2));
    let query = [Random(5).text(8)];
    assert_matches_definition(&search(&second, &query, 10).await, &collection(300, 8), |_| true, &query, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_without_its_field_indexes_gets_them_from_whoever_comes_next() {
    let storage = Storage::new();
    let (one, other) = (Node::start(&storage), Node::start(&storage));
    one.behaviour.fail("create_field_index", Code::InvalidArgument, 0);
    open(&[&one]).replace(contents(collection(50, 8))).await.unwrap_err();
    assert_eq!((storage.names().len(), storage.aliases().len()), (1, 0));

    let second = open(&[&other]);
    replace(&second, 8, collection(50, 8)).await;
    // The cluster refuses to filter by a field without an index.
    let (query, visibility) = ([Random(5).text(8)], only_servers(&["server-1"]));
    let found = second.search(&IndexQuery { texts: &query, visibility: &visibility, limit: 10, servers: true }).await.unwrap();
    assert_eq!(found.warning, None);
    assert!(!found.candidates.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_alias_moves_on_and_old_collections_go_but_only_ours() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let client = client(&node);
    for name in ["somebody-elses", "test_backup", "test_contract-model_8_v2_backup"] {
        let mut vectors = SparseVectorsConfigBuilder::default();
        vectors.add_named_vector_params("words", SparseVectorParamsBuilder::default());
        client.create_collection(CreateCollectionBuilder::new(name).sparse_vectors_config(vectors)).await.unwrap();
    }
    client.create_alias(CreateAliasBuilder::new("somebody-elses", "theirs")).await.unwrap();
    let index = open_with(&[&node], Timing { idle: Duration::ZERO, ..PATIENT });
    let mut former = None;
    for round in 0..3 {
        replace(&index, 8, collection(50 + round, 8)).await;
        let aliases = storage.aliases();
        let target = aliases["test_contract-model_8"].clone();
        assert!(target.starts_with("test_contract-model_8_v2_") && Some(&target) != former.as_ref());
        let marks: Vec<_> = aliases.iter().filter(|(alias, _)| is_mark(alias)).map(|(_, collection)| collection).collect();
        assert_eq!((aliases.len(), marks), (3, vec![&target]));
        eventually("four collections", async || storage.names().len() == 4).await;
        assert!(storage.names().contains(&target));
        former = Some(target);
    }
    assert!(!search(&index, &[Random(5).text(8)], 10).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_collection_another_one_removed_sees_no_gap() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let (one, other) = (open(&[&node]), open(&[&node]));
    let (older, newer) = (collection(60, 8), collection(61, 8));
    replace(&one, 8, older.clone()).await;
    let of_one = storage.names().remove(0);
    let searches = {
        let one = Arc::clone(&one);
        tokio::spawn(async move {
            // Goes on until the collection is gone, and for a while after that.
            let mut after = 0;
            while after < 50 {
                let found = search(&one, &[Random(5).text(8)], 10).await;
                assert!(found.len() >= 10 && found.iter().any(|candidate| candidate.dense[0].is_some()));
                after += usize::from(futures::poll!(std::pin::pin!(one.needs_contents())).is_ready() || after > 0);
            }
        })
    };
    replace(&other, 8, newer).await;
    client(&node).delete_collection(of_one).await.unwrap();
    soon(searches).await.unwrap();
    assert_eq!(storage.names().len(), 1);
    // And it gets its own again.
    replace(&one, 8, older.clone()).await;
    assert_eq!(storage.names().len(), 2);
    let query = [Random(5).text(8)];
    assert_matches_definition(&search_as(&one, &query, &Visibility::default(), 10).await, &older, |_| true, &query, 10);
}

/// Regression test: replicas with different tools removed each other's collections again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_different_tools_keep_their_collections() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let hasty = Timing { idle: Duration::ZERO, ..PATIENT };
    let (one, other) = (open_with(&[&node], hasty), open_with(&[&node], hasty));
    replace(&one, 8, collection(60, 8)).await;
    let of_one = storage.names().remove(0);
    let mut former = None;
    for documents in 61..64 {
        replace(&other, 8, collection(documents, 8)).await;
        let of_other = storage.aliases()["test_contract-model_8"].clone();
        eventually("its former collection is gone", async || !former.iter().any(|former| storage.names().contains(former))).await;
        assert!(storage.names().contains(&of_one) && storage.names().contains(&of_other));
        former = Some(of_other);
    }
    // And the other way round.
    replace(&one, 8, collection(70, 8)).await;
    eventually("the first collection is gone", async || !storage.names().contains(&of_one)).await;
    assert!(storage.names().contains(&former.unwrap()) && storage.names().len() == 2);
    for index in [&one, &other] {
        assert!(!search(index, &[Random(5).text(8)], 10).await.is_empty());
    }
    assert_eq!(node.behaviour.calls("create"), 5, "nothing had to be built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_collection_of_a_stopped_replica_goes_when_its_mark_has_expired() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    replace(&open(&[&node]), 8, collection(60, 8)).await;
    let of_stopped = storage.names().remove(0);
    let mark = storage.aliases().into_keys().find(|alias| is_mark(alias)).unwrap();
    let outdated = format!("{}_1000", mark.rsplit_once('_').unwrap().0);
    let client = client(&node);
    client.delete_alias(mark).await.unwrap();
    client.create_alias(CreateAliasBuilder::new(of_stopped.as_str(), outdated.as_str())).await.unwrap();
    let index = open_with(&[&node], Timing { idle: Duration::ZERO, renewal: Duration::from_millis(10), ..PATIENT });
    replace(&index, 8, collection(61, 8)).await;
    eventually("only the new one is left", async || storage.names().len() == 1 && storage.aliases().len() == 2).await;
    assert!(!storage.names().contains(&of_stopped) && !storage.aliases().contains_key(&outdated));
    // A mark is renewed.
    let mark = storage.aliases().into_keys().find(|alias| is_mark(alias)).unwrap();
    client.delete_alias(mark.as_str()).await.unwrap();
    eventually("the mark is there again", async || storage.aliases().contains_key(&mark)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_lost_everything_is_filled_again() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let index = open(&[&node]);
    let documents = collection(60, 8);
    replace(&index, 8, documents.clone()).await;
    storage.clear();
    let query = [Random(5).text(8)];
    let found = answer(&index, &query).await;
    assert_eq!(found.warning, Some("ranked by words alone: Qdrant has lost the index, which is being rebuilt"));
    assert_lexical(&found, &documents, &query);
    soon(index.needs_contents()).await;
    replace(&index, 8, documents.clone()).await;
    assert_matches_definition(&search(&index, &query, 10).await, &documents, |_| true, &query, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_fails_leaves_the_old_contents() {
    let storage = Storage::new();
    let node = Node::start(&storage);
    let index = open(&[&node]);
    replace(&index, 8, collection(50, 8)).await;
    node.behaviour.fail("create", Code::ResourceExhausted, 0);
    index.replace(contents(collection(10, 8))).await.unwrap_err();
    assert_eq!(index.state().documents, 50);
    assert!(!search(&index, &[Random(5).text(8)], 10).await.is_empty());
}

// --------------------------------------------------------------------------------------------- the whole service

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_lives_through_the_death_of_its_cluster() {
    let storage = Storage::new();
    let mut node = Node::start(&storage);
    let url: &'static str = node.url().to_string().leak();
    let servers = json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    let environment = vec![("QDRANT_URL", url), ("TOOLSIEVE_INDEX__QDRANT_TIMEOUT_MS", "10000")];
    let running = Start { servers, environment, ..Start::default() }.start().await;
    let ready = running.settled().await;
    assert_eq!(ready["index"]["qdrant"], json!({"nodes": 1, "answering": 1, "searched": true}));
    assert!(!running.folder.path().join("data/index").exists(), "nothing is kept beside the cluster");
    assert_eq!(storage.aliases().len(), 2);

    let search = json!({"queries": ["what time is it in Tokyo"], "limit": 3});
    let (_, found) = running.post("/v1/tools/search", &search).await;
    let filter = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}]});
    let has_clock = |answer: &Value| answer["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "time__get_current_time");
    let (_, answer) = running.post("/v1/filter", &filter).await;
    assert_eq!(answer["warnings"], json!([]));
    assert!(has_clock(&answer), "{answer}");

    node.kill();
    let (status, answer) = running.post("/v1/filter", &filter).await;
    assert!(status.is_success());
    assert_eq!(answer["warnings"], json!(["ranked by words alone: Qdrant does not answer"]));
    assert!(has_clock(&answer), "{answer}");
    let ready = running.until(|body| body["index"]["qdrant"]["answering"] == 0).await;
    assert_eq!((&ready["ready"], &ready["index"]["embedded"]), (&json!(true), &json!(0)));
    let (_, lexical) = running.post("/v1/tools/search", &search).await;
    assert_eq!(lexical["tools"].as_array().unwrap().len(), 3);

    // It comes back empty, and is filled without anybody's help.
    storage.clear();
    node.revive(&storage);
    running.until(|body| body["index"]["qdrant"]["answering"] == 1).await;
    eventually("no warnings", async || when(running.post("/v1/filter", &filter).await.1, |answer| answer["warnings"] == json!([]))).await;
    let (_, again) = running.post("/v1/tools/search", &search).await;
    assert_eq!(again["tools"], found["tools"]);
    running.stop().await;
}
