//! The pages of the console: signing in and out, and what they show.

mod access;
mod activity;
mod figures;
mod forms;
mod learning;
mod live;
mod run;
mod servers;
mod tools;

use reqwest::header::{ACCEPT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use toolsieve::settings::McpoSettings;

use crate::harness::keys::{ADMIN, KEY, administer, start_on};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

/// All pages with the navigation.
const PAGES: [&str; 11] = [
    "/ui",
    "/ui/servers",
    "/ui/tools",
    "/ui/access",
    "/ui/access/check",
    "/ui/access/keys",
    "/ui/access/secrets",
    "/ui/access/toolsets",
    "/ui/activity",
    "/ui/learning",
    "/ui/playground",
];

/// The only script of a page.
const SCRIPT: &str = "<script src=\"/ui/static/console.js\" defer></script>";

/// A browser without scripts: it keeps one cookie and follows no redirect.
struct Browser<'a> {
    service: &'a Running,
    /// The path below which a proxy publishes the service, or empty.
    base: &'static str,
    client: Client,
    cookie: Option<String>,
}

struct Page {
    status: StatusCode,
    text: String,
    location: Option<String>,
    /// Whether the page's policy lets it load scripts of the service.
    allows_scripts: bool,
}

impl<'a> Browser<'a> {
    fn of(service: &'a Running) -> Self {
        Self { service, base: "", client: Client::builder().redirect(Policy::none()).build().unwrap(), cookie: None }
    }

    async fn send(&mut self, request: RequestBuilder) -> Page {
        let request = match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        };
        let response: Response = request.send().await.unwrap();
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        if let Some(cookie) = header(SET_COOKIE) {
            let path = format!("; Path={}/ui;", self.base);
            assert!(cookie.contains(&path) && cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
            let pair = cookie.split(';').next().unwrap();
            self.cookie = (!pair.ends_with('=')).then(|| pair.to_owned());
        }
        let (status, location) = (response.status(), header(LOCATION));
        let mut allows_scripts = false;
        if header(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")) {
            let policy = header(CONTENT_SECURITY_POLICY).unwrap();
            assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
            allows_scripts = policy.contains("script-src 'self';");
        }
        Page { status, location, allows_scripts, text: response.text().await.unwrap() }
    }

    async fn open(&mut self, path: &str) -> Page {
        let request = self.client.get(format!("{}{}{path}", self.service.url, self.base));
        self.send(request).await
    }

    async fn submit(&mut self, path: &str, form: &[(&str, &str)]) -> Page {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client.post(format!("{}{}{path}", self.service.url, self.base));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.send(request.body(body)).await
    }

    async fn sign_in(&mut self) {
        let page = self.submit("/ui/login", &[("key", ADMIN)]).await;
        let overview = format!("{}/ui", self.base);
        assert_eq!((page.status, page.location), (StatusCode::SEE_OTHER, Some(overview)), "{}", page.text);
        assert!(self.cookie.is_some());
    }

    /// The hidden token of a page's forms.
    async fn token(&mut self) -> String {
        self.open("/ui/playground").await.hidden("token")
    }

    /// Opens a page that exists.
    async fn see(&mut self, path: &str) -> Page {
        let page = self.open(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.text);
        page
    }

    /// Sends a form with the token of this session.
    async fn send_form(&mut self, path: &str, form: &[(&str, &str)]) -> Page {
        let token = self.token().await;
        self.submit(path, &[&[("token", token.as_str())], form].concat()).await
    }
}

impl Page {
    /// The value of the first hidden field with this name.
    fn hidden(&self, name: &str) -> String {
        let value = self.text.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap_or_else(|| panic!("{name} in {}", self.text));
        value.split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&")
    }

    /// The text without tags.
    fn words(&self) -> String {
        let mut words: String = self.text.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
        for (escaped, letter) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")] {
            words = words.replace(escaped, letter);
        }
        words
    }

    /// Number of elements.
    fn nodes(&self) -> usize {
        self.text.match_indices('<').filter(|(at, _)| self.text[at + 1..].starts_with(|letter: char| letter.is_ascii_alphabetic())).count()
    }

    /// The bounds of a page with any contents.
    fn is_small(&self) {
        assert!(self.text.len() < 200 * 1024 && self.nodes() < 2_000, "{} bytes, {} elements", self.text.len(), self.nodes());
    }
}

/// A browser that has signed in.
async fn signed_in(service: &Running) -> Browser<'_> {
    let mut browser = Browser::of(service);
    browser.sign_in().await;
    browser
}

/// A user saw: behind a proxy, the page led to `/ui/login` of another program.
#[tokio::test(flavor = "multi_thread")]
async fn below_a_root_path_every_address_carries_it() {
    let mcpo = McpoSettings { root_path: "/toolsieve".into(), ..McpoSettings::default() };
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers: servers(), key: Some(KEY), environment, mcpo: Some(mcpo), ..Start::default() }.start().await;
    service.settled().await;
    let mut browser = Browser { base: "/toolsieve", ..Browser::of(&service) };
    let to = "/toolsieve/ui/login?to=%2Fui%2Ftools";
    assert_eq!(browser.open("/ui/tools").await.location.as_deref(), Some(to));
    // A proxy that removes the path from requests.
    let stripped = browser.client.get(format!("{}/ui/tools", service.url));
    assert_eq!(browser.send(stripped).await.location.as_deref(), Some(to));
    assert_eq!(browser.open("/ui/").await.location.as_deref(), Some("/toolsieve/ui"));
    let page = browser.see("/ui/login").await;
    assert!(page.text.contains("action=\"/toolsieve/ui/login\"") && !page.text.contains("\"/ui"), "{}", page.text);
    browser.sign_in().await;
    for path in PAGES.iter().chain(&["/ui/server?server=time", "/ui/tool?server=time&tool=get_current_time"]) {
        let page = browser.see(path).await;
        assert!(page.text.contains("href=\"/toolsieve/ui/servers\"") && !page.text.contains("\"/ui"), "{path}: {}", page.text);
    }
    let page = browser.send_form("/ui/server", &[("server", "time"), ("do", "restart")]).await;
    assert_eq!(page.location.as_deref(), Some("/toolsieve/ui/server?server=time&done=restarted"), "{}", page.text);
    let page = browser.send_form("/ui/logout", &[]).await;
    assert_eq!((page.location.as_deref(), &browser.cookie), (Some("/toolsieve/ui/login"), &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_admin_key_opens_the_console() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    for (path, to) in [
        ("/ui", "/ui/login"),
        ("/ui/playground", "/ui/login?to=%2Fui%2Fplayground"),
        ("/ui/tools?text=a+b&offset=50", "/ui/login?to=%2Fui%2Ftools%3Ftext%3Da%2Bb%26offset%3D50"),
    ] {
        let page = browser.open(path).await;
        assert_eq!((page.status, page.location.as_deref()), (StatusCode::SEE_OTHER, Some(to)), "{path}");
    }
    for path in PAGES {
        assert_eq!(browser.open(path).await.status, StatusCode::SEE_OTHER, "{path}");
        let page = browser.submit(path, &[("token", "wrong")]).await;
        assert!(page.status != StatusCode::OK, "{path}: {}", page.text);
    }
    assert_eq!(browser.open("/ui/login").await.status, StatusCode::OK);
    assert_eq!(browser.open("/ui/static/style.css").await.status, StatusCode::OK);
    for key in [KEY, "wrong", ""] {
        let page = browser.submit("/ui/login", &[("key", key)]).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{}", page.text);
        assert!(browser.cookie.is_none() && page.text.contains("role=\"alert\""), "{}", page.text);
    }
    browser.sign_in().await;
    let page = browser.open("/ui").await;
    assert_eq!(page.status, StatusCode::OK);
    for text in ["time", "mail", "files", "connected", "Sign out"] {
        assert!(page.text.contains(text), "{text}: {}", page.text);
    }
    // The cookie opens nothing but the console.
    let cookie = browser.cookie.clone().unwrap();
    for path in ["/v1/admin/usage", "/openapi.json", "/v1/filter?explain=true"] {
        let request = service.client.get(format!("{}{path}", service.url)).header(COOKIE, &cookie);
        assert_eq!(request.send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    // A session ends on the server, too.
    let token = browser.token().await;
    browser.submit("/ui/logout", &[("token", "of somebody else")]).await;
    browser.cookie = Some(cookie.clone());
    assert_eq!(browser.open("/ui").await.status, StatusCode::OK, "a form without the token signs nobody out");
    assert_eq!(browser.open("/ui/").await.location.as_deref(), Some("/ui"));
    browser.submit("/ui/logout", &[("token", &token)]).await;
    browser.cookie = Some(cookie);
    assert_eq!(browser.open("/ui").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_are_limited_and_the_right_key_still_works() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    let mut last = StatusCode::OK;
    for _ in 0..25 {
        last = browser.submit("/ui/login", &[("key", "a guess")]).await.status;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    browser.sign_in().await;
    let large = "x".repeat(5_000);
    let mut stranger = Browser::of(&service);
    assert_eq!(stranger.submit("/ui/login", &[("key", &large)]).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sites_can_use_no_session() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    browser.sign_in().await;
    let cookie = browser.cookie.clone().unwrap();
    let request =
        browser.client.post(format!("{}/ui/playground", service.url)).header(COOKIE, &cookie).header("origin", "https://evil.example");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    let page = browser.submit("/ui/playground", &[("message", "what time is it"), ("token", "wrong")]).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN, "{}", page.text);
    // A link on another site leads to the console, without its cookie.
    let request = browser.client.get(format!("{}/ui", service.url)).header("sec-fetch-site", "cross-site");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::SEE_OTHER);
}

/// Every figure of the playground is one of `POST /v1/filter?explain=true`.
#[tokio::test(flavor = "multi_thread")]
async fn the_playground_shows_the_explanation() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    browser.sign_in().await;
    let token = browser.token().await;
    let text = "send an email to Anna. Read notes.txt. What time is it in Tokyo?";
    let page = browser.submit("/ui/playground", &[("message", text), ("token", &token)]).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let asked = json!({"messages": [{"role": "user", "content": text}]});
    let (_, answer) = administer(&service, reqwest::Method::POST, "/v1/filter?explain=true", &asked).await;
    for candidate in answer["explain"]["candidates"].as_array().unwrap() {
        let name = candidate["name"].as_str().unwrap();
        let row =
            page.text.split("<tr>").skip(1).find(|row| row.contains(&format!("<code>{name}</code>"))).unwrap_or_else(|| panic!("{name}"));
        let fused = format!("{:.3}", candidate["fused"].as_f64().unwrap());
        assert!(row.contains(&format!(">{fused}<")), "{name}: {fused} in {row}");
        assert_eq!(row.contains("class=\"good\""), candidate["sent"] == true, "{row}");
    }
    for signal in answer["explain"]["gate"]["signals"].as_array().unwrap() {
        let name = signal["name"].as_str().unwrap();
        let row =
            page.text.split("<tr>").skip(1).find(|row| row.contains(&format!("<code>{name}</code>"))).unwrap_or_else(|| panic!("{name}"));
        assert!(row.contains(&format!(">{:.3}<", signal["value"].as_f64().unwrap())), "{row}");
    }
    let both = browser.submit("/ui/playground", &[("message", text), ("token", &token), ("limit", "1")]).await;
    assert!(both.text.contains("With these settings") && both.text.contains("limit of new tools"), "{}", both.text);
    // At the setting in force, the slider changes nothing.
    assert!(page.text.contains("id=\"strictness\" name=\"strictness\" type=\"range\" min=\"-2\" max=\"2\""), "{}", page.text);
    let same = browser.submit("/ui/playground", &[("message", text), ("token", &token), ("strictness", "0")]).await;
    assert!(same.status == StatusCode::OK && !same.text.contains("With these settings"), "{}", same.text);
    let strict = browser.submit("/ui/playground", &[("message", text), ("token", &token), ("strictness", "1.5")]).await;
    assert!(strict.text.contains("With these settings") && strict.text.contains("value=\"1.5\""), "{}", strict.text);
    let earlier = [("message", "and now?"), ("token", &token), ("earlier", "what time is it in Tokyo?\r\nassistant: It is noon.")];
    let page = browser.submit("/ui/playground", &earlier).await;
    let mut asked = asked;
    asked["messages"] = json!([
        {"role": "user", "content": "what time is it in Tokyo?"},
        {"role": "assistant", "content": "It is noon."},
        {"role": "user", "content": "and now?"},
    ]);
    let (_, answer) = administer(&service, reqwest::Method::POST, "/v1/filter?explain=true", &asked).await;
    for part in answer["explain"]["parts"].as_array().unwrap() {
        assert!(page.words().contains(part.as_str().unwrap()), "{part}: {}", page.words());
    }
    for (field, value, part) in [
        ("strictness", "3", "strictness"),
        ("rerank", "odd", "rerank"),
        ("limit", "0", "limit"),
        ("principal", "key:none", "key:none"),
        ("dense_weight", "much", "dense_weight"),
    ] {
        let page = browser.submit("/ui/playground", &[("message", text), ("token", &token), (field, value)]).await;
        assert!(
            page.status.is_client_error() && page.text.contains("role=\"alert\"") && page.text.contains(part),
            "{field}: {}",
            page.text
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_others_stay_texts() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    browser.sign_in().await;
    let token = browser.token().await;
    let evil = "<script>alert(1)</script>\"><img src=x onerror=alert(1)> what time is it";
    let page = browser.submit("/ui/playground", &[("message", evil), ("principal", evil), ("model", evil), ("token", &token)]).await;
    let text = page.text.replace(SCRIPT, "");
    assert!(!text.contains("<script") && !text.contains("<img"), "{text}");
    let page = browser.submit("/ui/playground", &[("message", evil), ("token", &token)]).await;
    let text = page.text.replace(SCRIPT, "");
    assert!(page.status == StatusCode::OK && !text.contains("<script") && !text.contains("<img"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_leads_to_the_sign_in_and_back() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    browser.cookie = None;
    let page = browser.submit("/ui/tool", &[("server", "time"), ("do", "save"), ("token", "x")]).await;
    assert!(page.status == StatusCode::FORBIDDEN && page.words().contains("Your session has ended"), "{}", page.text);
    let page = browser.see("/ui/login?to=%2Fui%2Ftools%3Fserver%3Dtime").await;
    let to = page.hidden("to");
    let page = browser.submit("/ui/login", &[("key", "a guess"), ("to", &to)]).await;
    assert_eq!(page.hidden("to"), to, "a wrong key does not lose the way");
    let page = browser.submit("/ui/login", &[("key", ADMIN), ("to", &to)]).await;
    assert_eq!((page.status, page.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/tools?server=time")));
    let page = browser.submit("/ui/login", &[("key", ADMIN), ("to", "https://evil.example/ui")]).await;
    assert_eq!(page.location.as_deref(), Some("/ui"));
}

/// What the last days saved, as tables and plots from the server.
#[tokio::test(flavor = "multi_thread")]
async fn the_overview_shows_savings_and_the_comparison() {
    let service = start_on(servers(), &[("TOOLSIEVE_SELECTION__STATIC_SHARE", "0.5")]).await;
    for number in 0..12 {
        let chat = format!("chat-{number}");
        let asked = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "chat_id": chat});
        assert_eq!(service.post("/v1/filter", &asked).await.0, StatusCode::OK);
    }
    let mut browser = signed_in(&service).await;
    let report = eventually("all chats are in the report", async || {
        let (_, report) = administer(&service, reqwest::Method::GET, "/v1/admin/report", &json!({})).await;
        when(report, |report| report["arms"].as_array().unwrap().iter().map(|arm| arm["sessions"].as_u64().unwrap()).sum::<u64>() == 12)
    })
    .await;
    let page = browser.see("/ui").await;
    page.is_small();
    let words = page.words();
    for text in ["Savings and costs", "Tokens saved per day", "Selected tools compared with all tools", "No model has a price"] {
        assert!(words.contains(text), "{text}: {words}");
    }
    for arm in report["arms"].as_array().unwrap() {
        let tokens = format!(">{:.0}<", arm["tokens_after"].as_f64().unwrap());
        assert!(page.text.contains(&tokens), "{tokens}: {}", page.text);
    }
    assert!(page.text.matches("<svg").count() >= 3 && !page.text.contains("style="), "{}", page.text);
    let (_, usage) = administer(&service, reqwest::Method::GET, "/v1/admin/usage", &json!({})).await;
    let saved = usage["costs"]["totals"]["tokens_saved"].to_string();
    assert!(words.replace('\u{202f}', "").contains(&saved), "{saved}: {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_speaks_german() {
    let service = start_on(servers(), &[]).await;
    let mut browser = Browser::of(&service);
    browser.sign_in().await;
    let request = browser.client.get(format!("{}/ui", service.url)).header(ACCEPT_LANGUAGE, "de-DE,en;q=0.5");
    let page = browser.send(request).await;
    assert!(page.text.contains("lang=\"de\"") && page.text.contains("Abmelden") && page.text.contains("verbunden"), "{}", page.text);
    // What the API says in English is marked as such, for screen readers.
    let path = "/ui/access/check?groups=builders&tool=mail%2Fsend_email";
    let request = browser.client.get(format!("{}{path}", service.url)).header(ACCEPT_LANGUAGE, "de-DE,en;q=0.5");
    let page = browser.send(request).await;
    assert!(page.text.contains("lang=\"de\"") && page.text.contains("<td lang=\"en\">"), "{}", page.text);
}

/// A service without keys shows the console to the people on its machine, who could do everything anyway.
#[tokio::test(flavor = "multi_thread")]
async fn without_keys_the_console_is_open_on_the_own_machine() {
    let service = Start { servers: servers(), ..Start::default() }.start().await;
    service.settled().await;
    let mut browser = Browser::of(&service);
    let page = browser.open("/ui").await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let token = browser.token().await;
    let page = browser.submit("/ui/playground", &[("message", "what time is it in Tokyo"), ("token", &token)]).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let mut elsewhere = Browser::of(&service);
    let request = elsewhere.client.get(format!("{}/ui", service.url)).header("host", "tools.example.org");
    assert_ne!(elsewhere.send(request).await.status, StatusCode::OK);
}
