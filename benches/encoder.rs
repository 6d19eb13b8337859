//! The built-in embedder on each code path: `cargo bench --bench encoder`.
//!
//! `q12`: queries of 12 word pieces; `m100`: messages of 100; `docs`: tool texts of about 61, 32 in a batch
//! on one thread. Texts are counted without `[CLS]` and `[SEP]`.
//!
//! `unigram` is tokenization alone, with the small model of the tests or the model in the folder `UNIGRAM_MODEL`: a query of 12
//! pieces, and 200 kB of words, of one word, of combining marks, of unknown characters, and of mixed directions.
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{env, hint::black_box, path::PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use toolsieve::adapters::embed::builtin::{Encoder, Kernel, PromptOverrides};

const QUERIES: [&str; 4] = [
    "create a new issue in the repository about login errors now please",
    "show me the weather forecast for tomorrow morning in berlin and paris",
    "send an email to the team that the meeting moves to friday",
    "find cheap flights from oslo to lisbon for the next two weeks",
];

const DOCUMENT: &str = "create_event: Creates an event in a calendar and invites people to it. Parameters: title \
    of the event; start and end as date and time with zone; attendees, a list of mail addresses; reminder in \
    minutes before the start; location, free text; returns the id of the event";

/// The longest prefix of `text` with at most `pieces` word pieces.
fn cut<'a>(encoder: &Encoder, text: &'a str, pieces: usize) -> &'a str {
    let ends = text.char_indices().map(|(index, _)| index).chain([text.len()]);
    let fits = |end: &usize| encoder.tokens(&text[..*end]).len() <= pieces + 2;
    &text[..ends.take_while(fits).last().unwrap_or(0)]
}

fn encoder(criterion: &mut Criterion) {
    for kernel in Kernel::available() {
        let encoder = Encoder::built_in().unwrap().with_kernel(kernel).unwrap();
        let mut group = criterion.benchmark_group(format!("encoder/{}", kernel.name()));
        group.sample_size(if kernel == Kernel::Portable { 10 } else { 50 });
        let queries = QUERIES.map(|query| cut(&encoder, query, 12));
        let mut turn = queries.iter().cycle();
        group.bench_function("q12", |bench| bench.iter(|| encoder.encode(&[turn.next().unwrap()])));
        let message = QUERIES.join(". ").repeat(3);
        let message = cut(&encoder, &message, 100);
        group.bench_function("m100", |bench| bench.iter(|| encoder.encode(&[black_box(message)])));
        let documents = [cut(&encoder, DOCUMENT, 61); 32];
        group.throughput(Throughput::Elements(32));
        group.bench_function("docs", |bench| bench.iter(|| encoder.encode(black_box(&documents))));
        group.throughput(Throughput::Elements(1));
        group.bench_function("tokenize", |bench| bench.iter(|| encoder.tokens(black_box(queries[0]))));
        group.finish();
    }
}

fn unigram(criterion: &mut Criterion) {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/xlm-roberta");
    let folder = env::var_os("UNIGRAM_MODEL").map_or_else(|| PathBuf::from(own), PathBuf::from);
    let encoder = Encoder::from_folder(&folder, "unigram", &PromptOverrides::default()).unwrap();
    let mut group = criterion.benchmark_group("unigram");
    group.sample_size(20);
    let queries = QUERIES.map(|query| cut(&encoder, query, 12));
    let mut turn = queries.iter().cycle();
    group.bench_function("q12", |bench| bench.iter(|| encoder.tokens(turn.next().unwrap())));
    let parts =
        [("words", "weather "), ("one_word", "weather"), ("marks", "\u{301}"), ("unknown", "\u{f1234}"), ("mixed", "שלוםabc مرحبا")];
    for (name, part) in parts {
        let text = part.repeat(200_000 / part.len());
        group.bench_function(name, |bench| bench.iter(|| encoder.tokens(black_box(&text))));
    }
    group.finish();
}

criterion_group!(benches, encoder, unigram);
criterion_main!(benches);
