//! The built-in embedder: how near it is to float32, and that nothing it is given upsets it.

use std::{collections::BTreeMap, fs, path::Path};

use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use serde::Deserialize;
use tokenizers::{
    NormalizerWrapper, PostProcessorWrapper, Tokenizer, models::wordpiece::WordPiece, normalizers::BertNormalizer,
    pre_tokenizers::bert::BertPreTokenizer, processors::bert::BertProcessing,
};
use toolsieve::adapters::embed::builtin::{Encoder, ImportError, Kernel, ModelError, PromptOverrides, WordFormat, import, import_named};

const TRAINED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/toolsieve-e5.int8.bin");

#[derive(Deserialize)]
struct Reference {
    cases: Vec<ReferenceCase>,
}

#[derive(Deserialize)]
struct ReferenceCase {
    text: String,
    /// The ids of the `tokenizers` library.
    tokens: Vec<u32>,
    vector: Vec<f32>,
}

fn references() -> Vec<ReferenceCase> {
    let Reference { cases } = serde_json::from_str(include_str!("../cases/encoder/toolsieve-e5.json")).unwrap();
    assert!(cases.len() >= 60);
    cases
}

#[test]
fn tokens_are_those_of_the_base_models_tokenizer() {
    let encoder = built_in();
    for case in references() {
        assert_eq!(encoder.tokens(&case.text), case.tokens, "{}", case.text);
    }
}

fn built_in() -> Encoder {
    Encoder::built_in().unwrap()
}

fn on_every_path() -> impl Iterator<Item = Encoder> {
    Kernel::available().into_iter().map(|kernel| built_in().with_kernel(kernel).unwrap())
}

fn cosine(left: &[f32], right: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(left, right) / (dot(left, left) * dot(right, right)).sqrt()
}

#[test]
fn vectors_are_those_of_float32_on_every_code_path() {
    let cases = references();
    let texts: Vec<&str> = cases.iter().map(|case| case.text.as_str()).collect();
    for kernel in Kernel::available() {
        let encoder = built_in().with_kernel(kernel).unwrap();
        let vectors = encoder.encode(&texts);
        let cosines: Vec<f32> = vectors.iter().zip(&cases).map(|(vector, case)| cosine(vector, &case.vector)).collect();
        let mean = cosines.iter().sum::<f32>() / cosines.len() as f32;
        let least = cosines.iter().copied().fold(1.0, f32::min);
        println!("{:?}: mean cosine {mean:.5}, least {least:.5}", encoder.kernel());
        assert!(mean >= 0.996, "{:?}: mean cosine {mean}", encoder.kernel());
        assert!(least >= 0.97, "{:?}: least cosine {least}", encoder.kernel());
    }
}

#[test]
fn vectors_are_the_same_on_every_code_path() {
    let long = "several words about the weather in Zürich ".repeat(30);
    // Every number of rows that a path multiplies at once.
    let counts: Vec<String> = (1..=14).map(|words| "word ".repeat(words)).collect();
    let mut texts = vec!["", "thanks!", "create an issue", &long, "résumé 明天 😀", "Wie viel Uhr ist es in Tokio?"];
    texts.extend(counts.iter().map(String::as_str));
    // One by one, because a path multiplies the rows of all texts of a pass together.
    let encode = |encoder: &Encoder| -> Vec<Vec<f32>> { texts.iter().map(|text| encoder.encode(&[text]).remove(0)).collect() };
    let mut paths = on_every_path().map(|encoder| (encoder.kernel(), encode(&encoder)));
    let (_, first) = paths.next().unwrap();
    for (kernel, vectors) in paths {
        for ((text, expected), vector) in texts.iter().zip(&first).zip(&vectors) {
            assert_eq!(vector, expected, "{kernel:?}: {text:?}");
        }
    }
}

#[test]
fn a_vector_does_not_depend_on_its_neighbours() {
    let long = "several words about the weather ".repeat(30);
    let mut texts = vec!["", "thanks!", "create an issue", &long, "résumé 明天 😀", "a b c d e f g h i j k l m n"];
    for encoder in on_every_path() {
        let together = encoder.encode(&texts);
        for (text, vector) in texts.iter().zip(&together) {
            assert_eq!(&encoder.encode(&[text])[0], vector, "{:?}: {text}", encoder.kernel());
        }
    }
    // Above 32 texts they are spread over the cores.
    let encoder = built_in();
    let numbers: Vec<String> = (0..100).map(|number| format!("tool number {number}")).collect();
    texts.extend(numbers.iter().map(String::as_str));
    let together = encoder.encode(&texts);
    assert_eq!(together.len(), texts.len());
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(&encoder.encode(&[text])[0], vector, "{text}");
    }
}

#[test]
fn every_vector_has_length_one() {
    for encoder in on_every_path() {
        for text in ["", " ", "\0", "word", "[PAD]", &"word ".repeat(10_000), &"x".repeat(1_000_000)] {
            let vector = encoder.encode(&[text]).remove(0);
            assert_eq!(vector.len(), encoder.dimension());
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            assert!((length - 1.0).abs() < 1e-5, "{length}");
        }
    }
    assert!(built_in().encode(&[]).is_empty());
}

#[test]
fn a_long_text_is_cut_at_256_tokens() {
    let encoder = built_in();
    let (fits, long) = ("word ".repeat(254), "word ".repeat(10_000));
    assert_eq!(encoder.tokens(&long).len(), encoder.maximum_tokens());
    assert_eq!(encoder.maximum_tokens(), 256);
    assert_eq!(encoder.encode(&[&long]), encoder.encode(&[&fits]));
}

/// A small model with a `WordPiece` tokenizer.
fn word_piece() -> Encoder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/mean-uncased");
    Encoder::from_folder(&folder, "mean-uncased", &PromptOverrides::default()).unwrap()
}

/// BERT's own pipeline from the `tokenizers` crate on the same vocabulary, without special tokens in the text.
fn other_tokenizer(encoder: &Encoder) -> Tokenizer {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), encoder.vocabulary().collect::<Vec<_>>().join("\n")).unwrap();
    let model = WordPiece::from_file(file.path().to_str().unwrap()).build().unwrap();
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_normalizer(Some(NormalizerWrapper::from(BertNormalizer::default()))).unwrap();
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    let [separate, classify] = ["[SEP]", "[CLS]"].map(|token| (token.to_owned(), tokenizer.token_to_id(token).unwrap()));
    tokenizer.with_post_processor(Some(PostProcessorWrapper::from(BertProcessing::new(separate, classify))));
    tokenizer
}

fn ids_agree(encoder: &Encoder, other: &Tokenizer, text: &str) -> bool {
    let mut expected = other.encode(text, true).unwrap().get_ids().to_vec();
    if expected.len() > encoder.maximum_tokens() {
        expected.truncate(encoder.maximum_tokens() - 1);
        expected.push(other.token_to_id("[SEP]").unwrap());
    }
    expected == encoder.tokens(text)
}

#[test]
fn tokens_are_those_of_the_tokenizers_crate() {
    let encoder = word_piece();
    let other = other_tokenizer(&encoder);
    let words = "GitHub's create_issue(title: string) costs $5.00 — naïve café, ΑΣ ΟΔΟΣ İstanbul ﬁne ";
    let texts = [
        "",
        " \t\r\n\u{a0}\u{2003}x\u{3000}y\u{85}z\u{b}w",
        "a\0b\u{1}c\u{7f}d\u{200b}e\u{200d}f\u{feff}g\u{fffd}h\u{ad}i\u{e000}j",
        "明天北京的天气怎么样 東京タワー 서울 날씨 かな",
        "résumé E\u{301}\u{323}\u{301} ệ ṩ Ǻ ß ẞ ĳ Ⅷ ½ ²",
        "unaffable ##ing [SEP] [CLS] [MASK] [unused1]",
        "👩‍👩‍👧‍👦 🇩🇪 ✈️ ①②③ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
        &"x".repeat(100),
        &"x".repeat(101),
        &words.repeat(2_000),
        &"\u{301}".repeat(300),
    ];
    for text in texts {
        assert!(ids_agree(&encoder, &other, text), "{:?}", text.chars().take(60).collect::<String>());
    }
}

#[test]
fn tokens_agree_on_every_character_of_every_plane() {
    let encoder = word_piece();
    let other = other_tokenizer(&encoder);
    let mut differing: Vec<char> = Vec::new();
    let characters: Vec<char> = (0..=0x10_ffff).filter_map(char::from_u32).collect();
    // 60 characters of one kind after the other in a text, and one by one only where a text differs.
    for chunk in characters.chunks(60) {
        let text: String = chunk.iter().flat_map(|character| ['a', *character, 'b', ' ']).collect();
        if !ids_agree(&encoder, &other, &text) {
            differing.extend(chunk.iter().filter(|character| !ids_agree(&encoder, &other, &format!("a{character}b"))));
        }
    }
    assert!(differing.is_empty(), "{} characters differ: {:?}", differing.len(), &differing[..differing.len().min(40)]);
}

#[test]
fn every_plane_is_encoded_on_every_code_path() {
    for encoder in on_every_path() {
        for plane in 0..=16u32 {
            let text: String = (0..200).filter_map(|step| char::from_u32((plane << 16) | (step * 327))).collect();
            assert!(encoder.encode(&[&text])[0].iter().all(|value| value.is_finite()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(texts in prop::collection::vec(any::<String>(), 0..4)) {
        let encoder = built_in();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let vectors = encoder.encode(&texts);
        prop_assert_eq!(vectors.len(), texts.len());
        prop_assert!(vectors.iter().flatten().all(|value| value.is_finite()));
    }

    #[test]
    fn no_file_makes_it_panic(at in 0..4096usize, byte in any::<u8>(), length in 0..8192usize) {
        let folder = tiny_folder();
        let mut bytes = import_named(folder.path(), "tiny", WordFormat::Int8).unwrap();
        bytes[at] ^= byte;
        if byte > 0 {
            prop_assert!(Encoder::from_bytes(bytes.clone()).is_err());
        }
        bytes.truncate(length);
        prop_assert!(Encoder::from_bytes(bytes).is_err());
    }
}

#[test]
fn a_damaged_file_is_an_error() {
    let whole = fs::read(TRAINED).unwrap();
    assert!(Encoder::from_bytes(whole.clone()).is_ok(), "the checksum of the trained model holds");
    let error = |bytes: &[u8]| Encoder::from_bytes(bytes.to_vec()).unwrap_err();
    assert!(matches!(error(b""), ModelError::NotWeights));
    assert!(matches!(error(&vec![7; 1000]), ModelError::NotWeights));
    assert!(matches!(error(&whole[..whole.len() - 1]), ModelError::Length { .. }));
    assert!(matches!(error(&whole[..100]), ModelError::Length { .. }));
    let mut changed = whole.clone();
    changed[20_000_000] ^= 1;
    assert!(matches!(error(&changed), ModelError::Checksum));
    changed = whole.clone();
    changed[8] = 9;
    assert!(matches!(error(&changed), ModelError::Version(9)));
    changed = whole;
    changed[48] = b'x';
    assert!(matches!(error(&changed), ModelError::Configuration(_)));
}

#[test]
fn the_model_is_named_by_its_weights() {
    let encoder = built_in();
    assert!(encoder.model_id().starts_with("toolsieve-e5-int8-"), "{}", encoder.model_id());
    assert_eq!(encoder.dimension(), 384);
    assert_eq!(encoder.prompts().query, "");
}

/// A model of two layers and 64 dimensions with arbitrary weights.
fn tiny_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    let mut state = 1u32;
    let mut add = |name: String, shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        let values = (0..count).flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes()
        });
        tensors.insert(name, (shape.to_vec(), values.collect()));
    };
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "##s", "world", "query", ":"];
    add("embeddings.word_embeddings.weight".into(), &[tokens.len(), 64]);
    add("embeddings.position_embeddings.weight".into(), &[32, 64]);
    add("embeddings.token_type_embeddings.weight".into(), &[2, 64]);
    let mut layer = |prefix: &str, outputs: usize, shape: &[usize]| {
        add(format!("{prefix}.weight"), shape);
        add(format!("{prefix}.bias"), &[outputs]);
    };
    layer("embeddings.LayerNorm", 64, &[64]);
    for index in 0..2 {
        for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"] {
            layer(&format!("encoder.layer.{index}.{part}"), 64, &[64, 64]);
        }
        layer(&format!("encoder.layer.{index}.attention.output.LayerNorm"), 64, &[64]);
        layer(&format!("encoder.layer.{index}.intermediate.dense"), 128, &[128, 64]);
        layer(&format!("encoder.layer.{index}.output.dense"), 64, &[64, 128]);
        layer(&format!("encoder.layer.{index}.output.LayerNorm"), 64, &[64]);
    }
    let views = tensors.iter().map(|(name, (shape, bytes))| (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    write("model.safetensors", &file);
    write("vocab.txt", tokens.join("\n").as_bytes());
    write(
        "config.json",
        br#"{"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 128, "max_position_embeddings": 32, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu"}"#,
    );
    write("1_Pooling/config.json", br#"{"pooling_mode_cls_token": true}"#);
    write("config_sentence_transformers.json", br#"{"prompts": {"query": "query: ", "passage": "passage: "}}"#);
    folder
}

#[test]
fn another_model_can_be_imported() {
    let folder = tiny_folder();
    let bytes = import(folder.path()).unwrap();
    assert_eq!(bytes, import(folder.path()).unwrap(), "the import is reproducible");
    let encoder = Encoder::from_bytes(bytes).unwrap();
    assert_eq!((encoder.dimension(), encoder.maximum_tokens()), (64, 32));
    assert_eq!((encoder.prompts().query.as_str(), encoder.prompts().document.as_str()), ("query: ", "passage: "));
    assert_eq!(encoder.tokens("Hellos World mars"), [2, 4, 5, 6, 1, 3]);
    let vectors = encoder.encode(&["hello world", "worlds"]);
    assert!(cosine(&vectors[0], &vectors[1]) < 0.999);
}

#[test]
fn what_cannot_be_imported_is_reported() {
    let folder = tiny_folder();
    let path = |name: &str| folder.path().join(name);
    let failure = || import(folder.path()).unwrap_err();
    let config = fs::read_to_string(path("config.json")).unwrap();
    fs::write(path("config.json"), config.replace("\"gelu\"", "\"swish\"")).unwrap();
    assert!(matches!(failure(), ImportError::Unsupported { what: "hidden_act in config.json", .. }));
    fs::write(path("config.json"), config.replace("\"bert\"", "\"mpnet\"")).unwrap();
    assert!(matches!(failure(), ImportError::Unsupported { what: "model_type in config.json", .. }));
    fs::write(path("config.json"), config.replace("\"hidden_size\": 64", "\"hidden_size\": 96")).unwrap();
    assert!(matches!(failure(), ImportError::Tensor { .. }));
    fs::write(path("config.json"), config.replace("\"hidden_size\": 64", "\"hidden_size\": 0")).unwrap();
    assert!(matches!(failure(), ImportError::Model(_)));
    fs::write(path("config.json"), "{").unwrap();
    assert!(matches!(failure(), ImportError::Json { .. }));
    fs::write(path("config.json"), config).unwrap();
    fs::write(path("1_Pooling/config.json"), r#"{"pooling_mode_lasttoken": true}"#).unwrap();
    assert!(matches!(failure(), ImportError::Unsupported { what: "pooling", .. }));
    fs::write(path("model.safetensors"), [1, 2, 3]).unwrap();
    fs::write(path("1_Pooling/config.json"), r#"{"pooling_mode_mean_tokens": true}"#).unwrap();
    assert!(matches!(failure(), ImportError::Tensors(_)));
    assert!(matches!(import(Path::new("no-such-folder")), Err(ImportError::Read { file, .. }) if file == "no-such-folder"));
}
