//! The Unigram tokenizer: the same tokens as the `tokenizers` crate, for every pipeline that models of XLM-R's kind use.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokenizers::Tokenizer;
use toolsieve::adapters::embed::builtin::{Encoder, ImportError, ModelError, import};

const SCRIPTS: &str = include_str!("../cases/encoder/scripts.txt");
const MODEL: &str = "tests/models/xlm-roberta";

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL)
}

fn tokenizer_file() -> Value {
    serde_json::from_slice(&fs::read(model().join("tokenizer.json")).unwrap()).unwrap()
}

/// The model with another tokenizer.
fn folder(tokenizer: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"] {
        let target = folder.path().join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(model().join(file), target).unwrap();
    }
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}

/// An encoder, and the tokenizer of the `tokenizers` crate from the same file.
struct Pair {
    name: String,
    encoder: Encoder,
    other: Tokenizer,
}

impl Pair {
    fn new(name: String, mut tokenizer: Value) -> Self {
        let encoder = Encoder::from_bytes(import(folder(&tokenizer).path()).unwrap()).unwrap();
        // Special tokens in a text are ordinary text, so the other tokenizer must not know them.
        for added in tokenizer["added_tokens"].take().as_array().unwrap() {
            let id = usize::try_from(added["id"].as_u64().unwrap()).unwrap();
            assert_eq!(tokenizer["model"]["vocab"][id][0], added["content"]);
            tokenizer["model"]["vocab"][id][0] = "".into();
        }
        tokenizer["added_tokens"] = json!([]);
        let other = Tokenizer::from_bytes(tokenizer.to_string()).unwrap();
        Self { name, encoder, other }
    }

    fn agree(&self, text: &str) -> bool {
        let mut expected = self.other.encode(text, true).unwrap().get_ids().to_vec();
        if expected.len() > self.encoder.maximum_tokens() {
            expected.truncate(self.encoder.maximum_tokens() - 1);
            expected.push(2);
        }
        expected == self.encoder.tokens(text)
    }

    #[track_caller]
    fn check(&self, text: &str) {
        let shown: String = text.chars().take(80).collect();
        assert!(self.agree(text), "{}: {shown:?} ({} bytes)", self.name, text.len());
    }
}

/// The pipelines of multilingual-e5-small, of paraphrase-multilingual-MiniLM-L12-v2, and of older and newer exports.
fn variants() -> Vec<Pair> {
    let file = tokenizer_file();
    let charsmap = file["normalizer"]["normalizers"][0].clone();
    assert_eq!(charsmap["type"], "Precompiled");
    let sequence = |steps: &[&Value]| json!({"type": "Sequence", "normalizers": steps});
    let replace = |content: &str| json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content});
    let (by_space, by_start) = (replace(" "), replace("▁"));
    let strip = json!({"type": "Strip", "strip_left": false, "strip_right": true});
    let normalizers = [
        ("charsmap", charsmap.clone()),
        ("charsmap, one space", sequence(&[&charsmap, &by_space])),
        ("charsmap, strip, one mark", sequence(&[&charsmap, &strip, &by_start])),
        ("charsmap, one mark", sequence(&[&charsmap, &by_start])),
        ("strip, one mark", sequence(&[&strip, &by_start])),
        ("one space", by_space),
        ("nothing", Value::Null),
    ];
    let split = json!({"type": "WhitespaceSplit"});
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let old = json!({"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": true});
    let first = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
    let pre_tokenizers = [
        ("every white space", json!({"type": "Sequence", "pretokenizers": [split, metaspace]})),
        ("every white space, old", json!({"type": "Sequence", "pretokenizers": [split, old]})),
        ("spaces", metaspace),
        ("spaces, first", first),
    ];
    let mut pairs = Vec::new();
    for (normalizing, normalizer) in &normalizers {
        for (splitting, pre_tokenizer) in &pre_tokenizers {
            let mut file = file.clone();
            file["normalizer"] = normalizer.clone();
            file["pre_tokenizer"] = pre_tokenizer.clone();
            pairs.push(Pair::new(format!("{normalizing}; {splitting}"), file));
        }
    }
    pairs
}

static VARIANTS: LazyLock<Vec<Pair>> = LazyLock::new(variants);

#[test]
fn tokens_of_all_scripts_are_those_of_the_tokenizers_crate() {
    assert!(SCRIPTS.lines().count() >= 50);
    for pair in VARIANTS.iter() {
        for line in SCRIPTS.lines() {
            pair.check(line);
            pair.check(&line.replace(' ', "  "));
            // From the middle of the line, so that the limit does not hide its end.
            for (at, _) in line.char_indices().skip(3).step_by(7) {
                pair.check(&line[at..]);
            }
        }
        pair.check(SCRIPTS);
    }
}

#[test]
fn spaces_marks_and_storms_are_handled_as_by_the_tokenizers_crate() {
    let texts = [
        "",
        " ",
        "   ",
        "\u{3000}",
        "\t\r\n",
        "a",
        " a ",
        "  a  b  ",
        "a \u{a0} b",
        "a\u{85}b\u{2028} \u{85}",
        "a \u{85} ",
        "▁",
        "▁▁",
        "a▁b",
        "a▁▁b▁",
        " ▁ a",
        "a\r\nb\n\rc\r",
        "a\0b\u{1}c\u{7f}d\u{200b}e\u{200d}f\u{feff}g\u{fffd}h\u{ad}i\u{e000}j",
        "\u{301}",
        "\u{301}\u{301}e\u{301}\u{301} e\u{323}\u{301}",
        "ﬁ\u{301} ﬁ\u{301}\u{301}",
        "\u{600}a \u{600}1\u{301}b",
        "क्षि क्\u{200d}ष ক্ষ",
        "ㄱㅏ 각 \u{1100}\u{1161}\u{11a8}\u{11a8}",
        "ක☃ක ක ක☃ක☃",
        "☃a☃",
        "<s> </s> <unk> <mask> <pad> a<s>b <unk>☃ ☃<unk>",
        "אבג abc \u{202e}abc\u{202c} مرحبا",
    ];
    let long = ["x", "ab", "\u{301}", "e\u{301}", "e\u{301}\u{323}", "☃", "ක", "▁", " ", "\u{a0}", "🇩", "👩\u{200d}", "明", "\u{600}", "ﷺ"];
    for pair in VARIANTS.iter() {
        for text in texts {
            pair.check(text);
        }
        for part in long {
            pair.check(&part.repeat(1_500));
            pair.check(&format!("{} end", part.repeat(700)));
        }
    }
}

#[test]
fn a_long_text_has_the_tokens_of_its_start() {
    let pair = &VARIANTS[1];
    for part in ["x", "xy\u{301}", "word ", "明天", "e\u{301}\u{323}\u{301}", "ᄀ", "🇩🇪", "אa", "\u{301}", "\u{a0}\t"] {
        pair.check(&part.repeat(200_000 / part.len()));
    }
    assert_eq!(pair.encoder.tokens(&"ක".repeat(100_000)), [0, pair.encoder.tokens("ක")[1], 3, 2], "one token for unknown characters");
}

#[test]
fn tokens_agree_on_every_character_of_every_plane() {
    let characters: Vec<char> = (0..=0x10_ffff).filter_map(char::from_u32).collect();
    // All characters with one pipeline, and those of the first plane with the others.
    for (number, pair) in VARIANTS.iter().enumerate().filter(|(number, _)| [1, 8, 26].contains(number)) {
        let count = if number == 1 { characters.len() } else { 0xf000 };
        for chunk in characters[..count].chunks(10) {
            let text: String = chunk.iter().flat_map(|character| ['a', *character, 'b', ' ', *character, ' ']).collect();
            if !pair.agree(&text) {
                for character in chunk {
                    pair.check(&format!("a{character}b {character} "));
                }
            }
        }
    }
}

/// The characters of the corpus, and those that pipelines treat in a special way.
static ALPHABET: LazyLock<Vec<char>> = LazyLock::new(|| {
    let special = "   \t\n\r\u{a0}\u{85}\u{3000}▁▁\u{301}\u{308}\u{323}\u{200d}\u{fe0f}\u{600}\u{ad}\0☃ක<s>aeouAEOU";
    let mut all: Vec<char> = SCRIPTS.chars().collect();
    all.sort_unstable();
    all.dedup();
    all.extend(special.repeat(8).chars());
    all
});

fn mixed() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(ALPHABET.as_slice()), 0..48).prop_map(String::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tokens_agree_on_mixed_characters(text in mixed()) {
        for pair in VARIANTS.iter() {
            prop_assert!(pair.agree(&text), "{}: {text:?}", pair.name);
        }
    }

    #[test]
    fn tokens_agree_on_arbitrary_text(text in any::<String>()) {
        for pair in VARIANTS.iter() {
            prop_assert!(pair.agree(&text), "{}: {text:?}", pair.name);
        }
    }

    #[test]
    fn no_damaged_tokenizer_makes_it_panic(at in 0.0..1.0f64, byte in any::<u8>()) {
        let folder = folder(&tokenizer_file());
        let path = folder.path().join("tokenizer.json");
        let mut bytes = fs::read(&path).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a small file")]
        let place = (bytes.len() as f64 * at) as usize;
        bytes[place] = byte;
        fs::write(&path, bytes).unwrap();
        if let Ok(file) = import(folder.path()) {
            let tokens = Encoder::from_bytes(file).unwrap().tokens("some text, e\u{301}");
            prop_assert!(tokens.len() > 2);
        }
    }
}

#[test]
fn an_unknown_character_is_worse_than_any_token_by_ten() {
    let mut file = tokenizer_file();
    for (id, piece, score) in [(800, "ᛒ", -20.0), (801, "ᚠᚢ", -15.0), (802, "ᚦ", -15.0), (803, "ᚢᚦ", -3.0), (804, "ᚢ", -9.0)]
    {
        file["model"]["vocab"][id] = json!([piece, score]);
    }
    let pair = Pair::new("runes".to_owned(), file);
    // The two tokens have -30. The other way has -33: -30 for the unknown character, and -3.
    assert_eq!(pair.encoder.tokens("ᚠᚢᚦ")[2..], [801, 802, 2]);
    for text in ["ᚠᚢᚦ", "ᚠᚢ ᚢᚦᚠ", "ᛒᚠᛒᚢᚦᚦ", "ᚠᚠᚢᚦ"] {
        pair.check(text);
    }
}

#[test]
fn special_tokens_in_a_text_are_ordinary_text() {
    let encoder = &VARIANTS[1].encoder;
    for token in ["<s>", "</s>", "<pad>", "<unk>", "<mask>"] {
        let ids = encoder.tokens(token);
        assert!(ids[1..ids.len() - 1].iter().all(|id| ![0, 1, 2, 900].contains(id)), "{token}: {ids:?}");
    }
    assert_eq!(encoder.vocabulary().filter(|token| token.is_empty()).count(), 5);
}

#[test]
fn files_with_unigram_tokenizers_have_version_2() {
    let bytes = import(&model()).unwrap();
    assert_eq!(bytes, import(&model()).unwrap(), "the import is reproducible");
    assert_eq!(bytes[8], 2);
    assert_eq!(import(&model().with_file_name("mean-uncased")).unwrap()[8], 1, "earlier releases can read it");
    let encoder = Encoder::from_bytes(bytes.clone()).unwrap();
    assert_eq!((encoder.dimension(), encoder.maximum_tokens()), (48, 64));
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Encoder::from_bytes(bytes).unwrap_err()
    };
    assert!(with(8, 4).to_string().contains("version 4, this program reads versions 1 to 3; import the model again"));
    assert!(matches!(with(bytes.len() - 1, 7), ModelError::Checksum));
    assert!(matches!(Encoder::from_bytes(bytes[..bytes.len() - 64].to_vec()), Err(ModelError::Length { .. })));
}

#[test]
fn a_tokenizer_that_is_not_supported_is_reported() {
    type Change = fn(&mut Value);
    let cases: [(Change, &[&str]); 17] = [
        (|file| file["model"]["byte_fallback"] = true.into(), &["byte_fallback", "is true", "only false"]),
        (|file| file["model"]["unk_id"] = Value::Null, &["lacks the token unk_id"]),
        (|file| file["model"]["unk_id"] = 5000.into(), &["lacks the token unk_id"]),
        (|file| file["model"]["type"] = "BPE".into(), &["the model in tokenizer.json is BPE", "WordPiece and Unigram"]),
        (|file| file["normalizer"] = json!({"type": "NFKC"}), &["the normalizer in tokenizer.json is NFKC", "Precompiled"]),
        (|file| file["normalizer"] = json!({"type": "Lowercase"}), &["is Lowercase"]),
        (
            |file| file["normalizer"]["normalizers"][1]["pattern"] = json!({"String": "a"}),
            &["the normalizer", "Replace of", "two or more spaces"],
        ),
        (|file| file["normalizer"]["normalizers"][1]["content"] = "_".into(), &["Replace by \"_\""]),
        (
            |file| {
                let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
                file["normalizer"] = json!({"type": "Sequence", "normalizers": [strip]});
            },
            &["Strip of the left side"],
        ),
        (|file| file["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "%".into(), &["precompiled_charsmap", "not base64"]),
        (|file| file["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AAQAAA==".into(), &["damaged", "trie is too short"]),
        (|file| file["pre_tokenizer"] = Value::Null, &["the pre_tokenizer in tokenizer.json is none", "Metaspace"]),
        (|file| file["pre_tokenizer"] = json!({"type": "ByteLevel"}), &["is ByteLevel"]),
        (|file| file["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"] = "never".into(), &["never"]),
        (|file| file["post_processor"] = Value::Null, &["the post_processor in tokenizer.json is none", "one token before"]),
        (
            |file| file["added_tokens"].as_array_mut().unwrap().push(json!({"id": 901, "content": "new", "special": false})),
            &["an added token in tokenizer.json is new", "special"],
        ),
        (|file| file["model"]["vocab"][7] = json!(["x"]), &["can't parse tokenizer.json"]),
    ];
    for (number, (change, wanted)) in cases.into_iter().enumerate() {
        let mut file = tokenizer_file();
        change(&mut file);
        let error = import(folder(&file).path()).expect_err(&format!("case {number}")).to_string();
        for words in wanted {
            assert!(error.contains(words), "case {number}: {error}");
        }
    }
    let folder = folder(&tokenizer_file());
    fs::rename(folder.path().join("tokenizer.json"), folder.path().join("sentencepiece.bpe.model")).unwrap();
    let error = import(folder.path()).unwrap_err().to_string();
    assert!(error.contains("there is no tokenizer.json; write it from the SentencePiece model"), "{error}");
    fs::rename(folder.path().join("sentencepiece.bpe.model"), folder.path().join("tokenizer.json")).unwrap();
    fs::write(folder.path().join("sentence_bert_config.json"), r#"{"do_lower_case": true}"#).unwrap();
    let error = import(folder.path()).unwrap_err();
    assert!(matches!(error, ImportError::Unsupported { what: "do_lower_case in sentence_bert_config.json", .. }), "{error}");
}
