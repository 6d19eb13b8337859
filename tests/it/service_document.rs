//! The document of our own routes against the routes: every answer is as described, and every limit is the one that is checked.

use std::collections::BTreeSet;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Map, Value, json};
use toolsieve::domain::publishing::meta_tools::MetaTool;

use crate::harness::keys::{ADMIN, KEY, SECRETS_KEY, administer, create, start_on, with_key};
use crate::harness::mcp::rpc;
use crate::harness::wait::eventually;
use crate::harness::{Running, example, stdio};

/// Routes whose answers are no JSON.
const TEXT: [&str; 4] = ["healthz", "file", "metrics", "stream_events"];

/// One of our routes.
struct Operation {
    id: String,
    method: Method,
    path: String,
    value: Value,
}

struct Document {
    value: Value,
    /// The document, with schemas that allow no member which they do not name.
    strict: Value,
}

impl Document {
    fn read() -> Self {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/service.json")).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let schemas = value["components"]["schemas"].as_object().unwrap();
        let mut parts = BTreeSet::new();
        schemas.values().for_each(|schema| note_parts(schema, &mut parts));
        let mut strict = value.clone();
        for (name, schema) in strict["components"]["schemas"].as_object_mut().unwrap() {
            let is_struct = schema.get("properties").is_some() || schema.get("allOf").is_some();
            // What is a part of another schema knows only its own members.
            if is_struct && !parts.contains(&format!("#/components/schemas/{name}")) {
                schema["unevaluatedProperties"] = json!(false);
            }
        }
        Self { value, strict }
    }

    fn operations(&self) -> Vec<Operation> {
        let items = self.value["paths"].as_object().unwrap().iter();
        let all = items.flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |(method, value)| (path, method, value)));
        let operation = |(path, method, value): (&String, &String, &Value)| Operation {
            id: value["operationId"].as_str().unwrap().to_owned(),
            method: method.to_uppercase().parse().unwrap(),
            path: path.clone(),
            value: value.clone(),
        };
        all.map(operation).collect()
    }

    fn operation(&self, id: &str) -> Operation {
        self.operations().into_iter().find(|operation| operation.id == id).unwrap_or_else(|| panic!("{id} is not in the document"))
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.value.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}")),
            None => value,
        }
    }

    /// The schema of an answer. Panics where the document has none.
    fn schema(&self, operation: &Operation, status: StatusCode, content_type: &str) -> Value {
        let response = self.resolved(&operation.value["responses"][status.as_str()]);
        let content = &response["content"][content_type]["schema"];
        assert!(content.is_object(), "{} has no schema for {status} {content_type}", operation.id);
        content.clone()
    }

    fn check(&self, operation: &Operation, status: StatusCode, content_type: &str, answer: &Value) {
        let problems = problems(self.schema(operation, status, content_type), &self.strict, answer);
        assert!(problems.is_empty(), "{} {status}: {problems:?}\n{answer:#}", operation.id);
    }

    /// A body that the service takes has to fit its description.
    fn check_body(&self, operation: &Operation, body: &Value) {
        let schema = operation.value["requestBody"]["content"]["application/json"]["schema"].clone();
        let problems = problems(schema, &self.value, body);
        assert!(problems.is_empty(), "{} takes what its document forbids: {problems:?}\n{body:#}", operation.id);
    }
}

/// Where a value does not fit a schema of a document.
fn problems(mut schema: Value, document: &Value, value: &Value) -> Vec<String> {
    schema["components"] = document["components"].clone();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    validator.iter_errors(value).map(|problem| format!("{}: {problem}", problem.instance_path())).collect()
}

fn note_parts(schema: &Value, parts: &mut BTreeSet<String>) {
    let of_this = schema["allOf"].as_array().into_iter().flatten();
    parts.extend(of_this.filter_map(|part| part["$ref"].as_str().map(str::to_owned)));
    match schema {
        Value::Object(members) => members.values().for_each(|member| note_parts(member, parts)),
        Value::Array(items) => items.iter().for_each(|item| note_parts(item, parts)),
        _ => {}
    }
}

#[test]
fn every_success_is_typed_and_every_error_is_a_problem() {
    let document = Document::read();
    let operations = document.operations();
    assert!(operations.len() > 50);
    let mut repeated: Vec<&str> = Vec::new();
    for operation in &operations {
        for (status, response) in operation.value["responses"].as_object().unwrap() {
            let is_error = status.starts_with(['4', '5']);
            repeated.extend(response["$ref"].as_str().filter(|_| is_error));
            let response = document.resolved(response);
            let Some(content) = response["content"].as_object() else {
                assert!(["204", "304"].contains(&status.as_str()), "{} {status} has no content", operation.id);
                continue;
            };
            for (content_type, content) in content {
                let schema = document.resolved(&content["schema"]);
                if is_error && (operation.id.as_str(), status.as_str()) != ("readyz", "503") {
                    assert_eq!(content_type, "application/problem+json", "{} {status}", operation.id);
                    assert_eq!(content["schema"]["$ref"], "#/components/schemas/Problem", "{} {status}", operation.id);
                } else if content_type == "application/json" {
                    let is_typed = schema.get("properties").is_some() || schema.get("allOf").is_some();
                    assert!(is_typed || operation.id == "call", "{} {status} is not typed: {schema}", operation.id);
                }
            }
        }
    }
    for (name, uses) in [("NotJson", 17), ("Unauthorized", 45), ("BodyTooLarge", 17), ("ForeignOrigin", 45), ("RateLimited", 30)] {
        let reference = format!("#/components/responses/{name}");
        let found = repeated.iter().filter(|used| **used == reference).count();
        assert!(found >= uses, "{name} is used {found} times");
    }
}

#[test]
fn every_meta_tool_has_its_route_with_the_same_parameters_and_limits() {
    let document = Document::read();
    let paths = document.value["paths"].as_object().unwrap();
    let is_meta = |path: &str| ["/v1/tools/", "/v1/toolsets/"].iter().any(|prefix| path.starts_with(prefix));
    let routes: BTreeSet<&str> = paths.keys().map(String::as_str).filter(|path| is_meta(path)).collect();
    assert_eq!(routes, MetaTool::ALL.iter().map(|tool| tool.path()).collect());
    for tool in MetaTool::ALL {
        let body = document.resolved(&paths[tool.path()]["post"]["requestBody"]["content"]["application/json"]["schema"]);
        let parameters = tool.definition("", "").parameters;
        for (name, published) in parameters["properties"].as_object().unwrap() {
            let member = body["properties"].get(name).unwrap_or_else(|| panic!("{tool} takes no {name}"));
            for limit in ["minimum", "maximum", "maxItems"] {
                assert_eq!(published.get(limit), member.get(limit), "{limit} of {name} of {tool}");
            }
        }
    }
}

/// A running service, whose answers are held against the document.
struct World {
    document: Document,
    service: Running,
    answered: BTreeSet<String>,
}

impl World {
    async fn start() -> Self {
        let personal = json!({"command": example("test-stdio-server"), "env": {"TOKEN": "{{secret.token}}"}});
        let servers = json!({
            "one": stdio(&["more"]), "mine": personal, "time": stdio(&["list=time"]), "again": stdio(&["list=time"]), "mail": stdio(&["list=mail"])
        });
        let environment = [("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY), ("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true")];
        let service = start_on(servers, &environment).await;
        Self { document: Document::read(), service, answered: BTreeSet::new() }
    }

    /// A request of this operation; `places` fill its path in their order.
    fn request(&self, operation: &Operation, places: &[&str], key: &str) -> RequestBuilder {
        let mut places = places.iter();
        let parts = operation.path.split('/').map(|part| if part.starts_with('{') { places.next().unwrap_or(&"x") } else { part });
        with_key(&self.service, operation.method.clone(), &parts.collect::<Vec<&str>>().join("/"), key)
    }

    async fn send(&mut self, id: &str, places: &[&str], key: &str, body: Value) -> (StatusCode, Value) {
        let operation = self.document.operation(id);
        let mut request = self.request(&operation, places, key);
        if !body.is_null() {
            request = request.json(&body);
        }
        self.checked(&operation, request).await
    }

    async fn checked(&mut self, operation: &Operation, request: RequestBuilder) -> (StatusCode, Value) {
        let response = request.send().await.unwrap();
        let status = response.status();
        let content_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        let Some(content_type) = content_type else {
            assert!(operation.value["responses"][status.as_str()].is_object(), "{} {status}", operation.id);
            self.answered.insert(operation.id.clone());
            return (status, Value::Null);
        };
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}: {text}", operation.id));
        self.document.check(operation, status, &content_type, &answer);
        if status.is_success() {
            self.answered.insert(operation.id.clone());
        }
        (status, answer)
    }

    /// An answer that has to be a success.
    async fn good(&mut self, id: &str, places: &[&str], key: &str, body: Value) -> Value {
        if !body.is_null() {
            self.document.check_body(&self.document.operation(id), &body);
        }
        let (status, answer) = self.send(id, places, key, body).await;
        assert!(status.is_success(), "{id}: {status} {answer}");
        answer
    }
}

async fn tools_and_servers(world: &mut World, clock: &[&str; 2]) {
    let facts = json!({"tags": ["clock"], "synonyms": ["how late"], "description": "Says how late it is.", "pinned": true});
    world.good("try_tool_facts", clock, ADMIN, facts.clone()).await;
    world.good("replace_tool_facts", clock, ADMIN, facts).await;
    let tool = world.good("show_tool_facts", clock, ADMIN, Value::Null).await;
    let fingerprint = json!({"fingerprint": tool["definition"]["fingerprint"]});
    world.good("approve_definition", clock, ADMIN, fingerprint).await;
    world.good("list_tools", &[], ADMIN, Value::Null).await;
    world.good("remove_tool_facts", clock, ADMIN, Value::Null).await;
    let duplicates = world.good("list_duplicates", &[], ADMIN, Value::Null).await;
    assert!(!duplicates["groups"].as_array().unwrap().is_empty(), "{duplicates}");
    let texts = json!({"function": "Tells the time.", "tags": ["clock"], "queries": ["how late is it"]});
    world.good("replace_enrichment", clock, ADMIN, texts).await;
    world.good("show_enrichment", clock, ADMIN, Value::Null).await;
    world.good("list_enrichment", &[], ADMIN, Value::Null).await;
    world.good("remove_enrichment", clock, ADMIN, Value::Null).await;
    world.good("list_servers", &[], ADMIN, Value::Null).await;
    let entry = json!({"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": "hidden"}, "enabled": true});
    let added = world.good("replace_server", &["added"], ADMIN, entry).await;
    assert_eq!(added["entry"]["headers"], json!({"X-Key": "(stored)"}), "{added}");
    let odd = json!({"url": "http://127.0.0.1:1/mcp", "hedaers": {}});
    let (status, replaced) = world.send("replace_server", &["added"], ADMIN, odd).await;
    assert!(status == StatusCode::OK && !replaced["warnings"].as_array().unwrap().is_empty(), "{replaced}");
    world.send("replace_server", &["added"], ADMIN, json!({"url": "nowhere"})).await;
    world.good("restart_server", &["added"], ADMIN, Value::Null).await;
    world.good("switch_server", &["added"], ADMIN, json!({"enabled": false})).await;
    world.good("show_server", &["added"], ADMIN, Value::Null).await;
    world.good("remove_server", &["added"], ADMIN, Value::Null).await;
    world.good("call", &[], KEY, json!({"name": "one__stderr", "arguments": {"text": "a line\n"}})).await;
    world.good("show_server_log", &["one"], ADMIN, Value::Null).await;
    // Prompts are listed when a client asks for them.
    rpc(&world.service, "/mcp", &[], "prompts/list", json!({})).await;
    let view = world.good("show_server_definition", &["one"], ADMIN, Value::Null).await;
    assert!(!view["prompts"].as_object().unwrap().is_empty(), "{view}");
    let fingerprint = json!({"fingerprint": view["definition"]["fingerprint"]});
    world.good("approve_server_definition", &["one"], ADMIN, fingerprint).await;
    world.good("remove_toolset", &["letters"], ADMIN, Value::Null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_described() {
    let mut world = World::start().await;
    let clock = ["time", "get_current_time"];
    for key in [KEY, ADMIN] {
        world.good("readyz", &[], key, Value::Null).await;
        world.good("root", &[], key, Value::Null).await;
    }

    // Selection and the meta-tools.
    let message =
        json!({"messages": [{"role": "user", "content": "What time is it in Paris?"}], "chat_id": "c", "disclose": ["mail__send_email"]});
    let mut request = message.clone();
    request["tools"] = json!(["time__get_current_time", "foreign"]);
    request["user"] = json!({"id": "anna", "groups": ["staff"]});
    let selection = world.good("filter", &[], KEY, request).await;
    assert!(!selection["definitions"].as_array().unwrap().is_empty(), "{selection}");
    for detail in ["names", "summary", "full"] {
        let search = json!({"queries": ["current time", "send an email"], "detail": detail, "chat_id": "c", "limit": 20});
        let found = world.good("search", &[], KEY, search).await;
        assert!(!found["toolsets"].as_array().unwrap().is_empty(), "{found}");
    }
    let names = json!({"names": ["time__get_current_time", "time__get_current_tim"]});
    assert_eq!(world.good("describe", &[], KEY, names).await["unknown"][0]["did_you_mean"], "time__get_current_time");
    world.good("call", &[], KEY, json!({"name": "one__echo", "arguments": {"n": 1}})).await;
    world.good("smart_select", &[], KEY, json!({"task": "Tell me the time"})).await;
    let given = json!({"selection_id": selection["selection_id"], "tool": "time__get_current_time", "verdict": "helpful"});
    world.good("feedback", &[], KEY, given).await;

    // Toolsets, in a chat.
    let letters = json!({"description": "Letters", "servers": ["mail"], "always": ["time__get_current_time"]});
    for status in [StatusCode::CREATED, StatusCode::OK] {
        assert_eq!(world.send("replace_toolset", &["letters"], ADMIN, letters.clone()).await.0, status);
    }
    world.good("show_toolset", &["letters"], ADMIN, Value::Null).await;
    world.good("list_all_toolsets", &[], ADMIN, Value::Null).await;
    world.good("list_toolsets", &[], KEY, Value::Null).await;
    for _ in 0..2 {
        world.good("load_toolset", &[], KEY, json!({"toolset": "letters", "chat_id": "c"})).await;
    }
    world.good("list_available_toolsets", &[], KEY, json!({"chat_id": "c"})).await;
    world.good("unload_toolset", &[], KEY, json!({"toolset": "letters", "chat_id": "c"})).await;
    world.good("enable_tool_group", &[], KEY, json!({"group": "time", "chat_id": "c"})).await;

    // Sessions.
    for ending in ["end_session", "end_any_session"] {
        let session = world.good("create_session", &[], KEY, json!({"servers": ["time"], "task": "Tell me the time"})).await;
        let id = session["id"].as_str().unwrap().to_owned();
        world.good("show_session", &[&id], KEY, Value::Null).await;
        world.good("list_sessions", &[], KEY, Value::Null).await;
        world.good("list_all_sessions", &[], ADMIN, Value::Null).await;
        world.good(ending, &[&id], if ending == "end_session" { KEY } else { ADMIN }, Value::Null).await;
    }

    // Keys and what belongs to them.
    let (id, key) = create(&world.service, json!({"name": "ci", "servers": ["mine", "time"]})).await;
    world.good("create_key", &[], ADMIN, json!({"name": "other", "groups": ["staff"], "expires_in_days": 1})).await;
    world.good("list_secrets", &[], &key, Value::Null).await;
    world.good("list_connections", &[], &key, Value::Null).await;
    world.good("give_secret", &["mine", "token"], &key, json!({"value": "hidden"})).await;
    let stored = world.good("list_all_secrets", &[], ADMIN, Value::Null).await;
    assert_eq!((&stored["secrets"][0]["principal"], &stored["total"]), (&json!("key:ci"), &json!(1)), "{stored}");
    assert!(!stored.to_string().contains("hidden"), "{stored}");
    assert_eq!(world.good("list_secrets", &[], &key, Value::Null).await["secrets"][0]["state"], "set");
    world.good("remove_secret", &["mine", "token"], &key, Value::Null).await;
    world.good("forget_secrets", &["key:ci"], ADMIN, Value::Null).await;
    world.good("rotate_key", &[&id], ADMIN, Value::Null).await;
    world.good("revoke_key", &[&id], ADMIN, Value::Null).await;
    world.good("list_keys", &[], ADMIN, Value::Null).await;

    // Rules.
    let rules = json!({"rules": [{"effect": "block", "servers": ["nowhere"], "groups": ["staff"]}, {"effect": "allow", "annotations": ["readOnlyHint"]}]});
    world.good("replace_policy", &[], ADMIN, rules).await;
    let view = world.good("show_policy", &[], ADMIN, Value::Null).await;
    assert!(!view["warnings"].as_array().unwrap().is_empty(), "{view}");
    world.good("check_policy", &[], ADMIN, json!({"tool": "time__get_current_time"})).await;

    tools_and_servers(&mut world, &clock).await;

    // Learning.
    world.good("show_learning", &[], ADMIN, Value::Null).await;
    world.good("replay_learning", &[], ADMIN, Value::Null).await;
    world.good("show_proposals", &[], ADMIN, Value::Null).await;
    let operation = world.document.operation("forget_learning");
    let everything = world.request(&operation, &[], ADMIN).query(&[("all", "true")]);
    assert_eq!(world.checked(&operation, everything).await, (StatusCode::OK, json!({"removed": 0})));

    // Records.
    for records in ["list_audit", "list_events", "show_usage", "show_report"] {
        world.good(records, &[], ADMIN, Value::Null).await;
    }
    let selection = eventually("the selection is recorded", async || {
        let (_, all) = administer(&world.service, Method::GET, "/v1/admin/events", &Value::Null).await;
        let of_selection = |event: &&Value| event["kind"] == "selection" && event["message"].is_string();
        all["events"].as_array()?.iter().find(of_selection).map(|event| event["id"].to_string())
    })
    .await;
    world.good("replay_event", &[&selection], ADMIN, Value::Null).await;
    world.send("replay_event", &["999999"], ADMIN, Value::Null).await;

    let all: BTreeSet<String> = world.document.operations().into_iter().map(|operation| operation.id).collect();
    let left: Vec<&String> = all.difference(&world.answered).filter(|id| !TEXT.contains(&id.as_str())).collect();
    assert!(left.is_empty(), "nobody looked at {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_offers_and_rules_are_typed_and_odd_ones_still_taken() {
    let mut world = World::start().await;
    let schemas = &world.document.value["components"]["schemas"];
    for (place, member) in [("FilterBody/properties/messages", "role"), ("PolicyBody/properties/rules", "effect")] {
        let items = &schemas.pointer(&format!("/{place}")).unwrap()["items"];
        assert!(world.document.resolved(items)["properties"][member].is_object(), "{place} is not typed: {items}");
    }
    let call = json!({"id": "1", "type": "function", "function": {"name": "time__get_current_time", "arguments": "{}"}});
    let parts = json!([{"type": "text", "text": "What time is it?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]);
    let messages = json!([
        {"role": "user", "content": parts, "name": "anna"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "content": "12:00", "tool_call_id": "1"},
        {"role": "user", "content": "And in Paris?"}
    ]);
    let function = json!({"name": "foreign", "description": "Does it", "parameters": {}});
    let offered = json!(["time__get_current_time", function, {"type": "function", "function": function}]);
    world.good("filter", &[], KEY, json!({"messages": messages, "tools": offered, "connections": {"server:a": "/"}})).await;
    let rule = json!({"effect": "block", "tools": ["nothing"], "models": ["small"], "annotations": ["readOnlyHint=false"]});
    world.good("replace_policy", &[], ADMIN, json!({"default": null, "rules": [rule]})).await;
    world.good("replace_policy", &[], ADMIN, json!({})).await;

    // More than the document says.
    for message in [
        json!({"role": "user", "content": 5}),
        json!({"role": "user", "content": {"text": "x"}}),
        json!({"role": "user", "content": ["time", 7, {"text": 7}]}),
        json!({"role": "assistant", "tool_calls": ["x", {"name": "time__get_current_time"}, {"function": 1}]}),
    ] {
        let (status, answer) = world.send("filter", &[], KEY, json!({"messages": [message], "tools": [1, {"description": "x"}]})).await;
        assert_eq!(status, StatusCode::OK, "{message}: {answer}");
    }
    let (status, answer) = world.send("replace_policy", &[], ADMIN, json!({"rules": [{"effect": "deny"}]})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_as_described() {
    let mut world = World::start().await;
    for operation in world.document.operations() {
        if operation.value.get("security").is_none() {
            let request = world.service.client.request(operation.method.clone(), format!("{}{}", world.service.url, operation.path));
            assert_eq!(world.checked(&operation, request).await.0, StatusCode::UNAUTHORIZED, "{}", operation.id);
        }
        let request = world.request(&operation, &[], ADMIN).header("origin", "https://evil.example");
        assert_eq!(world.checked(&operation, request).await.0, StatusCode::FORBIDDEN, "{}", operation.id);
        if operation.value.get("requestBody").is_some() {
            let places = ["time", "get_current_time"];
            let request = world.request(&operation, &places, ADMIN).body("{");
            assert_eq!(world.checked(&operation, request).await.0, StatusCode::BAD_REQUEST, "{}", operation.id);
            let request = world.request(&operation, &places, ADMIN).body(vec![b' '; 5 << 20]);
            assert_eq!(world.checked(&operation, request).await.0, StatusCode::PAYLOAD_TOO_LARGE, "{}", operation.id);
            let request = world.request(&operation, &places, ADMIN).header("content-encoding", "gzip").body("{}");
            assert_eq!(world.checked(&operation, request).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{}", operation.id);
        }
        if operation.path.starts_with("/v1/admin/") {
            let request = world.request(&operation, &[], KEY);
            // As at any address below `/v1/admin/` where nothing is.
            let status = world.checked(&operation, request).await.0;
            assert!(matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED), "{} {status}", operation.id);
        }
    }
}

/// A limit of a parameter or of a member: a value that just fits, and one that just does not.
struct Limit {
    /// A JSON Pointer into the body, or the name of a parameter.
    place: String,
    fits: Value,
    exceeds: Value,
}

fn limits(document: &Document, schema: &Value, place: &str, found: &mut Vec<Limit>) {
    let schema = document.resolved(schema);
    for branch in ["oneOf", "anyOf", "allOf"].into_iter().flat_map(|keyword| schema[keyword].as_array().into_iter().flatten()) {
        limits(document, branch, place, found);
    }
    let mut add = |keyword: &str, value: &dyn Fn(i64) -> Value, beyond: i64| {
        if let Some(limit) = schema[keyword].as_i64() {
            found.push(Limit { place: place.to_owned(), fits: value(limit), exceeds: value(limit + beyond) });
        }
    };
    // Words that may be a name too.
    let text = |length: i64| {
        let letters = "time-".chars().cycle().take(usize::try_from(length).unwrap()).collect::<String>();
        Value::String(letters.strip_suffix('-').map_or(letters.clone(), |words| format!("{words}s")))
    };
    let item = |number: i64| match place.rsplit('/').next() {
        Some("rules") => json!({"effect": "allow", "servers": [format!("word{number}")]}),
        Some("annotations") => json!("readOnlyHint"),
        _ => json!(format!("word{number}")),
    };
    let list = |length: i64| Value::Array((0..length).map(item).collect());
    let object = |length: i64| Value::Object((0..length).map(|number| (format!("{number}"), json!("/"))).collect::<Map<_, _>>());
    add("maximum", &|value| json!(value), 1);
    add("minimum", &|value| json!(value), -1);
    add("maxLength", &text, 1);
    add("minLength", &text, -1);
    add("maxItems", &list, 1);
    if !place.ends_with("/messages") {
        add("minItems", &list, -1);
    }
    add("maxProperties", &object, 1);
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        limits(document, member, &format!("{place}/{name}"), found);
    }
    if schema["items"].is_object() {
        let mut of_items = Vec::new();
        limits(document, &schema["items"], place, &mut of_items);
        let one = |value: Value| json!([value]);
        found.extend(of_items.into_iter().map(|Limit { place, fits, exceeds }| Limit { place, fits: one(fits), exceeds: one(exceeds) }));
    }
}

/// A body that is taken.
fn body(id: &str, place: &str) -> Value {
    match id {
        "filter" => json!({"messages": [{"role": "user", "content": "hello"}], "user": {"id": "anna"}}),
        "search" => json!({"queries": ["time"]}),
        "describe" => json!({"names": ["time__get_current_time"]}),
        "smart_select" => json!({"task": "Tell me the time"}),
        "load_toolset" => json!({"toolsets": ["time"], "chat_id": "c"}),
        "unload_toolset" => json!({"toolset": "time", "chat_id": "c"}),
        "enable_tool_group" => json!({"group": "time", "chat_id": "c"}),
        "list_available_toolsets" | "rotate_key" | "replace_tool_facts" | "try_tool_facts" | "replace_policy" => json!({}),
        "create_session" => json!({"mode": "dynamic"}),
        "give_secret" => json!({"value": "hidden"}),
        "feedback" if place == "/chat_id" => json!({"chat_id": "c", "tool": "time__get_current_time", "verdict": "wrong"}),
        "feedback" => json!({"selection_id": "s", "tool": "time__get_current_time", "verdict": "wrong"}),
        "create_key" => json!({"name": "limits"}),
        "check_policy" => json!({"tool": "time__get_current_time", "policy": {}}),
        "replace_toolset" => json!({"always": ["time"]}),
        "replace_enrichment" => json!({"function": "Tells the time.", "tags": ["clock"], "queries": ["how late is it"]}),
        _ => panic!("{id} has limits: say here which body it takes"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limit_is_the_one_that_is_checked() {
    let mut world = World::start().await;
    let mut checked = 0;
    let (key, _) = create(&world.service, json!({"name": "rotated"})).await;
    for operation in world.document.operations() {
        // A link that is wrong in any way is just that, and a stream has no end.
        if ["file", "stream_events"].contains(&operation.id.as_str()) {
            continue;
        }
        let mut attempts: Vec<(String, [RequestBuilder; 2])> = Vec::new();
        let places = if operation.id == "rotate_key" { [&*key, ""] } else { ["time", "get_current_time"] };
        for parameter in operation.value["parameters"].as_array().into_iter().flatten().filter(|parameter| parameter["in"] == "query") {
            let (name, mut found) = (parameter["name"].as_str().unwrap(), Vec::new());
            limits(&world.document, &parameter["schema"], name, &mut found);
            for Limit { fits, exceeds, .. } in found {
                let request = |value: Value| world.request(&operation, &places, ADMIN).query(&[(name, value.to_string())]);
                attempts.push((name.to_owned(), [request(fits), request(exceeds)]));
            }
        }
        let mut found = Vec::new();
        limits(&world.document, &operation.value["requestBody"]["content"]["application/json"]["schema"], "", &mut found);
        for Limit { place, fits, exceeds } in found {
            let request = |value: Value| {
                let mut body = body(&operation.id, &place);
                let (parent, name) = place.rsplit_once('/').unwrap();
                body.pointer_mut(parent).unwrap()[name] = value;
                world.request(&operation, &places, ADMIN).json(&body)
            };
            let member = place.split('/').nth(1).unwrap().to_owned();
            attempts.push((member, [request(fits), request(exceeds)]));
        }
        for (parameter, [fits, exceeds]) in attempts {
            let is_refused = |(status, answer): &(StatusCode, Value)| {
                let named = answer["parameter"].as_str().is_some_and(|named| named.split(['.', '[']).next() == Some(parameter.as_str()));
                // A list of names that just fits has unknown ones.
                let is_unknown = answer["detail"].as_str().is_some_and(|detail| detail.starts_with("there is no "));
                *status == StatusCode::UNPROCESSABLE_ENTITY && answer["code"] == "invalid_request" && named && !is_unknown
            };
            let answer = world.checked(&operation, fits).await;
            assert!(!is_refused(&answer), "{} refuses what its document allows of {parameter}: {answer:?}", operation.id);
            let answer = world.checked(&operation, exceeds).await;
            assert!(is_refused(&answer), "{} takes what its document forbids of {parameter}: {answer:?}", operation.id);
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked} limits");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_named() {
    let mut world = World::start().await;
    let message = json!([{"role": "user", "content": "hello"}]);
    for (id, body, parameter) in [
        ("filter", json!({"messages": []}), "messages"),
        ("filter", json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        ("filter", json!({"messages": message, "limit": "many"}), "limit"),
        ("filter", json!({"messages": message, "rerank": "perhaps"}), "rerank"),
        ("filter", json!({"messages": message, "user": {"id": 1}}), "user"),
        ("filter", json!({"messages": message, "offer": "x", "tools": ["a"]}), "offer"),
        ("search", json!({}), "queries"),
        ("search", json!({"queries": ["a"], "detail": "all"}), "detail"),
        ("search", json!({"queries": ["a"], "servers": vec!["time"; 21]}), "servers"),
        ("call", json!({"arguments": {"a": 1}}), "name"),
        ("smart_select", json!({"task": " "}), "task"),
        ("load_toolset", json!({}), "toolsets"),
        ("create_session", json!({"mode": "x"}), "mode"),
        ("create_session", json!({"taks": "x"}), "taks"),
        ("create_session", json!({"servers": ["time"], "ttl_seconds": 0}), "ttl_seconds"),
        ("create_session", json!({"servers": ["time"], "ttl_seconds": u64::MAX}), "ttl_seconds"),
        ("create_session", json!({"servers": ["tim"]}), "servers"),
        ("create_session", json!({"tools": ["time__get_current_tim"]}), "tools"),
        ("feedback", json!({"tool": "a", "selection_id": "s", "verdict": "fine"}), "verdict"),
        ("create_key", json!({"name": "a", "servers": ["nowhere"]}), "servers"),
        ("create_key", json!({"name": "a", "toolsets": ["nowhere"]}), "toolsets"),
        ("create_key", json!({"name": "a", "expires_at": "soon"}), "expires_at"),
        ("create_key", json!({"name": "a b"}), "name"),
        ("create_key", json!({"name": "a", "servers": []}), "servers"),
        ("create_key", json!({"name": "a", "toolsets": []}), "toolsets"),
        ("create_key", json!({"name": "a", "expires_at": "2000-01-01T00:00:00Z"}), "expires_at"),
        ("create_key", json!({"name": "a", "expires_in_days": 0}), "expires_in_days"),
        ("replace_policy", json!({"rules": [{"effect": "allow"}, {"effect": "perhaps"}]}), "rules[1]"),
        ("replace_policy", json!({"rules": [], "default": "perhaps"}), "default"),
        ("replace_policy", json!({"rule": []}), "rule"),
        ("replace_policy", json!({"rules": vec![json!({"effect": "allow"}); 1_001]}), "rules"),
        ("check_policy", json!({"tool": "time__get_current_tim"}), "tool"),
        ("check_policy", json!({"principal": "key:nobody"}), "principal"),
        ("check_policy", json!({"principal": "admin", "policy": 1}), "policy"),
        ("check_policy", json!({"principal": "admin", "policy": {"rules": {}}}), "policy.rules"),
        ("check_policy", json!({"principal": "admin", "policy": {"rules": [{"effect": "perhaps"}]}}), "policy.rules[0]"),
        ("replace_toolset", json!({"servers": ["time"], "colour": "red"}), "colour"),
        ("replace_toolset", json!({"servers": []}), "servers"),
        ("replace_toolset", json!({"servers": ["time"], "exclude": ["a["]}), "exclude"),
        ("replace_tool_facts", json!({"tags": ["\u{200b}a"]}), "tags"),
        ("replace_enrichment", json!({"function": "a\nb", "tags": []}), "function"),
        ("replace_enrichment", json!({"context": "a\nb", "queries": []}), "context"),
        ("replace_enrichment", json!({"function": "a", "tags": ["b", "B"]}), "tags"),
        ("replace_enrichment", json!({"function": "a", "queries": ["b", "B"]}), "queries"),
    ] {
        let (status, problem) = world.send(id, &["time", "get_current_time"], ADMIN, body.clone()).await;
        let named = (problem["code"].as_str(), problem["parameter"].as_str());
        assert_eq!((status, named), (StatusCode::UNPROCESSABLE_ENTITY, (Some("invalid_request"), Some(parameter))), "{id} {body}");
    }
    for (id, query, parameter) in [
        ("root", "mode=all", "mode"),
        ("root", "mode=full&mode=meta", "mode"),
        ("list_audit", "since=yesterday", "since"),
        ("list_audit", "outcome=fine", "outcome"),
        ("list_audit", "principal=nobody%20at%20all", "principal"),
        ("list_tools", "pinned=perhaps", "pinned"),
        ("list_tools", "colour=red", "colour"),
        ("list_enrichment", "offset=x", "offset"),
        ("show_usage", "order=size", "order"),
        ("show_report", "until=1970-01-01T00:00:00Z&since=2027-01-01T00:00:00Z", "since"),
    ] {
        let operation = world.document.operation(id);
        let request = with_key(&world.service, Method::GET, &format!("{}?{query}", operation.path), ADMIN);
        let (status, problem) = world.checked(&operation, request).await;
        let named = (problem["code"].as_str(), problem["parameter"].as_str());
        assert_eq!((status, named), (StatusCode::UNPROCESSABLE_ENTITY, (Some("invalid_request"), Some(parameter))), "{id} {query}");
    }
    for body in [json!({}), json!({"principal": null})] {
        let (_, problem) = world.send("check_policy", &[], ADMIN, body).await;
        assert!(problem["code"] == "invalid_request" && problem.get("parameter").is_none(), "neither is wrong alone: {problem}");
    }
    let (_, problem) = world.send("create_session", &[], KEY, json!({"servers": ["tim"], "toolsets": ["tim"]})).await;
    assert!(problem["code"] == "invalid_request" && problem.get("parameter").is_none(), "both are unknown: {problem}");
    let (_, problem) = world.send("replace_toolset", &["a b"], ADMIN, json!({"servers": ["time"]})).await;
    assert_eq!(problem["parameter"], "name", "{problem}");
    let (_, key) = create(&world.service, json!({"name": "owner"})).await;
    for (name, value, parameter) in [("tokens", "hidden", "name"), ("token", "a\0b", "value")] {
        let (status, problem) = world.send("give_secret", &["mine", name], &key, json!({"value": value})).await;
        assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(parameter)), "{problem}");
    }
    let request = world.service.request(Method::POST, "/v1/filter").header("x-openwebui-model-id", "m".repeat(300));
    let operation = world.document.operation("filter");
    let (_, problem) = world.checked(&operation, request.json(&json!({"messages": message}))).await;
    assert_eq!(problem["parameter"], "x-openwebui-model-id", "{problem}");
}
