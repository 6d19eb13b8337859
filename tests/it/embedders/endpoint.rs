//! The port over an endpoint: what is sent, and what each answer makes of it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use toolsieve::adapters::embed::{EndpointEmbedder, Timing};
use toolsieve::service::ports::{Embedder, recovered};
use toolsieve::settings::{Dialect, EndpointSettings, Prefixes};

use super::server::{DIMENSION, Endpoint, Reply, answer, vector};
use crate::harness::LONG;
use crate::harness::wait::eventually;

const KEY: &str = "a-secret-key";

fn settings(url: &str) -> EndpointSettings {
    EndpointSettings {
        base_url: url.to_owned(),
        model: "embed-small".into(),
        api_key: Some(KEY.into()),
        dialect: Dialect::OpenAi,
        dimensions: None,
        prefixes: Prefixes::default(),
        // Long enough for a loaded machine; a test of the time itself sets another.
        timeout: LONG,
        batch: 64,
    }
}

fn start(settings: EndpointSettings) -> EndpointEmbedder {
    start_with(settings, LONG)
}

/// With another limit for requests that no message waits for.
fn start_with(settings: EndpointSettings, passages: Duration) -> EndpointEmbedder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pause = Duration::from_millis(10);
    let timing = Timing { passages, attempts: 3, first_pause: pause, longest_pause: Duration::from_secs(2) };
    EndpointEmbedder::start(reqwest::Client::new(), settings, timing)
}

/// An embedder whose endpoint has answered once.
async fn ready(settings: EndpointSettings) -> EndpointEmbedder {
    answering(start(settings)).await
}

async fn answering(embedder: EndpointEmbedder) -> EndpointEmbedder {
    let mut recoveries = embedder.recoveries();
    while embedder.dimension() == 0 || embedder.fault().is_some() {
        tokio::time::timeout(LONG, recovered(&mut recoveries)).await.unwrap();
    }
    embedder
}

fn is(vectors: &[Arc<[f32]>], texts: &[&str]) -> bool {
    let near = |(found, text): (&Arc<[f32]>, &&str)| {
        let wanted = vector(text, found.len());
        found.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-5)
    };
    vectors.len() == texts.len() && vectors.iter().zip(texts).all(near)
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("tool number {number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_voyage_and_gemini_are_asked_in_their_own_words() {
    let endpoint = Endpoint::start(|_| Reply::Vectors);
    let prefixes = Prefixes { query: Some("Q: ".into()), passage: Some("P: ".into()) };
    let embedder = ready(EndpointSettings { dimensions: Some(8), prefixes, ..settings(&endpoint.url) }).await;
    assert!(is(&embedder.embed_queries(&["one", "two"]).await.unwrap(), &["Q: one", "Q: two"]));
    assert!(is(&embedder.embed_passages(vec!["three".into(), " ".into()]).await.unwrap(), &["P: three", "P: nothing"]));
    let seen = endpoint.seen();
    assert!(seen.iter().all(|seen| seen.path == "/v1/embeddings"));
    assert_eq!(seen[0].authorization.as_deref(), Some("Bearer a-secret-key"));
    assert_eq!(seen[0].body, json!({"model": "embed-small", "input": ["Q: one", "Q: two"], "dimensions": 8}));
    assert_eq!(seen[1].body["input"], json!(["P: three", "P: nothing"]));

    let voyage = Endpoint::start(|_| Reply::Vectors);
    let plain = EndpointSettings { dialect: Dialect::Voyage, dimensions: Some(16), api_key: None, ..settings(&voyage.url) };
    let embedder = ready(plain).await;
    assert!(is(&embedder.embed_queries(&["one"]).await.unwrap(), &["one"]));
    embedder.embed_passages(vec!["two".into()]).await.unwrap();
    let seen = voyage.seen();
    assert_eq!(seen[0].authorization, None);
    assert_eq!(seen[0].body, json!({"model": "embed-small", "input": ["one"], "output_dimension": 16, "input_type": "query"}));
    assert_eq!(seen[1].body["input_type"], "document");

    // Gemini leaves out an index of 0.
    let gemini = Endpoint::start(|seen| {
        let mut answer = answer(&seen.texts().iter().map(|text| vector(text, 4)).collect::<Vec<_>>());
        answer["data"][0].as_object_mut().unwrap().remove("index");
        Reply::Raw(answer.to_string())
    });
    let embedder = ready(settings(&gemini.url)).await;
    assert!(is(&embedder.embed_queries(&["one", "two"]).await.unwrap(), &["one", "two"]));
    assert_eq!(embedder.dimension(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_texts_are_sent_in_batches_and_come_back_in_order() {
    let endpoint = Endpoint::start(|_| Reply::Reversed);
    let embedder = ready(EndpointSettings { batch: 4, ..settings(&endpoint.url) }).await;
    let texts = numbered(10);
    let vectors = embedder.embed_passages(texts.clone()).await.unwrap();
    assert!(is(&vectors, &texts.iter().map(String::as_str).collect::<Vec<_>>()));
    let mut sizes: Vec<usize> = endpoint.seen().iter().map(|seen| seen.texts().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 4, 4]);

    let long = vec!["many words ".repeat(10_000); 60];
    embedder.embed_passages(long).await.unwrap();
    let longest = endpoint.seen().iter().map(|seen| seen.texts().iter().map(|text| text.len()).sum::<usize>()).max();
    assert!(longest.unwrap() <= 32_000, "{longest:?}");
    assert!(embedder.embed_passages(Vec::new()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_answer_is_an_error_that_says_what_it_is_and_not_the_key() {
    let good = || vec![vector("a", DIMENSION), vector("b", DIMENSION)];
    let twice = {
        let mut twice = answer(&good());
        twice["data"][1]["index"] = json!(0);
        twice
    };
    let cases = [
        (Reply::Raw(answer(&good()[..1]).to_string()), "1 vectors for 2 texts"),
        (Reply::Raw(twice.to_string()), "inconsistent: the order contradicts the index numbers"),
        (Reply::Raw(answer(&[vector("a", 8), vector("b", 8)]).to_string()), "vectors of 8 values instead of 64"),
        (Reply::Raw(answer(&[vec![0.0; DIMENSION], vector("b", DIMENSION)]).to_string()), "a vector of zeros"),
        (Reply::Raw("<html>a-secret-key</html>".into()), "not a list of embeddings"),
        (Reply::Raw(format!("\"{}\"", "x".repeat(4 << 20))), "too long"),
        (Reply::Status(400), "rejected the request with HTTP status 400"),
        (Reply::Status(401), "rejected the key"),
        (Reply::Status(404), "no such model"),
        (Reply::Status(307), "rejected the request with HTTP status 307"),
        (Reply::Status(429), "rate limit was exceeded"),
        (Reply::Status(503), "failed with HTTP status 503"),
    ];
    for (reply, expected) in cases {
        let endpoint = Endpoint::start(|_| Reply::Vectors);
        let embedder = ready(settings(&endpoint.url)).await;
        let reply = std::sync::Mutex::new(Some(reply));
        endpoint.answers(move |seen| match (seen.is_probe(), reply.lock().unwrap().take()) {
            (false, Some(reply)) => reply,
            _ => Reply::Vectors,
        });
        let error = embedder.embed_queries(&["a", "b"]).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains(KEY) && !format!("{:?}", settings(&endpoint.url)).contains(KEY));
        // It is asked again as soon as it answers.
        eventually(&format!("it answers after {expected}"), async || embedder.embed_queries(&["a", "b"]).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_tools_are_sent_again_when_that_may_help() {
    let endpoint = Endpoint::start(|_| Reply::Vectors);
    let embedder = ready(settings(&endpoint.url)).await;
    let fails = |replies: Vec<Reply>| {
        let replies = std::sync::Mutex::new(replies);
        move |seen: &super::server::Seen| {
            if seen.is_probe() { Reply::Vectors } else { replies.lock().unwrap().pop().unwrap_or(Reply::Vectors) }
        }
    };
    endpoint.answers(fails(vec![Reply::Later(429, "1")]));
    let started = Instant::now();
    assert!(is(&embedder.embed_passages(vec!["one".into()]).await.unwrap(), &["one"]));
    assert!(started.elapsed() >= Duration::from_secs(1), "Retry-After holds");
    assert_eq!(endpoint.seen().len(), 2);

    endpoint.answers(fails(vec![Reply::Status(500), Reply::Status(502)]));
    assert!(is(&embedder.embed_passages(vec!["two".into()]).await.unwrap(), &["two"]));
    assert_eq!(endpoint.seen().len(), 5);

    // Not for ever, and not where the answer would be the same.
    endpoint.answers(|seen| if seen.is_probe() { Reply::Vectors } else { Reply::Status(500) });
    embedder.embed_passages(vec!["three".into()]).await.unwrap_err();
    assert_eq!(endpoint.seen().len(), 8);
    endpoint.answers(|seen| if seen.is_probe() { Reply::Vectors } else { Reply::Status(401) });
    let embedder = answering(embedder).await;
    embedder.embed_passages(vec!["four".into()]).await.unwrap_err();
    assert_eq!(endpoint.seen().len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_for_the_endpoint_is_made_smaller() {
    // It takes two texts of 1,000 characters.
    let endpoint = Endpoint::start(|seen| {
        let fits = seen.texts().len() <= 2 && seen.texts().iter().all(|text| text.len() <= 1_000);
        if fits { Reply::Vectors } else { Reply::Status(400) }
    });
    let embedder = ready(settings(&endpoint.url)).await;
    let mut texts = numbered(7);
    texts[3] = "word ".repeat(1_000);
    let vectors = embedder.embed_passages(texts.clone()).await.unwrap();
    let mut wanted: Vec<&str> = texts.iter().map(String::as_str).collect();
    wanted[3] = &texts[3][..625];
    assert!(is(&vectors, &wanted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_once_and_briefly_until_the_endpoint_answers_again() {
    let endpoint = Endpoint::start(|_| Reply::Vectors);
    let brief = EndpointSettings { timeout: Duration::from_millis(200), ..settings(&endpoint.url) };
    let passages = Duration::from_secs(5);
    let embedder = answering(start_with(brief, passages)).await;
    endpoint.answers(|_| Reply::Hang);
    let started = Instant::now();
    let error = embedder.embed_queries(&["one"]).await.unwrap_err().to_string();
    assert!(error.contains("did not answer in time") && started.elapsed() < passages, "the limit is that of a message: {error}");
    let asked = endpoint.seen().len();
    embedder.embed_queries(&["two"]).await.unwrap_err();
    embedder.embed_passages(vec!["three".into()]).await.unwrap_err();
    assert_eq!(endpoint.seen().len(), asked, "what is known to fail is not asked");
    assert!(embedder.fault().unwrap().contains("did not answer in time"));
    endpoint.answers(|_| Reply::Vectors);
    let embedder = answering(embedder).await;
    assert!(is(&embedder.embed_passages(vec!["three".into()]).await.unwrap(), &["three"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_down_at_the_start_is_found_when_it_comes() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let embedder = start(settings(&format!("http://{address}/v1")));
    let mut recoveries = embedder.recoveries();
    let error = embedder.embed_queries(&["one"]).await.unwrap_err().to_string();
    assert!(error.contains("can't be reached"), "{error}");
    assert_eq!(embedder.dimension(), 0);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let _endpoint = Endpoint::on(TcpListener::bind(address).unwrap(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Reply::Vectors
    });
    tokio::time::timeout(LONG, recovered(&mut recoveries)).await.unwrap();
    assert!(is(&embedder.embed_queries(&["one"]).await.unwrap(), &["one"]));
    assert_eq!((embedder.dimension(), embedder.fault()), (DIMENSION, None));
    assert!(asked.load(Ordering::Relaxed) >= 2);
}

#[test]
fn models_have_different_names_when_their_vectors_differ() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    let url = "http://127.0.0.1:9/v1";
    let name = |settings: EndpointSettings| start(settings).model().to_owned();
    let one = name(settings(url));
    assert!(one.starts_with("embed-small@127.0.0.1-") && !one.contains(KEY), "{one}");
    assert_eq!(one, name(EndpointSettings { api_key: None, batch: 1, ..settings(url) }));
    let prefixes = Prefixes { passage: Some("P: ".into()), ..Prefixes::default() };
    for other in [
        EndpointSettings { model: "embed-large".into(), ..settings(url) },
        EndpointSettings { dimensions: Some(8), ..settings(url) },
        EndpointSettings { dialect: Dialect::Voyage, ..settings(url) },
        EndpointSettings { prefixes, ..settings(url) },
        settings("http://127.0.0.1:10/v1"),
    ] {
        assert_ne!(one, name(other));
    }
}
