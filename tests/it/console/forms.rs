//! Forms of two administrators at once, and forms that are sent after the end of a session: nothing that somebody wrote is lost.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Browser, Page, servers, signed_in};
use crate::harness::keys::{ADMIN, administer, create, start_on};
use crate::harness::servers::http::HttpServer;
use crate::harness::servers::postgres::{schema, shared};
use crate::harness::{Running, stdio};

/// Every form that stores something: its path, and what it contains.
const FORMS: [(&str, &[(&str, &str)]); 7] = [
    ("/ui/server", &[("server", "extra"), ("entry", "{\"url\": \"http://127.0.0.1:9/<b>\"}"), ("do", "save")]),
    ("/ui/server", &[("server", "time"), ("do", "restart")]),
    (
        "/ui/tool",
        &[("server", "time"), ("tool", "get_current_time"), ("version", "0"), ("description", "Says <b>when</b>."), ("do", "save")],
    ),
    ("/ui/tools", &[("of", "time"), ("tool", "get_current_time"), ("do", "pin")]),
    ("/ui/access", &[("version", "0"), ("do", "set"), ("effect", "block"), ("servers", "mail"), ("groups", "interns")]),
    ("/ui/access/keys", &[("name", "ci"), ("groups", "builders\r\nqa")]),
    ("/ui/access/toolset", &[("name", "clock"), ("servers", "time"), ("description", "Tells <b>time</b>."), ("do", "save")]),
];

async fn get(service: &Running, path: &str) -> (StatusCode, Value) {
    administer(service, Method::GET, path, &json!({})).await
}

/// All hidden fields of a page's form, without the token and the version.
fn kept(page: &Page) -> Vec<(String, String)> {
    let fields = page.text.split("<input type=\"hidden\" name=\"").skip(1).map(|field| {
        let (name, rest) = field.split_once("\" value=\"").unwrap();
        let value = rest.split('"').next().unwrap();
        let value = value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        (name.to_owned(), value)
    });
    fields.filter(|(name, _)| name != "token").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_after_a_session_ended_is_kept_until_the_person_signs_in() {
    let service = start_on(servers(), &[]).await;
    for (path, form) in FORMS {
        let mut browser = signed_in(&service).await;
        let token = browser.token().await;
        browser.cookie = None;
        let sent: Vec<(&str, &str)> = [&[("token", token.as_str())], form].concat();
        let page = browser.submit(path, &sent).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{path}: {}", page.text);
        assert!(page.words().contains("Your session has ended") && !page.text.contains("<b>"), "{path}: {}", page.text);
        assert!(!page.text.contains(&token), "a token of another session is worth nothing");
        let entered = |page: &Page| -> Vec<(String, String)> {
            let mut expected: Vec<(String, String)> =
                form.iter().map(|&(name, value)| (name.to_owned(), value.replace("\r\n", "\n"))).collect();
            expected.sort();
            assert_eq!(kept(page), expected, "{path}");
            expected
        };
        let expected = entered(&page);
        let with = |more: (&'static str, &str)| -> Vec<(String, String)> {
            [&[(more.0.to_owned(), more.1.to_owned())], expected.as_slice()].concat()
        };
        let send = async |browser: &mut Browser<'_>, fields: &[(String, String)]| {
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            browser.submit(path, &fields).await
        };
        let page = send(&mut browser, &with(("sign_in_key", "a guess"))).await;
        assert!(page.status == StatusCode::FORBIDDEN && page.words().contains("This is not the admin key."), "{path}: {}", page.text);
        assert!(browser.cookie.is_none() && !page.text.contains("a guess"), "{path}: {}", page.text);
        entered(&page);
        let page = send(&mut browser, &with(("sign_in_key", ADMIN))).await;
        assert!(page.status == StatusCode::OK && browser.cookie.is_some(), "{path}: {}", page.text);
        assert!(!page.text.contains(ADMIN) && !page.text.contains("<b>"), "{path}: {}", page.text);
        entered(&page);
        for (of, list, name) in [("keys", "/v1/admin/keys", "\"ci\""), ("toolset", "/v1/admin/toolsets", "\"clock\"")] {
            let (_, stored) = get(&service, list).await;
            assert!(!path.ends_with(of) || !stored.to_string().contains(name), "nothing is done yet: {stored}");
        }
        let token = page.hidden("token");
        let page = send(&mut browser, &with(("token", &token))).await;
        assert!(page.status.is_success() || page.status == StatusCode::SEE_OTHER, "{path}: {} {}", page.status, page.text);
        assert!(!page.words().contains("from another session"), "{path}: {}", page.text);
    }
    let (_, tool) = get(&service, "/v1/admin/tools/time/get_current_time").await;
    assert_eq!((&tool["written"]["description"], &tool["written"]["pinned"]), (&json!("Says <b>when</b>."), &json!(true)), "{tool}");
    assert_eq!(get(&service, "/v1/admin/toolsets/clock").await.1["description"], "Tells <b>time</b>.");
    assert_eq!(get(&service, "/v1/admin/servers/extra").await.0, StatusCode::OK);
}

/// Who has signed in again in another window sends the form of the first one.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_the_former_session_is_shown_and_then_sent() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    let former = browser.token().await;
    browser.sign_in().await;
    let form = [("name", "clock"), ("servers", "time"), ("do", "save")];
    let page = browser.submit("/ui/access/toolset", &[&[("token", former.as_str())], &form[..]].concat()).await;
    assert!(page.status == StatusCode::FORBIDDEN && page.words().contains("from another session"), "{}", page.text);
    assert_eq!(get(&service, "/v1/admin/toolsets/clock").await.0, StatusCode::NOT_FOUND);
    let token = page.hidden("token");
    let page = browser.submit("/ui/access/toolset", &[&[("token", token.as_str())], &form[..]].concat()).await;
    assert_eq!(page.location.as_deref(), Some("/ui/access/toolsets?done=saved"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_without_a_session_is_no_way_around_the_limits() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    let large = "x".repeat(70_000);
    let page = browser.submit("/ui/access/toolset", &[("description", &large)]).await;
    assert_eq!(page.status, StatusCode::PAYLOAD_TOO_LARGE);
    let page = browser.submit("/ui/access/toolset", &[("description", &large[..30_000])]).await;
    assert!(page.status == StatusCode::FORBIDDEN && page.text.contains(&large[..30_000]), "a long text is kept as a whole");
    let mut last = StatusCode::OK;
    for _ in 0..25 {
        last = browser.submit("/ui/access/toolset", &[("name", "clock"), ("sign_in_key", "a guess")]).await.status;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    let request = browser.client.post(format!("{}/ui/access/toolset", service.url)).header("origin", "https://evil.example");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let request = form.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body("name=clock");
    assert_eq!(browser.send(request).await.status, StatusCode::FORBIDDEN);
    assert!(browser.cookie.is_none());
    let (_, watcher) = create(&service, json!({"name": "watcher", "role": "viewer"})).await;
    let page = browser.submit("/ui/access/toolset", &[("name", "clock"), ("servers", "time"), ("sign_in_key", &watcher)]).await;
    let token = page.hidden("token");
    let page = browser.submit("/ui/access/toolset", &[("name", "clock"), ("servers", "time"), ("token", &token)]).await;
    assert!(page.status == StatusCode::FORBIDDEN && page.words().contains("may only read"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_administrators_neither_loses_a_toolset() {
    let service = start_on(servers(), &[]).await;
    let (mut one, mut other) = (signed_in(&service).await, signed_in(&service).await);
    let toolset = "/v1/admin/toolsets/clock";
    let form = |version: &str, servers: &'static str, description: &'static str| -> Vec<(&'static str, String)> {
        [("name", "clock"), ("servers", servers), ("description", description), ("do", "save"), ("version", version)]
            .map(|(name, value)| (name, value.to_owned()))
            .to_vec()
    };
    let save = async |browser: &mut Browser<'_>, form: Vec<(&'static str, String)>| {
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.send_form("/ui/access/toolset", &form).await
    };
    // Both write a new one with the same name.
    let new = one.see("/ui/access/toolset").await.hidden("version");
    assert_eq!(save(&mut one, form(&new, "time", "Mine.")).await.status, StatusCode::SEE_OTHER);
    let page = save(&mut other, form(&new, "mail", "Theirs.")).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    let words = page.words();
    assert!(words.contains("Mine.") && page.text.contains("\nTheirs.</textarea>"), "{}", page.text);
    assert!(words.contains("This name is taken.") && !words.contains("somebody else"), "{words}");
    assert!(page.text.contains("id=\"name-error\"") && page.hidden("of") == "clock", "{}", page.text);
    assert_eq!(get(&service, toolset).await.1["description"], "Mine.");
    // Who has seen the other version may save.
    assert_eq!(save(&mut other, form(&page.hidden("version"), "mail", "Theirs.")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(get(&service, toolset).await.1["description"], "Theirs.");

    // Both change it, and one removes what the other has changed.
    let seen = one.see("/ui/access/toolset?name=clock").await.hidden("version");
    let confirmed = one.see("/ui/access/toolset?name=clock&do=remove").await.hidden("version");
    assert_eq!(seen, confirmed);
    assert_eq!(save(&mut other, form(&seen, "mail", "Theirs again.")).await.status, StatusCode::SEE_OTHER);
    let page = one.send_form("/ui/access/toolset", &[("name", "clock"), ("version", &seen), ("do", "remove")]).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    assert!(page.text.contains("\nTheirs again.</textarea>"), "the form shows what there is: {}", page.text);
    assert_eq!(get(&service, toolset).await.0, StatusCode::OK);

    // What one has removed, the other has still in the form.
    let version = page.hidden("version");
    let removed = one.send_form("/ui/access/toolset", &[("name", "clock"), ("version", &version), ("do", "remove")]).await;
    assert_eq!(removed.status, StatusCode::SEE_OTHER);
    let page = save(&mut other, form(&version, "files", "Mine still.")).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    assert!(page.words().contains("somebody else has removed") && page.text.contains("\nMine still.</textarea>"), "{}", page.text);
    assert_eq!(save(&mut other, form(&page.hidden("version"), "files", "Mine still.")).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_administrators_neither_loses_a_server() {
    let (mail, files) = (HttpServer::start(&["list=mail"]), HttpServer::start(&["list=files"]));
    let service = start_on(json!({"time": stdio(&["list=time"])}), &[]).await;
    let (mut one, mut other) = (signed_in(&service).await, signed_in(&service).await);
    let entry = |server: &HttpServer| json!({"type": "http", "url": format!("http://127.0.0.1:{}/mcp", server.port)}).to_string();
    let save = async |browser: &mut Browser<'_>, entry: &str, version: &str| {
        browser.send_form("/ui/server", &[("server", "shared"), ("entry", entry), ("version", version), ("do", "save")]).await
    };
    let new = one.see("/ui/server").await.hidden("version");
    assert_eq!(save(&mut one, &entry(&mail), &new).await.status, StatusCode::SEE_OTHER);
    let page = save(&mut other, &entry(&files), &new).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    for server in [&mail, &files] {
        assert!(page.words().contains(&format!(":{}/mcp", server.port)), "both versions: {}", page.text);
    }
    assert!(page.words().contains("This name is taken.") && !page.words().contains("somebody else"), "{}", page.text);
    assert!(page.text.contains("id=\"server-error\"") && !page.text.contains("id=\"entry-error\""), "{}", page.text);
    // Under another name, what was entered is new.
    let (version, of) = (page.hidden("version"), page.hidden("of"));
    let entry_of_files = entry(&files);
    let form = [("server", "own"), ("entry", entry_of_files.as_str()), ("version", &version), ("of", &of), ("do", "save")];
    assert_eq!(other.send_form("/ui/server", &form).await.status, StatusCode::SEE_OTHER);
    assert_eq!(get(&service, "/v1/admin/servers/own").await.0, StatusCode::OK);
    let of_mail = get(&service, "/v1/admin/servers/shared").await.1["entry"].to_string();
    assert!(of_mail.contains(&format!(":{}/mcp", mail.port)), "{of_mail}");
    assert_eq!(save(&mut other, &entry(&files), &page.hidden("version")).await.status, StatusCode::SEE_OTHER);

    let page = one.see("/ui/server?server=shared&do=remove").await;
    let version = page.hidden("version");
    assert_eq!(save(&mut other, &entry(&mail), &version).await.status, StatusCode::SEE_OTHER);
    let page = one.send_form("/ui/server", &[("server", "shared"), ("version", &version), ("do", "remove")]).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    assert!(page.words().contains(&format!(":{}/mcp", mail.port)), "the form shows what there is: {}", page.text);
    let version = page.hidden("version");
    let removed = one.send_form("/ui/server", &[("server", "shared"), ("version", &version), ("do", "remove")]).await;
    assert_eq!(removed.status, StatusCode::SEE_OTHER, "{}", removed.text);
    let page = save(&mut other, &entry(&files), &version).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    assert!(page.words().contains("somebody else has removed") && page.words().contains(&format!(":{}/mcp", files.port)), "{}", page.text);
}

/// Regression test: a form that was refused for another reason got the version stored now, so that the next "Save" overwrote what its
/// administrator had never seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_form_keeps_the_version_on_which_it_is_based() {
    let (mail, files) = (HttpServer::start(&["list=mail"]), HttpServer::start(&["list=files"]));
    let service = start_on(json!({"time": stdio(&["list=time"])}), &[]).await;
    let mut browser = signed_in(&service).await;
    let entry = |server: &HttpServer| json!({"type": "http", "url": format!("http://127.0.0.1:{}/mcp", server.port)});
    let (of_mail, of_files) = (entry(&mail), entry(&files).to_string());
    for (page, name, api, theirs, mine, wrong) in [
        ("/ui/access/toolset", "name", "/v1/admin/toolsets/shared", json!({"servers": ["time"]}), ("servers", "time"), ("servers", "")),
        ("/ui/server", "server", "/v1/admin/servers/shared", of_mail, ("entry", of_files.as_str()), ("entry", "{")),
    ] {
        let form = |version: &str, contents: (&'static str, &str)| {
            let form = [(name, "shared"), ("version", version), contents, ("do", "save")];
            form.map(|(name, value)| (name, value.to_owned())).to_vec()
        };
        let send = async |browser: &mut Browser<'_>, form: Vec<(&'static str, String)>| {
            let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
            browser.send_form(page, &form).await
        };
        // A new one, whose name somebody else has taken in the meantime, stays a new one.
        let new = browser.see(page).await.hidden("version");
        let (status, stored) = administer(&service, Method::PUT, api, &theirs).await;
        assert!(status.is_success(), "{page}: {status} {stored}");
        let refused = send(&mut browser, form(&new, wrong)).await;
        assert!(refused.status.is_client_error() && refused.status != StatusCode::PRECONDITION_FAILED, "{page}: {}", refused.text);
        assert!(refused.text.contains(&format!("<input id=\"{name}\"")), "{page}: {}", refused.text);
        assert_eq!(refused.hidden("version"), new, "{page}");
        let conflict = send(&mut browser, form(&refused.hidden("version"), mine)).await;
        assert_eq!((conflict.status, conflict.hidden("of").as_str()), (StatusCode::PRECONDITION_FAILED, "shared"), "{page}");

        // A change.
        let seen = browser.see(&format!("{page}?{name}=shared")).await.hidden("version");
        assert_eq!(seen, conflict.hidden("version"), "{page}");
        let changed = if name == "name" { json!({"servers": ["time"], "description": "Theirs."}) } else { entry(&files) };
        assert_eq!(administer(&service, Method::PUT, api, &changed).await.0, StatusCode::OK, "{page}");
        let refused = send(&mut browser, form(&seen, wrong)).await;
        assert!(refused.status.is_client_error() && refused.status != StatusCode::PRECONDITION_FAILED, "{page}: {}", refused.text);
        assert_eq!(refused.hidden("version"), seen, "{page}");
        let conflict = send(&mut browser, form(&refused.hidden("version"), mine)).await;
        assert_eq!(conflict.status, StatusCode::PRECONDITION_FAILED, "{page}: {}", conflict.text);
        assert!(conflict.words().contains("somebody else has saved"), "{page}: {}", conflict.text);
        assert_eq!(send(&mut browser, form(&conflict.hidden("version"), mine)).await.status, StatusCode::SEE_OTHER, "{page}");
    }
}

/// Two services on one database, of which the second doesn't hear of the changes of a table.
async fn two_services(table: &str) -> (Running, Running) {
    let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let name = leaked(schema());
    let environment = [("DATABASE_URL", leaked(shared().url())), ("TOOLSIEVE_STORE__SCHEMA", name)];
    let services = (start_on(servers(), &environment).await, start_on(servers(), &environment).await);
    shared().run(&format!("ALTER TABLE \"{name}\".{table} DISABLE TRIGGER USER")).await;
    services
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_administrators_at_two_services_neither_loses_a_toolset() {
    let (one, two) = two_services("toolset").await;
    let (mut first, mut second) = (signed_in(&one).await, signed_in(&two).await);
    let new = second.see("/ui/access/toolset").await.hidden("version");
    let form = |version: &str, description: &str| -> Vec<(&'static str, String)> {
        [("name", "clock"), ("servers", "time"), ("description", description), ("do", "save"), ("version", version)]
            .map(|(name, value)| (name, value.to_owned()))
            .to_vec()
    };
    let save = async |browser: &mut Browser<'_>, form: Vec<(&'static str, String)>| {
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.send_form("/ui/access/toolset", &form).await
    };
    assert_eq!(save(&mut first, form(&new, "Mine.")).await.status, StatusCode::SEE_OTHER);
    let page = save(&mut second, form(&new, "Theirs.")).await;
    assert!(page.status == StatusCode::PRECONDITION_FAILED && page.words().contains("Mine."), "{}", page.text);
    assert_eq!(save(&mut second, form(&page.hidden("version"), "Theirs.")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(get(&two, "/v1/admin/toolsets/clock").await.1["description"], "Theirs.");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_administrators_at_two_services_neither_loses_a_server() {
    let (mail, files) = (HttpServer::start(&["list=mail"]), HttpServer::start(&["list=files"]));
    let (one, two) = two_services("managed_server").await;
    let (mut first, mut second) = (signed_in(&one).await, signed_in(&two).await);
    let entry = |server: &HttpServer| json!({"type": "http", "url": format!("http://127.0.0.1:{}/mcp", server.port)});
    let save = async |browser: &mut Browser<'_>, entry: &Value, version: &str| {
        let entry = entry.to_string();
        browser.send_form("/ui/server", &[("server", "shared"), ("entry", &entry), ("version", version), ("do", "save")]).await
    };
    let new = second.see("/ui/server").await.hidden("version");
    assert_eq!(save(&mut first, &entry(&mail), &new).await.status, StatusCode::SEE_OTHER);
    let page = save(&mut second, &entry(&files), &new).await;
    assert!(page.status == StatusCode::PRECONDITION_FAILED && page.words().contains(&format!(":{}/mcp", mail.port)), "{}", page.text);
    // What one has switched off stays off with the other's new entry.
    let (status, _) = administer(&one, Method::PATCH, "/v1/admin/servers/shared", &json!({"enabled": false})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, stored) = administer(&two, Method::PUT, "/v1/admin/servers/shared", &entry(&files)).await;
    assert_eq!((status, &stored["enabled"]), (StatusCode::OK, &json!(false)), "{stored}");
}

/// Pinning from the table keeps what else is written about a tool, also what another administrator has just written.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_pinned_in_the_table() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    let clock = "/v1/admin/tools/time/get_current_time";
    let page = browser.see("/ui/tools?text=current_time").await;
    assert!(page.text.contains("aria-label=\"Pin: time / get_current_time\""), "{}", page.text);
    assert_eq!(administer(&service, Method::PUT, clock, &json!({"synonyms": ["how late"]})).await.0, StatusCode::OK);
    for (action, pinned) in [("pin", true), ("unpin", false)] {
        let form = [("of", "time"), ("tool", "get_current_time"), ("text", "current_time"), ("do", action)];
        let done = browser.send_form("/ui/tools", &form).await;
        let to = "/ui/tools?text=current_time&done=saved";
        assert_eq!((done.status, done.location.as_deref()), (StatusCode::SEE_OTHER, Some(to)), "{}", done.text);
        let (_, tool) = get(&service, clock).await;
        assert_eq!((&tool["written"]["pinned"], &tool["written"]["synonyms"]), (&json!(pinned), &json!(["how late"])), "{tool}");
        assert_eq!(browser.see(to).await.text.contains("Unpin"), pinned);
    }
    let page = browser.send_form("/ui/tools", &[("of", "time"), ("tool", "none"), ("do", "pin")]).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND, "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_leads_to_the_pages_and_shows_other_periods() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui").await;
    for link in
        ["href=\"/ui/servers\"", "href=\"/ui/tools\"", "href=\"/ui/access/keys\"", "href=\"/ui/server?server=time\"", "href=\"/ui?days=7\""]
    {
        assert!(page.text.contains(link), "{link}: {}", page.text);
    }
    let current = |page: &Page| page.text.split("aria-current=\"page\">").nth(2).unwrap().split('<').next().unwrap().to_owned();
    for (query, period) in [("", "Last 30 days"), ("?days=7", "Last 7 days"), ("?days=90", "Last 90 days"), ("?days=1x", "Last 30 days")] {
        assert_eq!(current(&browser.see(&format!("/ui{query}")).await), period, "{query}");
    }
}
