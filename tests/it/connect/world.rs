//! An MCP server and an authorization server of our own, and a person with a browser.
//!
//! The authorization server speaks the protocol as the standards say: it registers clients, checks redirect URIs and proof keys, rotates
//! refresh tokens, and revokes a whole sign-in when a used refresh token comes back. It can also lie.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::harness::Running;

/// Where browsers reach the service, as its settings say. The browser of the tests goes to the real address instead.
pub(super) const PUBLIC: &str = "http://toolsieve.test";

/// The same with TLS, as it is behind a proxy.
pub(super) const PUBLIC_TLS: &str = "https://toolsieve.test";
/// A time in the far future, in seconds since 1970.
pub(super) const FAR: u64 = 4_000_000_000;
/// The grant of an exchange (RFC 8693).
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// How the authorization server misbehaves.
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
#[derive(Clone, Debug, Default)]
pub(super) struct Lies {
    /// What its metadata say instead.
    pub(super) metadata: Vec<(&'static str, Value)>,
    /// What the MCP server's metadata say instead.
    pub(super) resource: Vec<(&'static str, Value)>,
    /// Its metadata are where `OpenID` providers publish them, and nowhere else.
    pub(super) openid_only: bool,
    /// Its metadata have ten megabytes more.
    pub(super) large: bool,
    /// Its metadata never arrive.
    pub(super) hangs: bool,
    /// Its tokens never arrive.
    pub(super) holds_tokens: bool,
    /// Its tokens arrive once there is a permit for each.
    pub(super) tokens_wait: Option<Arc<Semaphore>>,
    /// Its token endpoint sends everybody there.
    pub(super) redirect: Option<String>,
    /// It refreshes tokens, but its answers don't arrive. It then accepts the former refresh token again, unless it has no grace period.
    pub(super) loses_answers: bool,
    /// The issuer that it names when it sends people back.
    pub(super) answers_as: Option<String>,
    /// How long exchanged tokens last, in seconds, as it says.
    pub(super) exchanged_for: Option<u64>,
    /// The resource that exchanged tokens are for instead.
    pub(super) exchanged_at: Option<String>,
}

struct Code {
    client: String,
    challenge: String,
    redirect_uri: String,
    resource: String,
    scope: String,
    sub: String,
}

#[derive(Clone)]
struct Token {
    sub: String,
    scope: String,
    resource: String,
    /// All tokens of one sign-in.
    family: usize,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) lies: Lies,
    pub(super) has_no_grace: bool,
    /// The redirect URIs of each client.
    pub(super) clients: HashMap<String, Vec<String>>,
    codes: HashMap<String, Code>,
    access: HashMap<String, Token>,
    refresh: HashMap<String, Token>,
    used: HashMap<String, usize>,
    /// Refresh tokens whose answer did not arrive.
    unanswered: HashMap<String, Token>,
    /// Users' own tokens, which it exchanges, with their subjects.
    subjects: HashMap<String, String>,
    /// Sign-ins that somebody revoked.
    ended: HashSet<usize>,
    count: usize,
    pub(super) authorizations: Vec<HashMap<String, String>>,
    pub(super) token_requests: Vec<HashMap<String, String>>,
    pub(super) revoked: Vec<String>,
    /// Every `Authorization` that came to the MCP server.
    pub(super) seen: HashSet<String>,
    /// The value of every header that came to the MCP server.
    pub(super) headers: HashSet<String>,
    /// How many connections the MCP server has accepted.
    pub(super) connections: usize,
    /// Every token and code that was issued.
    pub(super) issued: Vec<String>,
    /// The secret of the client `robot`.
    pub(super) robot_secret: &'static str,
    /// The scope that it gets, whatever it asks for.
    pub(super) robot_scope: Option<&'static str>,
    /// The scope that each tool needs.
    pub(super) needs: HashMap<String, String>,
    /// Whether each person has a tool that nobody else sees, and how all tools are described then.
    pub(super) own_tools: Option<&'static str>,
    /// How often prompts were listed.
    pub(super) prompt_lists: usize,
    mcp: String,
    issuer: String,
}

impl Known {
    fn issue(&mut self, kind: &str) -> String {
        self.count += 1;
        let text = format!("{kind}-{}-{:016x}", self.count, rand::random::<u64>());
        self.issued.push(text.clone());
        text
    }

    fn tokens(&mut self, of: &Token) -> Value {
        let (access, refresh) = (self.issue("access"), self.issue("refresh"));
        self.access.insert(access.clone(), of.clone());
        self.refresh.insert(refresh.clone(), of.clone());
        json!({"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh, "scope": of.scope})
    }

    fn end(&mut self, family: usize) {
        self.ended.insert(family);
    }

    /// Ends the validity of all access tokens.
    pub(super) fn expire(&mut self) {
        self.access.clear();
    }

    /// Revokes everything that somebody has granted.
    pub(super) fn revoke(&mut self, sub: &str) {
        let families: Vec<usize> = self.refresh.values().filter(|token| token.sub == sub).map(|token| token.family).collect();
        for family in families {
            self.end(family);
        }
        self.access.retain(|_, token| token.sub != sub);
    }

    /// A new token of a person, as an application has it. It lasts until `exp`, in seconds since 1970.
    pub(super) fn subject(&mut self, sub: &str, exp: u64) -> String {
        self.count += 1;
        let claims =
            json!({"iss": "https://chat.example", "sub": sub, "exp": exp, "jti": format!("{}-{}", self.count, rand::random::<u64>())});
        let token = format!("eyJhbGciOiJub25lIn0.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims.to_string()));
        self.subjects.insert(token.clone(), sub.to_owned());
        self.issued.push(token.clone());
        token
    }

    /// A token for the MCP server, as an administrator may have one.
    pub(super) fn reader(&mut self) -> String {
        let token = self.issue("access");
        let resource = format!("{}/mcp", self.mcp);
        self.access.insert(token.clone(), Token { sub: "reader".to_owned(), scope: String::new(), resource, family: 0 });
        token
    }

    /// The requests to exchange tokens.
    pub(super) fn exchanges(&self) -> usize {
        self.token_requests.iter().filter(|form| form["grant_type"] == EXCHANGE).count()
    }

    /// The requests for refreshed tokens.
    pub(super) fn refreshes(&self) -> usize {
        self.token_requests.iter().filter(|form| form["grant_type"] == "refresh_token").count()
    }
}

pub(super) struct World(Mutex<Known>);

type State = web::Data<World>;

impl World {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap()
    }

    pub(super) fn mcp(&self) -> String {
        format!("{}/mcp", self.known().mcp)
    }

    pub(super) fn issuer(&self) -> String {
        self.known().issuer.clone()
    }

    pub(super) fn lie(&self, lies: Lies) {
        self.known().lies = lies;
    }
}

/// Starts both servers.
pub(super) fn start() -> State {
    let world = State::new(World(Mutex::new(Known { robot_secret: "s3cret", ..Known::default() })));
    let state = world.clone();
    let mcp = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .route("/mcp", web::post().to(serve))
            .route("/.well-known/oauth-protected-resource/mcp", web::get().to(resource))
    });
    let state = world.clone();
    let issuer = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .route("/.well-known/oauth-authorization-server", web::get().to(metadata))
            .route("/.well-known/openid-configuration", web::get().to(metadata))
            .route("/register", web::post().to(register))
            .route("/authorize", web::get().to(authorize))
            .route("/token", web::post().to(token))
            .route("/revoke", web::post().to(revoke))
    });
    let mcp = mcp.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let issuer = issuer.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    world.known().mcp = format!("http://{}", mcp.addrs()[0]);
    world.known().issuer = format!("http://{}", issuer.addrs()[0]);
    tokio::spawn(mcp.run());
    tokio::spawn(issuer.run());
    world
}

fn with(mut document: Value, lies: &[(&'static str, Value)]) -> Value {
    for (name, value) in lies {
        document[*name] = value.clone();
    }
    document
}

async fn resource(world: State) -> HttpResponse {
    let known = world.known();
    let own = json!({"resource": format!("{}/mcp", known.mcp), "authorization_servers": [known.issuer], "scopes_supported": ["read"]});
    HttpResponse::Ok().json(with(own, &known.lies.resource))
}

async fn metadata(world: State, request: HttpRequest) -> HttpResponse {
    let (own, lies) = {
        let known = world.known();
        let at = |path: &str| format!("{}{path}", known.issuer);
        let own = json!({
            "issuer": known.issuer,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"),
            "revocation_endpoint": at("/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        });
        (own, known.lies.clone())
    };
    if lies.openid_only && !request.path().ends_with("openid-configuration") {
        return HttpResponse::NotFound().finish();
    }
    if lies.hangs {
        return std::future::pending().await;
    }
    let mut own = with(own, &lies.metadata);
    if lies.large {
        own["more"] = Value::from("x".repeat(10 << 20));
    }
    HttpResponse::Ok().json(own)
}

async fn register(world: State, body: web::Json<Value>) -> HttpResponse {
    let mut known = world.known();
    let id = known.issue("client");
    let uris = body["redirect_uris"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap().to_owned()).collect();
    known.clients.insert(id.clone(), uris);
    HttpResponse::Created().json(json!({"client_id": id, "token_endpoint_auth_method": "none"}))
}

type Parameters = web::Query<HashMap<String, String>>;

/// Signs in whoever the browser says, and sends them back.
async fn authorize(world: State, request: HttpRequest, query: Parameters) -> HttpResponse {
    let mut known = world.known();
    known.authorizations.push(query.0.clone());
    let (client, redirect_uri) = (&query["client_id"], &query["redirect_uri"]);
    if !known.clients.get(client).is_some_and(|uris| uris.contains(redirect_uri)) || query["code_challenge_method"] != "S256" {
        return HttpResponse::BadRequest().finish();
    }
    let sub = request.headers().get("x-person").unwrap().to_str().unwrap().to_owned();
    let issuer = known.lies.answers_as.clone().unwrap_or_else(|| known.issuer.clone());
    let mut back = Url::parse(redirect_uri).unwrap();
    back.query_pairs_mut().append_pair("state", &query["state"]).append_pair("iss", &issuer);
    if sub == "nobody" {
        back.query_pairs_mut().append_pair("error", "access_denied");
    } else {
        let code = known.issue("code");
        back.query_pairs_mut().append_pair("code", &code);
        let code_of = Code {
            client: client.clone(),
            challenge: query["code_challenge"].clone(),
            redirect_uri: redirect_uri.clone(),
            resource: query["resource"].clone(),
            scope: query.get("scope").cloned().unwrap_or_default(),
            sub,
        };
        known.codes.insert(code, code_of);
    }
    HttpResponse::Found().append_header(("location", back.as_str())).finish()
}

fn refused(error: &str) -> HttpResponse {
    // A server may quote what it was sent; nobody may repeat that.
    HttpResponse::BadRequest().json(json!({"error": error, "error_description": "no"}))
}

async fn token(world: State, request: HttpRequest, form: web::Form<HashMap<String, String>>) -> HttpResponse {
    let lies = {
        let mut known = world.known();
        known.token_requests.push(form.0.clone());
        known.lies.clone()
    };
    if lies.holds_tokens {
        return std::future::pending().await;
    }
    if let Some(permits) = lies.tokens_wait {
        permits.acquire().await.unwrap().forget();
    }
    let mut known = world.known();
    if let Some(to) = &known.lies.redirect {
        return HttpResponse::TemporaryRedirect().append_header(("location", to.as_str())).finish();
    }
    match form["grant_type"].as_str() {
        "authorization_code" => {
            let Some(code) = known.codes.remove(&form["code"]) else { return refused("invalid_grant") };
            let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
            let fits = code.challenge == challenge
                && code.client == form["client_id"]
                && code.redirect_uri == form["redirect_uri"]
                && code.resource == form["resource"];
            if !fits {
                return refused("invalid_grant");
            }
            known.count += 1;
            let of = Token { sub: code.sub, scope: code.scope, resource: code.resource, family: known.count };
            HttpResponse::Ok().json(known.tokens(&of))
        }
        "refresh_token" => {
            let given = &form["refresh_token"];
            if let Some(of) = known.unanswered.remove(given) {
                return HttpResponse::Ok().json(known.tokens(&of));
            }
            if let Some(family) = known.used.get(given).copied() {
                known.end(family);
                return refused("invalid_grant");
            }
            let Some(of) = known.refresh.remove(given) else { return refused("invalid_grant") };
            known.used.insert(given.clone(), of.family);
            if known.ended.contains(&of.family) {
                return refused("invalid_grant");
            }
            if known.lies.loses_answers {
                if !known.has_no_grace {
                    known.unanswered.insert(given.clone(), of);
                }
                return HttpResponse::InternalServerError().finish();
            }
            HttpResponse::Ok().json(known.tokens(&of))
        }
        "client_credentials" => {
            let basic = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
            if basic != Some(format!("Basic {}", STANDARD.encode(format!("robot:{}", known.robot_secret)))) {
                return refused("invalid_client");
            }
            known.count += 1;
            let scope = known.robot_scope.map(str::to_owned).or_else(|| form.get("scope").cloned()).unwrap_or_default();
            let of = Token { sub: "robot".to_owned(), scope, resource: form["resource"].clone(), family: known.count };
            let access = known.issue("access");
            known.access.insert(access.clone(), of);
            HttpResponse::Ok().json(json!({"access_token": access, "token_type": "bearer", "expires_in": 3600}))
        }
        EXCHANGE => {
            // `gateway:s3cret`, as in the settings of the test.
            let basic = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
            if basic.as_deref() != Some("Basic Z2F0ZXdheTpzM2NyZXQ=") {
                return refused("invalid_client");
            }
            let kinds = ["subject_token_type", "requested_token_type"].map(|name| form[name].rsplit_once(':').unwrap().1);
            if kinds != ["jwt", "access_token"] {
                return refused("invalid_request");
            }
            let own = format!("{}/mcp", known.mcp);
            if form["resource"] != own || form.get("audience").is_some_and(|audience| audience != "tickets") {
                return refused("invalid_target");
            }
            let Some(sub) = known.subjects.get(&form["subject_token"]).cloned() else { return refused("invalid_grant") };
            let resource = known.lies.exchanged_at.clone().unwrap_or(own);
            known.count += 1;
            let of = Token { sub, scope: form.get("scope").cloned().unwrap_or_default(), resource, family: known.count };
            let access = known.issue("access");
            known.access.insert(access.clone(), of);
            let lasts = known.lies.exchanged_for.unwrap_or(3600);
            let kind = "urn:ietf:params:oauth:token-type:access_token";
            HttpResponse::Ok().json(json!({"access_token": access, "issued_token_type": kind, "token_type": "Bearer", "expires_in": lasts}))
        }
        _ => refused("unsupported_grant_type"),
    }
}

async fn revoke(world: State, form: web::Form<HashMap<String, String>>) -> HttpResponse {
    let mut known = world.known();
    let token = form["token"].clone();
    let family = known.refresh.get(&token).or_else(|| known.access.get(&token)).map(|token| token.family);
    if let Some(family) = family {
        known.end(family);
        known.access.retain(|_, token| token.family != family);
    }
    known.revoked.push(token);
    HttpResponse::Ok().finish()
}

/// The MCP server: its tools say on whose behalf they are called.
async fn serve(world: State, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let mut known = world.known();
    let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    known.seen.extend(authorization.clone());
    known.headers.extend(request.headers().iter().map(|(_, value)| value.to_str().unwrap().to_owned()));
    let token = authorization.as_deref().and_then(|value| value.strip_prefix("Bearer "));
    let own = format!("{}/mcp", known.mcp);
    let challenge = format!("Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", known.mcp);
    let Some(token) = token.and_then(|token| known.access.get(token)).filter(|token| token.resource == own).cloned() else {
        return HttpResponse::Unauthorized().append_header(("www-authenticate", challenge)).finish();
    };
    let message: Value = serde_json::from_slice(&body).unwrap();
    let tool = |name: &str| json!({"name": name, "description": format!("Tells {name}"), "inputSchema": {"type": "object"}});
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            known.connections += 1;
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": {"name": "x", "version": "1"}})
        }
        "tools/list" => match known.own_tools {
            None => json!({"tools": [tool("whoami"), tool("secrets")]}),
            Some(description) => {
                let described = |name: &str| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
                json!({"tools": [described("whoami"), described(&format!("of_{}", token.sub))]})
            }
        },
        "prompts/list" => {
            known.prompt_lists += 1;
            json!({"prompts": [{"name": format!("of_{}", token.sub)}]})
        }
        "prompts/get" => json!({"messages": [{"role": "user", "content": {"type": "text", "text": format!("Hello {}", token.sub)}}]}),
        "tools/call" => {
            let needed = known.needs.get(message["params"]["name"].as_str().unwrap()).cloned().unwrap_or_default();
            if !needed.is_empty() && !token.scope.split(' ').any(|scope| scope == needed) {
                let challenge = format!("{challenge}, error=\"insufficient_scope\", scope=\"{needed}\"");
                return HttpResponse::Forbidden().append_header(("www-authenticate", challenge)).finish();
            }
            json!({"content": [], "structuredContent": {"sub": token.sub, "scope": token.scope}})
        }
        _ if message.get("id").is_none() => return HttpResponse::Accepted().finish(),
        _ => return HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})),
    };
    HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

/// A person's browser. It keeps the cookie, follows no redirect by itself, and says where it comes from, as browsers do.
pub(super) struct Browser {
    client: Client,
    pub(super) cookie: Option<String>,
    person: String,
    /// The origin of the service's pages.
    origin: &'static str,
}

/// What a page says.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) location: Option<String>,
    pub(super) text: String,
    pub(super) policy: String,
}

impl Browser {
    pub(super) fn of(person: &str) -> Self {
        Self {
            client: Client::builder().redirect(Policy::none()).build().unwrap(),
            cookie: None,
            person: person.to_owned(),
            origin: PUBLIC,
        }
    }

    /// A browser that reaches the service by TLS.
    pub(super) fn with_tls(person: &str) -> Self {
        Self { origin: PUBLIC_TLS, ..Self::of(person) }
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> Page {
        let request = match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        };
        let response = request.header("x-person", &self.person).send().await.unwrap();
        let header = |name| response.headers().get(name).map(|value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned());
        if let Some(cookie) = header(SET_COOKIE) {
            assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains("Path=/ui"), "{cookie}");
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        let policy = response.headers().get("content-security-policy").map(|value| value.to_str().unwrap().to_owned());
        let (status, location) = (response.status(), header(LOCATION));
        Page { status, location, text: response.text().await.unwrap(), policy: policy.unwrap_or_default() }
    }

    /// Opens an address, coming from another site.
    pub(super) async fn open(&mut self, service: &Running, address: &str) -> Page {
        let request = self.client.get(real(service, address)).header("sec-fetch-site", "cross-site");
        self.send(request).await
    }

    /// Sends a form of one of the service's pages.
    pub(super) async fn submit(&mut self, service: &Running, path: &str, form: &[(&str, &str)]) -> Page {
        let request =
            posted(self.client.post(real(service, path)), form).header("origin", self.origin).header("sec-fetch-site", "same-origin");
        self.send(request).await
    }

    /// Follows a link up to the authorization server's page, and returns its address.
    pub(super) async fn reach_issuer(&mut self, service: &Running, link: &str) -> Page {
        let page = self.open(service, link).await;
        assert_eq!(page.status, StatusCode::OK, "{page:?}");
        assert!(page.text.contains("Is this you?") && !page.text.contains("<script"), "{page:?}");
        assert!(page.policy.contains("default-src 'none'") && page.policy.contains("form-action 'self'"), "{page:?}");
        let link = hidden(&page.text, "link");
        self.submit(service, "/ui/me/enter", &[("link", link.as_str())]).await
    }

    /// Signs in at the authorization server, and returns the address to which it sends the person back.
    pub(super) async fn at_issuer(&mut self, page: &Page) -> String {
        let address = next(page);
        let cookie = self.cookie.take();
        let back = self.send(self.client.get(address)).await;
        self.cookie = cookie;
        back.location.clone().unwrap_or_else(|| panic!("{back:?}"))
    }

    /// Follows a link to the end.
    pub(super) async fn sign_in(&mut self, service: &Running, link: &str) -> Page {
        let page = self.reach_issuer(service, link).await;
        let back = self.at_issuer(&page).await;
        self.open(service, &back).await
    }
}

/// A form, as browsers send it.
pub(super) fn posted(request: reqwest::RequestBuilder, form: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    request.header("content-type", "application/x-www-form-urlencoded").body(body)
}

fn real(service: &Running, address: &str) -> String {
    let path = [PUBLIC, PUBLIC_TLS].into_iter().find_map(|public| address.strip_prefix(public)).unwrap_or(address);
    assert!(path.starts_with('/'), "{address}");
    format!("{}{path}", service.url)
}

/// The value of a hidden field.
pub(super) fn hidden(page: &str, name: &str) -> String {
    let after = page.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap_or_else(|| panic!("no {name}: {page}"));
    after.split('"').next().unwrap().to_owned()
}

/// The address of the authorization server on the page that sends a person there.
pub(super) fn next(page: &Page) -> String {
    let after = page.text.split("0; url=").nth(1).unwrap_or_else(|| panic!("{page:?}"));
    after.split('"').next().unwrap().replace("&amp;", "&")
}
