//! Checks that the compiled policy and the rule-by-rule evaluation agree with each other and with the expected verdicts.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{CompiledToolsets, Matchable, Policy, contradictions, warnings};
use crate::domain::access::api_key::{KeyId, KeyProperties};
use crate::domain::access::principal::{GroupTable, Principal, User};
use crate::domain::access::rule::{Effect, PlacedRule, Rule, RulePlace, RuleSource};
use crate::domain::access::toolset::{PublishedToolsets, Toolset};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::{Scope, Visibility, VisibilityClass};
use crate::domain::catalog::catalog::{Catalog, CatalogServer, tool};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;

fn server(name: &str, tools: &Value) -> CatalogServer {
    let name = ServerName::from(name);
    let tools = tools.as_array().unwrap().iter().map(|raw| {
        let mut raw = raw.clone();
        raw["inputSchema"] = json!({"type": "object"});
        Arc::new(tool(&name, &raw).unwrap())
    });
    CatalogServer {
        tools: tools.collect(),
        name: name.clone(),
        title: None,
        program: None,
        version: None,
        instructions: None,
        disabled: Vec::new(),
    }
}

fn catalog() -> Catalog {
    Catalog::new(vec![
        server(
            "git",
            &json!([
                {"name": "log", "annotations": {"readOnlyHint": true}},
                {"name": "push", "annotations": {"destructiveHint": false}},
                {"name": "delete_branch"},
            ]),
        ),
        server("mail", &json!([{"name": "send", "_meta": {"tags": ["outbound"]}}, {"name": "delete_all"}])),
    ])
}

fn rules(rules: &Value) -> Vec<PlacedRule> {
    let placed = |(number, value)| PlacedRule { place: RulePlace { source: RuleSource::Api, number }, rule: Rule::read(value).unwrap() };
    (1..).zip(rules.as_array().unwrap()).map(placed).collect()
}

fn key(name: &str, groups: &[&str]) -> Principal {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let properties = KeyProperties { name: name.into(), groups, ..KeyProperties::default() };
    Principal::api_key(&properties.record(KeyId::new("id"), Fingerprint::of_text(""), std::time::SystemTime::UNIX_EPOCH))
}

fn user(id: &str, email: &str) -> Principal {
    Principal::service_key().on_behalf_of(User { id: id.into(), email: Some(email.into()), ..User::default() }, &GroupTable::default())
}

/// The tools that a caller sees, computed both ways.
fn seen(policy: &Policy, catalog: &Catalog, principal: &Principal) -> Vec<String> {
    let assignment = policy.assign(catalog);
    let visibility = Visibility {
        servers: principal.servers.clone(),
        classes: policy.visible(principal, &assignment),
        assigned: Arc::clone(&assignment.classes),
    };
    let decisions = policy.decisions(principal);
    for tool in catalog.tools() {
        let reached = principal.servers.contains(&tool.id.server) && policy.reaches(principal, tool);
        let decided = decisions.on(tool).effect == Effect::Allow && reached;
        assert_eq!(visibility.allows(tool), decided, "{} for {:?}", tool.id, principal.id);
    }
    catalog.visible(&visibility).map(|tool| tool.id.to_string()).collect()
}

#[test]
fn the_first_rule_that_fits_decides() {
    let catalog = catalog();
    let policy = Policy::new(
        Effect::Allow,
        rules(&json!([
            {"effect": "allow", "tools": ["delete_*"], "principals": ["key:janitor"]},
            {"effect": "block", "tools": ["delete_*"]},
            {"effect": "block", "servers": ["mail"], "groups": ["guests", "trainees"]},
        ])),
    );
    assert_eq!(seen(&policy, &catalog, &key("janitor", &[])).len(), 5);
    assert_eq!(seen(&policy, &catalog, &key("other", &[])), ["git/log", "git/push", "mail/send"]);
    assert_eq!(seen(&policy, &catalog, &key("other", &["trainees"])), ["git/log", "git/push"]);
    let decision = policy.decisions(&key("other", &[])).on(catalog.tool(&ToolId::new("mail", "delete_all")).unwrap());
    assert_eq!((decision.effect, decision.rule.unwrap().number), (Effect::Block, 2));
}

#[test]
fn every_condition_counts() {
    let catalog = catalog();
    let allow = |condition: Value| {
        let mut rule = condition;
        rule["effect"] = "allow".into();
        Policy::new(Effect::Block, rules(&json!([rule])))
    };
    let anna = user("u1", "Anna@Example.org");
    for (condition, expected) in [
        (json!({"servers": ["g?t"]}), vec!["git/delete_branch", "git/log", "git/push"]),
        (json!({"tools": ["mail__s*", "lo[gx]"]}), vec!["git/log", "mail/send"]),
        (json!({"tools": ["{push,send}"], "servers": ["git"]}), vec!["git/push"]),
        (json!({"tags": ["out*"]}), vec!["mail/send"]),
        (json!({"annotations": ["readOnlyHint"]}), vec!["git/log"]),
        // A tool without annotations counts as destructive.
        (json!({"annotations": ["destructiveHint"]}), vec!["git/delete_branch", "mail/delete_all", "mail/send"]),
        (json!({"annotations": ["destructiveHint=false", "readOnlyHint=false"]}), vec!["git/push"]),
        (json!({"principals": ["user:u1"], "tools": ["log"]}), vec!["git/log"]),
        (json!({"principals": ["user:*@EXAMPLE.org"], "tools": ["log"]}), vec!["git/log"]),
        (json!({"principals": ["key:u1", "u1"]}), vec![]),
        (json!({"groups": ["any"]}), vec![]),
        (json!({"models": ["*"]}), vec![]),
        (json!({"tools": ["LOG"]}), vec![]),
    ] {
        assert_eq!(seen(&allow(condition.clone()), &catalog, &anna), expected, "{condition}");
    }
    let by_address = allow(json!({"principals": ["user:Bob@Example.org"], "tools": ["log"]}));
    for id in ["Bob@Example.org", "bob@example.org"] {
        assert_eq!(seen(&by_address, &catalog, &user(id, "")), ["git/log"], "{id}");
    }
    // Regression: all of the pattern was put in lower case, so that the rule missed U1 and matched u1.
    let mixed = allow(json!({"principals": ["user:{U1,bob@Example.org}"], "tools": ["log"]}));
    for (id, email, expected) in [("U1", "", true), ("u1", "", false), ("Bob@example.org", "", true), ("u2", "BOB@example.org", true)] {
        assert_eq!(!seen(&mixed, &catalog, &user(id, email)).is_empty(), expected, "{id} {email}");
    }
    let model = allow(json!({"models": ["gpt-*"], "tools": ["log"]}));
    assert_eq!(seen(&model, &catalog, &anna.with_model(Some("gpt-5".into()))), ["git/log"]);
    assert_eq!(seen(&model, &catalog, &anna.with_model(Some("other".into()))), Vec::<String>::new());
}

/// Regression test: an allowed published name also allowed every tool that a server had given this name.
#[test]
fn a_server_can_not_borrow_the_published_name_of_another_ones_tool() {
    let with = |name: &str, tools: &[&str]| server(name, &tools.iter().map(|tool| json!({"name": tool})).collect());
    let own = ["git__push", "sub_git__push", "git\u{1}push", "push"];
    let catalog = Catalog::new(vec![with("evil", &own), with("git", &["push", "my__push"]), with("4git", &["push"])]);
    let allowed = |pattern: &str| {
        let policy = Policy::new(Effect::Block, rules(&json!([{"effect": "allow", "tools": [pattern]}])));
        let found = seen(&policy, &catalog, &Principal::anyone());
        // What a toolset contains is allowed to the keys that are limited to it.
        for member in ["tools", "always"] {
            let policy = Policy::default().with_toolsets(toolsets(&[("one", json!({member: [pattern]}))], PublishedToolsets::default()));
            assert_eq!(seen(&policy, &catalog, &Principal::anyone().kept_to("one".into())), found, "{member} {pattern}");
        }
        found
    };
    for (pattern, expected) in [
        ("git__push", &["git/push"][..]),
        ("git__*", &["git/my__push", "git/push"]),
        ("*git__push", &["git/push"]),
        ("g?t__p*", &["git/push"]),
        ("t4git__push_*", &["4git/push"]),
        ("evil__git__push", &["evil/git__push"]),
        ("git__my__*", &["git/my__push"]),
        ("{git__push,log}", &["git/push"]),
        ("{git__none,push}", &["4git/push", "evil/push", "git/push"]),
        ("push", &["4git/push", "evil/push", "git/push"]),
    ] {
        let mut found = allowed(pattern);
        found.sort();
        assert_eq!(found, expected, "{pattern}");
    }
    // What blocks too much protects from more.
    let policy = Policy::new(Effect::Allow, rules(&json!([{"effect": "block", "tools": ["git__*"]}])));
    assert!(!seen(&policy, &catalog, &Principal::anyone()).contains(&"evil/git__push".to_owned()));
    let excluded = json!({"servers": ["*"], "exclude": ["git__*"]});
    let policy = Policy::default().with_toolsets(toolsets(&[("one", excluded)], PublishedToolsets::default()));
    assert!(!seen(&policy, &catalog, &Principal::anyone().kept_to("one".into())).contains(&"evil/git__push".to_owned()));
}

#[test]
fn an_open_policy_needs_no_classes_and_a_closed_one_shows_nothing() {
    let catalog = catalog();
    assert_eq!(Policy::default().visible(&Principal::anyone(), &Policy::default().assign(&catalog)), Scope::All);
    assert_eq!(seen(&Policy::new(Effect::Block, Vec::new()), &catalog, &Principal::anyone()), Vec::<String>::new());
    // Tools that appeared after the assignment are visible to nobody.
    let policy = Policy::new(Effect::Allow, rules(&json!([{"effect": "block", "tools": ["x"]}])));
    let before = policy.assign(&Catalog::default());
    let visibility =
        Visibility { classes: policy.visible(&Principal::anyone(), &before), assigned: before.classes, ..Visibility::default() };
    assert_eq!(catalog.visible(&visibility).count(), 0);
}

#[test]
fn classes_are_few_and_move_only_with_their_rules() {
    let catalog = catalog();
    let class = |policy: &Policy, server: &str, name: &str| {
        policy.assign(&catalog).classes.of(catalog.tool(&ToolId::new(server, name)).unwrap()).unwrap()
    };
    let one = Policy::new(Effect::Allow, rules(&json!([{"effect": "block", "tools": ["push"], "groups": ["guests"]}])));
    let two = Policy::new(
        Effect::Allow,
        rules(&json!([
            {"effect": "block", "servers": ["mail"]},
            {"effect": "block", "tools": ["push"], "groups": ["guests"]},
            {"effect": "allow", "tools": ["log"], "groups": ["others"]},
        ])),
    );
    assert_eq!(class(&one, "git", "push"), class(&two, "git", "push"));
    assert_ne!(class(&one, "git", "push"), VisibilityClass(0));
    assert_eq!(class(&two, "mail", "send"), class(&two, "mail", "delete_all"));
    // A rule without effect creates no class.
    assert_eq!(class(&two, "git", "log"), VisibilityClass(0));
}

#[test]
fn a_server_without_tools_is_decided_by_its_name() {
    let policy = Policy::new(
        Effect::Allow,
        rules(
            &json!([{"effect": "block", "servers": ["hr*"], "tools": ["x"]}, {"effect": "block", "servers": ["hr*"], "groups": ["guests"]}]),
        ),
    );
    let effect = |principal: &Principal, name: &str| policy.decisions(principal).on_server(&name.into()).effect;
    assert_eq!(effect(&key("k", &["guests"]), "hr-new"), Effect::Block);
    assert_eq!(effect(&key("k", &[]), "hr-new"), Effect::Allow);
    assert_eq!(effect(&key("k", &["guests"]), "git"), Effect::Allow);
}

#[test]
fn mistakes_are_reported_with_their_reason() {
    let reason = |rule: Value| Rule::read(&rule).unwrap_err();
    for (rule, part) in [
        (json!({"tools": ["a"]}), "no effect"),
        (json!({"effect": "forbid"}), "forbid"),
        (json!({"effect": "allow", "tool": ["a"]}), "unknown field `tool`, expected one of"),
        (json!({"effect": "allow", "tools": []}), "tools is empty"),
        (json!({"effect": "allow", "tools": "a"}), "expected a sequence"),
        (json!({"effect": "allow", "tools": ["a["]}), "tools: `a[`"),
        (json!({"effect": "allow", "tools": [""]}), "1 to 512 bytes"),
        (json!({"effect": "allow", "annotations": ["readonly"]}), "write readOnlyHint"),
        (json!({"effect": "allow", "annotations": ["readOnlyHint", "readOnlyHint=false"]}), "both required and excluded"),
        (json!("allow"), "not a table"),
    ] {
        let reason = reason(rule.clone());
        assert!(reason.contains(part), "{rule}: {reason}");
    }
    let contradicting = rules(&json!([
        {"effect": "allow", "tools": ["a", "b"]},
        {"effect": "allow", "tools": ["a"]},
        {"effect": "block", "tools": ["b", "a"]},
    ]));
    let found: Vec<String> = contradictions(&contradicting).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["rule 3: it says block, and rule 1 says allow under the same conditions"]);
}

#[test]
fn rules_without_effect_are_warned_about() {
    let policy = Policy::new(
        Effect::Allow,
        rules(&json!([
            {"effect": "block", "tools": ["nothing_*"]},
            {"effect": "block", "tools": ["push"]},
            {"effect": "block", "tools": ["push"]},
            {"effect": "allow"},
            {"effect": "block", "tools": ["send"], "principals": ["bob@example.org", "user:bob"]},
            {"effect": "block", "tools": ["log"], "groups": ["Sales, Zürich", "{Sales,Zürich}"]},
        ])),
    );
    let found: Vec<String> = warnings(&policy, &catalog()).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "rule 1: it matches no current tool",
            "rule 5: `bob@example.org` matches no caller: write key:NAME, user:ID, service-key, admin or anyone",
            "rule 6: the group `Sales, Zürich` has a comma, at which the groups that Open WebUI sends are separated",
            "rule 3: rule 2 says the same",
            "rule 5: it is never reached: rule 4 matches everything",
            "rule 6: it is never reached: rule 4 matches everything"
        ]
    );
}

fn toolsets(list: &[(&str, Value)], published: PublishedToolsets) -> Arc<CompiledToolsets> {
    Arc::new(CompiledToolsets::new(list.iter().map(|(name, value)| Toolset::read(name, value).unwrap()), published))
}

fn names(names: &[&str]) -> BTreeSet<ToolsetName> {
    names.iter().map(|name| ToolsetName::from(*name)).collect()
}

#[test]
fn a_tool_is_in_a_toolset_by_what_is_said_of_it() {
    let catalog = catalog();
    for (definition, expected) in [
        (json!({"servers": ["git"]}), vec!["git/delete_branch", "git/log", "git/push"]),
        (json!({"servers": ["*"], "tools": ["*e*"]}), vec!["git/delete_branch", "mail/delete_all", "mail/send"]),
        (json!({"servers": ["git"], "exclude": ["delete_*", "git__log"]}), vec!["git/push"]),
        (json!({"servers": ["git"], "exclude": ["*"], "always": ["mail__send"]}), vec!["mail/send"]),
        (json!({"always": ["log", "no_such"]}), vec!["git/log"]),
        (json!({"tags": ["out*"]}), vec!["mail/send"]),
        (json!({"annotations": ["readOnlyHint"]}), vec!["git/log"]),
        (json!({"servers": ["none"]}), vec![]),
    ] {
        let policy = Policy::default()
            .with_toolsets(toolsets(&[("other", json!({"tools": ["*"]})), ("one", definition.clone())], PublishedToolsets::default()));
        let kept = Principal::anyone().kept_to("one".into());
        assert_eq!(seen(&policy, &catalog, &kept), expected, "{definition}");
        assert_eq!(policy.visible(&Principal::anyone(), &policy.assign(&catalog)), Scope::All, "others see all");
    }
}

#[test]
fn callers_are_kept_to_what_is_in_a_toolset_of_each_set() {
    let catalog = catalog();
    let list = [("git", json!({"servers": ["git"]})), ("delete", json!({"tools": ["delete_*"]})), ("mail", json!({"servers": ["mail"]}))];
    let policy = |published| Policy::default().with_toolsets(toolsets(&list, published));
    let within = |sets: &[&[&str]]| Principal { within: sets.iter().map(|set| names(set)).collect(), ..Principal::anyone() };
    let everything = policy(PublishedToolsets::default());
    assert_eq!(seen(&everything, &catalog, &within(&[&["git"], &["delete", "mail"]])), ["git/delete_branch"]);
    assert_eq!(seen(&everything, &catalog, &within(&[&["mail", "delete"]])).len(), 3);
    assert_eq!(seen(&everything, &catalog, &within(&[&["gone"]])), Vec::<String>::new());
    assert_eq!(seen(&everything, &catalog, &within(&[&[]])), Vec::<String>::new());
    let shown = policy(PublishedToolsets { toolsets: names(&["git", "mail"]), exclude: names(&["delete"]) });
    assert_eq!(seen(&shown, &catalog, &Principal::anyone()), ["git/log", "git/push", "mail/send"]);
    assert_eq!(seen(&shown, &catalog, &within(&[&["mail"]])), ["mail/send"]);
    // A caller limited to a toolset sees nothing if there are no toolsets.
    assert_eq!(seen(&Policy::default(), &catalog, &within(&[&["git"]])), Vec::<String>::new());
}

#[test]
fn rules_speak_of_toolsets() {
    let catalog = catalog();
    let list = [("letters", json!({"servers": ["mail"]})), ("logs", json!({"tools": ["log"]}))];
    let blocking = |toolset: &str| {
        Policy::new(Effect::Allow, rules(&json!([{"effect": "block", "toolsets": [toolset], "groups": ["guests"]}])))
            .with_toolsets(toolsets(&list, PublishedToolsets::default()))
    };
    assert_eq!(seen(&blocking("l*"), &catalog, &key("k", &["guests"])), ["git/delete_branch", "git/push"]);
    assert_eq!(seen(&blocking("logs"), &catalog, &key("k", &["guests"])).len(), 4);
    assert_eq!(seen(&blocking("l*"), &catalog, &key("k", &[])).len(), 5);
    let found: Vec<String> = warnings(&blocking("no_such"), &catalog).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["rule 1: it matches no current tool"]);
    // A rule for a toolset does not apply to a server without known tools.
    assert_eq!(blocking("*").decisions(&key("k", &["guests"])).on_server(&"mail".into()).effect, Effect::Allow);
}

#[test]
fn patterns_that_match_nothing_are_named() {
    let catalog = catalog();
    let known = Matchable { servers: &["git", "mail", "silent"], catalog: &catalog };
    let rule = |rule: Value| rules(&json!([rule]))[0].rule.unmatched(known);
    for (mut value, expected) in [
        (json!({"tools": ["git/push", "git__*"]}), vec!["tools: `git/push` matches no current tool; did you mean `git__push`?"]),
        (json!({"tools": ["psh"]}), vec!["tools: `psh` matches no current tool; did you mean `push`?"]),
        (json!({"servers": ["gti", "m*", "silent"]}), vec!["servers: `gti` matches no server"]),
        (json!({"servers": ["gits"]}), vec!["servers: `gits` matches no server; did you mean `git`?"]),
        (json!({"tags": ["outbond", "out*"]}), vec!["tags: no current tool has a tag `outbond`; did you mean `outbound`?"]),
        (json!({"servers": ["git"], "tools": ["send"]}), vec![]),
    ] {
        value["effect"] = "block".into();
        assert_eq!(rule(value.clone()), expected, "{value}");
    }
    let toolset = |value: Value| Toolset::read("one", &value).unwrap().definition.unmatched(known);
    let found = toolset(json!({"servers": ["git"], "exclude": ["pull"], "always": ["git__nope", "send"]}));
    let expected = ["exclude: `pull` matches no current tool", "always: `git__nope` matches no current tool"];
    assert!(found.len() == 2 && found.iter().zip(expected).all(|(found, part)| found.starts_with(part)), "{found:?}");
    let list = [("both", json!({"servers": ["git"], "tools": ["send"]})), ("logs", json!({"tools": ["log"]}))];
    assert_eq!(toolsets(&list, PublishedToolsets::default()).empty(&catalog), [&ToolsetName::from("both")]);
}

#[test]
fn a_class_means_the_same_whatever_other_toolsets_there_are() {
    let catalog = catalog();
    let class = |list: &[(&str, Value)], name: &str| {
        let policy = Policy::default().with_toolsets(toolsets(list, PublishedToolsets::default()));
        policy.assign(&catalog).classes.of(catalog.tool(&ToolId::new("git", name)).unwrap()).unwrap()
    };
    let logs = ("logs", json!({"tools": ["log"]}));
    let one = class(std::slice::from_ref(&logs), "log");
    assert_eq!(class(&[("mail", json!({"servers": ["mail"]})), logs.clone()], "log"), one);
    assert_ne!(one, VisibilityClass(0));
    assert_eq!(class(&[logs], "push"), VisibilityClass(0));
}

mod agreement {
    //! Property test: for generated rules, both evaluations agree.

    use proptest::prelude::*;
    use serde_json::json;

    use super::{Policy, PublishedToolsets, catalog, key, rules, seen, toolsets, user};
    use crate::domain::access::principal::Principal;
    use crate::domain::access::rule::Effect;

    fn texts(choices: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<&'static str>>> {
        prop::option::weighted(0.4, prop::collection::vec(prop::sample::select(choices), 1..3))
    }

    fn rule() -> impl Strategy<Value = serde_json::Value> {
        let tools = (
            texts(&["git", "mail", "*", "g*", "none"]),
            texts(&["log", "push", "delete_*", "*__send", "{log,send}", "?ush", "git__*", "{mail__send,log}"]),
            texts(&["outbound", "x"]),
            texts(&["letters", "l*", "none"]),
            prop::option::weighted(
                0.3,
                prop::sample::select(&["readOnlyHint", "destructiveHint", "destructiveHint=false", "openWorldHint"][..]),
            ),
        );
        let callers = (
            texts(&["key:a", "key:*", "user:u1", "user:*@example.org", "anyone"]),
            texts(&["guests", "staff", "g*"]),
            texts(&["gpt-*", "m"]),
        );
        (any::<bool>(), tools, callers).prop_map(|(allows, (servers, tools, tags, toolsets, hint), (principals, groups, models))| {
            let mut rule = serde_json::json!({"effect": if allows { "allow" } else { "block" }});
            let hint = hint.map(|hint| vec![hint]);
            for (name, texts) in [
                ("servers", servers),
                ("tools", tools),
                ("tags", tags),
                ("toolsets", toolsets),
                ("annotations", hint),
                ("principals", principals),
                ("groups", groups),
                ("models", models),
            ] {
                if let Some(texts) = texts {
                    rule[name] = texts.into();
                }
            }
            rule
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn compiled_and_single_rules_say_the_same(list in prop::collection::vec(rule(), 0..80), denies in any::<bool>()) {
            let catalog = catalog();
            let default = if denies { Effect::Block } else { Effect::Allow };
            let known = [("letters", json!({"servers": ["mail"], "always": ["log"]})), ("logs", json!({"tools": ["log", "push"]}))];
            let policy = Policy::new(default, rules(&list.into())).with_toolsets(toolsets(&known, PublishedToolsets::default()));
            let callers = [
                Principal::anyone().kept_to("logs".into()),
                key("a", &["guests"]).kept_to("letters".into()),
                Principal::anyone(),
                Principal::nobody(),
                key("a", &[]),
                key("b", &["guests", "staff"]),
                user("u1", "anna@example.org").with_model(Some("gpt-5".into())),
                user("u2", "x@elsewhere").with_model(Some("m".into())),
            ];
            for caller in callers {
                seen(&policy, &catalog, &caller);
            }
        }
    }
}
