//! Every figure that explains a selection is one that the selection used: of `/v1/filter`, of its explanation, and of the playground.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Page, signed_in};
use crate::harness::Running;
use crate::harness::keys::{administer, start_on};
use crate::harness::languages;

/// Of the single messages, every 37th: some of each language, and of those that need no tool.
const STEP: usize = 37;
/// The rows of the playground's table.
const ROWS: usize = 50;

async fn ask(service: &Running, path: &str, body: &Value) -> Value {
    let (status, answer) = administer(service, Method::POST, path, body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

/// The answer without what names the very request.
fn decided(answer: &Value) -> Value {
    let mut answer = answer.clone();
    for own in ["selection_id", "took_ms", "explain"] {
        answer.as_object_mut().unwrap().remove(own);
    }
    answer
}

/// Compares the answer to a message with its explanation. Returns how many candidates were sent.
fn assert_same(plain: &Value, explained: &Value) -> usize {
    assert_eq!(decided(plain), decided(explained), "{explained}");
    let explain = &explained["explain"];
    if !explain["gate"].is_null() {
        assert_eq!(explain["gate"]["needs_tool"], plain["needs_tool"], "{explain}");
    }
    let tools = plain["tools"].as_array().unwrap();
    let mut sent = 0;
    for candidate in explain["candidates"].as_array().unwrap() {
        let tool = tools.iter().find(|tool| tool["name"] == candidate["name"]);
        assert_eq!(candidate["sent"], tool.is_some(), "{candidate} in {plain}");
        if let Some(tool) = tool {
            sent += 1;
            // A tool that stays for the chat has no score of this message.
            assert!(tool["score"].is_null() || tool["score"] == candidate["score"], "{candidate}: {tool}");
            assert_eq!((&tool["server"], &tool["tool"]), (&candidate["server"], &candidate["tool"]));
        }
    }
    let kept: BTreeSet<&str> = explain["kept"].as_array().unwrap().iter().map(|kept| kept["name"].as_str().unwrap()).collect();
    assert!(kept.iter().all(|name| tools.iter().any(|tool| tool["name"] == *name)), "{kept:?}: {plain}");
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn the_figures_of_the_playground_and_of_explanations_are_those_of_the_filter() {
    let listed = languages::servers();
    let service = start_on(listed.servers.clone(), &[]).await;
    let mut browser = signed_in(&service).await;
    let token = browser.token().await;
    let (mut compared, mut sent, mut gates) = (0, 0, BTreeSet::new());
    for (number, messages) in languages::conversations().into_iter().enumerate() {
        // Three dialogues share a chat, so that its earlier tools play a part.
        let body = json!({"messages": messages, "chat_id": format!("chat {}", number / 3)});
        let explained = ask(&service, "/v1/filter?explain=true", &body).await;
        sent += assert_same(&ask(&service, "/v1/filter", &body).await, &explained);
        gates.insert(explained["explain"]["gate"]["by"].to_string());
        compared += 1;
    }
    for (number, said) in languages::messages().iter().step_by(STEP).enumerate() {
        let mut body = json!({"messages": [{"role": "user", "content": said.text}]});
        let explained = ask(&service, "/v1/filter?explain=true", &body).await;
        sent += assert_same(&ask(&service, "/v1/filter", &body).await, &explained);
        gates.insert(explained["explain"]["gate"]["by"].to_string());
        // Every third page compares with other settings.
        let changed = (number % 3 == 0).then_some([("strictness", "-1"), ("limit", "4"), ("dense_weight", "0.35")]);
        let mut form = vec![("message", said.text.as_str()), ("token", token.as_str())];
        form.extend(changed.into_iter().flatten());
        let page = browser.submit("/ui/playground", &form).await;
        assert_eq!(page.status, StatusCode::OK, "{}: {}", said.text, page.text);
        let sections: Vec<&str> = page.text.split("<section").skip(1).collect();
        assert_eq!(sections.len(), if changed.is_some() { 2 } else { 1 }, "{}", page.text);
        assert_shows(sections[0], &explained, &said.text);
        if changed.is_some() {
            body["settings"] = json!({"strictness": -1, "limit": 4, "dense_weight": 0.35});
            assert_shows(sections[1], &ask(&service, "/v1/filter?explain=true", &body).await, &said.text);
        }
        compared += 1;
    }
    assert!(compared >= 250 && sent > 200 && gates.len() >= 2, "{compared} messages, {sent} tools, {gates:?}");
}

/// What a caller taught changes the figures for this caller, and they stay the same in all three places.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_is_in_the_figures() {
    let listed = languages::servers();
    let service = start_on(listed.servers.clone(), &[("TOOLSIEVE_LEARNING__MODE", "always")]).await;
    let mut browser = signed_in(&service).await;
    let token = browser.token().await;
    let messages = languages::messages();
    let taught: Vec<_> = messages.iter().filter(|said| said.language == "en" && said.needs.is_some()).take(20).collect();
    for (number, said) in taught.iter().enumerate() {
        let (_, answer) = service.post("/v1/filter", &json!({"messages": [{"role": "user", "content": said.text}]})).await;
        // Another tool than the best one, so that learning has something to change.
        let (server, tool) = taught[(number + 1) % taught.len()].needs.as_ref().unwrap();
        let body = json!({"verdict": "missing", "tool": format!("{server}__{tool}"), "selection_id": answer["selection_id"]});
        let (status, answer) = service.post("/v1/feedback", &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let mut learned = 0;
    for said in &taught {
        let mut body = json!({"messages": [{"role": "user", "content": said.text}]});
        let (_, plain) = service.post("/v1/filter", &body).await;
        body["as"] = json!({"principal": "service-key"});
        let explained = ask(&service, "/v1/filter?explain=true", &body).await;
        assert_same(&plain, &explained);
        let form = [("message", said.text.as_str()), ("token", token.as_str()), ("principal", "service-key")];
        let page = browser.submit("/ui/playground", &form).await;
        assert_shows(page.text.split("<section").nth(1).unwrap(), &explained, &said.text);
        let candidates = explained["explain"]["candidates"].as_array().unwrap();
        learned += candidates.iter().filter(|candidate| candidate["learned"].as_f64() != Some(0.0)).count();
    }
    assert!(learned > 0, "nothing was learned");
}

/// Compares a selection of the playground with an explanation.
fn assert_shows(section: &str, answer: &Value, message: &str) {
    let explain = &answer["explain"];
    let (before, after) = (answer["tokens"]["before"].as_u64().unwrap(), answer["tokens"]["after"].as_u64().unwrap());
    let tokens = section.split("<h2>Tokens</h2>").nth(1).unwrap().split("</p>").next().unwrap();
    assert_eq!(words(tokens).replace('\u{202f}', ""), format!("{after} of {before}"), "{message}");
    let share = 100.0 * after as f64 / before as f64;
    assert!(section.contains(&format!("width=\"{share:.2}\"")), "{message}: {share} in {section}");

    let gate = &explain["gate"];
    if !gate.is_null() {
        let says = if gate["needs_tool"] == true { "The message needs a tool." } else { "The message needs no tool." };
        assert!(section.contains(&format!("<h2>{says}</h2>")), "{message}: {gate}");
    }
    if !gate["margin"].is_null() {
        assert!(section.contains(&format!("Margin: {}", figure(&gate["margin"], 2))), "{message}: {gate} in {section}");
    }
    let signals = gate["signals"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = if signals.is_empty() { Vec::new() } else { table(section, "Signal") };
    assert_eq!(rows.len(), signals.len(), "{message}");
    for (row, signal) in rows.iter().zip(signals) {
        let number = |name: &str| signal[name].to_string().parse::<f32>().unwrap();
        let expected = [
            ("Signal", signal["name"].as_str().unwrap().to_owned()),
            ("Value", figure(&signal["value"], 3)),
            ("Weight", figure(&signal["weight"], 3)),
            ("Product", format!("{:.3}", number("value") * number("weight"))),
        ];
        assert_row(row, &expected, message);
    }

    let parts: Vec<String> = items(section.split("<ol>").nth(1).unwrap().split("</ol>").next().unwrap());
    let searched: Vec<&str> = explain["parts"].as_array().unwrap().iter().map(|part| part.as_str().unwrap().trim()).collect();
    assert_eq!(parts, searched, "{message}");
    let language = explain["language"].as_str().map_or("not sure".to_owned(), |language| format!("<span lang=\"en\">{language}</span>"));
    assert!(section.contains(&format!("Language: {language}")), "{message}: {language}");

    let candidates = explain["candidates"].as_array().unwrap();
    let rows = if candidates.is_empty() { Vec::new() } else { table(section, "Candidates") };
    assert_eq!(rows.len(), candidates.len().min(ROWS), "{message}");
    for (row, candidate) in rows.iter().zip(candidates) {
        let mut row = row.clone();
        if let Some(name) = row.get_mut("Tool").filter(|_| candidate["tool"].is_string()) {
            // The link to the form behind the name.
            *name = name.strip_suffix("Run").unwrap().to_owned();
        }
        let list = |name: &str| candidate[name].as_array().unwrap().iter().collect::<Vec<_>>();
        let cosines = list("cosines").into_iter().map(|cosine| if cosine.is_null() { "–".to_owned() } else { figure(cosine, 3) });
        let covers = list("covers").into_iter().map(|part| (part.as_u64().unwrap() + 1).to_string());
        let found: Vec<&str> = list("words").into_iter().map(|word| word.as_str().unwrap()).collect();
        let expected = [
            ("Tool", candidate["name"].as_str().unwrap().to_owned()),
            ("Score", figure(&candidate["score"], 2)),
            ("Fused", figure(&candidate["fused"], 3)),
            ("Cosine per text", cosines.collect::<Vec<_>>().join(" ")),
            ("BM25", figure(&candidate["lexical"], 1)),
            ("Words in common", found.join(", ")),
            ("Server", figure(&candidate["server_score"], 2)),
            ("Best for text", covers.collect::<Vec<_>>().join(", ")),
            ("Learned", figure(&candidate["learned"], 2)),
            ("Judged", candidate["judged_rank"].as_u64().map_or_else(String::new, |rank| rank.to_string())),
        ];
        assert_row(&row, &expected, message);
        // With other settings, the former rank stands behind the new one.
        let rank = row["Rank"].split(' ').next().unwrap();
        assert_eq!(rank, candidate["rank"].to_string(), "{message}: {row:?}");
        let says = match (&candidate["sent"], &candidate["cut"]) {
            (Value::Bool(true), _) => row["Sent"] == "yes",
            (_, Value::Null) => row["Sent"] == "no",
            _ => row["Sent"].starts_with("no: "),
        };
        assert!(says, "{message}: {candidate} in {row:?}");
    }

    let text = |kept: &Value, name: &str| kept[name].as_str().unwrap().to_owned();
    let kept = explain["kept"].as_array().unwrap().iter().map(|kept| format!("{}: {}", text(kept, "name"), text(kept, "reason")));
    let shown = section.split("<h2>Kept whatever the message says</h2>").nth(1).and_then(|rest| rest.split("</ul>").next());
    assert_eq!(shown.map_or_else(Vec::new, items), kept.collect::<Vec<_>>(), "{message}");
}

fn assert_row(row: &BTreeMap<String, String>, expected: &[(&str, String)], message: &str) {
    for (head, figure) in expected {
        assert_eq!(row.get(*head), Some(figure), "{message}: {head} of {row:?}");
    }
}

/// A number of the JSON as the service has it, with so many decimals.
fn figure(number: &Value, decimals: usize) -> String {
    let number: f32 = number.to_string().parse().unwrap_or_else(|_| panic!("no number: {number}"));
    format!("{number:.decimals$}")
}

/// The text of a part of a page.
fn words(part: &str) -> String {
    Page { status: StatusCode::OK, text: part.to_owned(), location: None, allows_scripts: false }.words().trim().to_owned()
}

fn items(list: &str) -> Vec<String> {
    list.split("<li>").skip(1).map(|item| words(item.split("</li>").next().unwrap())).collect()
}

/// The rows of the table with this name, each by the heads of its columns.
fn table(section: &str, name: &str) -> Vec<BTreeMap<String, String>> {
    let table = section.split(&format!("aria-label=\"{name}\"")).nth(1).unwrap_or_else(|| panic!("{name} in {section}"));
    let table = table.split("</table>").next().unwrap();
    let (head, body) = table.split_once("</thead>").unwrap();
    let heads = cells(head);
    body.split("<tr").skip(1).map(|row| heads.iter().cloned().zip(cells(row)).collect()).collect()
}

fn cells(row: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = row;
    while let Some(at) = rest.find("<t") {
        rest = &rest[at + 2..];
        let Some(kind @ ('d' | 'h')) = rest.chars().next() else { continue };
        if !rest[1..].starts_with([' ', '>']) {
            continue;
        }
        let end = rest.find(&format!("</t{kind}>")).unwrap();
        found.push(words(&format!("<t{}", &rest[..end])));
        rest = &rest[end..];
    }
    found
}

/// The reader of the table takes what is there: a wrong figure would be found.
#[test]
#[should_panic(expected = "Score of")]
fn another_figure_is_noticed() {
    let section = "<section><div aria-label=\"Candidates\"><table><thead><tr><th scope=\"col\">Tool</th><th>Score</th></tr></thead>\
                   <tbody><tr><th><code>a__b</code></th><td class=\"number\">0.71</td></tr></tbody></table></div></section>";
    let rows = table(section, "Candidates");
    assert_row(&rows[0], &[("Tool", "a__b".to_owned()), ("Score", figure(&json!(0.72), 2))], "a message");
}
