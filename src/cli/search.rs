//! `toolsieve search`: ranks the tools for a message, with scores and reasons.

mod explained;

use std::sync::Arc;

use clap::Args;
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::json;

use crate::adapters::store::OpenedStore;
use crate::cli::catalog::{self, Known};
use crate::cli::retrieval::{Recipe, Retrieval, VectorStore};
use crate::cli::table::printable;
use crate::cli::{ConfigurationArgs, Failure, Outcome, print, runtime, stored, table, tools};
use crate::domain::access::principal::Principal;
use crate::domain::access::visibility::{Scope, Visibility};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::publishing::document::encoded;
use crate::domain::selection::explanation::{CandidateExplanation, Explanation};
use crate::domain::selection::relevance::{LexicalModel, Role, SparseVector};
use crate::domain::selection::selection::{Reason, Selection};
use crate::domain::text::words::split_identifier;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::selection::request::{SelectRequest, Turn};
use crate::settings::{Rerank, Settings};

/// Maximum number of the message's words that are compared with every tool.
const WORDS: usize = 64;

#[derive(Args)]
pub(super) struct Search {
    /// The message, written as in a chat
    message: String,
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// Show at most this many tools
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    limit: usize,
    /// Search only the tools of this server; may be repeated
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Also show what decided: the gate's signals and, for each tool, the evidence and the reason why it was cut
    #[arg(long)]
    explain: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A tool in the ranking, with its scores.
#[derive(Serialize)]
struct Row {
    rank: usize,
    server: String,
    tool: String,
    /// The public name, which a model sees.
    name: String,
    /// The final score, from 0 to 1.
    score: f32,
    /// The merged score, in standard deviations of the candidates' scores.
    fused: f32,
    /// The best cosine similarity between one of the tool's vectors and the message or one of its sentences.
    cosine: Option<f32>,
    /// The BM25 score.
    lexical: f32,
    /// Whether the model would get the tool for this message.
    sent: bool,
    /// Words of the message that also occur in the tool's texts.
    words: Vec<String>,
    reasons: Vec<String>,
}

struct Found {
    rows: Vec<Row>,
    /// Ranks of all tools that the model would get.
    sent: Vec<usize>,
    needs_tool: bool,
    searched: usize,
    selection: Selection,
    explanation: Explanation,
}

impl Search {
    pub(super) fn run(self) -> Outcome {
        let mut settings = self.configuration.load_any()?;
        if self.message.trim().is_empty() {
            return Err(Failure::invalid("error: the message is empty"));
        }
        let found = runtime()?.block_on(self.find(&mut settings))?;
        if self.json {
            return print(&format!("{:#}", self.as_json(&found)));
        }
        let mut text = as_text(&found);
        if self.explain {
            text.push_str(&explained::as_text(&found.explanation, self.limit));
        }
        print(&text)
    }

    async fn find(&self, settings: &mut Settings) -> Result<Found, Failure> {
        catalog::merge_stored_of_data_dir(settings).await?;
        let (known, vectors) = catalog_and_vectors(settings).await?;
        for (server, reason) in &known.missing {
            eprintln!("warning: {server} is not searched: {reason}");
        }
        let visibility = self.visibility(&known.catalog)?;
        let current = Arc::new(CurrentCatalog::default());
        current.swap(known.catalog);
        let catalog = current.snapshot();
        let recipe = Recipe::of(settings);
        let retrieval = Retrieval::start(&current, &recipe, vectors.store.clone(), Arc::new(|_, _| {})).await?;
        let searched = catalog.visible(&visibility).count();
        let connections: IndexMap<String, String> =
            self.server.iter().map(|server| (server.clone(), format!("/{}", encoded(server)))).collect();
        let turn = Turn { role: Role::User, text: self.message.clone(), called: Vec::new() };
        let request = SelectRequest { turns: vec![turn], connections, rerank: Some(Rerank::Off), ..SelectRequest::default() };
        let (selection, explanation) = retrieval.select.explain(request, &Principal::anyone(), |_| {}).await;
        let needs_tool = explanation.gate.as_ref().is_some_and(|gate| gate.needs_tool);
        let (rows, sent) = self.rows(&explanation, &catalog, &selection, &recipe.lexical());
        Ok(Found { rows, sent, needs_tool, searched, selection, explanation })
    }

    fn visibility(&self, catalog: &Catalog) -> Result<Visibility, Failure> {
        let known: Vec<&str> = catalog.servers().iter().map(|server| server.name.as_str()).collect();
        tools::check_names(&known, &self.server)?;
        let names = self.server.iter().map(|name| ServerName::from(name.as_str())).collect();
        Ok(if self.server.is_empty() { Visibility::default() } else { Visibility { servers: Scope::Only(names), ..Visibility::default() } })
    }

    /// The first tools of the ranking, and the ranks of all tools that the model would get.
    fn rows(&self, explanation: &Explanation, catalog: &Catalog, selection: &Selection, lexical: &LexicalModel) -> (Vec<Row>, Vec<usize>) {
        let is_sent = |tool: &Tool| {
            let chosen = |reason: &Reason| {
                matches!(reason, Reason::Relevant { .. } | Reason::Learned { .. } | Reason::Judged { .. } | Reason::Pinned | Reason::Small)
            };
            selection.tools.iter().any(|selected| selected.id.as_ref() == Some(&tool.id) && chosen(&selected.reason))
        };
        let places = Places::of(&explanation.candidates);
        let words = Words::of(explanation.parts.first().map_or("", String::as_str), lexical);
        let ranked: Vec<(&CandidateExplanation, &Arc<Tool>)> =
            explanation.candidates.iter().filter_map(|ranked| Some((ranked, catalog.operation(&ranked.name)?))).collect();
        let sent = ranked.iter().filter(|(_, tool)| is_sent(tool)).map(|(ranked, _)| ranked.rank).collect();
        let rows = ranked.iter().take(self.limit).map(|&(ranked, tool)| {
            let shared = words.shared(&lexical.document_vector(&tool.text()));
            Row {
                rank: ranked.rank,
                server: tool.id.server.to_string(),
                tool: tool.label.to_string(),
                name: tool.operation_id.to_string(),
                score: ranked.score,
                fused: ranked.fused,
                cosine: best_cosine(ranked),
                lexical: ranked.lexical,
                sent: is_sent(tool),
                reasons: places.reasons(ranked, &shared),
                words: shared,
            }
        });
        (rows.collect(), sent)
    }

    fn as_json(&self, found: &Found) -> serde_json::Value {
        let mut value = json!({
            "message": self.message,
            "needs_tool": found.needs_tool,
            "searched": found.searched,
            "tools": found.rows,
            "sent": {
                "ranks": found.sent,
                "names": found.selection.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
                "tokens": {"before": found.selection.tokens_before, "after": found.selection.tokens_after},
            },
            "warnings": found.selection.warnings,
        });
        if self.explain {
            value["explain"] = json!(found.explanation);
        }
        value
    }
}

/// The catalog with its vectors, from the data folder if it has any, and otherwise from the servers.
async fn catalog_and_vectors(settings: &Settings) -> Result<(Known, VectorStore), Failure> {
    let data_dir = &settings.start.store.data_dir;
    if let Some(store) = stored::opened(settings).await? {
        let port = store.port();
        let listings = port.listings().await.map_err(|error| Failure::failed(format!("error: {error}")))?;
        let known = catalog::configured_of(&listings, settings, &catalog::Kept::of(&*port).await?);
        if !known.catalog.tools().is_empty() {
            let vectors = VectorStore::beside_a_service(settings, &store, &known.catalog).await?;
            if vectors.in_use {
                eprintln!("note: a service is using {}, so this command only reads its last listings", data_dir.display());
            }
            // A database serves the vectors too.
            if let OpenedStore::Sqlite(_) = store {
                store.close().await;
            }
            return Ok((known, vectors));
        }
        store.close().await;
    }
    if settings.live.servers.is_empty() {
        let remedy = "name the servers with --config mcp.json, or the data folder of a service with --data-dir";
        return Err(Failure::invalid(format!("error: there are no tools to search in {}: {remedy}.", data_dir.display())));
    }
    Ok((catalog::ask(settings).await?, VectorStore::passing().await?))
}

fn as_text(found: &Found) -> String {
    let mut out = table::table(&["Rank", "Tool", "Score", "Fused", "Cosine", "Words", "Sent", "Why"]);
    for row in &found.rows {
        out.add_row([
            row.rank.to_string(),
            printable(&format!("{}/{}", row.server, row.tool)),
            format!("{:.2}", row.score),
            format!("{:.2}", row.fused),
            row.cosine.map_or_else(|| "-".to_owned(), |cosine| format!("{cosine:.3}")),
            format!("{:.1}", row.lexical),
            (if row.sent { "yes" } else { "no" }).to_owned(),
            row.reasons.join("; "),
        ]);
    }
    let mut lines = vec![table::text(&out), String::new()];
    let Selection { tokens_before, tokens_after, keeps_all, .. } = &found.selection;
    lines.push(match (found.needs_tool, *keeps_all) {
        (true, _) => "Gate: the message needs a tool.".to_owned(),
        (false, true) => "Gate: the message needs no tool.".to_owned(),
        (false, false) => "Gate: the message needs no tool, so the model gets none.".to_owned(),
    });
    let ranks: Vec<String> = found.sent.iter().map(ToString::to_string).collect();
    if *keeps_all {
        lines.push("Cut: all tools are sent, because together they are small (selection.narrow_above_tokens).".to_owned());
    } else if !ranks.is_empty() {
        lines.push(format!("Cut: {} of {} tools are sent: rank {}.", ranks.len(), found.searched, ranks.join(", ")));
    }
    lines.push(format!("Tokens: {tokens_after} of {tokens_before}, including the search tool."));
    lines.extend(found.selection.warnings.iter().map(|warning| format!("Warning: {warning}.")));
    lines.join("\n")
}

/// Each candidate's rank in the search by meaning and in the search by words, counted from 1.
struct Places {
    meaning: Vec<Option<usize>>,
    words: Vec<Option<usize>>,
}

impl Places {
    fn of(ranked: &[CandidateExplanation]) -> Self {
        let places = |scores: Vec<Option<f32>>| {
            let mut order: Vec<usize> = (0..scores.len()).filter(|&at| scores[at].is_some()).collect();
            order.sort_by(|&one, &other| scores[other].unwrap_or(0.0).total_cmp(&scores[one].unwrap_or(0.0)));
            let mut places = vec![None; scores.len()];
            for (place, at) in (1..).zip(order) {
                places[at] = Some(place);
            }
            places
        };
        Self {
            meaning: places(ranked.iter().map(best_cosine).collect()),
            words: places(ranked.iter().map(|ranked| Some(ranked.lexical).filter(|score| *score > 0.0)).collect()),
        }
    }

    fn reasons(&self, ranked: &CandidateExplanation, shared: &[String]) -> Vec<String> {
        let at = ranked.rank - 1;
        let halves = match (self.meaning[at], self.words[at]) {
            (Some(meaning), Some(words)) if meaning * 2 < words => {
                format!("more by meaning ({}) than by words ({})", nth(meaning), nth(words))
            }
            (Some(meaning), Some(words)) if words * 2 < meaning => {
                format!("more by words ({}) than by meaning ({})", nth(words), nth(meaning))
            }
            (Some(meaning), Some(words)) => format!("by meaning ({}) and words ({})", nth(meaning), nth(words)),
            (Some(meaning), None) => format!("only by meaning ({})", nth(meaning)),
            (None, Some(words)) => format!("only by words ({})", nth(words)),
            (None, None) => "by neither search".to_owned(),
        };
        let mut reasons = vec![halves];
        if !shared.is_empty() {
            reasons.push(format!("has {}", shared.join(", ")));
        }
        if ranked.covers.iter().any(|text| *text > 0) {
            reasons.push("the best tool for one sentence of the message".to_owned());
        }
        reasons
    }
}

/// The best cosine of all searched texts.
fn best_cosine(candidate: &CandidateExplanation) -> Option<f32> {
    candidate.cosines.iter().copied().flatten().reduce(f32::max)
}

fn nth(place: usize) -> String {
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{place}{ending}")
}

/// The words of a message, with the search terms of each word.
struct Words {
    words: Vec<(String, SparseVector)>,
}

impl Words {
    fn of(message: &str, lexical: &LexicalModel) -> Self {
        let mut words: Vec<(String, SparseVector)> = Vec::new();
        for word in split_identifier(message).split(' ').map(str::to_lowercase) {
            let terms = lexical.query_vector(&word);
            if words.len() < WORDS && !terms.is_empty() && words.iter().all(|(known, _)| *known != word) {
                words.push((word, terms));
            }
        }
        Self { words }
    }

    fn shared(&self, tool: &SparseVector) -> Vec<String> {
        self.words.iter().filter(|(_, terms)| terms.dot(tool) > 0.0).map(|(word, _)| word.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, Words, nth};
    use crate::domain::catalog::texts::ToolText;
    use crate::domain::selection::explanation::CandidateExplanation;
    use crate::domain::selection::relevance::LexicalModel;

    #[test]
    fn places_are_english() {
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(nth),
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]
        );
    }

    #[test]
    fn the_half_that_brought_a_tool_is_named() {
        let ranked = |rank, dense, lexical, covers: &[usize]| CandidateExplanation {
            rank,
            cosines: vec![dense],
            lexical,
            covers: covers.to_vec(),
            ..CandidateExplanation::default()
        };
        let places =
            [ranked(1, Some(0.9), 0.0, &[0]), ranked(2, Some(0.5), 4.0, &[]), ranked(3, Some(0.4), 9.0, &[1]), ranked(4, None, 1.0, &[])];
        let reasons = |at: usize| Places::of(&places).reasons(&places[at], &[]).join("; ");
        assert_eq!(reasons(0), "only by meaning (1st)");
        assert_eq!(reasons(1), "by meaning (2nd) and words (2nd)");
        assert_eq!(reasons(2), "more by words (1st) than by meaning (3rd); the best tool for one sentence of the message");
        assert_eq!(reasons(3), "only by words (3rd)");
    }

    #[test]
    fn shared_words_are_those_that_count() {
        let lexical = LexicalModel::default();
        let tool = lexical.document_vector(&ToolText {
            server: "time",
            name: "get_current_time",
            description: "Zones of cities",
            ..ToolText::default()
        });
        let words = Words::of("What is the current TIME in the city of Tokyo? currentTime", &lexical).shared(&tool);
        assert_eq!(words, ["current", "time", "city"]);
    }
}
