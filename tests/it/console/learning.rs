//! The page "Learning": what use has taught, replays, and forgetting.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Browser, Page, signed_in};
use crate::harness::keys::{ADMIN, KEY, administer, create, start_on, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, stdio};

const MESSAGE: &str = "please say the arguments again, those of order 7";
const ALIKE: &str = "please say the arguments again, those of order 9";
const PAGE: &str = "/ui/learning";

async fn service(mode: &'static str) -> Running {
    let servers = json!({"left": stdio(&["list=small"]), "right": stdio(&["list=small"]), "mail": stdio(&["list=mail"])});
    let environment =
        [("TOOLSIEVE_LEARNING__MODE", mode), ("TOOLSIEVE_SELECTION__GATE", "false"), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")];
    start_on(servers, &environment).await
}

/// A user's message in a chat of its own, and the call of a tool of `right` that it led to.
async fn use_tool(service: &Running, user: &str, chat: &str) {
    let body = json!({"messages": [{"role": "user", "content": MESSAGE}], "chat_id": chat});
    for (path, body) in [("/v1/filter", body), ("/right/echo", json!({"text": "a"}))] {
        let request = with_key(service, Method::POST, path, KEY).header("X-OpenWebUI-User-Id", user).header("X-OpenWebUI-Chat-Id", chat);
        assert_eq!(request.json(&body).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
}

async fn api(service: &Running, query: &str) -> Value {
    administer(service, Method::GET, &format!("/v1/admin/learning{query}"), &json!({})).await.1
}

/// The row of a table that contains a text, without tags, its cells apart.
fn row(page: &Page, text: &str) -> Vec<String> {
    let mut rows = page.text.split("<tr>").skip(1).map(|row| row.split("</tr>").next().unwrap());
    let row = rows.find(|row| row.contains(text)).unwrap_or_else(|| panic!("{text} in {}", page.text));
    let cells = row.split("</td>").flat_map(|cell| cell.split("</th>"));
    let words = |cell: &str| -> String { cell.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect() };
    cells.map(|cell| words(cell).trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_is_shown_without_texts_and_replayed() {
    let service = service("auto").await;
    let mut browser = signed_in(&service).await;
    let page = browser.see(PAGE).await;
    assert!(page.words().contains("Nothing was learned yet.") && page.words().contains("auto: a caller"), "{}", page.words());
    assert!(page.text.contains("aria-current=\"page\">Learning<"), "{}", page.text);

    use_tool(&service, "anna", "a0").await;
    let results = browser.send_form(PAGE, &[("do", "replay")]).await;
    assert_eq!(results.status, StatusCode::OK);
    let cells = row(&results, "-/caller=user:anna");
    assert_eq!(cells[1..6], ["1", "40", "–", "–", "yes"], "too few uses: {cells:?}");
    for chat in 1..40 {
        use_tool(&service, "anna", &format!("a{chat}")).await;
    }
    use_tool(&service, "ben", "b0").await;
    let results = browser.send_form(PAGE, &[("do", "replay")]).await;
    let shown = api(&service, "").await;
    let scope = |name: &str| shown["scopes"].as_array().unwrap().iter().find(|scope| scope["scope"] == name).unwrap().clone();
    let last = scope("-/caller=user:anna")["last_replay"].clone();
    let [before, after] = ["before", "after"].map(|name| format!("{:.3}", last[name].as_f64().unwrap()));
    let cells = row(&results, "-/caller=user:anna");
    assert_eq!(cells[1..5], ["40", "40", before.as_str(), after.as_str()], "{cells:?}");
    assert!(results.text.contains("<svg") && results.text.contains(&format!(">{after}</text>")), "{}", results.text);

    let page = browser.see(PAGE).await;
    page.is_small();
    assert!(page.words().contains("Remembered messages41"), "each counts once, also in several scopes: {}", page.words());
    let cells = row(&page, "-/caller=user:anna");
    assert_eq!(cells[1..6], ["40", scope("-/caller=user:anna")["uses"].to_string().as_str(), "40", "40", "yes"], "{cells:?}");
    assert_eq!((&cells[8], &cells[9]), (&before, &after), "{cells:?}");
    assert!(page.text.contains("<polyline"), "the parts of the newer messages");
    assert!(page.text.contains("<svg role=\"img\"") && page.words().contains(&format!("{before} → {after}")), "{}", page.words());
    // The tool, with what both users taught, each use once.
    let cells = row(&page, "<th scope=\"row\">right/echo");
    let pieces: usize = cells[1].split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse::<usize>().ok()).sum();
    assert_eq!((pieces, cells[2].as_str()), (41, "2"), "{cells:?}");
    for text in [MESSAGE, "order 7", "say the arguments"] {
        assert!(!page.text.contains(text) && !results.text.contains(text), "a text of a message: {text}");
    }
    // All evidence on a tool, as the API has it.
    let page = browser.see("/ui/learning?tool=right%2Fecho").await;
    for evidence in api(&service, "?tool=right__echo").await["tools"][0]["evidence"].as_array().unwrap() {
        let cells = row(&page, evidence["scope"].as_str().unwrap());
        assert_eq!(cells[2], evidence["count"].to_string(), "{evidence} {cells:?}");
    }
    assert_eq!(browser.open("/ui/learning?tool=no_such").await.status, StatusCode::NOT_FOUND);
    // The overview and the report say the same in short.
    let overview = browser.see("/ui").await.words();
    assert!(overview.contains("What learning changed") && overview.contains(&format!("{before} → {after}")), "{overview}");
    let (_, report) = administer(&service, Method::GET, "/v1/admin/report", &json!({})).await;
    let learning = &report["learning"];
    assert_eq!((&learning["mode"], &learning["scopes"], &learning["replayed"]), (&json!("auto"), &json!(3), &json!(1)), "{learning}");
    assert_eq!(learning["on"].as_u64().unwrap() + learning["off"].as_u64().unwrap(), 3, "{learning}");
    assert_eq!(format!("{:.3}", learning["after"].as_f64().unwrap()), after, "{learning}");
    let request = with_key(&service, Method::GET, "/v1/admin/report", ADMIN).header("accept", "text/html");
    let html = request.send().await.unwrap().text().await.unwrap();
    assert!(html.contains("Learning from use") && html.contains(&format!(">{after}</text>")), "{html}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_typed_in_shows_what_learning_does_for_it() {
    let service = service("always").await;
    use_tool(&service, "anna", "a0").await;
    let mut browser = signed_in(&service).await;
    let query = |principal: &str, message: &str| {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("principal", principal)
            .append_pair("message", message)
            .finish();
        format!("?{query}")
    };
    let asked = query("user:anna", ALIKE);
    let page = browser.see(&format!("{PAGE}{asked}")).await;
    let known = api(&service, &asked).await;
    let tools = known["tools"].as_array().unwrap();
    assert!(!tools.is_empty(), "{known}");
    for tool in tools {
        let cells = row(&page, &format!(">{}</a>", tool["name"].as_str().unwrap()));
        assert_eq!(cells[1], format!("{:+.2}", tool["delta"].as_f64().unwrap()), "{tool}");
        let evidence = tool["evidence"].as_array().unwrap().iter().filter(|piece| page.text.contains(piece["scope"].as_str().unwrap()));
        assert_eq!(evidence.count(), tool["evidence"].as_array().unwrap().len());
    }
    // What anna taught says nothing for ben.
    let page = browser.see(&format!("{PAGE}{}", query("user:ben", ALIKE))).await;
    assert!(page.words().contains("Learning changes nothing for this message."), "{}", page.words());
    for (principal, message, field) in [("ben", ALIKE, "principal"), ("", ALIKE, "principal"), ("user:ben", "", "message")] {
        let page = browser.open(&format!("{PAGE}{}", query(principal, message))).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{principal} {message}");
        assert!(page.text.contains(&format!("id=\"{field}-error\" role=\"alert\"")), "{}", page.text);
    }
    // Nothing was recorded by asking.
    assert_eq!(api(&service, "").await["scopes"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_asks_again_and_forgets_what_was_asked() {
    let service = service("always").await;
    for user in ["anna", "ben", "carl"] {
        use_tool(&service, user, user).await;
    }
    let mut browser = signed_in(&service).await;
    let scopes = async || -> Vec<String> {
        let known = api(&service, "").await;
        known["scopes"].as_array().unwrap().iter().map(|scope| scope["scope"].as_str().unwrap().to_owned()).collect()
    };
    let all = ["-/caller=user:anna", "-/caller=user:ben", "-/caller=user:carl", "-/all"];
    assert_eq!(scopes().await, all);
    let page = browser.see("/ui/learning?forget=principal&value=user%3Aanna").await;
    assert!(page.words().contains("user:anna") && page.words().contains("can't be undone"), "{}", page.words());
    assert_eq!(scopes().await, all, "asking forgets nothing");
    let form = |kind, value| [("do", "forget"), ("forget", kind), ("value", value)];
    let refused = browser.submit(PAGE, &[&[("token", "of somebody else")], form("all", "").as_slice()].concat()).await;
    assert_eq!((refused.status, scopes().await.len()), (StatusCode::FORBIDDEN, 4));

    let token = page.hidden("token");
    let done = browser.submit(PAGE, &[&[("token", token.as_str())], form("principal", "user:anna").as_slice()].concat()).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    let page = browser.see(done.location.as_deref().unwrap()).await;
    assert!(page.words().contains("Forgotten pieces of evidence:"), "{}", page.words());
    assert_eq!(scopes().await, all[1..]);
    // A link in the list of scopes leads there, too.
    assert!(page.text.contains("forget=scope&amp;value=-%2Fcaller%3Duser%3Aben"), "{}", page.text);
    assert_eq!(browser.send_form(PAGE, &form("scope", "-/caller=user:ben")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scopes().await, all[2..]);
    for (kind, value, status) in [("principal", "carl", 422), ("scope", "all", 422), ("tool", "no_such", 404)] {
        for page in [browser.open(&format!("{PAGE}?forget={kind}&value={value}")).await, browser.send_form(PAGE, &form(kind, value)).await]
        {
            assert_eq!(page.status.as_u16(), status, "{kind} {value}");
            assert!(page.text.contains("id=\"value-error\" role=\"alert\""), "{kind}: {}", page.text);
        }
    }
    for kind in ["principal", "tool", "scope"] {
        for page in [browser.open(&format!("{PAGE}?forget={kind}&value=+")).await, browser.send_form(PAGE, &form(kind, "")).await] {
            assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{kind}");
            assert!(page.text.contains("id=\"value-error\" role=\"alert\">Enter the name of what to forget."), "{kind}: {}", page.text);
        }
    }
    assert_eq!(scopes().await, all[2..]);
    assert_eq!(browser.send_form(PAGE, &form("tool", "right__echo")).await.status, StatusCode::SEE_OTHER);
    assert!(!browser.see(PAGE).await.text.contains("<th scope=\"row\">right/echo"));
    assert_eq!(browser.send_form(PAGE, &form("all", "")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scopes().await, [""; 0]);
    let audited = async || {
        let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?action=learning_forget", &json!({})).await;
        audit["entries"].as_array().unwrap().len()
    };
    eventually("what was forgotten is in the audit log", async || when(audited().await, |count| *count == 4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_what_was_learned_without_forms() {
    let service = service("always").await;
    let evil = "<script>alert(1)</script>\"'";
    use_tool(&service, evil, "a0").await;
    let (_, key) = create(&service, json!({"name": "watcher", "role": "viewer"})).await;
    let mut browser = Browser::of(&service);
    browser.submit("/ui/login", &[("key", &key)]).await;
    let page = browser.see(PAGE).await;
    assert!(!page.text.contains("<script") && page.words().contains(evil), "{}", page.text);
    assert!(!page.text.contains("Replay now") && !page.text.contains("forget="), "{}", page.text);
    // The one form besides signing out is a search.
    assert_eq!((page.text.matches("method=\"post\"").count(), page.text.matches("method=\"get\"").count()), (1, 1));
    let page = browser.see("/ui/learning?forget=all").await;
    assert!(!page.text.contains("name=\"do\""), "{}", page.text);
    let token = page.hidden("token");
    for form in [[("do", "replay"), ("forget", "")], [("do", "forget"), ("forget", "all")]] {
        let refused = browser.submit(PAGE, &[&[("token", token.as_str())], form.as_slice()].concat()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    }
    assert_eq!(api(&service, "").await["scopes"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_the_page_still_forgets() {
    let service = service("off").await;
    let mut browser = signed_in(&service).await;
    let page = browser.see(PAGE).await;
    assert!(page.words().contains("Learning is off") && !page.text.contains("Replay now"), "{}", page.words());
    assert_eq!(browser.send_form(PAGE, &[("do", "forget"), ("forget", "all")]).await.status, StatusCode::SEE_OTHER);
    assert!(!browser.see("/ui").await.words().contains("What learning changed"));
    let (_, report) = administer(&service, Method::GET, "/v1/admin/report", &json!({})).await;
    assert_eq!(report["learning"], Value::Null);
}
