//! What servers have beside tools, and what they say in the middle of a call, as MCP clients meet it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::KEY;
use crate::harness::mcp::client::{Client, Stream};
use crate::harness::mcp::request;
use crate::harness::wait::eventually;
use crate::harness::{Running, Start, stdio};

/// Two servers with everything, and settings beside.
async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    let mut environment = environment.to_vec();
    environment.push(("TOOLSIEVE_ADMIN_KEY", crate::harness::keys::ADMIN));
    let servers = json!({"one": stdio(&["more"]), "my_two": stdio(&["more"]), "plain": stdio(&[])});
    let running = Start { servers, key: Some(KEY), environment, ..Start::default() }.start().await;
    running.settled().await;
    running
}

fn of<'a>(entries: &'a Value, key: &str) -> Vec<&'a str> {
    entries.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap()).collect()
}

async fn result(client: &Client<'_>, method: &str, params: Value) -> Value {
    let (status, mut answer) = client.ask(method, params).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_resources_say_whose_they_are() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp", None);
    let prompts = result(&client, "prompts/list", json!({})).await;
    assert_eq!(of(&prompts["prompts"], "name"), ["my_two__greet", "one__greet"]);
    assert_eq!(prompts["prompts"][0]["arguments"], json!([{"name": "who", "required": true}]));
    let greeting = result(&client, "prompts/get", json!({"name": "my_two__greet", "arguments": {"who": "Anna"}})).await;
    assert_eq!(greeting["messages"][0]["content"]["text"], "hello Anna");
    let resources = result(&client, "resources/list", json!({})).await;
    let two = ["toolsieve://my_two/test://note", "toolsieve://my_two/test://other"];
    let one = ["toolsieve://one/test://note", "toolsieve://one/test://other"];
    assert_eq!(of(&resources["resources"], "uri"), [two, one].concat(), "all pages, without what has no address");
    let templates = result(&client, "resources/templates/list", json!({})).await;
    assert_eq!(
        of(&templates["resourceTemplates"], "uriTemplate"),
        ["toolsieve://my_two/test://{id}/data", "toolsieve://one/test://{id}/data"]
    );
    let read = result(&client, "resources/read", json!({"uri": "toolsieve://one/test://7/data"})).await;
    assert_eq!(read["contents"], json!([{"uri": "toolsieve://one/test://7/data", "text": "what is in test://7/data"}]));
    let referred = result(&client, "prompts/get", json!({"name": "my_two__refer"})).await;
    let content = |number: usize| &referred["messages"][number]["content"];
    assert_eq!((&content(0)["uri"], &content(1)["resource"]["uri"]), (&json!(two[0]), &json!(two[1])), "{referred}");
    assert_eq!(content(2)["uri"], "https://example.org/a");
    // Regression: content of an unknown type made the whole prompt fail, and unknown members were lost.
    assert_eq!((content(3), &referred["odd"], &read["odd"]), (&json!({"type": "hologram", "depth": 3}), &json!([1]), &json!([1])));
    let linked = result(&client, "tools/call", json!({"name": "one__link", "arguments": {}})).await;
    assert_eq!(of(&linked["content"], "uri"), ["toolsieve://one/test://note", "https://example.org/a"]);
    let reference = json!({"ref": {"type": "ref/prompt", "name": "one__greet"}, "argument": {"name": "who", "value": "A"}});
    let completed = result(&client, "completion/complete", reference).await;
    let seen: Value = serde_json::from_str(completed["completion"]["values"][0].as_str().unwrap()).unwrap();
    assert_eq!(seen["name"], "greet", "the server is asked under its own name");
    for (method, params, code) in [
        ("prompts/get", json!({"name": "one__nothing"}), -32601),
        ("prompts/get", json!({"name": "nothing__greet"}), -32602),
        ("resources/read", json!({"uri": "toolsieve://one/test://gone"}), -32002),
        ("resources/read", json!({"uri": "toolsieve://nothing/test://note"}), -32002),
        ("resources/read", json!({"uri": "file:///etc/passwd"}), -32002),
        // Several servers list it, so nobody knows whose is meant.
        ("resources/read", json!({"uri": "test://note"}), -32002),
    ] {
        let (_, answer) = client.ask(method, params).await;
        assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
    }
    let alone = Client::new(&service, "/one/mcp", None);
    assert_eq!(of(&result(&alone, "prompts/list", json!({})).await["prompts"], "name"), ["greet"]);
    assert_eq!(of(&result(&alone, "resources/list", json!({})).await["resources"], "uri"), ["test://note", "test://other"]);
    assert_eq!(result(&alone, "resources/read", json!({"uri": "test://note"})).await["contents"][0]["uri"], "test://note");
    assert_eq!(result(&alone, "prompts/get", json!({"name": "refer"})).await["messages"][0]["content"]["uri"], "test://note");
    let linked = result(&alone, "tools/call", json!({"name": "link", "arguments": {}})).await;
    assert_eq!(linked["content"][0]["uri"], "test://note");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_visible_tool_is_not_there() {
    let service = start(&[]).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["my_two"]}]});
    assert_eq!(crate::harness::keys::administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let client = Client::new(&service, "/mcp", None);
    assert_eq!(of(&result(&client, "prompts/list", json!({})).await["prompts"], "name"), ["one__greet"]);
    let listed = result(&client, "resources/list", json!({})).await;
    assert!(!listed.to_string().contains("my_two"), "{listed}");
    let blocked = json!({"uri": "toolsieve://my_two/test://note"});
    let unknown = json!({"uri": "toolsieve://nobody/test://note"});
    let shape = |answer: Value| (answer["error"]["code"].clone(), answer["error"]["message"].as_str().unwrap().replace("my_two", "nobody"));
    let (blocked, unknown) = (client.ask("resources/read", blocked).await.1, client.ask("resources/read", unknown).await.1);
    assert_eq!(shape(blocked), shape(unknown));
    let (_, prompt) = client.ask("prompts/get", json!({"name": "my_two__greet"})).await;
    assert_eq!(prompt["error"]["message"], "Unknown prompt: my_two__greet");
    // A URI that a client found in a result. Only one server that it sees lists it.
    let own = result(&client, "resources/read", json!({"uri": "test://note"})).await;
    let expected = json!([{"uri": "toolsieve://one/test://note", "text": "what is in test://note"}]);
    assert_eq!(own["contents"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lists_what_its_servers_have_and_reads_all() {
    let service = start(&[]).await;
    let (status, session) = service.post("/v1/sessions", &json!({"servers": ["plain"], "mode": "dynamic"})).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let path: &'static str = format!("/s/{}/mcp", session["id"].as_str().unwrap()).leak();
    let client = Client::new(&service, path, None).greeted().await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let capabilities = async || result(&client, "initialize", hello.clone()).await["capabilities"].clone();
    let listed = async |what: &str, key: &str| {
        let listed = result(&client, &format!("{what}/list"), json!({})).await;
        of(&listed[what], key).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(capabilities().await.get("prompts").is_none(), "none of its servers has any");
    assert_eq!(listed("prompts", "name").await, [""; 0]);
    let read = async || {
        let note = result(&client, "resources/read", json!({"uri": "toolsieve://my_two/test://note"})).await;
        let greeting = result(&client, "prompts/get", json!({"name": "my_two__greet", "arguments": {"who": "Anna"}})).await;
        let completed = json!({"ref": {"type": "ref/prompt", "name": "my_two__greet"}, "argument": {"name": "who", "value": "A"}});
        result(&client, "completion/complete", completed).await;
        (note["contents"][0]["text"].clone(), greeting["messages"][0]["content"]["text"].clone())
    };
    let both = (json!("what is in test://note"), json!("hello Anna"));
    assert_eq!(read().await, both, "its tools can be called too");
    let mut stream = client.listen().await;
    result(&client, "tools/call", json!({"name": "load_toolset", "arguments": {"toolset": "my_two"}})).await;
    let mut news = Vec::new();
    for _ in 0..3 {
        news.push(stream.next().await.unwrap()["method"].as_str().unwrap().to_owned());
    }
    let changed = |what: &str| format!("notifications/{what}/list_changed");
    assert_eq!(news, ["tools", "prompts", "resources"].map(changed));
    assert_eq!(listed("prompts", "name").await, ["my_two__greet"]);
    assert_eq!(listed("resources", "uri").await, ["toolsieve://my_two/test://note", "toolsieve://my_two/test://other"]);
    assert!(capabilities().await["prompts"].is_object());
    assert_eq!(read().await, both);
    // What is denied looks as if it were not there.
    let rules = json!({"rules": [{"effect": "block", "servers": ["my_two"]}]});
    assert_eq!(crate::harness::keys::administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    assert_eq!(listed("prompts", "name").await, [""; 0]);
    for (method, key, denied, absent) in [
        ("prompts/get", "name", "my_two__greet", "nobody__greet"),
        ("resources/read", "uri", "toolsieve://my_two/test://note", "toolsieve://nobody/test://note"),
        ("resources/subscribe", "uri", "toolsieve://my_two/test://note", "toolsieve://nobody/test://note"),
    ] {
        let denied = client.ask(method, json!({ key: denied })).await.1;
        let absent = client.ask(method, json!({ key: absent })).await.1;
        assert!(denied["error"]["code"].is_i64(), "{denied}");
        assert_eq!(denied.to_string().replace("my_two", "nobody"), absent.to_string());
    }
}

/// A call that asks its user, up to the question.
async fn asked(client: &Client<'_>, id: u32, name: &str) -> (Stream, Value) {
    let call = request(id, "tools/call", &json!({"name": name, "arguments": {"message": "Your name?"}}));
    let mut stream = Stream::new(client.send(Method::POST, Some(&call)).await);
    let question = stream.next().await.unwrap();
    (stream, question)
}

fn message_of(result: &Value) -> Value {
    serde_json::from_str(result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_asks_the_user_of_who_called() {
    let service = start(&[("TOOLSIEVE_MCP__ELICITATION", "true")]).await;
    let able = Client::new(&service, "/mcp", None).greeted_with(json!({"elicitation": {}})).await;
    let (mut stream, question) = asked(&able, 5, "one__ask_user").await;
    assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!("Your name?")));
    assert_eq!(question["params"]["requestedSchema"]["properties"]["name"], json!({"type": "string", "x-odd": [1]}), "as it was written");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Anna"}}});
    assert_eq!(able.send(Method::POST, Some(&answer)).await.status(), StatusCode::ACCEPTED);
    let done = stream.next().await.unwrap();
    assert_eq!((&done["id"], message_of(&done)["result"]["content"]["name"].as_str()), (&json!(5), Some("Anna")));
    assert_eq!(stream.next().await, None);
    // Who can't be asked, and who can't be told from others.
    let unable = Client::new(&service, "/mcp", None).greeted().await;
    for client in [&unable, &Client::new(&service, "/mcp", None)] {
        let (_, refused) = client.ask("tools/call", json!({"name": "one__ask_user", "arguments": {"message": "?"}})).await;
        let words = message_of(&refused)["error"].to_string();
        assert!(words.contains("can't"), "{words}");
    }
    let sleeping = tokio::spawn(service.request(Method::POST, "/one/sleep").json(&json!({})).send());
    assert_eq!(service.post("/one/wait_sleeping", &json!({})).await.0, StatusCode::OK);
    let (_, several) = able.ask("tools/call", json!({"name": "one__ask_user", "arguments": {"message": "?"}})).await;
    assert!(message_of(&several)["error"].to_string().contains("several calls"), "{several}");
    sleeping.abort();
    // The server doesn't respond to the cancelled call, and the question may belong to it.
    assert_eq!(service.post("/one/wait_cancelled", &json!({})).await.0, StatusCode::OK);
    let (_, abandoned) = able.ask("tools/call", json!({"name": "one__ask_user", "arguments": {"message": "?"}})).await;
    assert!(message_of(&abandoned)["error"].to_string().contains("can't be asked"), "{abandoned}");
    let (status, over_rest) = service.post("/my_two/ask_user", &json!({"message": "?"})).await;
    assert_eq!(status, StatusCode::OK);
    assert!(over_rest.to_string().contains("can't be asked"), "{over_rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_come_to_who_asked_for_them() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp", None).greeted_with(json!({"elicitation": {}})).await;
    let call = json!({"name": "one__ask_user", "arguments": {"message": "?"}});
    let (_, quiet) = client.ask("tools/call", call.clone()).await;
    assert!(message_of(&quiet)["error"].is_string(), "no server is told that it may ask: {quiet}");
    result(&client, "logging/setLevel", json!({"level": "info"})).await;
    // While the call before is not quite over, nobody knows whose note it is, and the answer comes alone.
    let mut number = 7;
    let (mut stream, note) = eventually("a note", async || {
        number += 1;
        let mut stream = Stream::new(client.send(Method::POST, Some(&request(number, "tools/call", &call))).await);
        let note = stream.next().await?;
        Some((stream, note))
    })
    .await;
    assert_eq!((&note["method"], &note["params"]["data"]), (&json!("notifications/message"), &json!("about to ask")));
    assert_eq!(stream.next().await.unwrap()["id"], number);
}
