//! What language models cost beside what selections save, and of whom that is kept.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolsieve::adapters::tokens::TokenCounter;
use toolsieve::service::catalog::reload::Trigger;

use super::model::{Model, Reply, Seen, configured};
use super::{ask, model, servers};
use crate::harness::keys::{ADMIN, KEY, administer, command, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start};

const SMART_SELECT: &str = "/v1/tools/smart_select";
const PRICES: &str = "
[usage]
currency = \"EUR\"

[[price]]
model = \"gpt-5*\"
input = 2
output = 20.0

[[price]]
model = \"small\"
input = 1.5
output = 10
";

/// The service with a key that names users.
async fn start(model: &Arc<Model>, environment: &[(&'static str, &'static str)]) -> Running {
    let always = [("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_LLM__OPENAI_MODEL", "gpt-5-own")];
    let environment = configured(model).into_iter().chain(always).chain(environment.iter().copied()).collect();
    let service = Start { servers: servers(), key: Some(KEY), environment, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    service
}

/// A good answer, whatever was asked.
fn content(seen: &Seen) -> String {
    if seen.text_of("user").contains("Catalogue:") {
        return json!({"tools": [{"name": "mail__send_email", "reason": "it fits"}]}).to_string();
    }
    json!({"function": "Good for something.", "tags": ["this and that"]}).to_string()
}

fn counted(seen: &Seen) -> Reply {
    Reply::Counts(content(seen), json!({"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}))
}

/// A message of Anna's.
async fn message(service: &Running, chat: &str) -> Value {
    let body = json!({
        "messages": [{"role": "user", "content": "send an email to Zoe"}], "chat_id": chat, "rerank": "always", "model": "gpt-5-chat",
        "user": {"id": "anna-7f3", "email": "anna-7f3@example.org", "groups": ["the-ops-7f3"]},
    });
    ask(service, "/v1/filter", &[], &body).await
}

async fn costs_when(service: &Running, condition: impl Fn(&Value) -> bool) -> Value {
    eventually("the costs as the test wants them", async || {
        let (_, usage) = administer(service, Method::GET, "/v1/admin/usage", &json!({})).await;
        when(usage["costs"].clone(), &condition)
    })
    .await
}

fn rounded(money: f64) -> Value {
    json!((money * 1e6).round() / 1e6)
}

fn spending(requests: u64, estimated: u64, input: u64, output: u64, cost: Option<f64>) -> Value {
    let cost = cost.map_or(Value::Null, rounded);
    json!({"requests": requests, "estimated_requests": estimated, "input_tokens": input, "output_tokens": output, "cost": cost})
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_stand_beside_savings() {
    let model = model(counted);
    let service = start(&model, &[("TOOLSIEVE_USAGE__BY", "user")]).await;
    let answer = message(&service, "one").await;
    let saved = answer["tokens"]["before"].as_u64().unwrap() - answer["tokens"]["after"].as_u64().unwrap();
    assert!(saved > 0 && answer["warnings"] == json!([]), "{answer}");
    // The same question is not paid twice.
    message(&service, "two").await;
    assert_eq!(model.seen().len(), 1);
    let anna = [("X-OpenWebUI-User-Id", "anna-7f3"), ("X-OpenWebUI-User-Groups", "the-ops-7f3")];
    ask(&service, SMART_SELECT, &anna, &json!({"task": "write to Zoe"})).await;
    let own = [anna.as_slice(), &[("X-OpenAI-Api-Key", "mine")]].concat();
    let selected = ask(&service, SMART_SELECT, &own, &json!({"task": "write to Zoe"})).await;
    assert_eq!((&selected["provider"], model.seen().len()), (&json!("openai"), 3), "{selected}");

    let is_all = |costs: &Value| costs["totals"]["messages"] == 2 && costs["totals"]["own_keys"]["requests"] == 1;
    let costs = costs_when(&service, is_all).await;
    let totals = &costs["totals"];
    assert_eq!((&costs["by"], &costs["currency"], &totals["money_saved"]), (&json!("user"), &Value::Null, &Value::Null), "{costs}");
    assert_eq!(totals["tokens_saved"], json!(2 * saved));
    assert_eq!(totals["judge"], spending(1, 0, 1_000, 50, None));
    assert_eq!(totals["smart_select"], totals["judge"], "{totals}");
    assert_eq!((&totals["llm"], &totals["own_keys"]), (&spending(2, 0, 2_000, 100, None), &spending(1, 0, 1_000, 50, None)));
    assert_eq!(totals["unpriced_tokens"], json!(2 * saved + 3 * 1_050));

    // Prices count at once, and for what was before.
    std::fs::write(service.folder.path().join("toolsieve.toml"), PRICES).unwrap();
    service.reload.reload(Trigger::Request).await;
    let costs = costs_when(&service, |costs| costs["currency"] == "EUR").await;
    let totals = &costs["totals"];
    #[expect(clippy::cast_precision_loss, reason = "some thousand tokens")]
    let money = 2.0 * saved as f64 * 2.0 / 1e6;
    assert_eq!((&totals["money_saved"], &totals["unpriced_tokens"]), (&rounded(money), &json!(0)), "{totals}");
    assert_eq!(totals["llm"], spending(2, 0, 2_000, 100, Some(0.004)));
    assert_eq!(totals["own_keys"], spending(1, 0, 1_000, 50, Some(0.003)));
    let models: Vec<&Value> = costs["models"].as_array().unwrap().iter().map(|model| &model["model"]).collect();
    assert!(models.len() == 3 && ["gpt-5-chat", "gpt-5-own", "small"].iter().all(|name| models.contains(&&json!(name))), "{costs}");
    assert_eq!((costs["days"].as_array().unwrap().len(), &costs["days"][0]["llm"]), (1, &totals["llm"]));
    for (list, key, name) in [("groups", "group", "the-ops-7f3"), ("users", "user", "user:anna-7f3")] {
        let of_anna = &costs[list][0];
        assert_eq!((costs[list].as_array().unwrap().len(), &of_anna[key], &of_anna["messages"]), (1, &json!(name), &json!(2)), "{costs}");
        assert_eq!((&of_anna["llm"], &of_anna["money_saved"]), (&totals["llm"], &totals["money_saved"]), "{costs}");
    }

    for (by, name) in [("day", "20"), ("model", "gpt-5-chat"), ("group", "the-ops-7f3"), ("user", "user:anna-7f3")] {
        let (code, table, errors) = command(&service, &["usage", "--by", by]);
        assert_eq!(code, Some(0), "{errors}");
        assert!(table.contains(name) && table.contains("0.0040 EUR") && table.contains("for reranking"), "{by}: {table}");
    }
    for words in [["report"].as_slice(), &["usage"]] {
        let (code, text, errors) = command(&service, words);
        assert_eq!(code, Some(0), "{errors}");
        assert!(text.contains(&format!("Selections saved {} tokens (", 2 * saved)), "{text}");
        assert!(text.contains("used 2100 tokens (0.0040 EUR): 1050 for reranking, 1050 for smart_select."), "{text}");
        assert!(text.contains("With users' own keys: 1050 tokens (0.0030 EUR)."), "{text}");
    }
    let page = with_key(&service, Method::GET, "/v1/admin/report", ADMIN).header("accept", "text/html").send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("Savings and costs") && page.contains("0.0040 EUR") && !page.contains("anna"), "{page}");

    let metrics = with_key(&service, Method::GET, "/metrics", ADMIN).send().await.unwrap().text().await.unwrap();
    for (purpose, model, paid_by) in
        [("judge", "small", "service"), ("smart_select", "small", "service"), ("smart_select", "gpt-5-own", "user")]
    {
        let labels = format!("purpose=\"{purpose}\",model=\"{model}\",paid_by=\"{paid_by}\"");
        assert!(metrics.contains(&format!("toolsieve_llm_tokens_total{{{labels},direction=\"input\"}} 1000\n")), "{metrics}");
        assert!(metrics.contains(&format!("toolsieve_llm_tokens_total{{{labels},direction=\"output\"}} 50\n")), "{metrics}");
    }
    assert!(!metrics.contains("gpt-5-chat"), "a caller's text is no label");

    // Forgotten, the user has no sums, but the totals stay.
    let (code, text, errors) = command(&service, &["secrets", "forget", "user:anna-7f3"]);
    assert!(
        code == Some(0) && text == "Removed 0 secrets, 0 sign-ins, 4 sums of usage and 0 learned uses of user:anna-7f3.",
        "{text} {errors}"
    );
    let after = costs_when(&service, |_| true).await;
    assert_eq!((&after["users"], &after["user_count"], &after["totals"]), (&json!([]), &json!(0), &costs["totals"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_reports_no_tokens_is_estimated() {
    let model = model(|seen| Reply::Says(content(seen)));
    let service = start(&model, &[]).await;
    message(&service, "one").await;
    let costs = costs_when(&service, |costs| costs["totals"]["judge"]["requests"] == 1).await;
    let seen = model.last();
    let texts = [format!("{}\n{}", seen.text_of("system"), seen.text_of("user")), content(&seen)];
    let [input, output] = <[u32; 2]>::try_from(TokenCounter::default().count(&texts)).unwrap();
    assert_eq!(costs["totals"]["judge"], spending(1, 1, input.into(), output.into(), None), "{costs}");
    assert_eq!((&costs["groups"], &costs["users"]), (&json!([]), &json!([])));
    let (code, text, errors) = command(&service, &["usage"]);
    assert!(code == Some(0) && text.contains("Estimated answers: 1."), "{text} {errors}");
    let (code, text, _) = command(&service, &["usage", "--by", "user"]);
    assert!(code == Some(0) && text.contains("set by = \"user\" in [usage]"), "{text}");

    // An invalid answer is paid too; a refusal costs nothing.
    model.answers(|_| Reply::Counts("no JSON".into(), json!({"prompt_tokens": 300, "completion_tokens": 3})));
    let task = |task: &str| json!({"task": task});
    assert_eq!(ask(&service, SMART_SELECT, &[], &task("one")).await["provider"], "heuristic");
    model.answers(|_| Reply::Status(500, String::new()));
    assert_eq!(ask(&service, SMART_SELECT, &[], &task("two")).await["provider"], "heuristic");
    model.answers(|_| Reply::Counts("no JSON".into(), json!({"prompt_tokens": 300, "completion_tokens": 3})));
    assert_eq!(ask(&service, SMART_SELECT, &[], &task("three")).await["provider"], "heuristic");
    let costs = costs_when(&service, |costs| costs["totals"]["smart_select"]["requests"] == 2).await;
    assert_eq!(costs["totals"]["smart_select"], spending(2, 0, 600, 6, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_of_tools_have_their_costs() {
    let model = model(counted);
    let enrich =
        [("TOOLSIEVE_LLM__ENRICH", "true"), ("TOOLSIEVE_LLM__ENRICH_MODEL", "writer"), ("TOOLSIEVE_LLM__ENRICH_PER_MINUTE", "6000")];
    let service = start(&model, &[enrich.as_slice(), &[("TOOLSIEVE_USAGE__BY", "user")]].concat()).await;
    let costs = costs_when(&service, |costs| costs["totals"]["enrich"]["requests"] == 9).await;
    assert_eq!(costs["totals"]["enrich"], spending(9, 0, 9_000, 450, None));
    assert_eq!(
        (&costs["models"][0]["model"], &costs["users"], &costs["groups"]),
        (&json!("writer"), &json!([]), &json!([])),
        "nobody asked"
    );
}

/// The rows of users and groups, as another program reads them.
async fn rows(folder: &TempDir, scope: &str) -> i64 {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("data/toolsieve.db")).read_only(true);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let query = sqlx::query_scalar("SELECT count(*) FROM usage_cost WHERE scope = ?").bind(scope);
    query.fetch_one(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_of_groups_and_users_are_kept_only_where_they_are_wanted() {
    let model = model(counted);
    for (by, has_groups, has_users) in [("none", false, false), ("group", true, false), ("user", true, true)] {
        let service = start(&model, &[("TOOLSIEVE_USAGE__BY", by)]).await;
        message(&service, "one").await;
        let costs = costs_when(&service, |costs| costs["totals"]["messages"] == 1 && costs["totals"]["judge"]["requests"] == 1).await;
        assert_eq!(costs["by"], by);
        let is_there = |list: &str| costs[list] != json!([]);
        assert_eq!((is_there("groups"), is_there("users")), (has_groups, has_users), "{costs}");
        // Stopped, it has moved everything into the one file.
        let folder = service.stop().await;
        assert_eq!((rows(&folder, "group").await > 0, rows(&folder, "user").await > 0), (has_groups, has_users));
        assert!(rows(&folder, "all").await >= 2);
        let bytes = std::fs::read(folder.path().join("data/toolsieve.db")).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert_eq!((holds("the-ops-7f3"), holds("anna-7f3@example.org")), (has_groups, false), "{by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_with_all_tools_saves_nothing() {
    let model = model(counted);
    let service = start(&model, &[("TOOLSIEVE_SELECTION__STATIC_SHARE", "1")]).await;
    let answer = message(&service, "one").await;
    assert!(answer["tokens"]["after"].as_u64().unwrap() > 0, "{answer}");
    let costs = costs_when(&service, |costs| costs["totals"]["messages"] == 1).await;
    assert_eq!((&costs["totals"]["tokens_saved"], &costs["models"][0]["model"]), (&json!(0), &json!("gpt-5-chat")), "{costs}");
    assert!(model.seen().is_empty(), "nothing is judged");
}
