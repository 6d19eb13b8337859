//! A tool is run by a form that is made from its schema.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::signed_in;
use crate::harness::keys::{administer, create, start_on};
use crate::harness::servers::listed::Listed;
use crate::harness::stdio;
use crate::harness::wait::{eventually, when};

const PAGE: &str = "/ui/run?server=one&tool=echo";

#[tokio::test(flavor = "multi_thread")]
async fn a_form_calls_the_tool_and_shows_what_was_sent_and_what_came() {
    let service = start_on(json!({"one": stdio(&[])}), &[]).await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/tool?server=one&tool=echo").await;
    assert!(page.text.contains("href=\"/ui/run?server=one&amp;tool=echo\""), "{}", page.text);
    let page = browser.see(PAGE).await;
    assert!(page.words().contains("This tool has no parameters"), "{}", page.text);

    let evil = "<script>alert(1)</script> \"quoted\"\r\nnext";
    let evil = json!({"text": evil}).to_string();
    let form = [("server", "one"), ("tool", "echo")];
    let page = browser.send_form("/ui/run", &[form.as_slice(), &[("all", evil.as_str())]].concat()).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(!page.text.contains("<script>") && page.text.contains("&lt;script&gt;"), "{}", page.text);
    let words = page.words();
    for part in ["Status200", "POST /one/echo", " ms", r#"<script>alert(1)</script> \"quoted\"\r\nnext"#] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let entries = eventually("the call is in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit?tool=echo", &json!({})).await;
        when(log, |log| log["entries"].as_array().is_some_and(|entries| !entries.is_empty()))
    })
    .await;
    assert_eq!((&entries["entries"][0]["principal"], &entries["entries"][0]["outcome"]), (&json!("admin"), &json!("success")), "{entries}");

    let page = browser.send_form("/ui/run", &[form.as_slice(), &[("all", "{\"text\": \"as JSON\"}")]].concat()).await;
    assert!(page.status == StatusCode::OK && page.words().contains("as JSON"), "{}", page.text);
    let page = browser.send_form("/ui/run", &[form.as_slice(), &[("all", "{")]].concat()).await;
    assert!(page.status == StatusCode::UNPROCESSABLE_ENTITY && page.words().contains("is not JSON"), "{}", page.text);

    assert_eq!(browser.open("/ui/run?server=one&tool=none").await.status, StatusCode::NOT_FOUND);
    let page = browser.submit("/ui/run", &[form.as_slice(), &[("token", "wrong")]].concat()).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_parameter_has_its_field_and_errors_stand_beside_it() {
    let properties = json!({
        "count": {"type": "integer", "minimum": 1, "description": "How <many>."},
        "unit": {"enum": ["one", "two \"quoted\"", 3]},
        "dry": {"type": "boolean"},
        "sure": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "a.b/c~d": {"type": "number"},
    });
    let schema = json!({"type": "object", "properties": properties, "required": ["count", "sure"], "additionalProperties": false});
    let listed = Listed::new(&[json!({"name": "many", "description": "Does it.", "inputSchema": schema})]);
    let service = start_on(json!({"bad": listed.server()}), &[]).await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/run?server=bad&tool=many").await;
    for part in [
        "name=\"argument.count\" type=\"number\" step=\"1\"",
        "How &lt;many&gt;.",
        "<option value=\"&quot;two \\&quot;quoted\\&quot;&quot;\">two &quot;quoted&quot;</option>",
        "<option value=\"3\">3</option>",
        "name=\"argument.sure\" type=\"checkbox\"",
        "<select id=\"a2\" name=\"argument.",
        "name=\"argument.day\" type=\"text\"",
        "name=\"argument.a.b/c~d\" type=\"number\" step=\"any\"",
    ] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    let form = |more: &[(&'static str, &'static str)]| [&[("server", "bad"), ("tool", "many")], more].concat();
    let error = |text: &str, field: &str| {
        let id =
            text.split(&format!("name=\"{field}\"")).next().unwrap().rsplit("id=\"").next().unwrap().split('"').next().unwrap().to_owned();
        let error = text.split(&format!("id=\"{id}-error\"")).nth(1).unwrap_or_else(|| panic!("{field}: {text}"));
        error.split("</p>").next().unwrap().to_owned()
    };
    // An object that is no JSON is not sent; what the schema forbids is refused as by the API.
    let page = browser.send_form("/ui/run", &form(&[("argument.count", "2"), ("argument.labels", "[1,")])).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(error(&page.text, "argument.labels").contains("is not JSON"), "{}", page.text);
    let page = browser.send_form("/ui/run", &form(&[("argument.count", "0"), ("argument.a.b/c~d", "much")])).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    let (_, problem) = administer(&service, Method::POST, "/bad/many", &json!({"count": 0, "sure": false, "a.b/c~d": "much"})).await;
    assert_eq!(problem["code"], "invalid_arguments", "{problem}");
    for (field, pointer) in [("argument.count", "/count"), ("argument.a.b/c~d", "/a.b~1c~0d")] {
        let told = problem["errors"].as_array().unwrap().iter().find(|error| error["pointer"] == pointer).unwrap();
        let shown = error(&page.text, field).replace("&quot;", "\"");
        assert!(shown.contains(told["message"].as_str().unwrap()), "{shown}: {told}");
    }
    assert!(page.text.contains("value=\"0\""), "what was entered stays: {}", page.text);

    let (_, viewer) = create(&service, json!({"name": "looks", "role": "viewer"})).await;
    let mut other = super::Browser::of(&service);
    other.submit("/ui/login", &[("key", &viewer)]).await;
    let page = other.see("/ui/run?server=bad&tool=many").await;
    assert!(!page.text.contains("argument.count"), "{}", page.text);
}

/// Regression test: `["string", "null"]`, as libraries publish an optional text, had a field for JSON, which refused plain text.
#[tokio::test(flavor = "multi_thread")]
async fn an_optional_text_is_entered_as_text() {
    let properties = json!({
        "city": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
        "count": {"type": ["integer", "null"]},
        "either": {"type": ["string", "integer"]},
    });
    let schema = json!({"type": "object", "properties": properties});
    let listed = Listed::new(&[json!({"name": "many", "description": "Does it.", "inputSchema": schema})]);
    let service = start_on(json!({"bad": listed.server()}), &[]).await;
    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/run?server=bad&tool=many").await;
    assert!(page.text.contains("name=\"argument.city\" rows=\"2\""), "{}", page.text);
    assert!(page.text.contains("name=\"argument.count\" type=\"number\""), "{}", page.text);
    let form = [("server", "bad"), ("tool", "many")];
    for (city, either, sent) in [
        ("Berlin", "42", json!({"city": "Berlin", "either": 42})),
        ("Berlin\r\nMitte", "forty-two", json!({"city": "Berlin\nMitte", "either": "forty-two"})),
        ("", "", json!({})),
    ] {
        let page = browser.send_form("/ui/run", &[form.as_slice(), &[("argument.city", city), ("argument.either", either)]].concat()).await;
        assert!(!page.words().contains("is not JSON"), "{sent}: {}", page.text);
        let request = page.words().split("POST /bad/many").nth(1).unwrap_or_else(|| panic!("{sent}: {}", page.text)).to_owned();
        let request = &request[..=request.rfind('}').unwrap()];
        assert!(request.starts_with(&serde_json::to_string_pretty(&sent).unwrap()), "{sent}: {request}");
    }
}
