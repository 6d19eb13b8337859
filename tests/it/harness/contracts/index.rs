//! What every [`ToolIndex`] must do. An adapter passes by `index_contract!(make().await)` in a module of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use toolsieve::domain::access::visibility::Visibility;
use toolsieve::service::ports::{IndexDocument, IndexQuery, IndexQueryText, IndexServer, ToolIndex};

use super::fixtures::{
    Random, answer_as, assert_matches_definition, assert_servers_match_definition, by_name, classes, close, collection, document, named,
    names, only_classes, only_servers, replace, replace_with, same, search, search_as, server, server_scores, servers, servers_of, text,
};

/// An empty index and what must live as long as it does.
pub(crate) struct Made {
    pub(crate) index: Arc<dyn ToolIndex>,
    pub(crate) _alive: Box<dyn std::any::Any + Send>,
}

/// One test per requirement; the argument is an expression that makes an empty index.
macro_rules! index_contract {
    ($make:expr) => {
        crate::harness::contracts::index::index_contract! { @each $make =>
            hidden_tools_take_no_place,
            both_scopes_must_hold,
            a_scope_of_nothing_finds_nothing,
            candidates_and_scores_are_those_of_the_definition,
            the_filtered_search_is_the_search_over_what_is_visible,
            the_best_passage_counts,
            a_score_that_no_list_brought_is_computed_or_zero,
            documents_without_dense_vectors_are_found_by_terms,
            texts_may_lack_either_vector,
            a_rare_term_beats_a_frequent_one,
            document_frequencies_are_those_of_the_whole_collection,
            equal_terms_are_added,
            replace_leaves_exactly_the_new_documents,
            readers_see_old_or_new_contents_and_never_a_mix,
            a_limit_above_the_size_brings_everything,
            nothing_is_found_where_nothing_is_asked_or_held,
            vectors_of_another_length_are_left_out,
            servers_are_scored_by_the_definition_whatever_the_limit,
            hidden_servers_are_absent,
            servers_without_vectors_are_absent,
            servers_change_nothing_for_tools,
            replace_leaves_exactly_the_new_servers,
        }
    };
    (@each $make:expr => $($case:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let made = $make;
                crate::harness::contracts::index::$case(&made.index).await;
            }
        )+
    };
}
pub(crate) use index_contract;

pub(crate) type Index = Arc<dyn ToolIndex>;

pub(crate) async fn hidden_tools_take_no_place(index: &Index) {
    // The hidden ones are nearer by both scores.
    let near = document("secret", 0, &[&[1.0, 0.0]], &[(1, 5.0)]);
    let far = document("open", 1, &[&[0.6, 0.8]], &[(1, 1.0)]);
    let hidden = (0..40).map(|number| named(&near, number));
    let visible = (0..5).map(|number| named(&far, number));
    replace(index, 2, hidden.chain(visible).collect()).await;
    // Each list by itself: the other one would make up for tools that a hidden one had pushed out.
    for query in [text(Some(&[1.0, 0.0]), &[]), text(None, &[(1, 1.0)])] {
        let query = [query];
        for visibility in [only_servers(&["open"]), only_classes(&[1])] {
            let found = search_as(index, &query, &visibility, 5).await;
            assert_eq!(found.len(), 5);
            assert!(found.iter().all(|candidate| candidate.tool.server.as_str() == "open"));
        }
        assert!(search(index, &query, 5).await.iter().all(|candidate| candidate.tool.server.as_str() == "secret"));
    }
}

pub(crate) async fn both_scopes_must_hold(index: &Index) {
    let documents = ["one", "two", "three"]
        .into_iter()
        .flat_map(|server| (0..3).map(move |class| named(&document(server, class, &[&[1.0, 0.0]], &[(1, 1.0)]), class)));
    replace(index, 2, documents.collect()).await;
    let visibility = Visibility { servers: servers(&["one", "two", "unknown"]), classes: classes(&[0, 2, 77]), ..Visibility::default() };
    let found = search_as(index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], &visibility, 20).await;
    let expected = ["one/0", "one/2", "two/0", "two/2"];
    assert_eq!(names(&found), expected.map(str::to_owned).into());
}

pub(crate) async fn a_scope_of_nothing_finds_nothing(index: &Index) {
    replace(index, 2, vec![document("one", 0, &[&[1.0, 0.0]], &[(1, 1.0)])]).await;
    let query = [text(Some(&[1.0, 0.0]), &[(1, 1.0)])];
    for visibility in [only_servers(&[]), only_classes(&[]), only_servers(&["unknown"]), only_classes(&[9])] {
        assert_eq!(search_as(index, &query, &visibility, 10).await, []);
    }
}

pub(crate) async fn candidates_and_scores_are_those_of_the_definition(index: &Index) {
    let documents = collection(400, 24);
    replace(index, 24, documents.clone()).await;
    let mut random = Random(7);
    for texts in [1, 3] {
        let query: Vec<_> = (0..texts).map(|_| random.text(24)).collect();
        assert_matches_definition(&search(index, &query, 8).await, &documents, |_| true, &query, 8);
    }
}

pub(crate) async fn the_filtered_search_is_the_search_over_what_is_visible(index: &Index) {
    let documents = collection(400, 24);
    replace(index, 24, documents.clone()).await;
    let query = [Random(8).text(24), Random(9).text(24)];
    let visibility = Visibility { servers: servers(&["server-1", "server-4"]), classes: classes(&[0, 2]), ..Visibility::default() };
    let visible =
        |document: &IndexDocument| visibility.servers.contains(&document.tool.server) && visibility.classes.contains(&document.class);
    let found = search_as(index, &query, &visibility, 8).await;
    assert_matches_definition(&found, &documents, visible, &query, 8);
}

pub(crate) async fn the_best_passage_counts(index: &Index) {
    let two = document("s", 0, &[&[0.0, 1.0], &[0.8, 0.6], &[0.0, -1.0]], &[]);
    let one = document("s", 0, &[&[0.6, 0.8]], &[]);
    replace(index, 2, vec![named(&two, 2), named(&one, 1)]).await;
    let found = search(index, &[text(Some(&[1.0, 0.0]), &[])], 1).await;
    assert_eq!(names(&found), ["s/2".to_owned()].into());
    close(found[0].dense[0], 0.8);
}

pub(crate) async fn a_score_that_no_list_brought_is_computed_or_zero(index: &Index) {
    let documents = vec![
        named(&document("s", 0, &[&[1.0, 0.0]], &[(9, 1.0)]), 0),
        named(&document("s", 0, &[&[0.0, 1.0]], &[(1, 3.0)]), 1),
        named(&document("s", 0, &[&[-1.0, 0.0]], &[(1, 1.0)]), 2),
    ];
    replace(index, 2, documents).await;
    let found = by_name(search(index, &[text(Some(&[0.8, 0.6]), &[(1, 1.0)]), text(Some(&[0.6, 0.8]), &[])], 1).await);
    assert_eq!(found.len(), 2, "one brought by each list of each text: {found:?}");
    let (nearest, lexical) = (&found["s/0"], &found["s/1"]);
    close(nearest.dense[0], 0.8);
    close(nearest.dense[1], 0.6);
    assert_eq!(nearest.lexical, [0.0, 0.0]);
    close(lexical.dense[0], 0.6);
    close(lexical.dense[1], 0.8);
    assert!(lexical.lexical[0] > 0.0 && lexical.lexical[1] == 0.0);
}

pub(crate) async fn documents_without_dense_vectors_are_found_by_terms(index: &Index) {
    replace(index, 2, vec![named(&document("s", 0, &[], &[(1, 1.0)]), 0), named(&document("s", 0, &[&[1.0, 0.0]], &[]), 1)]).await;
    let state = index.state();
    assert_eq!((state.documents, state.embedded), (2, 1));
    let found = by_name(search(index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], 5).await);
    assert_eq!(found.len(), 2);
    assert_eq!(found["s/0"].dense, [None]);
    assert!(found["s/0"].lexical[0] > 0.0);
    close(found["s/1"].dense[0], 1.0);

    // And where no document has one.
    replace(index, 0, vec![document("s", 0, &[], &[(1, 1.0)])]).await;
    assert_eq!(search(index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], 5).await.len(), 1);
}

pub(crate) async fn texts_may_lack_either_vector(index: &Index) {
    replace(index, 2, vec![document("s", 0, &[&[1.0, 0.0]], &[(1, 1.0)])]).await;
    let found = search(index, &[text(None, &[(1, 1.0)]), text(Some(&[1.0, 0.0]), &[]), text(None, &[])], 5).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].dense[0], found[0].dense[2]), (None, None));
    close(found[0].dense[1], 1.0);
    assert!(found[0].lexical[0] > 0.0);
    assert_eq!(found[0].lexical[1..], [0.0, 0.0]);
}

pub(crate) async fn a_rare_term_beats_a_frequent_one(index: &Index) {
    let mut documents: Vec<_> = (0..9).map(|number| named(&document("s", 0, &[], &[(1, 1.0)]), number)).collect();
    documents.push(named(&document("s", 0, &[], &[(2, 1.0)]), 9));
    documents.push(named(&document("s", 0, &[], &[]), 10));
    replace(index, 0, documents).await;
    let found = by_name(search(index, &[text(None, &[(1, 1.0), (2, 1.0)])], 20).await);
    assert_eq!(found.len(), 10);
    // ln(1 + (n - df + 0.5) / (df + 0.5)) over the ten documents that have terms.
    same(found["s/9"].lexical[0], (1.0_f32 + 9.5 / 1.5).ln());
    same(found["s/0"].lexical[0], (1.0_f32 + 1.5 / 9.5).ln());
}

pub(crate) async fn document_frequencies_are_those_of_the_whole_collection(index: &Index) {
    let mut documents: Vec<_> = (0..6).map(|number| named(&document("many", 1, &[], &[(1, 1.0)]), number)).collect();
    documents.push(document("few", 2, &[], &[(1, 1.0), (2, 1.0)]));
    documents.push(named(&document("few", 2, &[], &[(3, 1.0)]), 1));
    replace(index, 0, documents).await;
    let query = [text(None, &[(1, 2.0)])];
    let all = by_name(search(index, &query, 20).await);
    for visibility in [only_servers(&["few"]), only_classes(&[2])] {
        let few = search_as(index, &query, &visibility, 20).await;
        assert_eq!(few.len(), 1);
        same(few[0].lexical[0], all["few/tool"].lexical[0]);
    }
}

pub(crate) async fn equal_terms_are_added(index: &Index) {
    replace(
        index,
        0,
        vec![named(&document("s", 0, &[], &[(5, 1.0), (1, 1.0), (5, 0.5)]), 0), named(&document("s", 0, &[], &[(7, 1.0)]), 1)],
    )
    .await;
    let once = search(index, &[text(None, &[(5, 3.0)])], 5).await;
    let twice = search(index, &[text(None, &[(5, 1.0), (9, 1.0), (5, 2.0)])], 5).await;
    same(once[0].lexical[0], 3.0 * 1.5 * 2.0_f32.ln());
    assert_eq!(once, twice);
}

pub(crate) async fn replace_leaves_exactly_the_new_documents(index: &Index) {
    let stays = named(&document("s", 0, &[&[1.0, 0.0]], &[(1, 1.0)]), 1);
    let goes = named(&document("s", 0, &[&[1.0, 0.0]], &[(1, 1.0)]), 2);
    let before = named(&document("s", 0, &[&[1.0, 0.0]], &[(1, 1.0)]), 3);
    replace(index, 2, vec![stays.clone(), goes, before]).await;
    let after = named(&document("s", 4, &[&[0.0, 1.0]], &[(2, 1.0)]), 3);
    let new = named(&document("t", 0, &[&[0.0, 1.0]], &[(1, 1.0)]), 4);
    replace(index, 2, vec![new, after, stays]).await;

    assert_eq!(index.state().documents, 3);
    let found = by_name(search(index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], 10).await);
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), ["s/1", "s/3", "t/4"]);
    close(found["s/3"].dense[0], 0.0);
    assert_eq!(found["s/3"].lexical, [0.0]);
    let of_class = search_as(index, &[text(Some(&[1.0, 0.0]), &[])], &only_classes(&[4]), 10).await;
    assert_eq!(names(&of_class), ["s/3".to_owned()].into());

    replace(index, 2, Vec::new()).await;
    assert_eq!(index.state().documents, 0);
    assert_eq!(search(index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], 10).await, []);
}

pub(crate) async fn readers_see_old_or_new_contents_and_never_a_mix(index: &Index) {
    const LIMIT: usize = 20;
    // One contents is one server; its documents say by their cosine which one they belong to.
    let contents = |server: &str, vector: [f32; 2]| -> Vec<IndexDocument> {
        (0..300).map(|number| named(&document(server, 0, &[&vector], &[(1, 1.0)]), number)).collect()
    };
    let both = [contents("old", [1.0, 0.0]), contents("new", [0.6, 0.8])];
    replace(index, 2, both[0].clone()).await;
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (index, done, seen) = (Arc::clone(index), Arc::clone(&done), Arc::clone(&seen));
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let found = search(&index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], LIMIT).await;
                    assert!(found.len() >= LIMIT, "a reader found {} documents", found.len());
                    let new = found[0].tool.server.as_str() == "new";
                    for candidate in found {
                        assert_eq!(candidate.tool.server.as_str() == "new", new, "documents of both contents");
                        close(candidate.dense[0], if new { 0.6 } else { 1.0 });
                    }
                    seen[usize::from(new)].fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    // Goes on until the readers have met both contents, which is the point of it.
    let mut round = 0;
    while round < 6 || seen.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
        round += 1;
        replace(index, 2, both[round % 2].clone()).await;
        assert!(readers.iter().all(|reader| !reader.is_finished()), "a reader failed");
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
}

pub(crate) async fn a_limit_above_the_size_brings_everything(index: &Index) {
    let documents = collection(30, 8);
    replace(index, 8, documents.clone()).await;
    let query = [Random(3).text(8)];
    let found = search(index, &query, 1_000_000).await;
    assert!(found.len() >= index.state().embedded);
    assert_matches_definition(&found, &documents, |_| true, &query, 1_000_000);
}

pub(crate) async fn nothing_is_found_where_nothing_is_asked_or_held(index: &Index) {
    let query = [text(Some(&[1.0, 0.0]), &[(1, 1.0)])];
    assert_eq!(index.state().documents, 0);
    assert_eq!(search(index, &query, 10).await, []);
    replace(index, 2, vec![document("s", 0, &[&[1.0, 0.0]], &[(1, 1.0)])]).await;
    assert_eq!(search(index, &[], 10).await, []);
    assert_eq!(search(index, &query, 0).await, []);
    assert_eq!(search(index, &[text(None, &[]), text(None, &[])], 10).await, []);
    assert_eq!(search(index, &[text(None, &[(404, 1.0)])], 10).await, []);
}

pub(crate) async fn vectors_of_another_length_are_left_out(index: &Index) {
    let mixed = document("s", 0, &[&[1.0, 0.0, 0.0], &[1.0, 0.0], &[f32::NAN, 0.0]], &[(1, 1.0)]);
    let wrong = named(&document("s", 0, &[&[1.0]], &[(1, 1.0)]), 1);
    replace(index, 2, vec![mixed, wrong]).await;
    assert_eq!(index.state().embedded, 1);
    let found = by_name(search(index, &[text(Some(&[1.0, 0.0]), &[(1, 1.0)])], 10).await);
    close(found["s/tool"].dense[0], 1.0);
    assert_eq!(found["s/1"].dense, [None]);
    for vector in [&[1.0_f32, 0.0, 0.0][..], &[f32::NAN, 0.0]] {
        let found = search(index, &[text(Some(vector), &[(1, 1.0)])], 10).await;
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|candidate| candidate.dense == [None] && candidate.lexical[0] > 0.0));
    }
}

/// Sixty servers with one or two vectors each, and the documents that they need.
fn with_servers(dimension: usize) -> (Vec<IndexDocument>, Vec<IndexServer>) {
    let mut random = Random(11);
    let documents = (0..120).map(|number| {
        let (place, class) = (number % 60, number / 7 % 4);
        document(&format!("server-{place}"), class, &[&random.unit_vector(dimension)], &[(place, 1.0)])
    });
    let documents: Vec<_> = documents.zip(0..).map(|(document, number)| named(&document, number)).collect();
    let mut servers = servers_of(&documents);
    for server in &mut servers {
        let vectors = 1 + random.below(2);
        server.dense = (0..vectors).map(|_| random.unit_vector(dimension)).collect();
    }
    (documents, servers)
}

pub(crate) async fn servers_are_scored_by_the_definition_whatever_the_limit(index: &Index) {
    let (documents, servers) = with_servers(24);
    replace_with(index, 24, documents, servers.clone()).await;
    let mut random = Random(12);
    for texts in [1, 3] {
        let query: Vec<_> = (0..texts).map(|_| random.text(24)).collect();
        for limit in [1, 1_000] {
            let found = answer_as(index, &query, &Visibility::default(), limit).await;
            assert_servers_match_definition(&found, &servers, |_| true, &query);
        }
    }
    // A text without a vector has no part in it.
    let query = [text(None, &[(1, 1.0)]), random.text(24)];
    let found = answer_as(index, &query, &Visibility::default(), 5).await;
    assert_servers_match_definition(&found, &servers, |_| true, &query);
}

pub(crate) async fn hidden_servers_are_absent(index: &Index) {
    let (documents, all) = with_servers(24);
    replace_with(index, 24, documents, all.clone()).await;
    let query = [Random(13).text(24), Random(14).text(24)];
    let few: Vec<String> = (0..9).map(|number| format!("server-{number}")).collect();
    let few: Vec<&str> = few.iter().map(String::as_str).collect();
    let both = Visibility { servers: servers(&few), classes: classes(&[1, 3, 77]), ..Visibility::default() };
    for visibility in [only_servers(&few), only_classes(&[2]), both] {
        let visible = |server: &IndexServer| {
            visibility.servers.contains(&server.server) && server.classes.iter().any(|class| visibility.classes.contains(class))
        };
        let found = answer_as(index, &query, &visibility, 5).await;
        assert!(found.servers.len() < all.len());
        assert_servers_match_definition(&found, &all, visible, &query);
    }
    for visibility in [only_servers(&[]), only_servers(&["unknown"]), only_classes(&[]), only_classes(&[9])] {
        assert_eq!(answer_as(index, &query, &visibility, 5).await.servers, []);
    }

    // Some of its tools are hidden: it is there. All of them, or it has none: it is not.
    let documents = vec![document("mixed", 0, &[], &[(1, 1.0)]), named(&document("mixed", 1, &[], &[(1, 1.0)]), 1)];
    let all = vec![server("mixed", &[0, 1], &[&[1.0, 0.0]]), server("empty", &[], &[&[1.0, 0.0]])];
    replace_with(index, 2, documents, all).await;
    let query = [text(Some(&[0.6, 0.8]), &[])];
    for (visibility, expected) in [
        (Visibility::default(), Some(0.6)),
        (only_classes(&[1]), Some(0.6)),
        (only_classes(&[0, 7]), Some(0.6)),
        (only_classes(&[7]), None),
    ] {
        let scores = server_scores(&answer_as(index, &query, &visibility, 5).await);
        assert_eq!(scores.len(), usize::from(expected.is_some()), "{visibility:?}: {scores:?}");
        if let Some(expected) = expected {
            close(scores.get("mixed").copied(), expected);
        }
    }
}

pub(crate) async fn servers_without_vectors_are_absent(index: &Index) {
    let tools = |name: &str| document(name, 0, &[&[1.0, 0.0]], &[(1, 1.0)]);
    let documents = vec![tools("with"), tools("without"), tools("wrong"), tools("twice")];
    let all = vec![
        server("twice", &[0], &[&[1.0, 0.0]]),
        server("with", &[0], &[&[0.0, 1.0], &[1.0, 0.0, 0.0], &[0.8, 0.6]]),
        server("without", &[0], &[]),
        server("wrong", &[0], &[&[1.0], &[f32::NAN, 0.0]]),
        server("twice", &[0], &[&[0.6, 0.8]]),
    ];
    replace_with(index, 2, documents, all).await;
    assert_eq!((index.state().documents, index.state().embedded), (4, 4), "servers are not counted");
    let find = async |texts: &[IndexQueryText]| answer_as(index, texts, &Visibility::default(), 10).await;
    let scores = server_scores(&find(&[text(Some(&[1.0, 0.0]), &[])]).await);
    assert_eq!(scores.keys().map(String::as_str).collect::<Vec<_>>(), ["twice", "with"]);
    close(scores.get("twice").copied(), 0.6);
    close(scores.get("with").copied(), 0.8);
    // Nothing to compare them with.
    for texts in [&[text(None, &[(1, 1.0)])][..], &[text(Some(&[1.0]), &[(1, 1.0)])], &[]] {
        assert_eq!(find(texts).await.servers, []);
    }
    assert_eq!(answer_as(index, &[text(Some(&[1.0, 0.0]), &[])], &Visibility::default(), 0).await.servers, []);
}

pub(crate) async fn servers_change_nothing_for_tools(index: &Index) {
    let documents = collection(300, 16);
    let query = [Random(15).text(16), Random(16).text(16)];
    let visibilities = [Visibility::default(), only_servers(&["server-1", "server-4"]), only_classes(&[0, 2])];
    let mut without = Vec::new();
    replace_with(index, 16, documents.clone(), Vec::new()).await;
    for visibility in &visibilities {
        let found = answer_as(index, &query, visibility, 12).await;
        assert_eq!(found.servers, []);
        without.push(by_name(found.candidates));
    }
    let without_servers = without[0].len();
    // Nearer to the first text than any tool, and many of them.
    let near = query[0].dense.clone().unwrap();
    let more = (0..200).map(|number| server(&format!("other-{number}"), &[number % 3], &[&near]));
    let all: Vec<_> =
        servers_of(&documents).into_iter().map(|server| IndexServer { dense: vec![near.clone()], ..server }).chain(more).collect();
    replace_with(index, 16, documents, all).await;
    for (visibility, without) in visibilities.iter().zip(without) {
        let found = answer_as(index, &query, visibility, 12).await;
        assert!(!found.servers.is_empty());
        let found = by_name(found.candidates);
        assert_eq!(found.keys().collect::<Vec<_>>(), without.keys().collect::<Vec<_>>());
        for (now, before) in found.values().zip(without.values()) {
            for (now, before) in now.dense.iter().zip(&before.dense) {
                match before {
                    Some(before) => close(*now, *before),
                    None => assert_eq!(*now, None),
                }
            }
            for (now, before) in now.lexical.iter().zip(&before.lexical) {
                same(*now, *before);
            }
        }
    }
    assert_eq!(index.state().documents, 300);
    let request = IndexQuery { texts: &query, visibility: &Visibility::default(), limit: 12, servers: false };
    let unasked = index.search(&request).await.unwrap();
    assert_eq!((unasked.servers, by_name(unasked.candidates).len()), (Vec::new(), without_servers));
}

pub(crate) async fn replace_leaves_exactly_the_new_servers(index: &Index) {
    let documents = vec![document("stays", 0, &[&[1.0, 0.0]], &[(1, 1.0)]), document("goes", 0, &[&[1.0, 0.0]], &[(1, 1.0)])];
    replace(index, 2, documents.clone()).await;
    let query = [text(Some(&[1.0, 0.0]), &[])];
    let scores = async || server_scores(&answer_as(index, &query, &Visibility::default(), 10).await);
    assert_eq!(scores().await.into_keys().collect::<Vec<_>>(), ["goes", "stays"]);
    // Of the same tools: only a server has changed.
    replace_with(index, 2, documents, vec![server("stays", &[0], &[&[0.6, 0.8]])]).await;
    let left = scores().await;
    assert_eq!(left.len(), 1);
    close(left.get("stays").copied(), 0.6);
    replace(index, 2, Vec::new()).await;
    assert_eq!(scores().await.len(), 0);
}
