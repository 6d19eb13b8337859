//! The ranking core: cases as data, and what must hold for any input.

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toolsieve::domain::catalog::texts::{ToolText, Vocabulary};
use toolsieve::domain::selection::relevance::{
    Asked, Candidates, CutCandidate, CutParameters, FusionParameters, Gate, GateEvidence, LexicalModel, MessageParts, QueryPlan, Ranked,
    Role, SparseVector, Synonyms, cut, passages, readable_score,
};
use toolsieve::domain::text::analysis::Analyzer;

fn cases<T: DeserializeOwned>(file: &str) -> T {
    let path = format!("{}/tests/cases/relevance/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn sorted_terms(text: &str) -> Vec<u32> {
    let mut terms = Analyzer::default().terms(text);
    terms.sort_unstable();
    terms
}

#[test]
fn terms() {
    #[derive(Deserialize)]
    struct Cases {
        equal: Vec<(String, String)>,
        different: Vec<(String, String)>,
    }
    let cases: Cases = cases("terms.json");
    for (left, right) in &cases.equal {
        assert_eq!(sorted_terms(left), sorted_terms(right), "{left:?} and {right:?}");
    }
    for (left, right) in &cases.different {
        assert_ne!(sorted_terms(left), sorted_terms(right), "{left:?} and {right:?}");
    }
}

#[test]
fn a_term_is_the_same_in_every_build() {
    assert_eq!(Analyzer::default().terms("time"), [818_615_915]);
}

#[test]
fn plans() {
    #[derive(Deserialize)]
    struct Case {
        message: String,
        texts: Vec<String>,
    }
    for case in cases::<Vec<Case>>("plans.json") {
        assert_eq!(QueryPlan::new(&case.message).texts(), case.texts, "{:?}", case.message);
    }
}

#[test]
fn a_very_long_message_is_searched_by_its_ends() {
    let message = format!("open the issue tracker now. {} Close the last ticket please.", "Nothing happens in this sentence. ".repeat(500));
    let plan = QueryPlan::new(&message);
    assert!(plan.whole().len() <= 801, "{}", plan.whole().len());
    assert!(plan.texts().len() <= 17);
    assert_eq!(plan.texts()[1], "open the issue tracker now.");
    assert_eq!(plan.texts().last().map(String::as_str), Some("Close the last ticket please."));
}

#[test]
fn the_query_is_the_last_user_message() {
    let turns = [
        (Role::Other, "rules"),
        (Role::User, "first"),
        (Role::Assistant, "answer"),
        (Role::User, "second"),
        (Role::Other, "{}"),
        (Role::User, " "),
    ];
    let plan = QueryPlan::of_conversation(&turns);
    assert_eq!(plan.texts(), ["second", "first\nanswer\nsecond"], "a word alone says too little");
    assert_eq!(plan.parts(), MessageParts::Context);
    assert!(QueryPlan::of_conversation(&[(Role::Other, "rules")]).is_empty());
}

#[test]
fn only_a_message_that_leans_on_earlier_turns_is_searched_with_them() {
    let planned =
        |message| QueryPlan::of_conversation(&[(Role::User, "show issue 214"), (Role::Assistant, "It is open."), (Role::User, message)]);
    let texts = |message| planned(message).texts().len();
    assert_eq!(texts("close it then"), 2);
    assert_eq!(texts("and tell the people in the channel #harbor that we are done with that"), 2);
    assert_eq!(texts("what is the weather going to be like in Lisbon next Tuesday"), 1, "another topic");
    assert_eq!(QueryPlan::of_conversation(&[(Role::User, "close it then")]).texts().len(), 1, "nothing was said before");
    let long = "word ".repeat(1_000);
    let turns = [(Role::User, long.as_str()), (Role::Assistant, long.as_str()), (Role::User, "again")];
    let plan = QueryPlan::of_conversation(&turns);
    assert!(plan.texts()[1].len() < 820 && plan.texts()[1].ends_with("\nagain"), "{}", plan.texts()[1].len());
}

#[test]
fn passages_of_tools() {
    #[derive(Deserialize)]
    struct Case {
        server: String,
        name: String,
        title: Option<String>,
        description: String,
        passages: Vec<String>,
    }
    for case in cases::<Vec<Case>>("passages.json") {
        let tool = ToolText {
            server: &case.server,
            name: &case.name,
            title: case.title.as_deref(),
            description: &case.description,
            ..ToolText::default()
        };
        assert_eq!(passages(&tool), case.passages);
    }
}

#[test]
fn gate_by_words() {
    #[derive(Deserialize)]
    struct Case {
        message: String,
        tools: usize,
        best_lexical: f32,
        needs_tool: bool,
    }
    let gate = Gate::default();
    for case in cases::<Vec<Case>>("gate.json") {
        let evidence = GateEvidence {
            message: &case.message,
            vector: None,
            best_dense: None,
            best_five: &[],
            agreement: 0.0,
            best_lexical: case.best_lexical,
            tools: case.tools,
            ..GateEvidence::default()
        };
        let verdict = gate.judge(&evidence);
        assert_eq!(verdict.needs_tool, case.needs_tool, "{:?} among {}: {}", case.message, case.tools, verdict.margin);
    }
}

/// Tool examples point along one axis, the others along another.
fn taught_gate() -> Gate {
    let tools = toolsieve::domain::selection::relevance::examples::TOOL_EXAMPLES.len();
    let vectors: Vec<[f32; 3]> = Gate::example_texts()
        .enumerate()
        .map(|(at, _)| {
            if at < tools {
                [0.8, 0.0, 0.6]
            } else if at % 2 == 0 {
                [0.0, 0.8, 0.6]
            } else {
                [0.0, 1.0, 0.0]
            }
        })
        .collect();
    let mut gate = Gate::default();
    assert!(gate.teach(&vectors));
    gate
}

#[test]
fn gate_by_vectors() {
    let gate = taught_gate();
    let evidence = GateEvidence {
        message: "zzz",
        vector: Some(&[0.8, 0.0, 0.6]),
        best_dense: Some(0.6),
        best_five: &[0.6],
        agreement: 1.0,
        best_lexical: 0.0,
        tools: 50,
        ..GateEvidence::default()
    };
    assert!(gate.judge(&evidence).needs_tool);
    assert!(!gate.judge(&GateEvidence { vector: Some(&[0.0, 1.0, 0.0]), ..evidence }).needs_tool, "like the messages that need none");
    assert!(gate.judge(&GateEvidence { best_dense: Some(0.1), ..evidence }).margin < gate.judge(&evidence).margin, "no tool is like it");
    let asked = GateEvidence { asked: Some(Asked::Memory), vector: Some(&[0.0, 1.0, 0.0]), ..evidence };
    assert!(gate.judge(&asked).needs_tool, "asks to remember something");
    let margin = |evidence: &GateEvidence<'_>| gate.judge(evidence).margin;
    let text = GateEvidence { has_text: true, ..evidence };
    assert!(margin(&text) < margin(&evidence), "may be about the text");
    let named = GateEvidence { message: "zzz notes.txt", ..evidence };
    assert!((margin(&GateEvidence { has_text: true, ..named }) - margin(&named)).abs() < 1e-6, "names a file");
    assert!(margin(&GateEvidence { asked: Some(Asked::Time), ..evidence }) > margin(&evidence), "asks for the time");
    let of_another_model = GateEvidence { vector: Some(&[1.0, 0.0]), ..evidence };
    assert_eq!(gate.judge(&of_another_model), gate.judge(&GateEvidence { vector: None, ..evidence }), "falls back to words");
}

#[test]
fn gate_refuses_vectors_that_do_not_fit() {
    let mut gate = Gate::default();
    let examples = Gate::example_texts().count();
    assert!(!gate.teach(&[[1.0_f32, 0.0]; 3]));
    assert!(!gate.teach(&vec![[1.0_f32, 0.0]; examples]), "all the same: no direction");
    assert!(!gate.teach(&vec![Vec::<f32>::new(); examples]));
}

#[test]
fn cuts() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        fused: Vec<f32>,
        #[serde(default)]
        leads: Vec<u32>,
        #[serde(default)]
        tokens: Vec<u32>,
        #[serde(default)]
        servers: Vec<u32>,
        limit: Option<usize>,
        minimum: Option<usize>,
        budget: Option<u32>,
        per_server: Option<usize>,
        kept: Vec<usize>,
    }
    for case in cases::<Vec<Case>>("cuts.json") {
        let at = |values: &[u32], place: usize| values.get(place).copied().unwrap_or(0);
        let ranked: Vec<CutCandidate> = case
            .fused
            .iter()
            .enumerate()
            .map(|(place, &fused)| CutCandidate {
                fused,
                tokens: at(&case.tokens, place),
                server: at(&case.servers, place),
                group: u32::try_from(place).unwrap(),
                leads: at(&case.leads, place),
            })
            .collect();
        let default = CutParameters::default();
        let parameters = CutParameters {
            limit: case.limit.unwrap_or(default.limit),
            minimum: case.minimum.unwrap_or(default.minimum),
            token_budget: case.budget,
            per_server: case.per_server,
            ..default
        };
        assert_eq!(cut(&ranked, &parameters), case.kept, "{}", case.name);
    }
}

#[test]
fn bm25_prefers_the_name_over_the_parameters() {
    let model = LexicalModel::default();
    let named = ToolText { server: "time", name: "convert_time", description: "Converts between zones", ..ToolText::default() };
    let mentioned = ToolText {
        server: "mail",
        name: "send",
        description: "Sends a message",
        parameters: vec![("time".into(), "time of delivery".into())],
        ..ToolText::default()
    };
    let query = model.query_vector("what time is it");
    assert!(query.dot(&model.document_vector(&named)) > query.dot(&model.document_vector(&mentioned)));
    assert!(query.dot(&model.document_vector(&mentioned)) > 0.0);
    assert!(model.query_vector("what is it").is_empty());
}

#[test]
fn a_message_also_finds_by_synonyms_and_in_spite_of_misspellings() {
    let model = LexicalModel::default();
    let tool = ToolText { server: "post", name: "send_email", description: "Sends a message with attachments", ..ToolText::default() };
    let document = model.document_vector(&tool);
    let vocabulary = Vocabulary::of(model.analyzer(), [tool].into_iter());
    let synonyms = Synonyms::new(model.analyzer(), &["mail email"]).unwrap();
    let score = |text: &str| model.expanded_query_vector(text, &synonyms, &vocabulary).dot(&document);
    let plain = |text: &str| model.query_vector(text).dot(&document);
    assert!(plain("mail") < 1e-6 && score("mail") > 0.0);
    assert!(score("mail") < score("email"), "the word itself counts for more");
    assert!(plain("atachmants") < 1e-6 && score("atachmants") > 0.0);
    assert!(score("atachmants") < score("attachments"));
    assert!((score("mail email") - score("email mail email")).abs() > 1e-3, "what is said twice counts twice");
    assert!((score("email email") - plain("email email")).abs() < 1e-6, "what is said needs no synonym");
}

fn ranking(candidates: &Candidates<u32>) -> Vec<u32> {
    candidates.fuse(&FusionParameters::default()).iter().map(|ranked: &Ranked<u32>| ranked.key).collect()
}

#[test]
fn fusion_weighs_both_kinds() {
    let mut candidates = Candidates::new(1, MessageParts::Sentences);
    for (key, cosine, score) in [(1, 0.6, 0.0), (2, 0.55, 9.0), (3, 0.1, 9.5), (4, 0.1, 0.0)] {
        candidates.add_dense(0, key, cosine);
        candidates.add_lexical(0, key, score);
    }
    assert_eq!(ranking(&candidates), [2, 1, 3, 4]);
    assert_eq!(candidates.fuse(&FusionParameters::default())[0].leads, 1);
}

#[test]
fn words_weigh_less_in_english_and_more_where_vectors_find_least() {
    let default = FusionParameters::default();
    let english = "what is the weather like in the capital of the country";
    for (text, weight) in [
        (english, 0.851),
        ("mikä on tämän päivän sää ja onko se hyvä", 0.702),
        ("كم الساعة الآن في Tokyo", 0.702),
        ("wie ist das Wetter in der Hauptstadt und was kostet es", 0.8),
        ("Bericht von مريم", 0.8),
        ("", 0.8),
    ] {
        let weights = default.for_message(text);
        assert!((weights.dense_weight - weight).abs() < 0.001, "{text}: {weights:?}");
    }
    for alone in [0.0, 1.0] {
        let weights = FusionParameters { dense_weight: alone, ..default };
        assert_eq!(weights.for_message(english), weights);
    }
}

#[test]
fn fusion_without_vectors_is_lexical_and_ties_go_by_key() {
    let mut candidates = Candidates::new(1, MessageParts::Sentences);
    for (key, score) in [(9, 1.0), (3, 2.0), (5, 2.0)] {
        candidates.add_lexical(0, key, score);
    }
    assert_eq!(ranking(&candidates), [3, 5, 9]);
    assert!(Candidates::<u32>::new(0, MessageParts::Sentences).fuse(&FusionParameters::default()).is_empty());
}

#[test]
fn a_tool_that_is_not_embedded_yet_can_still_win() {
    let mut candidates = Candidates::new(1, MessageParts::Sentences);
    for key in 1..6 {
        candidates.add_dense(0, key, 0.1 * key as f32);
    }
    candidates.add_lexical(0, 77, 12.0);
    assert_eq!(ranking(&candidates)[0], 77);
}

#[test]
fn a_sentence_lifts_its_tool() {
    let mut candidates = Candidates::new(3, MessageParts::Sentences);
    for key in 1..=10_u32 {
        candidates.add_dense(0, key, 0.2);
        candidates.add_dense(1, key, if key == 4 { 0.9 } else { 0.1 });
        candidates.add_dense(2, key, if key == 7 { 0.9 } else { 0.1 });
    }
    let ranked = candidates.fuse(&FusionParameters::default());
    assert_eq!(ranked[..2].iter().map(|it| (it.key, it.leads & !1)).collect::<Vec<_>>(), [(4, 2), (7, 4)]);
}

#[test]
fn what_cannot_be_ordered_is_ignored() {
    let mut candidates = Candidates::new(1, MessageParts::Sentences);
    candidates.add_dense(0, 1, f32::NAN);
    candidates.add_lexical(0, 1, f32::INFINITY);
    candidates.add_dense(7, 1, 0.5);
    assert!(ranking(&candidates).is_empty());
}

fn well_formed(vector: &SparseVector) -> bool {
    vector.indices.len() == vector.values.len()
        && vector.indices.is_sorted_by(|a, b| a < b)
        && vector.values.iter().all(|value| value.is_finite() && *value > 0.0)
}

proptest! {
    #[test]
    fn any_text_is_analysed(text in "\\PC*", words in "[a-zA-Z0-9_' 天気éА\u{301}`\n-]{0,200}") {
        let model = LexicalModel::default();
        for text in [&text, &words] {
            prop_assert!(well_formed(&model.query_vector(text)));
            let tool = ToolText { server: text, name: text, title: Some(text), description: text, parameters: vec![(text.into(), text.into())], synonyms: &[] };
            prop_assert!(well_formed(&model.document_vector(&tool)));
            prop_assert!((1..=2).contains(&passages(&tool).len()));
            prop_assert!(passages(&tool).iter().all(|passage| passage.chars().count() <= 1_000));
            let plan = QueryPlan::new(text);
            prop_assert_eq!(plan.is_empty(), text.trim().is_empty());
            prop_assert!(plan.texts().len() <= 17);
            let evidence = GateEvidence { message: text, best_lexical: 1.0, tools: 10, ..GateEvidence::default() };
            prop_assert!(Gate::default().judge(&evidence).margin.is_finite());
        }
    }

    #[test]
    fn fusion_does_not_depend_on_the_order(
        mut evidence in prop::collection::vec((0..3_usize, 0..40_u32, -1.0..1.0_f32, 0.0..20.0_f32), 0..120),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..60),
    ) {
        let gather = |evidence: &[(usize, u32, f32, f32)]| {
            let mut candidates = Candidates::new(3, MessageParts::Sentences);
            for &(text, key, cosine, score) in evidence {
                candidates.add_dense(text, key, cosine);
                candidates.add_lexical(text, key, score);
            }
            candidates.fuse(&FusionParameters::default())
        };
        let before = gather(&evidence);
        if !evidence.is_empty() {
            for (a, b) in swaps {
                let (a, b) = (a.index(evidence.len()), b.index(evidence.len()));
                evidence.swap(a, b);
            }
        }
        prop_assert_eq!(&before, &gather(&evidence));
        prop_assert!(before.is_sorted_by(|a, b| a.fused >= b.fused));
        prop_assert!(before.iter().all(|it| (0.0..=1.0).contains(&it.score())));
        let cut_candidates: Vec<CutCandidate> = before.iter().map(|it| CutCandidate { fused: it.fused, tokens: 10, server: it.key % 4, group: it.key, leads: it.leads }).collect();
        let parameters = CutParameters { token_budget: Some(60), per_server: Some(3), ..CutParameters::default() };
        let kept = cut(&cut_candidates, &parameters);
        prop_assert!(kept.is_sorted_by(|a, b| a < b));
        prop_assert!(kept.len() <= 6);
        prop_assert_eq!(kept.is_empty(), before.is_empty());
    }

    #[test]
    fn the_readable_score_keeps_the_order(a in -20.0..20.0_f32, b in -20.0..20.0_f32) {
        prop_assert!(a > b || readable_score(a) <= readable_score(b));
    }
}
