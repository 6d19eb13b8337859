//! Every write that a caller is told of, as requests.

use reqwest::Method;
use serde_json::{Value, json};

/// Who sends a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    Admin,
    /// A user of their own for each attempt.
    User,
    /// The key that the attempt prepared.
    Key,
}

/// A request. `{n}` is the attempt, `{m}` its number among those of the same write, `{id}` and `{key}` are what its preparation was
/// answered.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) who: Who,
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) body: Option<Value>,
}

/// What shows that a write was done.
pub(super) enum Seen {
    /// An answer with this status, or whose body is so.
    Status(Ask, u16),
    Body(Ask, fn(&Value, &str) -> bool),
    /// Something in this query of the database.
    Row(&'static str),
}

pub(super) struct Write {
    pub(super) name: &'static str,
    pub(super) before: Vec<Ask>,
    pub(super) ask: Ask,
    pub(super) seen: Seen,
}

fn ask(who: Who, method: Method, path: &'static str, body: Value) -> Ask {
    Ask { who, method, path, body: Some(body).filter(|body| !body.is_null()) }
}

fn admin(method: Method, path: &'static str, body: Value) -> Ask {
    ask(Who::Admin, method, path, body)
}

fn user(method: Method, path: &'static str, body: Value) -> Ask {
    ask(Who::User, method, path, body)
}

fn has(list: &Value, is_meant: impl Fn(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(is_meant))
}

fn is_loaded(available: &Value) -> bool {
    has(&available["toolsets"], |toolset| toolset["name"] == "box" && toolset["loaded"] == true)
}

#[expect(clippy::too_many_lines, reason = "one table")]
pub(super) fn all() -> Vec<Write> {
    use Method as M;
    let key = || admin(M::POST, "/v1/admin/keys", json!({"name": "key-{n}"}));
    let refused = || Seen::Status(ask(Who::Key, M::GET, "/openapi.json", Value::Null), 401);
    let facts = || admin(M::PUT, "/v1/admin/tools/box/extra_2", json!({"synonyms": ["word-{n}"]}));
    let enrichment = |path| admin(M::PUT, path, json!({"function": "About {n}.", "tags": ["a tag of {n}"]}));
    let toolset = || admin(M::PUT, "/v1/admin/toolsets/set-{n}", json!({"servers": ["box"]}));
    let server = || admin(M::PUT, "/v1/admin/servers/server-{n}", json!({"url": "http://127.0.0.1:1/mcp", "headers": {"A": "b"}}));
    let secret = || user(M::PUT, "/v1/secrets/mine/token", json!({"value": "secret-{n}"}));
    let secrets = || user(M::GET, "/v1/secrets", Value::Null);
    let is_set = |body: &Value, _: &str| has(&body["secrets"], |secret| secret["state"] == "set");
    let is_missing = |body: &Value, _: &str| has(&body["secrets"], |secret| secret["state"] == "missing");
    let session = || user(M::POST, "/v1/sessions", json!({"mode": "dynamic"}));
    let sessions = || user(M::GET, "/v1/sessions", Value::Null);
    let load = || user(M::POST, "/s/{id}/v1/toolsets/load", json!({"toolset": "box"}));
    let available = || user(M::POST, "/s/{id}/v1/toolsets/available", json!({}));
    let write = |name, before, ask, seen| Write { name, before, ask, seen };
    vec![
        write(
            "the policy",
            vec![admin(M::PUT, "/v1/admin/policy", json!({"rules": []}))],
            admin(M::PUT, "/v1/admin/policy", json!({"rules": [{"effect": "block", "tools": ["tool-{n}"]}]})),
            Seen::Body(admin(M::GET, "/v1/admin/policy", Value::Null), |body, n| {
                has(&body["rules"], |rule| rule["tools"][0] == format!("tool-{n}"))
            }),
        ),
        write(
            "a new key",
            vec![],
            key(),
            Seen::Body(admin(M::GET, "/v1/admin/keys", Value::Null), |body, n| {
                has(&body["keys"], |key| key["name"] == format!("key-{n}") && key["state"] == "active")
            }),
        ),
        write("another secret of a key", vec![key()], admin(M::POST, "/v1/admin/keys/{id}/rotate", Value::Null), refused()),
        write("a revocation", vec![key()], admin(M::DELETE, "/v1/admin/keys/{id}", Value::Null), refused()),
        write("a toolset", vec![], toolset(), Seen::Status(admin(M::GET, "/v1/admin/toolsets/set-{n}", Value::Null), 200)),
        write(
            "a removed toolset",
            vec![toolset()],
            admin(M::DELETE, "/v1/admin/toolsets/set-{n}", Value::Null),
            Seen::Status(admin(M::GET, "/v1/admin/toolsets/set-{n}", Value::Null), 404),
        ),
        write("a server", vec![], server(), Seen::Status(admin(M::GET, "/v1/admin/servers/server-{n}", Value::Null), 200)),
        write(
            "a server that is off",
            vec![server()],
            admin(M::PATCH, "/v1/admin/servers/server-{n}", json!({"enabled": false})),
            Seen::Body(admin(M::GET, "/v1/admin/servers/server-{n}", Value::Null), |body, _| body["enabled"] == false),
        ),
        write(
            "a removed server",
            vec![server()],
            admin(M::DELETE, "/v1/admin/servers/server-{n}", Value::Null),
            Seen::Status(admin(M::GET, "/v1/admin/servers/server-{n}", Value::Null), 404),
        ),
        write(
            "words about a tool",
            vec![],
            admin(M::PUT, "/v1/admin/tools/box/extra_1", json!({"synonyms": ["word-{n}"]})),
            Seen::Body(admin(M::GET, "/v1/admin/tools/box/extra_1", Value::Null), |body, n| body["synonyms"][0] == format!("word-{n}")),
        ),
        write(
            "words taken back",
            vec![facts()],
            admin(M::DELETE, "/v1/admin/tools/box/extra_2", Value::Null),
            Seen::Body(admin(M::GET, "/v1/admin/tools/box/extra_2", Value::Null), |body, _| body["written"].is_null()),
        ),
        write(
            "an approval",
            vec![admin(M::GET, "/v1/admin/tools/box/extra_{m}", Value::Null)],
            admin(M::POST, "/v1/admin/tools/box/extra_{m}/approve", json!({"fingerprint": "{fingerprint}"})),
            Seen::Body(admin(M::GET, "/v1/admin/tools/box/extra_{m}", Value::Null), |body, _| !body["definition"]["approved_at"].is_null()),
        ),
        write("a user's secret", vec![], secret(), Seen::Body(secrets(), is_set)),
        write(
            "a removed secret",
            vec![secret()],
            user(M::DELETE, "/v1/secrets/mine/token", Value::Null),
            Seen::Body(secrets(), is_missing),
        ),
        write(
            "forgotten secrets",
            vec![secret()],
            admin(M::DELETE, "/v1/admin/secrets/user:{n}", Value::Null),
            Seen::Body(secrets(), is_missing),
        ),
        write("a session", vec![], session(), Seen::Body(sessions(), |body, _| has(&body["sessions"], |_| true))),
        write(
            "an ended session",
            vec![session()],
            user(M::DELETE, "/v1/sessions/{id}", Value::Null),
            Seen::Body(sessions(), |body, _| body["sessions"] == json!([])),
        ),
        write("a loaded toolset", vec![session()], load(), Seen::Body(available(), |body, _| is_loaded(body))),
        write(
            "an unloaded toolset",
            vec![session(), load()],
            user(M::POST, "/s/{id}/v1/toolsets/unload", json!({"toolset": "box"})),
            Seen::Body(available(), |body, _| !is_loaded(body)),
        ),
        write(
            "what a tool is for",
            vec![],
            enrichment("/v1/admin/enrichment/box/extra_3"),
            Seen::Body(admin(M::GET, "/v1/admin/enrichment/box/extra_3", Value::Null), |body, n| body["function"] == format!("About {n}.")),
        ),
        write(
            "what a tool is for, taken back",
            vec![enrichment("/v1/admin/enrichment/box/extra_4")],
            admin(M::DELETE, "/v1/admin/enrichment/box/extra_4", Value::Null),
            Seen::Status(admin(M::GET, "/v1/admin/enrichment/box/extra_4", Value::Null), 404),
        ),
        write(
            "feedback",
            vec![user(M::POST, "/v1/filter", json!({"messages": [{"role": "user", "content": "echo a text"}]}))],
            user(M::POST, "/v1/feedback", json!({"selection_id": "{id}", "tool": "box__echo", "verdict": "helpful"})),
            Seen::Row("SELECT 1 FROM feedback WHERE selection = '{id}'"),
        ),
    ]
}
