//! Rules of a policy, made up for properties that hold under every policy.

use proptest::prelude::*;
use serde_json::{Value, json};

fn texts(choices: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<&'static str>>> {
    prop::option::weighted(0.4, prop::collection::vec(prop::sample::select(choices), 1..3))
}

pub(crate) fn rule() -> impl Strategy<Value = Value> {
    let tools = (
        texts(&["one", "mail", "t*", "*", "none"]),
        texts(&["echo", "get_*", "*__send*", "{fail,sleep}", "s*", "*e"]),
        prop::option::weighted(0.2, prop::sample::select(&["readOnlyHint", "destructiveHint", "openWorldHint=false"][..])),
    );
    let callers =
        (texts(&["key:a", "key:*", "user:u1", "user:*@example.org", "service-key"]), texts(&["guests", "staff"]), texts(&["gpt-*"]));
    (any::<bool>(), tools, callers).prop_map(|(allows, (servers, tools, hint), (principals, groups, models))| {
        let mut rule = json!({"effect": if allows { "allow" } else { "block" }});
        let hint = hint.map(|hint| vec![hint]);
        let conditions = [
            ("servers", servers),
            ("tools", tools),
            ("annotations", hint),
            ("principals", principals),
            ("groups", groups),
            ("models", models),
        ];
        for (name, texts) in conditions.into_iter().filter_map(|(name, texts)| Some((name, texts?))) {
            rule[name] = texts.into();
        }
        rule
    })
}
