//! A BERT encoder of our own on int8 weights: the built-in models, and those of a folder.
//!
//! It is on the path of every message, which is why it exists: no runtime measured was as fast, and it needs
//! neither a native library nor a download. `weights` is the file, `import` makes it from a model folder,
//! `tokenize` and `vocabulary` turn text into ids, `forward` runs the layers with `quantize`, `linear`,
//! `attention` and `float`, and `kernels` holds the instruction sets. Deliberately absent: any other
//! architecture, training, GPUs; other models come over an OpenAI-compatible endpoint. Sizes that the kernels do not take
//! are rounded up with zeros at import.

#![expect(clippy::inline_always, reason = "the generic parts must be compiled anew inside each instruction set's function")]

mod forward;
mod kernels;
mod linear;
mod quantize;
mod float;
mod attention;
mod timing;
mod weights;
mod vocabulary;
mod tokenize;
mod import;

use std::{
    borrow::Cow,
    fmt,
    num::NonZero,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

pub use import::{ImportError, PromptOverrides, import, import_named};
pub use kernels::Kernel;
pub use timing::{TextTimes, time_texts};
pub use weights::{ModelError, Pooling, Prompts};

use forward::{Model, Scratch};
use kernels::Processor;
use tokenize::tokenize;
use vocabulary::Vocabulary;
use weights::Weights;

use crate::settings::BuiltinModel;

/// Tokens that one pass takes at most, unless a single text is longer.
const PASS: usize = 128;
/// Above so many texts the passes are spread over the cores: that is indexing, not a message.
const ALONE: usize = 32;

/// Bytes on the boundary of a cache line, so that no load of a kernel touches two.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static TOOLSIEVE_MINILM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/toolsieve-minilm.int8.bin")));
static ALL_MINILM_L6_V2: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2.int8.bin")));

/// A sentence encoder. Cheap to share behind an `Arc`; all methods take `&self`.
pub struct Encoder {
    model: Model,
    processor: Processor,
    model_id: String,
    /// At most one scratch memory per core is kept.
    spare: Mutex<Vec<Scratch>>,
    cores: usize,
}

impl Encoder {
    /// An encoder compiled into this program: six layers, 384 dimensions, 256 tokens.
    ///
    /// Its weights stay mapped from the program file, and those of the other model are never read. Their checksums are
    /// held by a test, not at every start.
    ///
    /// # Errors
    /// When the program was built with weights of another version.
    pub fn built_in(model: BuiltinModel) -> Result<Self, ModelError> {
        let weights = match model {
            BuiltinModel::ToolsieveMinilm => TOOLSIEVE_MINILM,
            BuiltinModel::AllMinilmL6V2 => ALL_MINILM_L6_V2,
        };
        Self::new(Weights::read(Cow::Borrowed(&weights.0), false)?)
    }

    /// An encoder from the bytes of a weights file, as made by [`import()`]; verifies the checksum.
    ///
    /// # Errors
    /// When the bytes aren't a whole, undamaged weights file of this version.
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, ModelError> {
        Self::new(Weights::read(bytes.into(), true)?)
    }

    /// An encoder from a sentence-transformers folder; `name` becomes the start of the model's id.
    ///
    /// # Errors
    /// As [`import()`].
    pub fn from_folder(folder: &Path, name: &str, prompts: &PromptOverrides) -> Result<Self, ImportError> {
        let bytes = import::import_prompted(folder, name, prompts)?;
        Ok(Self::new(Weights::read(bytes.into(), false)?)?)
    }

    fn new(weights: Weights) -> Result<Self, ModelError> {
        Ok(Self {
            model_id: format!("{}-int8-{}", weights.config.name, weights.digest),
            processor: Processor::new(Kernel::detect())?,
            model: Model::new(weights),
            spare: Mutex::new(Vec::new()),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
        })
    }

    /// The same encoder on a given code path, for tests and comparisons.
    ///
    /// # Errors
    /// When this processor lacks the instructions.
    pub fn with_kernel(mut self, kernel: Kernel) -> Result<Self, ModelError> {
        self.processor = Processor::new(kernel)?;
        Ok(self)
    }

    /// The code path in use.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.processor.kernel()
    }

    /// Name and weights of the model: changes whenever its vectors do, so that it can be a cache key.
    #[must_use]
    pub fn model_id(&self) -> &str {
        &self.model_id
    }

    /// The number of values in a vector.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.model.weights.config.hidden
    }

    /// The number of tokens of a text that count, `[CLS]` and `[SEP]` included; what follows is cut off.
    #[must_use]
    pub fn maximum_tokens(&self) -> usize {
        self.model.weights.config.positions
    }

    /// What the model wants in front of a text; the caller puts it there.
    #[must_use]
    pub fn prompts(&self) -> &Prompts {
        &self.model.weights.config.prompts
    }

    /// The token ids of `text`, framed by `[CLS]` and `[SEP]`, at most [`Self::maximum_tokens`].
    #[must_use]
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.tokenize_into(text, &mut ids);
        ids
    }

    /// The tokens of the vocabulary in the order of their ids.
    pub fn vocabulary(&self) -> impl Iterator<Item = &str> {
        let Weights { bytes, config, layout, .. } = &self.model.weights;
        Vocabulary::new(bytes, layout, config.longest_token).tokens()
    }

    /// One vector of [`Self::dimension`] values and length 1 per text, in the order of the texts.
    ///
    /// A text's vector is the same, to the bit, whatever stands beside it. Up to 32 texts are encoded on the
    /// calling thread; more are spread over the cores.
    #[must_use]
    pub fn encode(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut ids = Vec::new();
        let lengths: Vec<usize> = texts.iter().map(|text| self.tokenize_into(text, &mut ids)).collect();
        let passes = passes(&ids, &lengths);
        let threads = if texts.len() > ALONE { self.cores.min(passes.len()) } else { 1 };
        if threads > 1 { self.encode_on(threads, &passes) } else { self.encode_here(&passes) }
    }

    fn tokenize_into(&self, text: &str, ids: &mut Vec<u32>) -> usize {
        let Weights { bytes, config, layout, .. } = &self.model.weights;
        let vocabulary = Vocabulary::new(bytes, layout, config.longest_token);
        tokenize(text, vocabulary, config.special, config.normalization, config.positions, ids)
    }

    fn encode_here(&self, passes: &[Pass<'_>]) -> Vec<Vec<f32>> {
        let mut scratch = self.spare().pop().unwrap_or_default();
        let mut vectors = Vec::new();
        for pass in passes {
            self.model.forward(self.processor, pass.ids, pass.lengths, &mut scratch, &mut vectors);
        }
        let mut spare = self.spare();
        if spare.len() < self.cores {
            spare.push(scratch);
        }
        vectors
    }

    fn encode_on(&self, threads: usize, passes: &[Pass<'_>]) -> Vec<Vec<f32>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(pass) = passes.get(index)
            {
                done.push((index, self.encode_here(std::slice::from_ref(pass))));
            }
            done
        };
        let mut done = thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for helper in helpers {
                match helper.join() {
                    Ok(vectors) => done.extend(vectors),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_unstable_by_key(|(index, _)| *index);
        done.into_iter().flat_map(|(_, vectors)| vectors).collect()
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<Scratch>> {
        // The list is whole at every moment, so that a panic elsewhere doesn't spoil it.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Encoder").field(&self.model_id).field(&self.kernel()).finish()
    }
}

/// Texts that go through the layers together.
struct Pass<'a> {
    ids: &'a [u32],
    lengths: &'a [usize],
}

/// Cuts texts that follow one another into passes of at most [`PASS`] tokens, one text at least.
fn passes<'a>(mut ids: &'a [u32], mut lengths: &'a [usize]) -> Vec<Pass<'a>> {
    let mut passes = Vec::new();
    while let Some(first) = lengths.first() {
        let (mut texts, mut tokens) = (1, *first);
        while let Some(next) = lengths.get(texts)
            && tokens + next <= PASS
        {
            tokens += next;
            texts += 1;
        }
        let pass;
        (pass, ids) = ids.split_at(tokens);
        passes.push(Pass { ids: pass, lengths: &lengths[..texts] });
        lengths = &lengths[texts..];
    }
    passes
}
