//! What use teaches: for whom it counts, and how it is forgotten.
//!
//! Two servers have the same tools, one of which comes first without learning.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::Running;
use crate::harness::callers::{Who, found, select, start, user};
use crate::harness::keys::{ADMIN, KEY, administer, command, create, with_key};
use crate::harness::wait::eventually;

const MESSAGE: &str = "please say the arguments again, those of order 7";
const ALIKE: &str = "please say the arguments again, those of order 9";

async fn call(service: &Running, who: Who<'_>, chat: &str, tool: &str) {
    let request = who.request(service, &format!("/{}", tool.replace("__", "/"))).header("X-OpenWebUI-Chat-Id", chat);
    assert_eq!(request.json(&json!({"text": "a"})).send().await.unwrap().status(), StatusCode::OK);
}

/// A message in a chat of its own, and the call that it led to.
async fn use_tool(service: &Running, who: Who<'_>, chat: &str, tool: &str) {
    select(service, who, Some(chat), MESSAGE).await;
    call(service, who, chat, tool).await;
}

async fn first(service: &Running, who: Who<'_>) -> String {
    found(service, who, ALIKE).await[0]["name"].as_str().unwrap().to_owned()
}

/// The tool that comes first without learning, and its twin.
async fn twins(service: &Running) -> [String; 2] {
    let first = first(service, user("newcomer")).await;
    let other = if first == "left__echo" { "right__echo" } else { "left__echo" };
    assert!(["left__echo", "right__echo"].contains(&first.as_str()), "{first}");
    [first, other.to_owned()]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_called_comes_first_for_that_user_alone() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    let (anna, ben, nobody) = (user("anna"), user("ben"), user(""));
    let before = found(&service, ben, ALIKE).await;
    assert_eq!((first(&service, anna).await, first(&service, ben).await), (plain.clone(), plain.clone()));
    use_tool(&service, anna, "a1", &other).await;
    assert_eq!(first(&service, anna).await, other);
    let selected = select(&service, anna, None, ALIKE).await;
    let tool = selected["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == other).unwrap();
    assert_eq!(tool["reason"], json!("used after 1 message like this one (rank 1)"), "{selected}");
    assert_eq!(found(&service, ben, ALIKE).await, before, "another user");
    assert_eq!(first(&service, nobody).await, plain, "people whom the key doesn't name");
    // A message about something else stays as it was.
    let (of_anna, of_ben) = (found(&service, anna, "send an email to Zoe").await, found(&service, ben, "send an email to Zoe").await);
    assert_eq!((&of_anna[0]["name"], &of_ben[0]["name"]), (&json!("mail__send_email"), &json!("mail__send_email")));
}

/// They allowed the cut to send more of the others.
#[tokio::test(flavor = "multi_thread")]
async fn uses_of_a_tool_that_is_not_offered_change_nothing() {
    let service = start(&[], None).await;
    let [_, other] = twins(&service).await;
    let (anna, newcomer) = (user("anna"), user("newcomer"));
    use_tool(&service, anna, "a1", &other).await;
    assert_eq!(first(&service, anna).await, other);
    let names = found(&service, newcomer, ALIKE).await;
    let names: Vec<&Value> = names.as_array().unwrap().iter().map(|tool| &tool["name"]).filter(|name| **name != other).collect();
    assert!(names.len() > 3, "{names:?}");
    let mut answers = Vec::new();
    for who in [anna, newcomer] {
        let body = json!({"messages": [{"role": "user", "content": ALIKE}], "tools": names});
        let answer = who.request(&service, "/v1/filter").json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        // Scores may differ: the tool's near duplicate is offered, and Anna passed it over.
        answers.push(answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect::<Vec<_>>());
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_follow_up_counts_for_the_message_before() {
    let service = start(&[], None).await;
    let [_, other] = twins(&service).await;
    let anna = user("anna");
    select(&service, anna, Some("a1"), MESSAGE).await;
    select(&service, anna, Some("a2"), "send an email to Zoe").await;
    let turns =
        json!([{"role": "user", "content": MESSAGE}, {"role": "assistant", "content": "Shall I?"}, {"role": "user", "content": "do it"}]);
    let body = json!({"messages": turns, "chat_id": "a1"});
    assert_eq!(anna.request(&service, "/v1/filter").json(&body).send().await.unwrap().status(), StatusCode::OK);
    call(&service, anna, "a1", &other).await;
    assert_eq!(first(&service, anna).await, other);
}

/// Regression: one call after a greeting brought ten unrelated tools into every new chat.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fits_no_tool_gets_only_what_was_learned_for_it() {
    let service = start(&[("TOOLSIEVE_SELECTION__GATE", "true")], None).await;
    let anna = user("anna");
    let ours = async |chat: &str, message: &str| -> Vec<String> {
        let answer = select(&service, anna, Some(chat), message).await;
        let names = answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.contains("__")).collect()
    };
    for (at, message) in ["Good morning!", "My grandmother was such a kind woman."].into_iter().enumerate() {
        assert_eq!(ours(&format!("before{at}"), message).await, [""; 0], "{message}");
        call(&service, anna, &format!("before{at}"), "left__echo").await;
    }
    eventually("the uses count", async || !ours("grandmother", "My grandmother was such a kind woman.").await.is_empty()).await;
    assert_eq!(ours("grandmother", "My grandmother was such a kind woman.").await, ["left__echo"]);
    assert_eq!(ours("morning", "Good morning!").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn others_count_once_enough_people_agree() {
    let service = start(&[("TOOLSIEVE_LEARNING__ALL_PEOPLE", "5")], None).await;
    let [plain, other] = twins(&service).await;
    let of_ops = |user| Who { groups: "ops", ..self::user(user) };
    for (number, person) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(first(&service, of_ops("member")).await, plain, "after {number} people");
        for chat in 0..3 {
            use_tool(&service, of_ops(person), &format!("{person}{chat}"), &other).await;
        }
    }
    assert_eq!(first(&service, of_ops("member")).await, other);
    assert_eq!(first(&service, user("stranger")).await, plain, "three of five");
    for person in ["d", "e"] {
        use_tool(&service, user(person), person, &other).await;
    }
    assert_eq!(first(&service, user("stranger")).await, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_by_one_caller_moves_nobody_else() {
    let service = start(&[], None).await;
    let [_, other] = twins(&service).await;
    let (_, key) = create(&service, json!({"name": "bot"})).await;
    let bot = Who { key: &key, user: "anna", groups: "ops" };
    let before = found(&service, user("anna"), ALIKE).await;
    for chat in 0..100 {
        use_tool(&service, bot, &chat.to_string(), &other).await;
        use_tool(&service, user("mallory"), &chat.to_string(), &other).await;
    }
    assert_eq!(first(&service, bot).await, other, "an untrusted key learns for itself");
    assert_eq!(found(&service, user("anna"), ALIKE).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_nothing_is_learned() {
    let service = start(&[("TOOLSIEVE_LEARNING__MODE", "off")], None).await;
    let [_, other] = twins(&service).await;
    let anna = user("anna");
    let before = (found(&service, anna, ALIKE).await, select(&service, anna, None, ALIKE).await["tools"].clone());
    for chat in 0..3 {
        use_tool(&service, anna, &chat.to_string(), &other).await;
    }
    assert_eq!((found(&service, anna, ALIKE).await, select(&service, anna, None, ALIKE).await["tools"].clone()), before);
    let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
    assert_eq!((&shown["mode"], &shown["scopes"]), (&json!("off"), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_is_shown_kept_and_forgotten() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    use_tool(&service, user("anna"), "a1", &other).await;
    use_tool(&service, user("ben"), "b1", &other).await;
    let service = start(&[], Some(service.stop().await)).await;
    assert_eq!((first(&service, user("anna")).await, first(&service, user("carl")).await), (other.clone(), plain.clone()));

    let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
    let scopes: Vec<&Value> = shown["scopes"].as_array().unwrap().iter().map(|scope| &scope["scope"]).collect();
    assert_eq!(scopes, ["-/caller=user:anna", "-/caller=user:ben", "-/all"], "{shown}");
    // The tool that was found, and the one that was first.
    assert_eq!((&shown["scopes"][0]["messages"], &shown["scopes"][0]["uses"]), (&json!(1), &json!(2)), "{shown}");
    let (_, of_tool) = administer(&service, Method::GET, &format!("/v1/admin/learning?tool={other}"), &json!({})).await;
    let evidence = of_tool["tools"][0]["evidence"].as_array().unwrap();
    assert_eq!((evidence.len(), &evidence[2]["kind"], &evidence[2]["count"]), (3, &json!("found"), &json!(2)), "{of_tool}");
    let path = "/v1/admin/learning?principal=user%3Aanna&message=say%20the%20arguments%20again";
    let (_, of_message) = administer(&service, Method::GET, path, &json!({})).await;
    assert_eq!(of_message["tools"][0]["name"], json!(other), "{of_message}");
    assert!(of_message["tools"][0]["delta"].as_f64().unwrap() > 0.0, "{of_message}");

    for wrong in ["", "?all=false", "?scope=all", "?principal=anna", "?all=true&tool=left__echo"] {
        let (status, problem) = administer(&service, Method::DELETE, &format!("/v1/admin/learning{wrong}"), &json!({})).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}: {problem}");
    }
    for method in [Method::GET, Method::DELETE] {
        let (status, problem) = administer(&service, method, "/v1/admin/learning?tool=no_such", &json!({})).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(problem["detail"].as_str().unwrap().contains("SERVER/TOOL"), "{problem}");
    }
    let refused = with_key(&service, Method::DELETE, "/v1/admin/learning?all=true", KEY).send().await.unwrap();
    assert!(refused.status().is_client_error());

    let (code, text, errors) = command(&service, &["learn", "forget", "--principal", "user:anna"]);
    assert!(code == Some(0) && text == "Forgot 4 learned uses.", "{text} {errors}");
    assert_eq!((first(&service, user("anna")).await, first(&service, user("ben")).await), (plain.clone(), other.clone()));
    let (code, text, errors) = command(&service, &["learn", "show"]);
    assert!(code == Some(0) && text.contains("user:ben") && !text.contains("user:anna"), "{text} {errors}");
    // Nor does it come back.
    let service = start(&[], Some(service.stop().await)).await;
    assert_eq!((first(&service, user("anna")).await, first(&service, user("ben")).await), (plain.clone(), other.clone()));
    let (_, removed) = administer(&service, Method::DELETE, "/v1/admin/learning?all=true", &json!({})).await;
    assert_eq!((removed, first(&service, user("ben")).await), (json!({"removed": 4}), plain.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_teach() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    let anna = user("anna");
    let selected = select(&service, anna, None, MESSAGE).await;
    let give = async |tool: &str, verdict: &str| {
        let body = json!({"selection_id": selected["selection_id"], "tool": tool, "verdict": verdict});
        let response = anna.request(&service, "/v1/feedback").json(&body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    };
    give(&other, "missing").await;
    assert_eq!(first(&service, anna).await, other);
    give(&other, "wrong").await;
    assert_eq!(first(&service, anna).await, plain, "a later verdict replaces the earlier one");
    give(&plain, "wrong").await;
    give(&other, "helpful").await;
    assert_eq!(first(&service, anna).await, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deleted_key_taught_is_forgotten_at_once() {
    let service = start(&[], None).await;
    let [_, other] = twins(&service).await;
    let (id, key) = create(&service, json!({"name": "bot"})).await;
    let bot = Who { key: &key, user: "", groups: "" };
    use_tool(&service, bot, "b1", &other).await;
    use_tool(&service, user("anna"), "a1", &other).await;
    let scopes = async || {
        let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
        shown["scopes"].as_array().unwrap().iter().map(|scope| scope["scope"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(scopes().await.iter().filter(|scope| scope.starts_with(&id)).count(), 2, "the key's own scope, and its users'");
    let (status, _) = administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(scopes().await, ["-/caller=user:anna", "-/all"]);
}

/// Regression test: explanations contained nothing of what users of a named key had taught.
#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_shows_what_a_user_of_a_named_key_taught() {
    let service = start(&[], None).await;
    let [_, other] = twins(&service).await;
    let (_, key) = create(&service, json!({"name": "webui", "trusted": true})).await;
    use_tool(&service, Who { key: &key, user: "anna", groups: "" }, "a1", &other).await;
    let learned = async |principal: &str| {
        let body = json!({"messages": [{"role": "user", "content": ALIKE}], "as": {"principal": principal}});
        let (status, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let candidates = answer["explain"]["candidates"].as_array().unwrap();
        let candidate = candidates.iter().find(|candidate| candidate["name"] == other);
        candidate.and_then(|candidate| candidate["learned"].as_f64()).unwrap_or_default()
    };
    assert!(learned("user:anna").await > 0.0);
    assert!(learned("user:ben").await.abs() < 1e-6 && learned("key:webui").await.abs() < 1e-6, "others");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_after_smart_select_teach() {
    let service = start(&[], None).await;
    let [_, other] = twins(&service).await;
    let anna = user("anna");
    let request = anna.request(&service, "/v1/tools/smart_select").header("X-OpenWebUI-Chat-Id", "a1");
    assert_eq!(request.json(&json!({"task": MESSAGE})).send().await.unwrap().status(), StatusCode::OK);
    call(&service, anna, "a1", &other).await;
    assert_eq!(first(&service, anna).await, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_auto_each_scope_shows_whether_it_counts() {
    let service = start(&[("TOOLSIEVE_LEARNING__MODE", "auto")], None).await;
    let [_, other] = twins(&service).await;
    use_tool(&service, user("anna"), "a1", &other).await;
    assert_eq!(first(&service, user("anna")).await, other, "the first use counts");
    let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
    let scope = |name: &str| json!({"scope": name, "messages": 1, "uses": 2, "chats": 1, "stored": 1, "on": true, "last_replay": null});
    assert_eq!((&shown["mode"], &shown["scopes"]), (&json!("auto"), &json!([scope("-/caller=user:anna"), scope("-/all")])), "{shown}");
    assert!(shown["model"].is_string(), "{shown}");
}

/// As replays of public data do it: without users, and with the default mode.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_users_learns_for_itself() {
    for trusts in ["false", "true"] {
        let service = start(&[("TOOLSIEVE_LEARNING__MODE", "auto"), ("TOOLSIEVE_ACCESS__TRUST_USERS", trusts)], None).await;
        let [_, other] = twins(&service).await;
        let before = found(&service, user("anna"), ALIKE).await;
        use_tool(&service, user(""), "c1", &other).await;
        assert_eq!(first(&service, user("")).await, other, "trust_users = {trusts}");
        if trusts == "true" {
            assert_eq!(found(&service, user("anna"), ALIKE).await, before, "a named user");
        }
        let administrator = Who { key: ADMIN, ..user("") };
        use_tool(&service, administrator, "c2", &other).await;
        assert_eq!(first(&service, administrator).await, other);
    }
}

/// As Open WebUI does it if it sends no headers with calls: only the filter names the user.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lacks_the_user_counts_for_the_user_of_the_chat() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    let key = user("");
    let body = json!({"messages": [{"role": "user", "content": MESSAGE}], "chat_id": "a1", "user": {"id": "anna"}});
    assert_eq!(key.request(&service, "/v1/filter").json(&body).send().await.unwrap().status(), StatusCode::OK);
    call(&service, key, "a1", &other).await;
    assert_eq!((first(&service, user("anna")).await, first(&service, key).await), (other.clone(), plain.clone()));
    // Another key doesn't know the chat.
    let (_, bot) = create(&service, json!({"name": "bot", "trusted": true})).await;
    let bot = Who { key: &bot, user: "", groups: "" };
    call(&service, bot, "a1", &other).await;
    assert_eq!(first(&service, bot).await, plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_shows_whether_learning_helps() {
    let service = start(&[("TOOLSIEVE_LEARNING__MODE", "auto")], None).await;
    let [_, other] = twins(&service).await;
    let replay = async || administer(&service, Method::POST, "/v1/admin/learning/replay", &json!({})).await;
    assert_eq!(replay().await, (StatusCode::OK, json!({"mode": "auto", "scopes": []})));
    use_tool(&service, user("anna"), "a0", &other).await;
    let expected = json!({"scope": "-/caller=user:anna", "uses": 1, "needed": 40, "before": null, "after": null, "on": true});
    assert_eq!(replay().await, (StatusCode::OK, json!({"mode": "auto", "scopes": [expected]})), "too few");
    for chat in 1..40 {
        use_tool(&service, user("anna"), &format!("a{chat}"), &other).await;
    }
    let (status, replayed) = replay().await;
    let scope = &replayed["scopes"][0];
    assert_eq!((status, &scope["uses"], &scope["on"]), (StatusCode::OK, &json!(40), &json!(true)), "{replayed}");
    let [before, after] = ["before", "after"].map(|name| scope[name].as_f64().unwrap());
    assert!(before < 0.9 && after > 0.99, "{replayed}");
    let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
    let last = &shown["scopes"][0]["last_replay"];
    assert_eq!((&last["before"], &last["after"]), (&scope["before"], &scope["after"]), "{shown}");
    let curve: Vec<f64> = last["curve"].as_array().unwrap().iter().map(|part| part["after"].as_f64().unwrap()).collect();
    assert!(curve.len() == 8 && curve.iter().all(|part| *part > 0.99), "{shown}");
    let (_, ready) = administer(&service, Method::GET, "/readyz", &json!({})).await;
    assert_eq!((&ready["learning"]["mode"], &ready["learning"]["on"]), (&json!("auto"), &json!(2)), "{ready}");
    assert!(service.get("/readyz").await.1.get("learning").is_none());
    let (code, text, errors) = command(&service, &["learn", "replay"]);
    assert!(code == Some(0) && text.contains("user:anna") && text.contains("40"), "{text} {errors}");
    assert!(text.trim_end().ends_with("Learning is auto."), "{text}");
}

/// There, a selection keeps all tools, and ranks none.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_small_catalog_calls_after_a_search_teach() {
    let service = start(&[("TOOLSIEVE_SELECTION__NARROW_ABOVE_TOKENS", "100000")], None).await;
    let [_, other] = twins(&service).await;
    let anna = user("anna");
    select(&service, anna, Some("a1"), MESSAGE).await;
    let search = anna.request(&service, "/v1/tools/search").header("X-OpenWebUI-Chat-Id", "a1");
    assert_eq!(search.json(&json!({"queries": [MESSAGE]})).send().await.unwrap().status(), StatusCode::OK);
    call(&service, anna, "a1", &other).await;
    assert_eq!(first(&service, anna).await, other);
}

/// Without a chat, nobody knows whether a call belongs to the message at all.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_chat_nothing_is_passed_over() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    let anna = user("anna");
    let selected = select(&service, anna, None, MESSAGE).await;
    let request = anna.request(&service, &format!("/{}", other.replace("__", "/")));
    let request = request.header("X-Toolsieve-Selection-Id", selected["selection_id"].as_str().unwrap());
    assert_eq!(request.json(&json!({"text": "a"})).send().await.unwrap().status(), StatusCode::OK);
    let kinds = async |tool: &str| {
        let (_, shown) = administer(&service, Method::GET, &format!("/v1/admin/learning?tool={tool}"), &json!({})).await;
        let evidence = shown["tools"][0]["evidence"].as_array().unwrap().iter();
        evidence.map(|one| one["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&plain).await, Vec::<String>::new(), "the tool that came first");
    let of_other = kinds(&other).await;
    assert!(!of_other.is_empty() && of_other.iter().all(|kind| kind == "found" || kind == "called"), "{of_other:?}");
}

/// The chat asks by a number alone. Only the arguments say what it is about.
#[tokio::test(flavor = "multi_thread")]
async fn words_of_arguments_teach_if_they_are_switched_on() {
    for arguments in ["names", "vector"] {
        let service = start(&[("TOOLSIEVE_LEARNING__ARGUMENTS", arguments)], None).await;
        let [_, other] = twins(&service).await;
        let anna = user("anna");
        select(&service, anna, Some("a1"), MESSAGE).await;
        let request = anna.request(&service, &format!("/{}", other.replace("__", "/"))).header("X-OpenWebUI-Chat-Id", "a1");
        let body = json!({"text": "overdue invoices of the harbour office, 4711, anna@example.org"});
        assert_eq!(request.json(&body).send().await.unwrap().status(), StatusCode::OK);
        let remembered = async || {
            let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
            shown["scopes"][0]["messages"].as_u64()
        };
        assert_eq!(remembered().await, Some(1));
        let path = "/v1/admin/learning?principal=user%3Aanna&message=overdue%20invoices%20of%20the%20harbour%20office";
        let is_raised = async || {
            let (_, shown) = administer(&service, Method::GET, path, &json!({})).await;
            let moved = shown["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == other);
            moved.and_then(|tool| tool["delta"].as_f64()).is_some_and(|delta| delta > 0.3)
        };
        if arguments == "vector" {
            eventually("the words of the call taught", is_raised).await;
            assert_eq!(remembered().await, Some(1), "the words are no further message");
        } else {
            assert!(!is_raised().await, "{arguments}");
        }
        let (status, _) = administer(&service, Method::DELETE, "/v1/admin/learning?principal=user%3Aanna", &json!({})).await;
        assert_eq!((status, remembered().await), (StatusCode::OK, None));
    }
}

/// Signed users are known only at calls, so a key selects for all of them.
#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_selection_learn_apart() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    let (key, anna) = (user(""), user("anna"));
    select(&service, key, Some("c1"), MESSAGE).await;
    call(&service, key, "c1", &other).await;
    call(&service, anna, "c1", &other).await;
    assert_eq!((first(&service, key).await, first(&service, anna).await), (other.clone(), other.clone()));
    let path = "/v1/admin/learning?principal=user%3Aanna";
    assert_eq!(administer(&service, Method::DELETE, path, &json!({})).await.0, StatusCode::OK);
    let service = start(&[], Some(service.stop().await)).await;
    assert_eq!((first(&service, key).await, first(&service, anna).await), (other, plain));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_is_not_learned_again_from_an_open_chat() {
    let service = start(&[], None).await;
    let [plain, other] = twins(&service).await;
    let (anna, ben) = (user("anna"), user("ben"));
    use_tool(&service, anna, "a1", &other).await;
    select(&service, ben, Some("b1"), MESSAGE).await;
    assert_eq!(first(&service, anna).await, other);
    let path = "/v1/admin/learning?principal=user%3Aanna";
    assert_eq!(administer(&service, Method::DELETE, path, &json!({})).await.0, StatusCode::OK);
    call(&service, anna, "a1", &other).await;
    // Nor which tools the chat calls, nor which parameters the call filled.
    let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
    assert!(!shown.to_string().contains("user:anna"), "{shown}");
    let turns =
        json!([{"role": "user", "content": MESSAGE}, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "do it"}]);
    let body = json!({"messages": turns, "chat_id": "a1"});
    assert_eq!(anna.request(&service, "/v1/filter").json(&body).send().await.unwrap().status(), StatusCode::OK);
    call(&service, anna, "a1", &other).await;
    assert_eq!(first(&service, anna).await, plain);
    // Another user's open chat still teaches, and so does a new message.
    call(&service, ben, "b1", &other).await;
    use_tool(&service, anna, "a1", &other).await;
    assert_eq!((first(&service, ben).await, first(&service, anna).await), (other.clone(), other));
}
