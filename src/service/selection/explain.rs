//! Collects what decides about a message, if somebody asks for an explanation.

use std::collections::{BTreeSet, HashMap};

use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::Tool;
use crate::domain::learning::boost::Learned;
use crate::domain::selection::explanation::{CandidateExplanation, Explanation, GateExplanation, KeptExplanation};
use crate::domain::selection::relevance::{Candidates, CutReason, LexicalModel, QueryPlan, Ranked, SparseVector, readable_score};
use crate::domain::selection::selection::{Reason, Selected};
use crate::domain::text::analysis::TokenKind;
use crate::domain::text::language::Language;
use crate::service::selection::foreign::ForeignTool;

/// The notes about one message. Keys are those of the ranking: positions in the catalog, then foreign tools.
#[derive(Debug, Default)]
pub(super) struct Trace {
    language: Option<String>,
    parts: Vec<String>,
    found: HashMap<u32, Found>,
    ranked: Vec<Ranked<u32>>,
    gate: Option<GateExplanation>,
    judged: HashMap<u32, usize>,
    cut: HashMap<u32, CutReason>,
    foreign: Vec<ForeignTool>,
    selected: Vec<Selected>,
    learned: HashMap<u32, f32>,
}

/// The evidence about a candidate that the ranking doesn't contain.
#[derive(Debug, Default)]
struct Found {
    cosines: Vec<Option<f32>>,
    server_score: f32,
    words: Vec<String>,
}

impl Trace {
    /// Notes the evidence of the search.
    pub(super) fn found(
        &mut self,
        plan: &QueryPlan,
        candidates: &Candidates<u32>,
        ranked: &[Ranked<u32>],
        words: impl Fn(u32) -> Vec<String>,
    ) {
        self.language = Language::of(plan.whole()).map(|language| format!("{language:?}"));
        self.parts = plan.texts().to_vec();
        for Ranked { key, .. } in ranked {
            let (cosines, server_score) = candidates.evidence(*key).unwrap_or_default();
            self.found.insert(*key, Found { cosines: cosines.to_vec(), server_score, words: words(*key) });
        }
    }

    /// Notes the final ranking, whose last keys are these foreign tools, and the gate's decision.
    pub(super) fn ranked(&mut self, ranked: &[Ranked<u32>], learned: &Learned, foreign: &[ForeignTool], gate: GateExplanation) {
        self.ranked = ranked.to_vec();
        self.foreign = foreign.to_vec();
        self.learned.clone_from(&learned.deltas);
        if !gate.needs_tool {
            self.cut = ranked.iter().map(|ranked| (ranked.key, CutReason::Gate)).collect();
        }
        self.gate = Some(gate);
    }

    /// Notes a language model's answer, best first.
    pub(super) fn judged(&mut self, chosen: &[Ranked<u32>]) {
        self.judged = chosen.iter().zip(1..).map(|(ranked, rank)| (ranked.key, rank)).collect();
        self.cut = self.ranked.iter().filter(|it| !self.judged.contains_key(&it.key)).map(|it| (it.key, CutReason::Judge)).collect();
    }

    /// Notes why a tool was not selected. The first reason counts.
    pub(super) fn cut(&mut self, key: u32, reason: CutReason) {
        self.cut.entry(key).or_insert(reason);
    }

    /// Notes the selected functions.
    pub(super) fn selected(&mut self, selected: &[Selected]) {
        self.selected = selected.to_vec();
    }

    pub(super) fn explanation(self, catalog: &Catalog) -> Explanation {
        let Self { language, parts, mut found, ranked, gate, judged, cut, foreign, selected, learned } = self;
        let sent: BTreeSet<&str> = selected.iter().map(|selected| selected.name.as_str()).collect();
        let texts = parts.len();
        let candidates = ranked.iter().zip(1..).filter_map(|(candidate, rank)| {
            let key = candidate.key as usize;
            let tool = catalog.tools().get(key);
            let name = match tool {
                Some(tool) => tool.operation_id.to_string(),
                None => foreign.get(key - catalog.tools().len())?.name.clone(),
            };
            let Found { cosines, server_score, words } = found.remove(&candidate.key).unwrap_or_default();
            // Learning may add a tool that no search returned.
            let cosines = if cosines.is_empty() { vec![None; texts] } else { cosines };
            let is_sent = sent.contains(name.as_str());
            Some(CandidateExplanation {
                server: tool.map(|tool| tool.id.server.to_string()),
                tool: tool.map(|tool| tool.id.label().into_owned()),
                rank,
                judged_rank: judged.get(&candidate.key).copied(),
                cosines,
                lexical: candidate.lexical,
                words,
                server_score,
                covers: (0..u32::BITS as usize).filter(|text| candidate.leads & (1 << text) != 0).collect(),
                fused: candidate.fused,
                score: readable_score(candidate.fused),
                learned: learned.get(&candidate.key).copied().unwrap_or_default(),
                sent: is_sent,
                cut: cut.get(&candidate.key).copied().filter(|_| !is_sent),
                name,
            })
        });
        let is_kept =
            |selected: &&Selected| !matches!(selected.reason, Reason::Relevant { .. } | Reason::Learned { .. } | Reason::Judged { .. });
        let kept = selected.iter().filter(is_kept);
        let kept = kept.map(|kept| KeptExplanation { name: kept.name.clone(), reason: kept.reason.to_string() }).collect();
        Explanation { language, parts, gate, candidates: candidates.collect(), kept }
    }
}

/// The words of a tool whose terms are among those of the searched texts.
pub(super) fn common_words<'a>(lexical: &LexicalModel, tool: &Tool, searched: impl Iterator<Item = &'a SparseVector>) -> Vec<String> {
    let terms: BTreeSet<u32> = searched.flat_map(|text| text.indices.iter().copied()).collect();
    let text = tool.text();
    let language = text.language();
    let parameters = text.parameters.iter().flat_map(|(name, description)| [&**name, &**description]);
    let synonyms = text.synonyms.iter().map(String::as_str);
    let texts = [text.name, text.server, text.description].into_iter().chain(text.title).chain(parameters).chain(synonyms);
    let mut words = BTreeSet::new();
    for text in texts {
        let mut word = String::new();
        lexical.analyzer().for_each_token(text, language, |token| {
            if let TokenKind::Word(written) = token.kind {
                written.clone_into(&mut word);
            }
            // A variant, such as a stem, belongs to the word before it.
            if terms.contains(&token.term) && !word.is_empty() {
                words.insert(word.clone());
            }
        });
    }
    words.into_iter().collect()
}
