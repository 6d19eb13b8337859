//! 200 rules on 5,000 tools: putting the tools into classes and finding what a caller sees, once for each catalog and policy;
//! after that, what it costs to ask.
//!
//!     cargo bench --bench policy
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use toolsieve::domain::access::policy::Policy;
use toolsieve::domain::access::principal::Principal;
use toolsieve::domain::access::rule::{Effect, PlacedRule, Rule, RulePlace, RuleSource};
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::service::catalog::current::CurrentCatalog;

const VERBS: [&str; 10] = ["create", "read", "update", "delete", "list", "search", "send", "convert", "merge", "export"];
const SERVERS: usize = 100;
const TOOLS: usize = 50;
const RULES: usize = 200;

fn tools() -> Catalog {
    let servers = (0..SERVERS).map(|number| {
        let name = ServerName::from(format!("server{number}").as_str());
        let tools = (0..TOOLS).map(|tool| {
            let verb = VERBS[tool % VERBS.len()];
            let raw = json!({
                "name": format!("{verb}_thing_{tool}"),
                "description": "Does it.",
                "annotations": {"readOnlyHint": verb == "read" || verb == "list", "destructiveHint": verb == "delete"},
                "_meta": {"tags": [format!("team{}", number % 7)]},
                "inputSchema": {"type": "object"}
            });
            Arc::new(catalog::tool(&name, &raw).unwrap())
        });
        CatalogServer::untitled(name.clone(), tools.collect())
    });
    Catalog::new(servers.collect())
}

/// Of every kind: by server, tool, both, tag, annotation; for everybody, for keys, groups, users and models.
fn rules() -> Vec<PlacedRule> {
    let rule = |number: usize| -> Value {
        let effect = if number.is_multiple_of(3) { "allow" } else { "block" };
        let mut rule = match number % 6 {
            0 => json!({"tools": [format!("{}_thing_{}*", VERBS[number % 10], number % 7)]}),
            1 => json!({"servers": [format!("server{}", number / 2)], "tools": ["delete_*"]}),
            2 => json!({"tools": [format!("*_thing_{number}"), format!("server{number}__*")]}),
            3 => json!({"servers": [format!("server{}*", number % 9)], "annotations": ["readOnlyHint"]}),
            4 => json!({"tags": [format!("team{}", number % 7)], "tools": [format!("*_{}?", number % 5)]}),
            _ => json!({"annotations": ["destructiveHint"], "servers": [format!("server{number}")]}),
        };
        rule["effect"] = effect.into();
        match number % 4 {
            0 => rule["groups"] = json!([format!("group{}", number % 20)]),
            1 => rule["principals"] = json!([format!("key:k{}", number % 15), "user:*@example.org"]),
            2 => rule["models"] = json!([format!("model{}*", number % 5)]),
            _ => {}
        }
        rule
    };
    let placed =
        |number| PlacedRule { place: RulePlace { source: RuleSource::Api, number: number + 1 }, rule: Rule::read(&rule(number)).unwrap() };
    (0..RULES).map(placed).collect()
}

fn policy(criterion: &mut Criterion) {
    let catalog = tools();
    assert_eq!(catalog.tools().len(), SERVERS * TOOLS);
    let policy = Policy::new(Effect::Allow, rules());
    let mut caller = Principal::service_key().with_model(Some("model3".into()));
    caller.groups = (0..4).map(|number| format!("group{}", number * 4)).collect();
    criterion.bench_function("policy/200 rules, 5,000 tools: classes and the view of a caller", |bencher| {
        bencher.iter(|| {
            let assignment = policy.assign(black_box(&catalog));
            policy.visible(black_box(&caller), &assignment)
        });
    });
    let assignment = policy.assign(&catalog);
    criterion
        .bench_function("policy/the view of one more caller", |bencher| bencher.iter(|| policy.visible(black_box(&caller), &assignment)));
    criterion.bench_function("policy/compiling 200 rules", |bencher| bencher.iter(|| Policy::new(Effect::Allow, black_box(rules()))));
    let current = CurrentCatalog::default();
    current.swap(tools());
    current.set_policy(Policy::new(Effect::Allow, rules()));
    criterion.bench_function("policy/the view of a known caller", |bencher| bencher.iter(|| current.visibility(black_box(&caller))));
    let visibility = current.visibility(&caller);
    let seen = catalog.visible(&visibility).count();
    assert!(0 < seen && seen < catalog.tools().len(), "{seen}");
    criterion
        .bench_function("policy/going through 5,000 tools", |bencher| bencher.iter(|| catalog.visible(black_box(&visibility)).count()));
}

criterion_group!(benches, policy);
criterion_main!(benches);
