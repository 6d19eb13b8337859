//! The embedded index: the contract, and what its folder does across starts, damage and sudden death.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use toolsieve::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions, IndexProgress};
use toolsieve::domain::access::visibility::Visibility;
use toolsieve::domain::text::canonical::Fingerprint;
use toolsieve::service::ports::{IndexContents, IndexDocument, IndexError, ToolIndex};

use crate::harness::contracts::fixtures::{
    MODEL, Random, answer_as, collection, document, named, replace, replace_with, search, server_scores, servers_of, text,
};
use crate::harness::contracts::index::Made;

mod contract {
    crate::harness::contracts::index::index_contract!(super::empty());
}

fn empty() -> Made {
    let folder = tempfile::tempdir().unwrap();
    Made { index: open(folder.path()), _alive: Box::new(folder) }
}

fn open(folder: &Path) -> Arc<dyn ToolIndex> {
    open_with_progress(folder, |_| ())
}

fn open_with_progress(folder: &Path, progress: impl Fn(IndexProgress) + Send + Sync + 'static) -> Arc<dyn ToolIndex> {
    let options = EmbeddedIndexOptions { folder: folder.join("index"), model: MODEL.into(), progress: Arc::new(progress) };
    EmbeddedIndex::open(options).unwrap()
}

fn generations(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("index")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).filter(|name| name != "lock").collect();
    names.sort();
    names
}

fn contents(documents: Vec<IndexDocument>, dimension: usize) -> IndexContents {
    let servers = servers_of(&documents);
    IndexContents { model: MODEL.into(), dimension, documents, servers, ..IndexContents::default() }
}

/// A folder with one complete generation of 50 documents.
async fn built() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    replace(&open(folder.path()), 8, collection(50, 8)).await;
    assert_eq!(generations(folder.path()), ["gen-1"]);
    folder
}

#[tokio::test]
async fn a_reopened_index_answers_alike_without_a_build() {
    let folder = tempfile::tempdir().unwrap();
    let query = [Random(5).text(8)];
    let index = open(folder.path());
    replace(&index, 8, collection(50, 8)).await;
    let mut before = search(&index, &query, 10).await;
    let servers = server_scores(&answer_as(&index, &query, &Visibility::default(), 10).await);
    assert_eq!(servers.len(), 6);
    let state = index.state();
    drop(index);

    let reported = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reported);
    let index = open_with_progress(folder.path(), move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(index.state(), state);
    let mut after = search(&index, &query, 10).await;
    before.sort_by(|one, other| one.tool.cmp(&other.tool));
    after.sort_by(|one, other| one.tool.cmp(&other.tool));
    assert_eq!(before, after);
    assert_eq!(server_scores(&answer_as(&index, &query, &Visibility::default(), 10).await), servers);

    // Equal contents in another order are no reason to build, other contents are.
    let mut documents = collection(50, 8);
    documents.reverse();
    replace(&index, 8, documents).await;
    assert_eq!((reported.load(Ordering::Relaxed), generations(folder.path())), (0, vec!["gen-1".to_owned()]));
    replace(&index, 8, collection(49, 8)).await;
    assert!(reported.load(Ordering::Relaxed) > 0);
    assert_eq!(generations(folder.path()), ["gen-2"]);
    // Other servers are other contents.
    replace_with(&index, 8, collection(49, 8), Vec::new()).await;
    assert_eq!(generations(folder.path()), ["gen-3"]);
}

#[tokio::test]
async fn vectors_of_another_model_are_not_compared() {
    let folder = built().await;
    let options = EmbeddedIndexOptions { folder: folder.path().join("index"), model: "newer".into(), progress: Arc::new(|_| ()) };
    let index: Arc<dyn ToolIndex> = EmbeddedIndex::open(options).unwrap();
    assert_eq!((index.state().documents, index.state().embedded), (50, 0));
    let found = search(&index, &[Random(5).text(8)], 10).await;
    assert!(!found.is_empty() && found.iter().all(|candidate| candidate.dense == [None]));
    assert_eq!(answer_as(&index, &[Random(5).text(8)], &Visibility::default(), 10).await.servers, []);

    index.replace(IndexContents { model: "newer".into(), ..contents(collection(50, 8), 8) }).await.unwrap();
    assert!(index.state().embedded > 0);
    assert!(search(&index, &[Random(5).text(8)], 10).await.iter().any(|candidate| candidate.dense[0].is_some()));
}

#[tokio::test]
async fn a_damaged_generation_is_thrown_away_and_built_again() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("no marker", |folder| fs::remove_file(folder.join("generation.json")).unwrap()),
        ("half a marker", |folder| {
            let text = fs::read(folder.join("generation.json")).unwrap();
            fs::write(folder.join("generation.json"), &text[..text.len() / 2]).unwrap();
        }),
        ("another tool in the marker", |folder| {
            let text = fs::read_to_string(folder.join("generation.json")).unwrap();
            assert!(text.contains("tool-49"));
            fs::write(folder.join("generation.json"), text.replace("tool-49", "tool-99")).unwrap();
        }),
        ("a format of before", |folder| {
            let text = fs::read_to_string(folder.join("generation.json")).unwrap();
            let (_, body) = text.split_once('\n').unwrap();
            let older = body.replacen("{\"format\":4,", "{\"format\":3,", 1);
            assert_ne!(older, body);
            fs::write(folder.join("generation.json"), format!("{}\n{older}", Fingerprint::of_text(&older))).unwrap();
        }),
        ("no engine files", |folder| fs::remove_dir_all(folder.join("shard")).unwrap()),
        ("no segments", |folder| fs::remove_dir_all(folder.join("shard/segments")).unwrap()),
        ("every engine file overwritten", |folder| {
            for file in files(&folder.join("shard")) {
                fs::write(file, b"\xff\xfe not what it was").unwrap();
            }
        }),
    ];
    for (name, damage) in damages {
        let folder = built().await;
        damage(&folder.path().join("index/gen-1"));
        let index = open(folder.path());
        assert_eq!(index.state().documents, 0, "{name}");
        assert_eq!(search(&index, &[Random(5).text(8)], 10).await, [], "{name}");
        assert!(generations(folder.path()).is_empty(), "{name}");
        replace(&index, 8, collection(50, 8)).await;
        assert_eq!(index.state().documents, 50, "{name}");
        assert!(!search(&index, &[Random(5).text(8)], 10).await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn leftovers_go_and_the_newest_complete_generation_stays() {
    let folder = built().await;
    let index = folder.path().join("index");
    copy(&index.join("gen-1"), &index.join("gen-7"));
    copy(&index.join("gen-1"), &index.join("gen-9"));
    fs::remove_file(index.join("gen-9/generation.json")).unwrap();
    fs::create_dir(index.join("gen-12")).unwrap();
    fs::write(index.join("not ours"), "").unwrap();

    let opened = open(folder.path());
    assert_eq!(opened.state().documents, 50);
    assert_eq!(generations(folder.path()), ["gen-7", "not ours"]);
    replace(&opened, 8, collection(10, 8)).await;
    assert_eq!(generations(folder.path()), ["gen-8", "not ours"]);
}

#[tokio::test]
async fn two_processes_never_share_a_folder() {
    let folder = built().await;
    let first = open(folder.path());
    let options = EmbeddedIndexOptions { folder: folder.path().join("index"), model: MODEL.into(), progress: Arc::new(|_| ()) };
    let Err(IndexError::Io(error)) = EmbeddedIndex::open(options) else { panic!("it was opened twice") };
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(!search(&first, &[Random(5).text(8)], 60).await.is_empty());
}

#[tokio::test]
async fn progress_is_reported_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let index = open_with_progress(folder.path(), move |progress| log.lock().unwrap().push(progress));
    replace(&index, 8, collection(300, 8)).await;
    let storing = |done| IndexProgress::Storing { done, total: 300 };
    assert_eq!(*reported.lock().unwrap(), [storing(0), storing(128), storing(256), IndexProgress::Finished]);
}

#[tokio::test]
async fn a_build_goes_on_when_its_caller_goes_away_and_the_last_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let index = open(folder.path());
    for round in 0..5 {
        let abandoned = index.replace(contents(collection(400, 8), 8));
        // One poll hands the build to its thread.
        drop(futures::poll!(abandoned));
        replace(&index, 8, collection(20 + round, 8)).await;
        assert_eq!(index.state().documents, 20 + round as usize);
        assert_eq!(generations(folder.path()).len(), 1);
    }
}

#[tokio::test]
async fn a_build_that_fails_leaves_the_old_contents() {
    let folder = built().await;
    let index = open(folder.path());
    // The folder goes away under it, and nothing can be made in its place.
    fs::rename(folder.path().join("index"), folder.path().join("elsewhere")).unwrap();
    fs::write(folder.path().join("index"), "").unwrap();
    assert!(index.replace(contents(collection(10, 8), 8)).await.is_err());
    assert_eq!(index.state().documents, 50);
    assert!(!search(&index, &[Random(5).text(8)], 10).await.is_empty());
}

// ------------------------------------------------------------------------------------------------------ kill -9

const CHILD_FOLDER: &str = "TOOLSIEVE_TEST_INDEX_FOLDER";

/// Not a test of its own: the process that `an_index_survives_a_kill_at_any_moment` starts and kills. It replaces
/// contents of 600 and of 700 documents in turn and says every step aloud.
#[tokio::test]
async fn child_that_replaces_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER).map(PathBuf::from) else { return };
    let index = open_with_progress(&folder, |progress| println!("step {progress:?}"));
    println!("step opened {}", index.state().documents);
    for round in 0.. {
        replace(&index, 32, collection(600 + 100 * (round % 2), 32)).await;
        println!("step replaced");
    }
}

#[tokio::test]
async fn an_index_survives_a_kill_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut reopened = 0;
    for steps in [1, 2, 4, 6, 7, 8, 9, 10, 13, 16, 17, 25] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["index_embedded::child_that_replaces_until_it_is_killed", "--exact", "--nocapture"])
            .env(CHILD_FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let printed = lines.filter(|line| line.contains("step ")).take(steps).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(printed, steps, "the child ended by itself");

        let index = open(folder.path());
        let documents = index.state().documents;
        assert!([0, 600, 700].contains(&documents), "{documents} documents after a kill at step {steps}");
        let expected = collection(u32::try_from(documents).unwrap(), 32);
        let found = search(&index, &[Random(5).text(32)], 1000).await;
        let with_dense = expected.iter().filter(|document| !document.dense.is_empty()).count();
        assert_eq!(found.iter().filter(|candidate| candidate.dense[0].is_some()).count(), with_dense);
        assert_eq!(generations(folder.path()).len(), usize::from(documents > 0));
        reopened += usize::from(documents > 0);
    }
    assert!(reopened > 3, "most kills come after a complete generation");
}

// --------------------------------------------------------------------------------------------------------- size

#[tokio::test]
async fn two_thousand_tools_are_built_quickly_and_take_little_disk() {
    let folder = tempfile::tempdir().unwrap();
    let index = open(folder.path());
    let documents = collection(2_000, 384);
    let vectors: usize = documents.iter().map(|document| document.dense.len() * 384 * 4).sum();
    let start = Instant::now();
    replace(&index, 384, documents).await;
    let (took, size) = (start.elapsed(), disk_usage(&folder.path().join("index")));
    println!("2,000 tools, {} KiB of vectors: {took:?}, {} KiB on disk", vectors / 1024, size / 1024);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(size < 3 * vectors as u64 + (8 << 20), "{} KiB", size / 1024);
}

#[tokio::test(flavor = "current_thread")]
async fn a_large_collection_gets_a_graph_and_is_searched_off_the_async_thread() {
    const DIMENSION: usize = 256;
    let folder = tempfile::tempdir().unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let index = open_with_progress(folder.path(), move |progress| log.lock().unwrap().push(progress));
    let mut random = Random(2);
    // Clusters, as tools have them: purely random directions have no neighbourhoods that a graph could follow.
    let centres: Vec<Arc<[f32]>> = (0..300).map(|_| random.unit_vector(DIMENSION)).collect();
    let near = |centre: &[f32], random: &mut Random| -> Vec<f32> {
        let noise = random.unit_vector(DIMENSION);
        let sum: Vec<f32> = centre.iter().zip(&*noise).map(|(one, other)| one + 0.7 * other).collect();
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        sum.into_iter().map(|value| value / length).collect()
    };
    let documents: Vec<IndexDocument> = (0..10_500)
        .map(|number| named(&document("s", 0, &[&near(&centres[number as usize % 300], &mut random)], &[(number, 1.0)]), number))
        .collect();
    replace(&index, DIMENSION, documents.clone()).await;
    assert!(reported.lock().unwrap().contains(&IndexProgress::Optimizing));

    let mut hits = 0;
    for round in 0..20_u32 {
        let query = near(&centres[round as usize], &mut random);
        let mut exact: Vec<(f32, &IndexDocument)> = documents
            .iter()
            .map(|document| (document.dense[0].iter().zip(&query).map(|(one, other)| one * other).sum(), document))
            .collect();
        exact.sort_by(|one, other| other.0.total_cmp(&one.0));
        // The term brings one tool that is far away: its cosine is computed.
        let found = search(&index, &[text(Some(&query), &[(5_000 + round, 1.0)])], 10).await;
        for candidate in &found {
            let (score, _) = exact.iter().find(|(_, document)| document.tool == candidate.tool).unwrap();
            assert!((candidate.dense[0].unwrap() - score).abs() < 1e-3);
        }
        assert!(found.iter().any(|candidate| candidate.lexical[0] > 0.0));
        hits += exact[..10].iter().filter(|(_, document)| found.iter().any(|candidate| candidate.tool == document.tool)).count();
    }
    assert!(hits >= 190, "{hits} of the 200 nearest were found");

    // A graph is of no use for the few servers, and does not keep them from being compared.
    let query = [text(Some(&documents[0].dense[0]), &[])];
    let scores = server_scores(&answer_as(&index, &query, &Visibility::default(), 10).await);
    assert!((scores["s"] - 1.0).abs() < 1e-3, "{scores:?}");
}

// ------------------------------------------------------------------------------------------------------ helpers

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

/// Blocks that the file system really holds: the engine's files have holes.
fn disk_usage(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    files(folder).iter().map(|file| fs::metadata(file).unwrap().blocks() * 512).sum()
}
