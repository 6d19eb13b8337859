//! Models in folders: as near to sentence-transformers as int8 is, and every folder that can't be used says why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use serde::Deserialize;
use tempfile::TempDir;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{NormalizerWrapper, Tokenizer, models::wordpiece::WordPiece};
use toolsieve::adapters::embed::builtin::{Encoder, Kernel, PromptOverrides};
use toolsieve::adapters::embed::{self, BuiltinEmbedder};
use toolsieve::service::ports::Embedder;
use toolsieve::settings::{EmbedderProvider, EmbedderSettings, FolderSettings, Prefixes};

use crate::harness::process::built::TOOLSIEVE;

const MODELS: [&str; 6] = ["mean-uncased", "cls-cased", "max-accents", "xlm-roberta", "bert-unigram", "bert-scripts"];

/// What sentence-transformers makes of some texts; the programs in `tests/models` write it.
#[derive(Deserialize)]
struct Reference {
    texts: Vec<String>,
    ids: Vec<Vec<u32>>,
    query: Vec<Vec<f32>>,
    document: Vec<Vec<f32>>,
}

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

fn reference(name: &str) -> Reference {
    serde_json::from_str(&fs::read_to_string(model(name).join("reference.json")).unwrap()).unwrap()
}

fn encoder(name: &str) -> Encoder {
    Encoder::from_folder(&model(name), name, &PromptOverrides::default()).unwrap()
}

fn settings(path: PathBuf, prefixes: Prefixes) -> EmbedderSettings {
    EmbedderSettings { provider: EmbedderProvider::Folder(FolderSettings { path, prefixes }) }
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn least(vectors: &[impl AsRef<[f32]>], references: &[Vec<f32>]) -> f32 {
    assert_eq!(vectors.len(), references.len());
    vectors.iter().zip(references).map(|(vector, reference)| cosine(vector.as_ref(), reference)).fold(1.0, f32::min)
}

#[test]
fn tokens_are_those_of_the_models_own_tokenizer() {
    for name in MODELS {
        let (encoder, reference) = (encoder(name), reference(name));
        for (text, ids) in reference.texts.iter().zip(&reference.ids) {
            assert_eq!(&encoder.tokens(text), ids, "{name}: {text}");
        }
    }
}

#[test]
fn vectors_are_those_of_sentence_transformers_on_every_code_path() {
    for name in MODELS {
        let Reference { texts, query, .. } = reference(name);
        for kernel in Kernel::available() {
            let encoder = encoder(name).with_kernel(kernel).unwrap();
            let prompt = encoder.prompts().query.clone();
            let texts: Vec<String> = texts.iter().map(|text| format!("{prompt}{text}")).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let vectors = encoder.encode(&texts);
            let least = least(&vectors, &query);
            println!("{name} on {kernel:?}: least cosine {least:.5}");
            assert!(least >= 0.999, "{name} on {kernel:?}: {least}");
            for (text, vector) in texts.iter().zip(&vectors) {
                assert_eq!(&encoder.encode(&[text])[0], vector, "{name}: the neighbours of {text:?} change it");
            }
        }
    }
}

#[tokio::test]
async fn prompts_stand_in_front_of_queries_and_passages() {
    for name in MODELS {
        let Reference { texts, query, document, .. } = reference(name);
        let embedder = embed::open(&settings(model(name), Prefixes::default())).unwrap();
        let queries: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert!(least(&embedder.embed_queries(&queries).await.unwrap(), &query) >= 0.998, "{name}");
        // Once more, from the cache.
        assert!(least(&embedder.embed_queries(&queries).await.unwrap(), &query) >= 0.998, "{name}");
        assert!(least(&embedder.embed_passages(texts).await.unwrap(), &document) >= 0.998, "{name}");
    }
    let Reference { texts, query, document, .. } = reference("cls-cased");
    assert!(least(&query, &document) < 0.99, "the prompts change the vectors");
    let prefixes = Prefixes { query: Some("passage: ".into()), passage: Some(String::new()) };
    let other = embed::open(&settings(model("cls-cased"), prefixes)).unwrap();
    let queries: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(least(&other.embed_queries(&queries).await.unwrap(), &document) >= 0.998);
    let plain = BuiltinEmbedder::with(encoder("cls-cased")).embed_passages(texts.clone()).await.unwrap();
    assert!(least(&plain, &document) >= 0.998);
    assert_ne!(other.model(), embed::open(&settings(model("cls-cased"), Prefixes::default())).unwrap().model());
}

/// The tokenizer of the `tokenizers` crate on the same vocabulary.
fn other_tokenizer(encoder: &Encoder, normalizer: BertNormalizer) -> Tokenizer {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), encoder.vocabulary().collect::<Vec<_>>().join("\n")).unwrap();
    let mut tokenizer = Tokenizer::new(WordPiece::from_file(file.path().to_str().unwrap()).build().unwrap());
    tokenizer.with_normalizer(Some(NormalizerWrapper::from(normalizer))).unwrap();
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer
}

fn ids_agree(encoder: &Encoder, other: &Tokenizer, text: &str) -> bool {
    let ids = encoder.tokens(text);
    let ids = &ids[1..ids.len() - 1];
    other.encode(text, false).unwrap().get_ids().iter().take(encoder.maximum_tokens() - 2).eq(ids)
}

#[test]
fn casing_and_accents_are_handled_as_by_the_tokenizers_crate() {
    let normalizers =
        [("cls-cased", BertNormalizer::new(true, true, None, false)), ("max-accents", BertNormalizer::new(true, false, Some(false), true))];
    for (name, normalizer) in normalizers {
        let encoder = encoder(name);
        let other = other_tokenizer(&encoder, normalizer);
        for first in (0..=0x10_ffff_u32).step_by(15) {
            let text: String = (first..first + 15).filter_map(char::from_u32).flat_map(|character| ['a', character, 'b', ' ']).collect();
            assert!(ids_agree(&encoder, &other, &text), "{name}: from {first:#x}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_never_makes_it_panic(file in 0..4usize, at in 0.0..1.0f64, byte in any::<u8>()) {
        let name = ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"][file];
        let folder = copy("mean-uncased");
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a small file")]
        let place = (bytes.len() as f64 * at) as usize;
        bytes[place] = byte;
        fs::write(&path, &bytes).unwrap();
        let read = |folder: &Path| Encoder::from_folder(folder, "damaged", &PromptOverrides::default());
        if let Ok(encoder) = read(folder.path()) {
            prop_assert_eq!(encoder.encode(&["some text"]).len(), 1);
        }
        bytes.truncate(place / 2);
        fs::write(&path, &bytes).unwrap();
        prop_assert!(read(folder.path()).is_err());
    }
}

fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"] {
        let target = folder.path().join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(model(name).join(file), target).unwrap();
    }
    folder
}

#[test]
fn a_folder_that_can_not_be_used_says_what_to_do() {
    type Change = fn(&Path);
    fn edit(folder: &Path, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        fs::write(folder.join(file), text.replace(from, to)).unwrap();
    }
    let cases: [(Change, &[&str]); 18] = [
        (|folder| fs::remove_dir_all(folder).unwrap(), &["there is no such folder"]),
        (|folder| fs::remove_file(folder.join("config.json")).unwrap(), &["can't read config.json"]),
        (
            |folder| fs::write(folder.join("config.json"), r#"{"model_type": "mpnet", "hidden_size": 768}"#).unwrap(),
            &["model_type in config.json is mpnet", "only bert, roberta, xlm-roberta and camembert are supported", "embedder.url"],
        ),
        (|folder| edit(folder, "config.json", "\"bert\"", "\"modernbert\""), &["is modernbert"]),
        (|folder| edit(folder, "config.json", "gelu_new", "silu"), &["hidden_act in config.json is silu"]),
        (|folder| edit(folder, "config.json", "\"hidden_size\": 48", "\"hidden_size\": 50"), &["number of heads"]),
        (|folder| edit(folder, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"), &["encoder.layer.2", "is missing"]),
        (
            |folder| edit(folder, "config.json", "\"intermediate_size\": 100", "\"intermediate_size\": 96"),
            &["does not fit config.json", "intermediate.dense.weight", "[100, 48]", "[96, 48]"],
        ),
        (|folder| fs::remove_file(folder.join("model.safetensors")).unwrap(), &["can't read model.safetensors"]),
        (
            |folder| fs::rename(folder.join("model.safetensors"), folder.join("pytorch_model.bin")).unwrap(),
            &["only pytorch_model.bin", "safe_serialization=True"],
        ),
        (
            |folder| fs::rename(folder.join("model.safetensors"), folder.join("model.safetensors.index.json")).unwrap(),
            &["several files", "max_shard_size"],
        ),
        (
            |folder| {
                let file = fs::File::options().write(true).open(folder.join("model.safetensors")).unwrap();
                file.set_len(100_000).unwrap();
            },
            &["model.safetensors is damaged or incomplete"],
        ),
        (|folder| fs::write(folder.join("model.safetensors"), "version https://git-lfs.github.com/spec/v1\n").unwrap(), &["git lfs pull"]),
        (|folder| edit(folder, "modules.json", "modules.normalize.Normalize", "modules.dense.Dense"), &["a module", "Dense"]),
        (|folder| edit(folder, "1_Pooling/config.json", "mean", "lasttoken"), &["pooling is", "lasttoken"]),
        (
            |folder| edit(folder, "tokenizer.json", "WordPiece", "BPE"),
            &["the model in tokenizer.json is BPE", "only WordPiece and Unigram are"],
        ),
        (|folder| edit(folder, "tokenizer.json", "\"[SEP]\"", "\"[END]\""), &["lacks the token"]),
        (|folder| fs::remove_file(folder.join("tokenizer.json")).unwrap(), &["can't read vocab.txt"]),
    ];
    for (number, (change, wanted)) in cases.into_iter().enumerate() {
        let folder = copy("mean-uncased");
        change(folder.path());
        let Err(error) = embed::open(&settings(folder.path().to_owned(), Prefixes::default())) else { panic!("case {number}: it is used") };
        let message = error.to_string();
        assert!(message.starts_with(&format!("embedder.folder: {}: ", folder.path().display())), "{message}");
        for words in wanted {
            assert!(message.contains(words), "case {number}: {message}");
        }
    }
}

#[test]
fn the_command_line_says_so_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    fs::write(&config, r#"{"mcpServers": {"none": {"command": "toolsieve-no-such-program"}}}"#).unwrap();
    let run = |command: &str, model: &Path| {
        let mut line = Command::new(TOOLSIEVE);
        line.args([command, "--config"]).arg(&config).arg("--data-dir").arg(folder.path().join("data"));
        if command == "serve" {
            line.args(["--port", "0"]);
        }
        line.env("EMBEDDER_FOLDER", model).output().unwrap()
    };
    for command in ["check", "serve"] {
        let output = run(command, folder.path());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {printed}");
        assert!(printed.contains("embedder.folder") && printed.contains("can't read config.json"), "{command}: {printed}");
    }
    let output = run("check", &model("cls-cased"));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("cls-cased, 64 dimensions, 64 tokens"), "{printed}");
}
