//! An explanation as text, for `toolsieve search --explain`.

use std::fmt::Write as _;

use crate::cli::table;
use crate::cli::table::printable;
use crate::domain::selection::explanation::{CandidateExplanation, Explanation, GateExplanation};

/// The searched texts, the gate's signals, and the evidence for the first `limit` candidates.
pub(super) fn as_text(explanation: &Explanation, limit: usize) -> String {
    let Explanation { language, parts, gate, candidates, kept } = explanation;
    let mut text = format!("\n\nLanguage: {}.\nSearched texts:\n", language.as_deref().unwrap_or("not sure"));
    for (number, part) in (1..).zip(parts) {
        let _ = writeln!(text, "  {number}. {}", printable(part));
    }
    if let Some(gate) = gate {
        text.push_str(&of_gate(gate));
    }
    text.push_str(&of_candidates(candidates, limit));
    if !kept.is_empty() {
        text.push_str("\n\nKept whatever the message says:");
        for kept in kept {
            let _ = write!(text, "\n  {}: {}", printable(&kept.name), kept.reason);
        }
    }
    text
}

fn of_gate(gate: &GateExplanation) -> String {
    let GateExplanation { needs_tool, margin, by, signals } = gate;
    let verdict = if *needs_tool { "needs a tool" } else { "needs no tool" };
    let margin = margin.map_or_else(String::new, |margin| format!(", margin {margin:.2}"));
    let mut text = format!("\nGate: the message {verdict} (decided by {}{margin}).\n", by.name());
    if !signals.is_empty() {
        let mut out = table::table(&["Signal", "Value", "Weight", "Product"]);
        for signal in signals {
            let figures = [signal.value, signal.weight, signal.value * signal.weight].map(|figure| format!("{figure:.3}"));
            out.add_row(std::iter::once(signal.name.clone()).chain(figures));
        }
        text.push_str(&table::text(&out));
        text.push('\n');
    }
    text
}

fn of_candidates(candidates: &[CandidateExplanation], limit: usize) -> String {
    let mut out = table::table(&["Rank", "Tool", "Cosine per text", "Words", "BM25", "Server", "Covers", "Fused", "Learned", "Cut"]);
    for candidate in candidates.iter().take(limit) {
        let cosines = candidate.cosines.iter().map(|cosine| cosine.map_or_else(|| "-".to_owned(), |cosine| format!("{cosine:.3}")));
        let covers: Vec<String> = candidate.covers.iter().map(|part| (part + 1).to_string()).collect();
        out.add_row([
            candidate.rank.to_string(),
            printable(&candidate.name),
            cosines.collect::<Vec<_>>().join(" "),
            printable(&candidate.words.join(", ")),
            format!("{:.1}", candidate.lexical),
            format!("{:.2}", candidate.server_score),
            covers.join(", "),
            format!("{:.2}", candidate.fused),
            format!("{:.2}", candidate.learned),
            candidate.cut.map_or_else(|| if candidate.sent { "sent" } else { "-" }.to_owned(), |cut| cut.name().to_owned()),
        ]);
    }
    format!("\n{}", table::text(&out))
}
