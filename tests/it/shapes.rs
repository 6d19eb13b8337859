//! Tools whose parameters an admin hides, fixes or gives a default, and tools that are switched off.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::answers::shape;
use crate::harness::callers;
use crate::harness::keys::{ADMIN, KEY, administer, command, start_on, with_key};
use crate::harness::mcp::client::Client;
use crate::harness::servers::listed::{Listed, other};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

const ECHO: &str = "/v1/admin/tools/files/echo";
const NAME: &str = "files__echo";
/// A parameter that only this tool has.
const HIDDEN: &str = "tenantry";
/// The value of a fixed parameter.
const VALUE: &str = "acme-corporation";

/// A tool whose call answers with its arguments.
fn echo() -> Value {
    json!({"name": "echo", "description": "Echoes a note.", "inputSchema": {
        "type": "object", "required": ["note", HIDDEN], "additionalProperties": false,
        "properties": {
            "note": {"type": "string"},
            HIDDEN: {"type": "string", "description": "Whose note it is."},
            "limit": {"type": "integer", "minimum": 1},
            "wordiness": {"type": "boolean"},
        },
    }})
}

fn shaped() -> Value {
    json!({"parameters": {HIDDEN: {"fixed": VALUE}, "wordiness": {"hidden": true}, "limit": {"default": 7}}})
}

async fn start(listed: &Listed) -> Running {
    start_on(json!({"files": listed.server(), "time": stdio(&["list=time"])}), &[("TOOLSIEVE_DEFINITIONS__CHANGES", "quarantine")]).await
}

async fn get(service: &Running, path: &str) -> Value {
    let (status, answer) = administer(service, Method::GET, path, &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    answer
}

async fn write(service: &Running, shape: &Value) -> Value {
    let (status, answer) = administer(service, Method::PUT, ECHO, &json!({"shape": shape})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

async fn call(service: &Running, arguments: Value) -> (StatusCode, Value) {
    service.post("/files/echo", &arguments).await
}

/// Everything that shows a caller tools, and what it answers.
async fn faces(service: &Running) -> Vec<(&'static str, Value)> {
    let mut faces = Vec::new();
    for path in ["/openapi.json", "/files/openapi.json", "/toolsets/notes/openapi.json", "/files/openapi.json?mode=meta"] {
        faces.push((path, service.get(path).await.1));
    }
    let message = json!({"messages": [{"role": "user", "content": "echo a note"}]});
    for (path, body) in [
        ("/v1/tools/search", json!({"queries": ["echo a note"], "detail": "full"})),
        ("/v1/tools/search", json!({"queries": ["echo a note"], "detail": "summary"})),
        ("/v1/tools/describe", json!({"names": [NAME]})),
        ("/v1/tools/smart_select", json!({"task": "echo a note"})),
        ("/v1/filter", message.clone()),
        ("/v1/filter?explain=true", message),
        ("/v1/sessions", json!({"servers": ["files"]})),
        ("/v1/toolsets/available", json!({})),
    ] {
        faces.push((path, service.post(path, &body).await.1));
    }
    for path in ["/mcp?mode=full", "/files/mcp", "/toolsets/notes/mcp"] {
        let client = Client::new(service, path, Some(KEY)).greeted().await;
        faces.push((path, client.ask("tools/list", json!({})).await.1));
    }
    faces
}

#[tokio::test(flavor = "multi_thread")]
async fn no_face_shows_what_is_hidden_and_the_server_gets_what_is_fixed() {
    let listed = Listed::new(&[echo()]);
    let service = start(&listed).await;
    let toolset = json!({"tools": ["echo", "get_current_time"]});
    assert!(administer(&service, Method::PUT, "/v1/admin/toolsets/notes", &toolset).await.0.is_success());
    let before = get(&service, ECHO).await;
    let with = |faces: &[(&'static str, Value)], text: &str| {
        faces.iter().filter(|(_, answer)| answer.to_string().contains(text)).map(|(path, _)| *path).collect::<Vec<_>>()
    };
    let seen = faces(&service).await;
    let (shown, named) = (with(&seen, HIDDEN), with(&seen, "echo"));
    assert!(shown.contains(&"/openapi.json") && shown.contains(&"/mcp?mode=full") && shown.contains(&"/v1/tools/describe"), "{shown:?}");

    let view = write(&service, &shaped()).await;
    assert_eq!((&view["written"]["shape"]["parameters"], &view["shape_problems"]), (&shaped()["parameters"], &json!([])));
    assert_eq!((&view["definition"], &view["raw"]), (&before["definition"], &before["raw"]), "the server's definition is the same");
    assert_eq!((&view["name"], &view["published"], &view["disabled"]), (&json!(NAME), &json!(true), &json!(false)));
    assert!(view["tokens"].as_u64() < before["tokens"].as_u64(), "{view}");
    let seen = faces(&service).await;
    assert_eq!(with(&seen, "echo"), named, "the tool is everywhere where it was");
    for (path, answer) in seen {
        let text = answer.to_string();
        assert!(![HIDDEN, VALUE, "wordiness"].iter().any(|hidden| text.contains(hidden)), "{path}: {answer}");
    }
    let document = service.get("/files/openapi.json").await.1;
    let schema = &document["paths"]["/echo"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!((&schema["required"], &schema["properties"]["limit"]["default"]), (&json!(["note"]), &json!(7)), "{schema}");
    let client = Client::new(&service, "/files/mcp", Some(KEY)).greeted().await;
    let (_, list) = client.ask("tools/list", json!({})).await;
    let of_mcp = list["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(
        (&of_mcp["inputSchema"]["required"], &of_mcp["inputSchema"]["properties"]["limit"]["default"]),
        (&json!(["note"]), &json!(7))
    );

    // The server gets the fixed value, and the default unless the caller sends the parameter.
    let sent = json!({"note": "n", HIDDEN: VALUE, "limit": 7});
    assert_eq!(call(&service, json!({"note": "n"})).await, (StatusCode::OK, sent.clone()));
    assert_eq!(call(&service, json!({"note": "n", "limit": 9})).await.1, json!({"note": "n", HIDDEN: VALUE, "limit": 9}));
    assert_eq!(call(&service, json!({"note": "n", "limit": null})).await.1, sent, "null stands for nothing here");
    let run = json!({"name": NAME, "arguments": {"note": "n"}});
    assert_eq!(service.post("/v1/tools/call", &run).await, (StatusCode::OK, sent.clone()));
    let (_, ran) = client.ask("tools/call", json!({"name": "echo", "arguments": {"note": "n"}})).await;
    assert_eq!(ran["result"]["structuredContent"], sent, "{ran}");

    // Whoever sends a parameter that is hidden is refused on every way to the tool.
    for name in [HIDDEN, "wordiness", "tenan\u{200b}try"] {
        let arguments = json!({"note": "n", name: "x"});
        for (status, problem) in
            [call(&service, arguments.clone()).await, service.post("/v1/tools/call", &json!({"name": NAME, "arguments": arguments})).await]
        {
            assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_arguments")), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("is not an argument here; leave it out"), "{problem}");
            assert!(problem["errors"][0]["pointer"].as_str().unwrap().ends_with(&format!("/{name}")), "{problem}");
        }
        let (_, ran) = client.ask("tools/call", json!({"name": "echo", "arguments": arguments})).await;
        assert!(ran.to_string().contains("is not an argument here"), "{ran}");
    }
    // An error about another parameter does not name it either.
    let (status, problem) = call(&service, json!({"nota": "n"})).await;
    assert!(status == StatusCode::UNPROCESSABLE_ENTITY && !problem.to_string().contains(HIDDEN), "{problem}");

    write(&service, &json!({})).await;
    let after = get(&service, ECHO).await;
    assert_eq!((&after["tokens"], after["written"].get("shape")), (&before["tokens"], None), "{after}");
    assert_eq!(call(&service, json!({"note": "n"})).await.0, StatusCode::UNPROCESSABLE_ENTITY, "the parameter is needed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_parameter_is_refused_where_arguments_are_not_validated() {
    for validation in ["off", "warn"] {
        let listed = Listed::new(&[echo()]);
        let service = start_on(json!({"files": listed.server()}), &[("TOOLSIEVE_CALLS__VALIDATION", validation)]).await;
        write(&service, &shaped()).await;
        assert_eq!(call(&service, json!({HIDDEN: "mine"})).await.0, StatusCode::UNPROCESSABLE_ENTITY, "{validation}");
        assert_eq!(call(&service, json!({"other": 1})).await.1[HIDDEN], VALUE, "{validation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_that_does_not_fit_is_refused_with_what_to_do() {
    let listed = Listed::new(&[echo()]);
    let service = start(&listed).await;
    for (shape, at, words) in [
        (json!({"parameters": {HIDDEN: {"hidden": true}}}), HIDDEN, "the server requires this parameter. Give it a fixed value"),
        (json!({"parameters": {"limits": {"hidden": true}}}), "limits", "the tool has no such parameter, but `limit`. Remove it"),
        (
            json!({"parameters": {"limit": {"fixed": "many"}}}),
            "limit",
            "the fixed value does not fit the server's schema: it is a string; expected an integer",
        ),
        (json!({"parameters": {"limit": {"default": 0}}}), "limit", "the default value does not fit"),
    ] {
        let (status, problem) = administer(&service, Method::PUT, ECHO, &json!({"shape": shape})).await;
        assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("shape")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"], json!(format!("/shape/parameters/{at}")));
    }
    for shape in [
        json!({"parameters": {"limit": {"hidden": false}}}),
        json!({"parameters": {"limit": {}}}),
        json!({"off": true}),
        json!([]),
        json!("off"),
    ] {
        let (status, problem) = administer(&service, Method::PUT, ECHO, &json!({"shape": shape})).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")), "{shape}: {problem}");
    }
    // Regression: of two shapes for the same parameter, the last one counted.
    let twice = r#"{"shape": {"parameters": {"limit": {"default": 1}, "limit": {"default": 2}}}}"#;
    for (method, path) in [(Method::PUT, ECHO.to_owned()), (Method::POST, format!("{ECHO}/try"))] {
        let response = with_key(&service, method, &path, ADMIN).body(twice).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{path}");
        let problem: Value = response.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().contains("\"limit\" occurs twice"), "{problem}");
    }
    assert_eq!(get(&service, ECHO).await["version"], 0, "nothing was stored");
    let (code, shown, error) = command(&service, &["tools", "set", "files/echo", "--shape", &shaped().to_string()]);
    assert!(code == Some(0) && shown.contains(&format!("parameter {HIDDEN}: {{\"fixed\":\"{VALUE}\"}}")), "{shown}{error}");
    let (_, shown, _) = command(&service, &["tools", "set", "files/echo", "--pinned", "true"]);
    assert!(shown.contains("parameter limit: {\"default\":7}"), "other flags leave the shape alone: {shown}");
    let log = eventually("the change is in the audit log", async || {
        when(get(&service, "/v1/admin/audit?tool=echo").await, |log| log["entries"].as_array().is_some_and(|entries| entries.len() == 2))
    })
    .await;
    assert_eq!((&log["entries"][0]["action"], &log["entries"][0]["principal"]), (&json!("tool_facts_replace"), &json!("admin")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_switched_off_looks_absent_to_everybody() {
    let listed = Listed::new(&[echo(), other("mirror")]);
    let service = start(&listed).await;
    assert!(administer(&service, Method::PUT, "/v1/admin/toolsets/notes", &json!({"tools": ["echo", "mirror"]})).await.0.is_success());
    let view = write(&service, &json!({"disabled": true})).await;
    assert_eq!(
        (&view["published"], &view["disabled"], &view["definition"]["state"]),
        (&json!(false), &json!(true), &json!("same")),
        "{view}"
    );
    for key in [KEY, ADMIN] {
        let of = |path: &str| shape(with_key(&service, Method::POST, path, key).json(&json!({"note": "n"})));
        let (off, absent) = (of("/files/echo").await, of("/files/nothing").await);
        assert_eq!((off.0, &off), (StatusCode::NOT_FOUND, &absent));
    }
    for (path, answer) in faces(&service).await {
        // Those who ask for a name get it back as an unknown one.
        let unknown = json!([{"name": NAME}]);
        let text = if answer["unknown"] == unknown { answer["tools"].to_string() } else { answer.to_string() };
        assert!(!text.contains(NAME) && !text.contains("\"echo\"") && !text.contains("/echo"), "{path}: {answer}");
    }
    let run = json!({"name": NAME, "arguments": {"note": "n"}});
    assert_eq!(service.post("/v1/tools/call", &run).await.0, StatusCode::NOT_FOUND);
    // A client with an older document still sends its name. It is ours, and nobody may use it.
    let offered = json!({"messages": [{"role": "user", "content": "echo a note"}], "tools": [NAME, "their_function"]});
    let kept = |answer: &Value| answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect::<Vec<_>>();
    let selected = service.post("/v1/filter", &offered).await.1;
    assert!(!kept(&selected).contains(&json!(NAME)), "{selected}");
    // Administrators see it with its state.
    let page = get(&service, "/v1/admin/tools?disabled=true").await;
    assert_eq!((&page["total"], &page["tools"][0]["tool"]), (&json!(1), &json!("echo")), "{page}");
    assert_eq!(get(&service, "/v1/admin/tools?server=files&disabled=false").await["total"], 2);
    // Regression: a check of the rules answered that there is no such tool.
    for name in [NAME, "files/echo"] {
        let (status, problem) = administer(&service, Method::POST, "/v1/admin/policy/check", &json!({"tool": name})).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == StatusCode::UNPROCESSABLE_ENTITY && detail.contains("switched off"), "{name}: {problem}");
    }

    // It stays off over a restart, and its name stays ours.
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let folder = Some(service.stop().await);
    let servers = json!({"files": listed.server(), "time": stdio(&["list=time"])});
    let service = Start { servers, key: Some(KEY), environment, folder, ..Start::default() }.start().await;
    service.settled().await;
    assert_eq!(call(&service, json!({"note": "n"})).await.0, StatusCode::NOT_FOUND);
    let selected = service.post("/v1/filter", &offered).await.1;
    assert!(!kept(&selected).contains(&json!(NAME)), "{selected}");
    let view = write(&service, &json!({"disabled": false, "parameters": {HIDDEN: {"fixed": VALUE}}})).await;
    assert_eq!((&view["published"], &view["name"]), (&json!(true), &json!(NAME)), "{view}");
    assert_eq!(call(&service, json!({"note": "n"})).await, (StatusCode::OK, json!({"note": "n", HIDDEN: VALUE})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_stays_over_a_restart_and_over_a_changed_definition() {
    let listed = Listed::new(&[echo()]);
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let start = async |folder| {
        let servers = json!({"files": listed.server()});
        let service = Start { servers, key: Some(KEY), environment: environment.clone(), folder, ..Start::default() }.start().await;
        service.settled().await;
        service
    };
    let service = start(None).await;
    write(&service, &shaped()).await;
    let service = start(Some(service.stop().await)).await;
    assert_eq!(call(&service, json!({"note": "n"})).await.1, json!({"note": "n", HIDDEN: VALUE, "limit": 7}));
    assert_eq!(get(&service, ECHO).await["definition"]["state"], "same");

    // The server drops one parameter, changes the type of another, and needs the hidden one.
    let mut changed = echo();
    changed["inputSchema"]["required"] = json!(["note", "wordiness"]);
    changed["inputSchema"]["properties"] =
        json!({"note": {"type": "string"}, "limit": {"type": "string"}, "wordiness": {"type": "boolean"}});
    listed.change(&service, &[changed]).await;
    let view = get(&service, ECHO).await;
    assert_eq!((&view["definition"]["state"], &view["published"]), (&json!("changed"), &json!(true)), "{view}");
    assert_eq!(view["written"]["shape"]["parameters"], shaped()["parameters"], "the shape stays");
    let problems: Vec<&str> =
        view["shape_problems"].as_array().unwrap().iter().map(|problem| problem["parameter"].as_str().unwrap()).collect();
    assert_eq!(problems, ["limit", HIDDEN, "wordiness"], "{view}");
    let (status, answer) = call(&service, json!({"note": "n"})).await;
    assert_eq!((status, &answer), (StatusCode::OK, &json!({"note": "n"})), "the server gets nothing that it no longer knows");
    assert_eq!(call(&service, json!({"note": "n", HIDDEN: "x"})).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let document = service.get("/openapi.json").await.1.to_string();
    assert!(!document.contains("wordiness") && !document.contains(HIDDEN), "{document}");
    // What was set before may stay, so that everything else can be changed. A new value has to fit.
    let (status, view) = administer(&service, Method::PUT, ECHO, &json!({"shape": shaped(), "pinned": true})).await;
    assert_eq!((status, view["shape_problems"].as_array().map(Vec::len)), (StatusCode::OK, Some(3)), "{view}");
    let mut other = shaped();
    other["parameters"]["limit"] = json!({"default": 8});
    let (status, problem) = administer(&service, Method::PUT, ECHO, &json!({"shape": other})).await;
    assert_eq!((status, problem["errors"].as_array().map(Vec::len)), (StatusCode::UNPROCESSABLE_ENTITY, Some(1)), "{problem}");

    listed.change(&service, &[echo()]).await;
    assert_eq!(get(&service, ECHO).await["shape_problems"], json!([]));
    assert_eq!(call(&service, json!({"note": "n"})).await.1, json!({"note": "n", HIDDEN: VALUE, "limit": 7}));

    // A tool that is not listed keeps its shape, and can get no other one.
    listed.change(&service, &[]).await;
    let (status, _) = administer(&service, Method::PUT, ECHO, &json!({"shape": shaped(), "pinned": true})).await;
    assert_eq!(status, StatusCode::OK);
    let other = json!({"shape": {"parameters": {"limit": {"hidden": true}}}});
    let (status, problem) = administer(&service, Method::PUT, ECHO, &other).await;
    assert!(
        status == StatusCode::UNPROCESSABLE_ENTITY && problem["detail"].as_str().unwrap().contains("no server lists this tool"),
        "{problem}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_shapes_a_tool_and_the_api_leaves_it_alone() {
    let listed = Listed::new(&[echo()]);
    let table = |shape: &str| format!("[[tool]]\nserver = \"files\"\ntool = \"echo\"\nshape = {shape}\n");
    let settings = table(&format!("{{ parameters = {{ {HIDDEN} = {{ fixed = \"{VALUE}\" }}, gone = {{ hidden = true }} }} }}"));
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let servers = json!({"files": listed.server()});
    let service = Start { servers, key: Some(KEY), environment, from_files: true, settings, ..Start::default() }.start().await;
    service.settled().await;
    assert_eq!(call(&service, json!({"note": "n"})).await.1, json!({"note": "n", HIDDEN: VALUE}));
    let view = get(&service, ECHO).await;
    assert_eq!((&view["managed_by"], &view["shape_problems"][0]["parameter"]), (&json!("file"), &json!("gone")), "{view}");
    let (status, problem) = administer(&service, Method::PUT, ECHO, &json!({"shape": {"disabled": true}})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("managed_by_file")));

    let reload = async |settings: String| {
        std::fs::write(service.folder.path().join("toolsieve.toml"), settings).unwrap();
        service.reload.reload(Trigger::Request).await;
        get(&service, "/readyz").await["reload"].clone()
    };
    let state = reload(table("{ disabled = true }")).await;
    assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");
    eventually("the tool is off", async || when(call(&service, json!({"note": "n"})).await.0, |status| *status == StatusCode::NOT_FOUND))
        .await;
    for (shape, part) in [
        ("{ off = true }", "unknown field `off`"),
        ("{ parameters = { note = { hidden = false } } }", "expected one of"),
        ("1", "`shape` can't be read"),
    ] {
        let state = reload(table(shape)).await;
        assert!(state["problems"].to_string().contains(part), "{shape}: {state}");
    }
    reload(String::new()).await;
    eventually("the tool is as the server lists it", async || {
        when(call(&service, json!({"note": "n"})).await.0, |status| *status == StatusCode::UNPROCESSABLE_ENTITY)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_nobody_fills_are_proposed() {
    let listed = Listed::new(&[echo()]);
    let service = callers::start_on(json!({"files": listed.server()}), &[], None).await;
    let given = json!({"note": "a", HIDDEN: "b", "wordiness": null});
    for number in 0..19 {
        assert_eq!(call(&service, given.clone()).await.0, StatusCode::OK, "{number}");
    }
    // A call that fails counts no parameter.
    assert_eq!(call(&service, json!({"note": 7, HIDDEN: "b", "limit": 0})).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let proposed = async || get(&service, "/v1/admin/learning/proposals").await["parameters"].clone();
    assert_eq!(proposed().await, json!([]), "too few calls");
    assert_eq!(call(&service, given).await.0, StatusCode::OK);
    let found = eventually("20 calls are counted", async || when(proposed().await, |found| *found != json!([]))).await;
    let tokens = found[0]["tokens"].as_u64().unwrap();
    let expected = json!([{"name": NAME, "server": "files", "tool": "echo", "calls": 20, "people": 1, "tokens": tokens,
        "parameters": ["limit", "wordiness"]}]);
    assert_eq!(found, expected);
    assert!(tokens > 0 && tokens < get(&service, ECHO).await["tokens"].as_u64().unwrap(), "{found}");
    let (code, text, errors) = command(&service, &["learn", "show", "--proposals"]);
    assert!(code == Some(0) && text.contains("limit, wordiness"), "{text} {errors}");
    write(&service, &json!({"parameters": {"wordiness": {"hidden": true}}})).await;
    let left = eventually("the hidden one is no longer proposed", async || when(proposed().await, |left| *left != found)).await;
    assert_eq!(left[0]["parameters"], json!(["limit"]));
    let (status, removed) = administer(&service, Method::DELETE, &format!("/v1/admin/learning?tool={NAME}"), &json!({})).await;
    assert_eq!((status, proposed().await), (StatusCode::OK, json!([])), "{removed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_arguments_teach_nothing() {
    let listed = Listed::new(&[echo()]);
    for (arguments, tools) in [("off", 0), ("names", 1)] {
        let environment = [("TOOLSIEVE_LEARNING__ARGUMENTS", arguments)];
        let service = callers::start_on(json!({"files": listed.server()}), &environment, None).await;
        for _ in 0..20 {
            assert_eq!(call(&service, json!({"note": "a", HIDDEN: "b"})).await.0, StatusCode::OK);
        }
        // What is queued is stored before the service ends.
        let folder = service.stop().await;
        let service = callers::start_on(json!({"files": listed.server()}), &[], Some(folder)).await;
        let proposals = get(&service, "/v1/admin/learning/proposals").await;
        assert_eq!(proposals["parameters"].as_array().unwrap().len(), tools, "{arguments}: {proposals}");
    }
}
