//! Words of every script: which spellings are one word, and what any text does to the analysis.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use toolsieve_domain::domain::catalog::texts::{ToolText, Vocabulary};
use toolsieve_domain::domain::selection::relevance::{LexicalModel, QueryPlan, SparseVector, Synonyms};
use toolsieve_domain::domain::text::analysis::Analyzer;
use toolsieve_domain::domain::text::language::Language;

fn terms(text: &str) -> Vec<u32> {
    let mut terms = Analyzer::default().terms(text);
    terms.sort_unstable();
    terms
}

#[test]
fn spellings_of_a_word_are_one_word() {
    for (one, other) in [
        // Accents, ligatures, full width and the dotless i.
        ("Überprüfung Ångström Straße", "uberprufung angstrom strasse"),
        ("ﬁle ＧｉｔＨｕｂ", "file GitHub"),
        ("ISSUE ıssue İssue", "issue issue issue"),
        ("Łódź Đakovo smørrebrød", "lodz dakovo smorrebrod"),
        // What nobody sees.
        ("Kalen\u{AD}der", "Kalender"),
        ("Ka\u{200D}len\u{2060}der\u{FEFF}", "Kalender"),
        // Greek and Cyrillic.
        ("αρχείο ΑΡΧΕΙΟ", "αρχειο αρχειο"),
        ("ещё", "еще"),
        ("п'ять п’ять пʼять", "пять пять пять"),
        ("файлы файлов файлами", "файл файл файл"),
        // Hebrew with vowels, with a prefix, and with its marks for quotation.
        ("שָׁלוֹם", "שלום"),
        ("הכרטיס בכרטיס", "כרטיס כרטיס"),
        ("צה\"ל צה״ל", "צהל צהל"),
        // Arabic with vowels, lengthened, with a hamza, and Persian with a joiner.
        ("الرِّسَالَة", "الرساله"),
        ("رســالة", "رسالة"),
        ("أحمد إحمد آحمد", "احمد احمد احمد"),
        ("می\u{200C}خواهم", "میخواهم"),
        ("کتاب", "كتاب"),
        ("٤٠ ۴۰ ४०", "40 40 40"),
        // Hindi without nukta, and with endings.
        ("ज़रूर", "जरूर"),
        ("संदेशों", "संदेश"),
        // Half-width Katakana.
        ("ﾌｧｲﾙ", "ファイル"),
    ] {
        assert_eq!(terms(one), terms(other), "{one} and {other}");
    }
    for (one, other) in [("天气", "气天"), ("カード", "ガード"), ("10", "100")] {
        assert_ne!(terms(one), terms(other), "{one} and {other}");
    }
}

#[test]
fn a_language_is_only_detected_for_sure() {
    let of = Language::of;
    assert_eq!(of("Zeig mir bitte die Karten, die ich heute noch bearbeiten muss"), Some(Language::German));
    assert_eq!(of("Muéstrame los correos que me ha enviado Ana"), Some(Language::Spanish));
    assert_eq!(of("Quels messages est-ce que j'ai reçus dans le canal"), Some(Language::French));
    assert_eq!(of("Post a comment on a Figma file"), None, "one function word that other languages have too");
    assert_eq!(of("Show me the cards that are due"), Some(Language::English));
    for unsure in [
        "",
        "die",
        "die die die",
        "Trello",
        "list_repos",
        "天気を教えて the in",
        "Retrieve augmented reality (AR) information for a product",
    ] {
        assert!(!matches!(of(unsure), Some(language) if language != Language::English), "{unsure}: {:?}", of(unsure));
    }
}

/// How well a message matches a tool, in a catalog of this tool and another one.
fn matches(message: &str, tool: &ToolText<'_>) -> f32 {
    let model = LexicalModel::default();
    let vocabulary = Vocabulary::of(model.analyzer(), [tool.clone()].into_iter());
    model.expanded_query_vector(message, &Synonyms::default(), &vocabulary).dot(&model.document_vector(tool))
}

#[test]
fn a_name_is_found_in_any_sentence() {
    let trello = ToolText { server: "trello", name: "get_boards", description: "Lists the boards.", ..ToolText::default() };
    for message in [
        "Karten auf dem Trello-Board",
        "mitä mulla on Trellossa",
        "Trello'daki kartlar",
        "trellóban mi van",
        "트렐로에서 할 일",
        "トレロを見せて",
        "что висит в трелло",
        "що в трелло",
        "على تريلو",
        "מה יש בטרלו",
        "ट्रेलो में क्या है",
        "ในเทรลโลมีอะไร",
        "ＴＲＥＬＬＯ",
        "看一下trello上的卡片",
    ] {
        assert!(matches(message, &trello) > 0.0, "{message}");
    }
    let github = ToolText { server: "github", name: "list_issues", description: "Lists issues.", ..ToolText::default() };
    for message in ["GitHub'da ne var", "a GitHubon", "на гитхабе", "깃허브에", "GitHubissa", "Githubrepository"] {
        assert!(matches(message, &github) > 0.0, "{message}");
    }
    for message in ["what a lovely day", "wie geht es dir heute", "今日はいい天気ですね", "как дела сегодня"] {
        assert!(matches(message, &github) == 0.0 && matches(message, &trello) == 0.0, "{message}");
    }
}

#[test]
fn a_message_meets_a_tool_in_its_own_language() {
    let german = ToolText {
        server: "bahn",
        name: "verbindung_suchen",
        description: "Sucht eine Verbindung zwischen zwei Städten und prüft, ob die Züge pünktlich sind.",
        ..ToolText::default()
    };
    // An ending of the word, and umlauts in ASCII.
    assert!(matches("Welche Verbindungen gibt es für mich und die Kinder", &german) > 0.0);
    assert!(matches("Ist der Zug in den Staedten auch puenktlich oder nicht", &german) > 0.0);
    // A message that is too short to be German for sure meets the folded words.
    assert!(matches("verbindung", &german) > 0.0);
    let chinese = ToolText { server: "tianqi", name: "chaxun", description: "查询指定城市的天气预报", ..ToolText::default() };
    assert!(matches("明天上海天气怎么样", &chinese) > 0.0);
}

/// Texts of scripts with and without stemmers, and what stands between words.
const PIECES: &str = "[a-zA-Z0-9_' \"·\u{301}\u{308}éüßıİŁøα-ωΆ-ώа-яёіїґא-ת\u{5B0}-\u{5C7}ء-ي\u{64B}-\u{652}ـی\u{200C}\u{200D}\u{202E}\
    ऀ-ॿกั-๙ぁ-んァ-ヶー一-龠가-힣ᄀ-ᇿ👍🏽\n.-]{0,60}";

fn well_formed(vector: &SparseVector) -> bool {
    vector.indices.len() == vector.values.len()
        && vector.indices.is_sorted_by(|one, other| one < other)
        && vector.values.iter().all(|value| value.is_finite() && *value > 0.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_is_analysed(text in PIECES, language in PIECES) {
        let model = LexicalModel::default();
        // Function words make the language sure, so that its stemmer sees the text too.
        for frame in ["", "und die ist ", "que los una ", "est des une ", "och det inte ", "ja on mutta ", "bir icin ama ", "hogy nem egy ",
            "het een niet ", "och ikke hvad ", "che della sono ", "nao uma isso ", "si nu este ", "jest sie nie ", "jsem nebo ktery "] {
            let text = format!("{frame}{text}");
            let tool = ToolText { server: &language, name: &text, description: &text, ..ToolText::default() };
            prop_assert!(well_formed(&model.document_vector(&tool)));
            let vocabulary = Vocabulary::of(model.analyzer(), [tool].into_iter());
            prop_assert!(well_formed(&model.expanded_query_vector(&text, &Synonyms::default(), &vocabulary)));
        }
    }

    #[test]
    fn a_text_finds_itself(text in PIECES) {
        let model = LexicalModel::default();
        let tool = ToolText { description: &text, ..ToolText::default() };
        let query = model.query_vector(&text);
        prop_assert!(query.is_empty() || query.dot(&model.document_vector(&tool)) > 0.0);
    }
}

#[test]
fn a_storm_takes_linear_time() {
    let model = LexicalModel::default();
    let storms = [
        "e\u{301}\u{308}\u{327}".repeat(30_000),
        format!("a{}", "\u{301}\u{327}".repeat(50_000)),
        "\u{202E}\u{2066}\u{200D}".repeat(25_000),
        "天".repeat(70_000),
        "ァ".repeat(70_000),
        "트렐로".repeat(22_000),
        "ก็".repeat(33_000),
        "и\u{306}".repeat(50_000),
        "ш'".repeat(60_000),
        "\u{FDFA}".repeat(6_000),
        "x".repeat(200_000),
        "aB".repeat(100_000),
        "die und ".repeat(25_000),
        "ال".repeat(50_000),
        "👍🏽".repeat(25_000),
        "\u{FFFD} ".repeat(50_000),
    ];
    let begin = Instant::now();
    for storm in &storms {
        let tool = ToolText { name: storm, description: storm, ..ToolText::default() };
        let vector = model.document_vector(&tool);
        assert!(vector.values.iter().all(|value| value.is_finite()));
        let vocabulary = Vocabulary::of(model.analyzer(), [tool].into_iter());
        model.expanded_query_vector(storm, &Synonyms::default(), &vocabulary);
        assert!(QueryPlan::new(storm).whole().chars().count() <= 801);
    }
    // Without optimization, all of them take seconds, or a minute beside a build. Quadratic work on a single one would take many minutes.
    assert!(begin.elapsed() < Duration::from_mins(5), "{:?}", begin.elapsed());
}

/// Where the rules of Unicode (UAX #29) see a word, the analysis sees the same one, in scripts with spaces and without identifiers.
#[test]
fn words_are_those_of_unicode() {
    use unicode_segmentation::UnicodeSegmentation;
    let analyzer = Analyzer::unstemmed();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/languages/messages.jsonl");
    let mut compared = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = message["query"].as_str().unwrap();
        let is_plain = |word: &str| {
            let first = word.chars().next().unwrap();
            word.chars().all(|letter| letter.is_alphabetic() && letter.is_lowercase() == first.is_lowercase())
                && !first.is_uppercase()
                && !matches!(u32::from(first), 0x0E00..=0x0EFF | 0x3041..=0x318F | 0x3400..=0x9FFF | 0xAC00..=0xD7AF)
        };
        let all = analyzer.terms(text);
        for word in text.unicode_words().filter(|word| is_plain(word)) {
            let own = analyzer.terms(word);
            assert!(own.len() <= 1 && own.iter().all(|term| all.contains(term)), "{word} in {text}");
            compared += own.len();
        }
    }
    assert!(compared > 20_000, "{compared}");
}
