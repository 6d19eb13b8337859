//! Usage out of a record of a million events: writing them down, and reading the sums of 30 and of 90 days.
//!
//!     cargo bench --bench usage
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use criterion::{Criterion, criterion_group, criterion_main};
use tokio::runtime::Runtime;
use toolsieve::adapters::store::SqliteStore;
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::service::ports::{Attribution, CallOutcome, EventMessage, SelectionEvent, SelectionEventKind, Store};
use toolsieve::service::records::usage::{Usage, UsageOrder};

const EVENTS: usize = 1_000_000;
const BATCH: usize = 4_096;
const TOOLS: usize = 500;
/// Tools that a selection leaves on offer.
const OFFERED: usize = 10;
const DAYS: u64 = 90;

/// Three messages, one search and six calls in ten events, evenly over the days. Without vectors, of which no sum knows.
fn event(number: usize, tools: &[ToolId], begin: SystemTime) -> SelectionEvent {
    let at = begin + Duration::from_secs(DAYS * 86_400) * u32::try_from(number).unwrap() / u32::try_from(EVENTS).unwrap();
    // A few tools are used most.
    let tool = |offset: usize| tools[(number * 7_919 + offset * 31) % TOOLS * ((number + offset) % 5 + 1) / 5].clone();
    let kind = match number % 10 {
        0..3 => SelectionEventKind::Offered {
            message: EventMessage::default(),
            tools: (0..OFFERED).map(tool).collect(),
            tokens_before: 90_000,
            tokens_after: 1_800,
            tokens_saved: 0,
            model: None,
            arm: None,
        },
        3 => SelectionEventKind::Searched { message: EventMessage::default(), tools: (0..OFFERED).map(tool).collect(), recovered: true },
        _ => SelectionEventKind::Called {
            tool: tool(0),
            outcome: if number.is_multiple_of(17) { CallOutcome::ToolError } else { CallOutcome::Success },
            took: Duration::from_micros((number as u64 * 7_919) % 900_000 + 500),
            recovered: number.is_multiple_of(13),
        },
    };
    SelectionEvent {
        at,
        selection: None,
        principal: "user:5b0c9a52".into(),
        key: None,
        chat: None,
        conversation: None,
        attribution: Attribution::default(),
        kind,
    }
}

fn usage(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolsieve.db");
    let store: Arc<dyn Store> = Arc::new(runtime.block_on(SqliteStore::open(&file)).unwrap());
    let tools: Vec<ToolId> =
        (0..TOOLS).map(|number| ToolId::new(format!("server{}", number / 20).as_str(), format!("tool{number}"))).collect();
    let now = SystemTime::now();
    let begin = now - Duration::from_secs(DAYS * 86_400);
    let started = Instant::now();
    for first in (0..EVENTS).step_by(BATCH) {
        let events: Vec<SelectionEvent> = (first..EVENTS.min(first + BATCH)).map(|number| event(number, &tools, begin)).collect();
        runtime.block_on(store.record(&events)).unwrap();
    }
    let took = started.elapsed();
    let size = std::fs::metadata(&file).unwrap().len() >> 20;
    println!("{EVENTS} events written in {:.1} s ({:.0} a second), {size} MiB", took.as_secs_f64(), EVENTS as f64 / took.as_secs_f64());
    let usage = Usage { store };
    for days in [30, DAYS] {
        let query =
            toolsieve::service::ports::UsageQuery { since: now - Duration::from_secs(days * 86_400), until: now, server: None, tool: None };
        criterion.bench_function(&format!("usage of {days} days out of {EVENTS} events"), |bencher| {
            bencher.iter(|| black_box(runtime.block_on(usage.report(&query, UsageOrder::Called, 100)).unwrap()));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = usage
}
criterion_main!(benches);
