//! The votes of 100,000 remembered messages, as one caller's message asks for them, what follows the tools of 100,000 chats, and the memory
//! that they take.
//!
//!     cargo bench --bench learning
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::domain::learning::co_use::{CoUse, FollowParameters, MOST_CHATS};
use toolsieve::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
use toolsieve::domain::learning::memory::{Memory, RIVALS, RememberedMessage};
use toolsieve::domain::learning::vector::MessageVector;
use toolsieve::domain::learning::votes::VoteParameters;

/// Full scopes. The message's caller has six: its own, four groups and all callers of its key.
const SCOPES: usize = 20;
const OF_CALLER: usize = 6;
const MESSAGES: usize = 5_000;
const PEOPLE: usize = 50;
const TOOLS: usize = 500;
const DIMENSION: usize = 384;
const NOW: Minute = Minute(29_000_000);

/// The resident memory of this process, in MiB.
fn resident() -> f64 {
    let pages: f64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096.0 / f64::from(1 << 20)
}

fn vector(random: &mut StdRng) -> MessageVector {
    let values: Vec<f32> = (0..DIMENSION).map(|_| random.random_range(-1.0_f32..1.0)).collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    MessageVector::of(&values.iter().map(|value| value / length).collect::<Vec<_>>()).unwrap()
}

fn rivals(random: &mut StdRng, tools: &[ToolId]) -> Arc<[(ToolId, f32)]> {
    (0..RIVALS).map(|_| (tools[random.random_range(0..TOOLS)].clone(), random.random_range(0.0..4.0))).collect()
}

fn memory(random: &mut StdRng, tools: &[ToolId], people: &[Arc<str>], is_of_one: bool) -> Memory {
    let mut memory = if is_of_one { Memory::of_one() } else { Memory::default() };
    for number in 0..MESSAGES {
        let message = RememberedMessage {
            id: format!("0198c2a1-7d5e-7000-8000-{number:012}").into(),
            vector: vector(random),
            rivals: rivals(random, tools),
        };
        for kind in [EvidenceKind::Called, EvidenceKind::PassedOver] {
            let evidence = Evidence { tool: tools[random.random_range(0..TOOLS)].clone(), kind, at: NOW };
            memory.insert(&message, &people[number % PEOPLE], &evidence, MESSAGES);
        }
    }
    if is_of_one {
        memory.refit();
    }
    memory
}

fn votes(criterion: &mut Criterion) {
    let mut random = StdRng::seed_from_u64(7);
    let tools: Vec<ToolId> = (0..TOOLS).map(|number| ToolId::new("server", format!("tool{number}"))).collect();
    let people: Vec<Arc<str>> = (0..PEOPLE).map(|number| format!("user:{number}").into()).collect();
    let before = resident();
    let memories: Vec<Memory> = (0..SCOPES).map(|number| memory(&mut random, &tools, &people, number % OF_CALLER == 0)).collect();
    println!("{} messages: {:.1} MiB", SCOPES * MESSAGES, resident() - before);
    let message = vector(&mut random);
    let of = |people| VoteParameters { people, half_life: Duration::from_hours(720), now: NOW, must_help: false };
    criterion.bench_function("votes of a full scope of one caller", |bench| bench.iter(|| black_box(memories[0].votes(&message, &of(1)))));
    criterion.bench_function("votes of the six full scopes of a caller", |bench| {
        bench.iter(|| {
            black_box(memories[0].votes(&message, &of(1)));
            for memory in &memories[1..OF_CALLER] {
                black_box(memory.votes(&message, &of(3)));
            }
        });
    });
    criterion.bench_function("one more message in a full scope", |bench| {
        let mut memory = memory(&mut random, &tools, &people, true);
        let mut number = 0;
        bench.iter(|| {
            number += 1;
            let message = RememberedMessage { id: format!("new{number}").into(), vector: message.clone(), rivals: [].into() };
            memory.add(&message, &people[0], &Evidence { tool: tools[0].clone(), kind: EvidenceKind::Called, at: NOW }, MESSAGES);
        });
    });
}

/// Chats that call six of the tools, some of which are called more often.
fn co_use(random: &mut StdRng, tools: &[ToolId], people: &[Arc<str>], is_of_one: bool) -> CoUse {
    let mut chats = if is_of_one { CoUse::of_one() } else { CoUse::default() };
    for number in 0..MOST_CHATS {
        for _ in 0..6 {
            let tool = random.random_range(0..TOOLS) * random.random_range(0..TOOLS) / TOOLS;
            chats.add(&format!("chat{number}"), &people[number % PEOPLE], &tools[tool], NOW, MOST_CHATS);
        }
    }
    chats
}

fn followers(criterion: &mut Criterion) {
    let mut random = StdRng::seed_from_u64(7);
    let tools: Vec<ToolId> = (0..TOOLS).map(|number| ToolId::new("server", format!("tool{number}"))).collect();
    let people: Vec<Arc<str>> = (0..PEOPLE).map(|number| format!("user:{number}").into()).collect();
    let before = resident();
    let mut scopes: Vec<CoUse> = (0..SCOPES).map(|number| co_use(&mut random, &tools, &people, number % OF_CALLER == 0)).collect();
    println!("{} chats: {:.1} MiB", SCOPES * MOST_CHATS, resident() - before);
    let anchors: Vec<ToolId> = [0, 1, 3, 60, 100, 200, 300].iter().map(|&number: &usize| tools[number].clone()).collect();
    let parameters = FollowParameters { people: 3, half_life: Duration::from_hours(720), now: NOW };
    criterion.bench_function("what follows seven tools in the six full scopes of a caller", |bench| {
        bench.iter(|| scopes[..OF_CALLER].iter().for_each(|scope| drop(black_box(scope.followers(&anchors, &parameters)))));
    });
    let mut number = 0;
    criterion.bench_function("the same after two calls in each", |bench| {
        bench.iter(|| {
            number += 1;
            for scope in &mut scopes[..OF_CALLER] {
                let chat = format!("new{number}");
                tools[..2].iter().for_each(|tool| scope.add(&chat, &people[0], tool, NOW, MOST_CHATS));
                black_box(scope.followers(&anchors, &parameters));
            }
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = votes, followers
}
criterion_main!(benches);
