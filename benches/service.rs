//! Selection at 200 and 2,000 tools, composing a document, what execution over HTTP adds to the call itself, and what counting
//! adds to a message.
//!
//!     cargo bench --bench service
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use toolsieve::adapters::embed::BuiltinEmbedder;
use toolsieve::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::app::{self, Application};
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::access::visibility::Visibility;
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::publishing::address::Address;
use toolsieve::domain::selection::relevance::Role;
use toolsieve::domain::toolsets::mode::Mode;
use toolsieve::service::catalog::current::CurrentCatalog;
use toolsieve::service::catalog::indexing::Indexing;
use toolsieve::service::ports::{Embedder, Store, ToolIndex, ToolServers as _};
use toolsieve::service::publishing::publish::{DocumentOf, Publish, PublishOptions};
use toolsieve::service::records::metrics::{CacheKind, Meters, SelectionFigures, SelectionKind, Stage};
use toolsieve::service::selection::request::{SelectRequest, Turn};
use toolsieve::service::selection::retrieve::Retrieve;
use toolsieve::settings::{Overrides, ServersSource, Settings, Sources};

const VERBS: [&str; 10] = ["create", "read", "update", "delete", "list", "search", "send", "convert", "merge", "export"];
const NOUNS: [&str; 20] = [
    "issue",
    "file",
    "email",
    "calendar event",
    "invoice",
    "branch",
    "page",
    "table row",
    "message",
    "contact",
    "ticket",
    "photo",
    "map route",
    "playlist",
    "database",
    "container",
    "log entry",
    "time zone",
    "payment",
    "document",
];

/// A catalog of so many tools on servers of 20 each.
fn tools(count: usize) -> Catalog {
    let servers = (0..count / 20).map(|number| {
        let name = ServerName::from(format!("server{number}").as_str());
        let tools = NOUNS.iter().map(|noun| {
            let verb = VERBS[number % VERBS.len()];
            let raw = json!({
                "name": format!("{verb}_{}", noun.replace(' ', "_")),
                "description": format!("{verb} one {noun} of the workspace number {number}. Returns what was done."),
                "inputSchema": {"type": "object", "required": ["id"], "properties": {
                    "id": {"type": "string", "description": format!("which {noun}")},
                    "fields": {"type": "array", "items": {"type": "string"}, "description": "what to return"},
                    "mode": {"type": "string", "enum": ["fast", "careful"], "default": "fast"}
                }}
            });
            Arc::new(catalog::tool(&name, &raw).unwrap())
        });
        CatalogServer::untitled(name.clone(), tools.collect())
    });
    Catalog::new(servers.collect())
}

fn select(criterion: &mut Criterion) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Runtime::new().unwrap();
    let _guard = runtime.enter();
    let Settings { start, live, .. } = Settings::defaults().unwrap();
    for count in [200, 2_000] {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(runtime.block_on(SqliteStore::open(&folder.path().join("t.db"))).unwrap());
        let embedder: Arc<dyn Embedder> = Arc::new(BuiltinEmbedder::new().unwrap());
        let options =
            EmbeddedIndexOptions { folder: folder.path().join("index"), model: embedder.model().into(), progress: Arc::new(|_| {}) };
        let index: Arc<dyn ToolIndex> = EmbeddedIndex::open(options).unwrap();
        let current = Arc::new(CurrentCatalog::new(live.selection.clone()));
        current.swap(tools(count));
        let indexing = Indexing::new(Arc::clone(&current), Arc::clone(&store), index, embedder);
        runtime.block_on(indexing.update(&current.snapshot()));
        let stop = CancellationToken::new();
        let retrieve = Arc::new(Retrieve::over(&indexing));
        runtime.block_on(retrieve.teach_gate(store.as_ref()));
        let select = app::select(&current, &retrieve, &store, &start, &stop).unwrap();
        let principal = Principal::anyone();
        let ask =
            |text: String| SelectRequest { turns: vec![Turn { role: Role::User, text, called: Vec::new() }], ..SelectRequest::default() };
        let mut number = 0;
        // Every message is a new one, so that its vector is never in the cache.
        criterion.bench_function(&format!("select among {count}, a new message"), |bencher| {
            bencher.iter(|| {
                number += 1;
                runtime.block_on(select.select(ask(format!("please send the email number {number} to Anna today")), &principal))
            });
        });
        criterion.bench_function(&format!("select among {count}, a known message"), |bencher| {
            bencher.iter(|| runtime.block_on(select.select(ask("please send the email to Anna today".to_owned()), &principal)));
        });
        criterion.bench_function(&format!("select among {count}, a known message, explained"), |bencher| {
            let known = || ask("please send the email to Anna today".to_owned());
            bencher.iter(|| runtime.block_on(select.explain(known(), &principal, |_| {})));
        });
        stop.cancel();
    }
}

fn options() -> PublishOptions {
    PublishOptions { secured: true, ..PublishOptions::default() }
}

fn documents(criterion: &mut Criterion) {
    for count in [200, 2_000] {
        let current = Arc::new(CurrentCatalog::default());
        current.swap(tools(count));
        let visibility = Visibility::default();
        criterion.bench_function(&format!("compose a document of {count} tools"), |bencher| {
            bencher.iter_batched(
                || Publish::new(Arc::clone(&current), options()),
                |publish| black_box(publish.document(&Address::Whole, &DocumentOf::Root, &visibility, Mode::Full)),
                criterion::BatchSize::SmallInput,
            );
        });
        let publish = Publish::new(Arc::clone(&current), options());
        criterion.bench_function(&format!("a composed document of {count} tools again"), |bencher| {
            bencher.iter(|| black_box(publish.document(&Address::Whole, &DocumentOf::Root, &visibility, Mode::Full)));
        });
    }
}

fn execute(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let binary = std::env::current_exe().unwrap();
    let server = binary.parent().unwrap().parent().unwrap().join("examples/test-stdio-server");
    assert!(server.exists(), "build it first: cargo build --release --examples");
    let folder = tempfile::tempdir().unwrap();
    let servers = json!({"mcpServers": {"one": {"command": server}}}).to_string();
    let sources = Sources {
        servers: ServersSource::Text { name: "bench".into(), text: servers },
        overrides: Overrides { port: Some(0), data_dir: Some(folder.path().join("data")), ..Overrides::default() },
        ..Sources::default()
    };
    let (settings, _) = Settings::load(&sources).unwrap();
    let (direct, _) = Settings::load(&sources).unwrap();
    let client = reqwest::Client::new();
    let (url, stop, task, servers) = runtime.block_on(async {
        use toolsieve::adapters::mcp;
        let application = Application::start(settings).await.unwrap();
        let (url, stop) = (application.url(), application.handle());
        let task = tokio::spawn(application.run());
        let options = mcp::Options {
            client: mcp::client_builder().build().unwrap(),
            processes: Arc::default(),
            oauth: None,
            timing: mcp::Timing::default(),
            users: toolsieve::settings::UserConnectionSettings::default(),
            questions: mcp::Questions::default(),
        };
        let servers = mcp::McpServers::start(direct.live.servers, options);
        loop {
            let ready: Value = client.get(format!("{url}/readyz")).send().await.unwrap().json().await.unwrap();
            if ready["tools"].as_u64() > Some(0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (url, stop, task, servers)
    });
    let arguments: Arc<RawValue> = RawValue::from_string("{\"text\":\"hello\"}".to_owned()).unwrap().into();
    let id = toolsieve::domain::catalog::tool::ToolId::new("one", "echo");
    let context = || toolsieve::service::ports::CallContext::new(Arc::new(Principal::anyone()));
    criterion.bench_function("execute: the call itself", |bencher| {
        bencher.iter(|| runtime.block_on(servers.call(&id, Arc::clone(&arguments), context())).unwrap());
    });
    let echo = format!("{url}/one/echo");
    criterion.bench_function("execute: over HTTP", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async { client.post(&echo).body("{\"text\":\"hello\"}").send().await.unwrap().bytes().await.unwrap() })
        });
    });
    runtime.block_on(async {
        servers.shut_down().await;
        stop.stop(true).await;
        let _ = task.await;
    });
}

/// What counting adds to one message, beside the request that it is a part of.
fn meters(criterion: &mut Criterion) {
    let meters = Meters::new(false);
    let vectors = meters.cache(CacheKind::Vectors);
    let figures = SelectionFigures {
        kind: SelectionKind::Chosen,
        took: Duration::from_micros(2_500),
        tools_before: 2_000,
        tools_after: 10,
        tokens_before: 90_000,
        tokens_after: 1_800,
    };
    criterion.bench_function("count one message", |bencher| {
        bencher.iter(|| {
            let started = Instant::now();
            vectors.hits(0);
            vectors.misses(1);
            meters.stage(Stage::Embed, started);
            meters.stage(Stage::Index, started);
            meters.selection(black_box(&figures));
            meters.request("/v1/filter".to_owned(), "POST", 200);
        });
    });
}

criterion_group!(benches, meters, select, documents, execute);
criterion_main!(benches);
