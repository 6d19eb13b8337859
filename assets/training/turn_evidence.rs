//! What the gate sees of messages that follow others, as JSON lines: the data that `turns.py` fits the head for turns to.
//!
//! `cargo run --release --example turn-evidence -- WEIGHTS CATALOGS DIALOGUES > evidence.jsonl`
//!
//! `CATALOGS` is a file with `{"catalog": NAME, "servers": [{"server", "tools": […]}]}` a line, `DIALOGUES` one with
//! `{"messages": […], "needs", "catalog", …}` a line (`turns.py prepare` makes both). Each dialogue's last message is ranked in its
//! catalogue by the service's own code. What leans on no turn before it is left out: the gate judges it alone.

#[path = "evidence.rs"]
mod evidence;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolsieve::domain::catalog::catalog::{self, Catalog, CatalogServer};
use toolsieve::domain::catalog::tool::ServerName;
use toolsieve::domain::selection::relevance::{QueryPlan, Role};

use evidence::{Failure, Workshop, lines};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [weights, catalogs, dialogues] = arguments.as_slice() else {
        return Err("usage: turn-evidence WEIGHTS CATALOGS DIALOGUES".into());
    };
    let workshop = Workshop::open(Path::new(weights)).await?;
    println!("{}", json!({"model": workshop.embedder.model()}));
    let mut by_catalog: HashMap<String, Vec<Value>> = HashMap::new();
    for dialogue in lines(Path::new(dialogues))? {
        by_catalog.entry(dialogue["catalog"].as_str().unwrap_or_default().to_owned()).or_default().push(dialogue);
    }
    let mut written: HashSet<String> = HashSet::new();
    let mut vector = |text: &str, vector: &[f32]| {
        if written.insert(text.to_owned()) {
            println!("{}", json!({"text": text, "vector": vector}));
        }
    };
    for line in lines(Path::new(catalogs))? {
        let name = line["catalog"].as_str().unwrap_or_default();
        let catalog = Catalog::new(line["servers"].as_array().into_iter().flatten().map(server).collect());
        let (retrieve, view) = workshop.indexed(catalog, &format!("index-{name}")).await?;
        for dialogue in by_catalog.remove(name).unwrap_or_default() {
            let turns: Vec<(Role, &str)> = dialogue["messages"].as_array().into_iter().flatten().filter_map(turn).collect();
            let plan = QueryPlan::of_conversation(&turns);
            let ranking = retrieve.rank(&plan, &view, None, &[]).await;
            let (Some(own), Some(context)) = (ranking.vector.as_deref(), ranking.context_vector.as_deref()) else { continue };
            let in_context = ranking.in_context.as_deref().unwrap_or_default();
            vector(&ranking.message, own);
            vector(in_context, context);
            let tools = view.catalog.tools().len();
            let [alone, together, turn] = retrieve.turn_signals(&ranking, tools);
            let mut row = dialogue.clone();
            if let Some(row) = row.as_object_mut() {
                row.remove("messages");
            }
            println!(
                "{}",
                json!({"message": ranking.message, "context": in_context, "alone": alone, "in_context": together, "turn": turn,
                       "gate": retrieve.needs_tool(&ranking, tools), "of": row})
            );
        }
    }
    Ok(())
}

fn turn(message: &Value) -> Option<(Role, &str)> {
    let role = match message["role"].as_str()? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::Other,
    };
    Some((role, message["content"].as_str()?))
}

fn server(line: &Value) -> CatalogServer {
    let name = ServerName::from(line["server"].as_str().unwrap_or_default());
    let raw = line["tools"].as_array().cloned().unwrap_or_default();
    let tools = raw.into_iter().filter_map(|raw| catalog::tool(&name, &Arc::new(raw)).ok()).map(Arc::new).collect();
    CatalogServer::untitled(name, tools)
}
