//! The table of all tools, and what an administrator writes about one.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Browser, Page, servers, signed_in};
use crate::harness::keys::{ADMIN, KEY, administer, start_on};
use crate::harness::servers::listed::Listed;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

const CLOCK: &str = "/v1/admin/tools/time/get_current_time";
const PAGE: &str = "/ui/tool?server=time&tool=get_current_time";

async fn api(service: &Running, method: Method, body: &Value) -> (StatusCode, Value) {
    administer(service, method, CLOCK, body).await
}

async fn save(browser: &mut Browser<'_>, version: &str, more: &[(&str, &str)]) -> Page {
    let form = [&[("server", "time"), ("tool", "get_current_time"), ("version", version), ("do", "save")], more].concat();
    browser.send_form("/ui/tool", &form).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_about_a_tool_is_saved_as_by_the_api() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    assert_eq!(browser.see(PAGE).await.hidden("version"), "0");
    let written = [("description", "Says how late it is."), ("synonyms", "how late\r\nclock"), ("tags", "hands"), ("pinned", "true")];
    let page = save(&mut browser, "0", &written).await;
    assert_eq!((page.status, page.location.as_deref()), (StatusCode::SEE_OTHER, Some(&*format!("{PAGE}&done=saved"))), "{}", page.text);
    let (_, view) = api(&service, Method::GET, &json!({})).await;
    let expected = json!({"tags": ["hands"], "synonyms": ["how late", "clock"], "description": "Says how late it is.", "pinned": true});
    assert_eq!((&view["written"], &view["version"]), (&expected, &json!(1)));
    let page = browser.see("/ui/tools?text=how+late&state=pinned").await;
    assert!(page.words().contains("time / get_current_time") && page.words().contains("1–1 of 1"), "{}", page.words());

    // An error stands beside its field, in the words of the API.
    for (field, value) in [("synonyms", "the"), ("tags", "zero\u{200b}width")] {
        let (status, problem) = api(&service, Method::PUT, &json!({field: [value]})).await;
        let page = save(&mut browser, "1", &[(field, value)]).await;
        assert_eq!(page.status, status, "{}", page.text);
        let error = page.text.split(&format!("id=\"{field}-error\"")).nth(1).unwrap_or_else(|| panic!("{field}: {}", page.text));
        let error = error.split('<').next().unwrap().replace("&quot;", "\"");
        assert!(error.contains(problem["detail"].as_str().unwrap()), "{error}: {problem}");
    }

    // Of two administrators, the second one sees both versions and loses none.
    assert_eq!(api(&service, Method::PUT, &json!({"description": "Theirs."})).await.0, StatusCode::OK);
    let page = save(&mut browser, "1", &[("description", "Mine.")]).await;
    assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{}", page.text);
    assert!(page.words().contains("Theirs.") && page.words().contains("Mine."), "{}", page.words());
    assert_eq!(api(&service, Method::GET, &json!({})).await.1["description"], "Theirs.");
    let version = page.hidden("version");
    assert_eq!(save(&mut browser, &version, &[("description", "Mine.")]).await.status, StatusCode::SEE_OTHER);
    assert_eq!(api(&service, Method::GET, &json!({})).await.1["description"], "Mine.");

    let form = [("server", "time"), ("tool", "get_current_time"), ("version", "3"), ("do", "remove")];
    assert_eq!(browser.send_form("/ui/tool", &form).await.status, StatusCode::SEE_OTHER);
    assert_eq!(api(&service, Method::GET, &json!({})).await.1["written"], Value::Null);
    assert_eq!(browser.open("/ui/tool?server=time&tool=none").await.status, StatusCode::NOT_FOUND);
}

/// Regression test: a form that was shown again got the version stored now, so that the next "Save" overwrote what its administrator had
/// never seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_shown_again_keeps_the_version_on_which_it_is_based() {
    let service = start_on(servers(), &[]).await;
    let mut browser = signed_in(&service).await;
    let version = browser.see(PAGE).await.hidden("version");
    assert_eq!(api(&service, Method::PUT, &json!({"description": "Theirs."})).await.0, StatusCode::OK);
    for (synonyms, action) in [("", "try"), ("the", "save")] {
        let form = [("server", "time"), ("tool", "get_current_time"), ("version", version.as_str()), ("description", "Mine.")];
        let page = browser.send_form("/ui/tool", &[form.as_slice(), &[("synonyms", synonyms), ("do", action)]].concat()).await;
        assert!(page.status != StatusCode::PRECONDITION_FAILED && page.text.contains("\nMine.</textarea>"), "{action}: {}", page.text);
        assert_eq!(page.hidden("version"), version, "{action}");
        let page = save(&mut browser, &page.hidden("version"), &[("description", "Mine.")]).await;
        assert_eq!(page.status, StatusCode::PRECONDITION_FAILED, "{action}: {}", page.text);
        assert!(page.words().contains("Theirs.") && page.hidden("version") == "1", "{action}: {}", page.words());
        assert_eq!(api(&service, Method::GET, &json!({})).await.1["description"], "Theirs.", "{action}");
    }
}

/// Regression test: saving what the pages showed changed texts with line breaks. Browsers send a line break as two characters.
#[tokio::test(flavor = "multi_thread")]
async fn line_breaks_of_texts_stay_as_they_are() {
    let listed = Listed::new(&[noted()]);
    let service = start_on(json!({"files": listed.server()}), &[]).await;
    let mut browser = signed_in(&service).await;
    let (path, text) = ("/v1/admin/tools/files/note", "First line.\n\nThird line.");
    let written = json!({"description": text, "shape": {"parameters": {"owner": {"fixed": text}}}});
    assert_eq!(administer(&service, Method::PUT, path, &written).await.0, StatusCode::OK);
    let page = browser.see("/ui/tool?server=files&tool=note").await;
    let (version, value) = (page.hidden("version"), page.hidden("value:owner"));
    assert_eq!(value, json!(text).to_string(), "a line with escapes");
    let sent = text.replace('\n', "\r\n");
    let form = [("server", "files"), ("tool", "note"), ("version", version.as_str()), ("description", sent.as_str()), ("do", "save")];
    let shape = [("kind:owner", "fixed"), ("value:owner", value.as_str())];
    let saved = browser.send_form("/ui/tool", &[form.as_slice(), &shape].concat()).await;
    assert_eq!(saved.status, StatusCode::SEE_OTHER, "{}", saved.text);
    let (_, view) = administer(&service, Method::GET, path, &json!({})).await;
    assert_eq!(view["written"]["description"], text);
    assert_eq!(view["written"]["shape"]["parameters"]["owner"]["fixed"], text);

    let path = "/v1/admin/toolsets/notes";
    let toolset = json!({"servers": ["files"], "description": text});
    assert!(administer(&service, Method::PUT, path, &toolset).await.0.is_success());
    let page = browser.see("/ui/access/toolset?name=notes").await;
    assert!(page.text.contains(&format!("\n{text}</textarea>")), "{}", page.text);
    let version = page.hidden("version");
    let form = [("name", "notes"), ("version", version.as_str()), ("description", sent.as_str()), ("servers", "files"), ("do", "save")];
    let saved = browser.send_form("/ui/access/toolset", &form).await;
    assert_eq!(saved.status, StatusCode::SEE_OTHER, "{}", saved.text);
    assert_eq!(administer(&service, Method::GET, path, &json!({})).await.1["description"], text);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_says_stays_with_the_file() {
    let settings = "[[tool]]\nserver = \"time\"\ntool = \"get_current_time\"\nsynonyms = [\"how late\"]\n".to_owned();
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let start = Start { servers: servers(), key: Some(KEY), environment, from_files: true, settings, ..Start::default() };
    let service = start.start().await;
    service.settled().await;
    let mut browser = signed_in(&service).await;
    let (status, problem) = api(&service, Method::PUT, &json!({"tags": ["a"]})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    let page = browser.see(PAGE).await;
    assert!(page.words().contains(detail) && page.text.contains("readonly"), "{}", page.text);
    let page = save(&mut browser, "0", &[("tags", "a")]).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.words().contains(detail), "{}", page.text);
}

/// A tool of the server `files` with three parameters, one of them required.
fn noted() -> Value {
    json!({"name": "note", "description": "Keeps a note.", "inputSchema": {"type": "object", "required": ["owner"], "properties": {
        "owner": {"type": "string", "description": "Whose note it is."}, "limit": {"type": "integer"}, "a <b>": {"type": "boolean"}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_shapes_the_parameters_of_a_tool() {
    let listed = Listed::new(&[noted()]);
    let service = start_on(json!({"files": listed.server()}), &[]).await;
    let mut browser = signed_in(&service).await;
    let page = "/ui/tool?server=files&tool=note";
    let path = "/v1/admin/tools/files/note";
    let form = [("server", "files"), ("tool", "note"), ("do", "save")];
    let shown = browser.see(page).await;
    assert!(shown.text.contains("name=\"kind:owner\"") && shown.words().contains("Whose note it is."), "{}", shown.text);
    assert!(shown.text.contains("name=\"kind:a &lt;b&gt;\"") && !shown.text.contains("<b>\""), "{}", shown.text);

    let fields = [
        ("version", "0"),
        ("kind:owner", "fixed"),
        ("value:owner", "42"),
        ("kind:limit", "default"),
        ("value:limit", "42"),
        ("kind:a <b>", "hidden"),
    ];
    let saved = browser.send_form("/ui/tool", &[form.as_slice(), &fields].concat()).await;
    assert_eq!(saved.status, StatusCode::SEE_OTHER, "{}", saved.text);
    let (_, view) = administer(&service, Method::GET, path, &json!({})).await;
    let expected = json!({"a <b>": {"hidden": true}, "limit": {"default": 42}, "owner": {"fixed": "42"}});
    assert_eq!(view["written"]["shape"]["parameters"], expected, "a value has the type of its parameter");
    // What the page shows, it also sends.
    let shown = browser.see(page).await;
    for (name, kind, value) in [("owner", "fixed", "42"), ("limit", "default", "42"), ("a &lt;b&gt;", "hidden", "")] {
        let row = shown.text.split(&format!("name=\"kind:{name}\"")).nth(1).unwrap();
        let chosen = row.split("</select>").next().unwrap().split(" selected").next().unwrap();
        assert!(chosen.ends_with(&format!("value=\"{kind}\"")), "{name}: {chosen}");
        assert!(shown.text.contains(&format!("name=\"value:{name}\" value=\"{value}\"")), "{name}: {}", shown.text);
    }

    // Every error stands beside its parameter, in the words of the API.
    let shape = json!({"parameters": {"owner": {"hidden": true}, "limit": {"fixed": "many"}}});
    let (status, problem) = administer(&service, Method::PUT, path, &json!({"shape": shape})).await;
    let fields = [("version", "1"), ("kind:owner", "hidden"), ("kind:limit", "fixed"), ("value:limit", "many"), ("kind:a <b>", "shown")];
    let refused = browser.send_form("/ui/tool", &[form.as_slice(), &fields].concat()).await;
    assert_eq!((refused.status, status), (status, StatusCode::UNPROCESSABLE_ENTITY), "{}", refused.text);
    for error in problem["errors"].as_array().unwrap() {
        let name = error["pointer"].as_str().unwrap().rsplit('/').next().unwrap();
        let row = refused.text.split(&format!("name=\"kind:{name}\"")).nth(1).unwrap();
        let row = row.split("name=\"kind:").next().unwrap();
        assert!(row.contains(error["message"].as_str().unwrap()) && row.contains("role=\"alert\""), "{name}: {row}");
    }
    assert!(refused.text.contains("value=\"many\""), "what was entered stays: {}", refused.text);

    // Of two administrators, the second one sees both versions and loses none.
    let theirs = json!({"shape": {"parameters": {"limit": {"fixed": 3}}, "disabled": true}});
    assert_eq!(administer(&service, Method::PUT, path, &theirs).await.0, StatusCode::OK);
    let fields = [("version", "1"), ("kind:limit", "fixed"), ("value:limit", "4")];
    let refused = browser.send_form("/ui/tool", &[form.as_slice(), &fields].concat()).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{}", refused.text);
    assert!(refused.words().contains("{\"fixed\":3}") && refused.text.contains("name=\"value:limit\" value=\"4\""), "{}", refused.text);
    let (_, view) = administer(&service, Method::GET, path, &json!({})).await;
    assert_eq!((&view["written"]["shape"]["parameters"]["limit"], &view["disabled"]), (&json!({"fixed": 3}), &json!(true)));
    let version = refused.hidden("version");
    let saved = browser
        .send_form("/ui/tool", &[form.as_slice(), &[("version", version.as_str()), ("disabled", "true"), fields[1], fields[2]]].concat())
        .await;
    assert_eq!(saved.status, StatusCode::SEE_OTHER, "{}", saved.text);
    let page = browser.see("/ui/tools?state=disabled").await;
    assert!(page.words().contains("files / note") && page.words().contains("1–1 of 1"), "{}", page.words());
    assert_eq!(service.post("/files/note", &json!({"owner": "x"})).await.0, StatusCode::NOT_FOUND);

    // A parameter that the server no longer has stays in the form, so that it can be taken out.
    let mut changed = noted();
    changed["inputSchema"]["properties"].as_object_mut().unwrap().remove("limit");
    listed.change(&service, &[changed]).await;
    let shown = browser.see("/ui/tool?server=files&tool=note").await;
    assert!(shown.words().contains("does not contain this parameter") && shown.words().contains("no such parameter"), "{}", shown.words());
    let version = shown.hidden("version");
    let form = [form.as_slice(), &[("version", version.as_str()), ("kind:limit", "shown")]].concat();
    assert_eq!(browser.send_form("/ui/tool", &form).await.status, StatusCode::SEE_OTHER);
    let (_, view) = administer(&service, Method::GET, path, &json!({})).await;
    assert_eq!((&view["shape_problems"], &view["disabled"]), (&json!([]), &json!(false)), "{view}");
}

/// Weak texts are marked in the list, on the page and by the API, with a text that is one click from the form.
#[tokio::test(flavor = "multi_thread")]
async fn tools_that_are_hard_to_find_are_marked_with_a_better_text() {
    let schema = json!({"type": "object", "properties": {"orderId": {"type": "string", "description": "The number on the <invoice>."}}});
    let same = "Searches the orders of a customer by their date and state.";
    let tools = [
        json!({"name": "invoice_total", "description": "Total.", "inputSchema": schema}),
        json!({"name": "search_orders", "description": same, "inputSchema": {"type": "object"}}),
        json!({"name": "search_orders_old", "description": same, "inputSchema": {"type": "object"}}),
        json!({"name": "delete_customer", "description": "Deletes a customer with all addresses for good.", "inputSchema": {"type": "object"}}),
    ];
    let listed = Listed::new(&tools);
    let service = start_on(json!({"shop": listed.server()}), &[]).await;
    let (_, list) = administer(&service, Method::GET, "/v1/admin/tools?server=shop", &json!({})).await;
    let marks = |name: &str| {
        let tool = list["tools"].as_array().unwrap().iter().find(|tool| tool["tool"] == name).unwrap();
        tool["hard_to_find"].clone()
    };
    assert_eq!(marks("invoice_total")["reasons"], json!([{"reason": "short"}, {"reason": "no_verb"}]));
    assert_eq!(marks("search_orders")["reasons"], json!([{"reason": "like_sibling", "tool": "search_orders_old"}]));
    assert_eq!(marks("delete_customer"), Value::Null);
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/tools?server=shop").await;
    // The server has one more tool with a short text, `relist`.
    assert_eq!(page.words().matches("Hard to find").count(), 4, "{}", page.words());
    let page = browser.see("/ui/tool?server=shop&tool=invoice_total").await;
    let proposal = marks("invoice_total")["proposal"].as_str().unwrap().to_owned();
    assert!(page.words().contains(&proposal) && proposal.contains("order id"), "{proposal}: {}", page.words());
    let page = browser.see("/ui/tool?server=shop&tool=invoice_total&add=proposal").await;
    let area = page.text.split("name=\"description\"").nth(1).unwrap().split("</textarea>").next().unwrap();
    assert!(area.contains(&proposal.replace('<', "&lt;").replace('>', "&gt;")), "{area}");
    let form = [("server", "shop"), ("tool", "invoice_total"), ("version", "0"), ("description", &proposal), ("do", "save")];
    assert_eq!(browser.send_form("/ui/tool", &form).await.status, StatusCode::SEE_OTHER);
    let (_, view) = administer(&service, Method::GET, "/v1/admin/tools/shop/invoice_total", &json!({})).await;
    assert_eq!(view["hard_to_find"], Value::Null, "{view}");
}

/// Before texts are saved, the page and the API say which messages they would change, and change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn new_texts_are_tried_on_recorded_messages() {
    let service = start_on(servers(), &[("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true")]).await;
    let messages = ["How warm is the water in the pool?", "send an email to Anna", "send an email to Anna"];
    for message in messages {
        let asked = json!({"messages": [{"role": "user", "content": message}]});
        assert_eq!(service.post("/v1/filter", &asked).await.0, StatusCode::OK);
    }
    eventually("all selections are recorded", async || {
        administer(&service, Method::GET, "/v1/admin/events", &json!({})).await.1["events"].as_array().unwrap().len() == 3
    })
    .await;
    let attempt = async |body: &Value| administer(&service, Method::POST, &format!("{CLOCK}/try"), body).await;
    let (status, same) = attempt(&json!({})).await;
    assert_eq!((status, &same), (StatusCode::OK, &json!({"tried": 2, "without_text": 0, "is_cut": false, "changes": []})), "{same}");
    let description = "Returns the temperature of the water in a swimming pool.";
    let (_, other) = attempt(&json!({"description": description})).await;
    let changes = other["changes"].as_array().unwrap();
    assert_eq!((&other["tried"], changes.len()), (&json!(2), 1), "{other}");
    let added = changes[0]["added"].as_array().unwrap();
    assert!(changes[0]["message"] == messages[0] && added.contains(&json!("time__get_current_time")), "{other}");
    // What was tried comes true once it is saved.
    let mut browser = signed_in(&service).await;
    let form = |action: &'static str| {
        [("server", "time"), ("tool", "get_current_time"), ("version", "0"), ("description", description), ("do", action)]
    };
    let page = browser.send_form("/ui/tool", &form("try")).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(page.words().contains("1 / 2") && page.words().contains(messages[0]), "{}", page.words());
    assert!(page.text.contains(description), "what was entered stays: {}", page.text);
    assert_eq!(api(&service, Method::GET, &json!({})).await.1["written"], Value::Null, "nothing is saved");
    assert_eq!(browser.send_form("/ui/tool", &form("save")).await.status, StatusCode::SEE_OTHER);
    service.settled().await;
    eventually("the selection is as the trial said", async || {
        let asked = json!({"messages": [{"role": "user", "content": messages[0]}]});
        let (_, answer) = service.post("/v1/filter", &asked).await;
        when(answer, |answer| answer["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "time__get_current_time"))
    })
    .await;

    let (status, problem) = attempt(&json!({"synonyms": ["the"]})).await;
    assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("synonyms")), "{problem}");
    let (status, _) = administer(&service, Method::POST, "/v1/admin/tools/time/none/try", &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_tools_make_small_pages() {
    let description = "Does something with many words. ".repeat(10);
    let tool = |number: usize| {
        let properties = json!({"path": {"type": "string", "description": description}});
        json!({"name": format!("tool_number_{number:05}"), "description": format!("{description} {number}"),
            "inputSchema": {"type": "object", "properties": properties}})
    };
    let mut tools: Vec<Value> = (0..5_000).map(tool).collect();
    let properties: serde_json::Map<String, Value> =
        (0..500).map(|number| (format!("parameter_{number}"), json!({"type": "string", "description": description}))).collect();
    tools[0]["inputSchema"]["properties"] = properties.into();
    let listed = Listed::new(&tools);
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers: json!({"many": listed.server()}), key: Some(KEY), environment, ..Start::default() }.start().await;
    service.until(|state| state["tools"] == 5_001).await;
    let mut browser = signed_in(&service).await;
    for path in [super::PAGES.as_slice(), &["/ui/tools?offset=4950", "/ui/tool?server=many&tool=tool_number_00000"]].concat() {
        let page = browser.see(path).await;
        page.is_small();
    }
    let page = browser.see("/ui/tools").await;
    assert!(page.words().contains("1–50 of 5\u{202f}001") && page.text.contains("offset=50"), "{}", page.words());
    let page = browser.see("/ui/tools?text=number_04999&server=many").await;
    assert!(page.words().contains("1–1 of 1") && page.words().contains("tool_number_04999"), "{}", page.words());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_descriptions_stay_texts() {
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let tool = |name: &str| json!({"name": name, "title": evil, "description": evil, "inputSchema": {"type": "object", "title": evil}});
    let listed = Listed::new(&[tool(evil), tool("sly\u{200b}/..%2f?a=b&c#d"), tool("plain")]);
    let servers = json!({"bad": listed.server(), "time": stdio(&["list=time"])});
    let service = start_on(servers, &[]).await;
    let mut browser = signed_in(&service).await;
    let names: Vec<String> = {
        let (_, list) = administer(&service, Method::GET, "/v1/admin/tools?server=bad", &json!({})).await;
        list["tools"].as_array().unwrap().iter().map(|tool| tool["tool"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names.len() >= 3, "{names:?}");
    for name in &names {
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("tool", name).finish();
        let page = browser.see(&format!("/ui/tool?server=bad&{query}")).await;
        assert!(!page.text.contains("<script") && !page.text.contains("<img"), "{}", page.text);
        assert!(page.words().contains(name.as_str()), "{name}: {}", page.words());
        let form = [("server", "bad"), ("tool", name.as_str()), ("version", "0"), ("tags", evil), ("do", "save")];
        assert_eq!(browser.send_form("/ui/tool", &form).await.status, StatusCode::SEE_OTHER, "{name}");
    }
    for path in super::PAGES {
        let page = browser.see(path).await;
        let text = page.text.replace(super::SCRIPT, "");
        assert!(!text.contains("<script") && !text.contains("<img"), "{path}: {text}");
    }
    let page = browser.see("/ui/tools?server=bad").await;
    assert!(page.text.contains("&lt;script&gt;"), "{}", page.text);
}
