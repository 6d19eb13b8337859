//! A BERT encoder with int8 weights, for built-in models and model folders. It also runs XLM-R and `RoBERTa`, which are the same
//! network with other tokenizers and positions.
//!
//! Every message passes through the encoder. It is faster than any measured runtime and needs neither a native library nor a download.
//! `weights` is the weights file, and `import` creates it from a model folder. `tokenize` (`WordPiece`) or `unigram` with `charsmap` turn
//! text into ids, both with `vocabulary`. `forward` runs the layers with `quantize`, `linear`, `attention` and `float`, and `kernels`
//! contains the instruction sets. `residency` frees memory. Other architectures, training and GPUs are deliberately absent; use an
//! OpenAI-compatible endpoint for other models. At import, unsupported sizes are padded with zeros.

#![expect(clippy::inline_always, reason = "the generic parts must be compiled anew inside each instruction set's function")]

mod float;
mod quantize;
mod linear;
mod attention;
mod vocabulary;
mod tokenize;
mod charsmap;
mod unigram;
mod weights;
mod residency;
mod kernels;
mod forward;
mod timing;
mod import;

use std::{
    borrow::Cow,
    fmt,
    num::NonZero,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

pub use import::{ImportError, PromptOverrides, import, import_named};
pub use kernels::Kernel;
pub use timing::{TextTimes, time_texts};
pub use weights::{ModelError, Pooling, Prompts, WordFormat};

use forward::{Model, Scratch};
use kernels::Processor;
use tokenize::{WordBuffers, tokenize};
use unigram::{PathBuffers, Unigram};
use vocabulary::Vocabulary;
use weights::{TokenizerKind, Weights};

/// Maximum number of tokens per pass, unless a single text is longer.
const PASS: usize = 128;
/// Number of tokens after which the vectors of words go back to the operating system. Each one that is read brings a neighbourhood
/// of 64 KiB into memory, so soon nearly all 33 MB are there. Bringing them back takes less than a hundredth of the time of a token.
const TOKENS_UNTIL_RELEASE: usize = 256;
/// Maximum number of texts that are encoded on one thread. More texts mean indexing and use all cores.
const ALONE: usize = 32;

/// Bytes aligned to cache lines, so that no kernel load crosses a line.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static TOOLSIEVE_E5: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../assets/toolsieve-e5.int8.bin"));

/// A sentence encoder. Share it in an `Arc`; all methods take `&self`.
pub struct Encoder {
    model: Model,
    processor: Processor,
    model_id: String,
    /// Buffers that are not in use, at most one set per core.
    spare: Spare<Scratch>,
    spare_tokens: Spare<TokenBuffers>,
    /// The number of tokens that were encoded since the vectors of words were last given back.
    since_release: AtomicUsize,
    cores: usize,
}

/// The tokenizers' buffers.
#[derive(Default)]
struct TokenBuffers {
    word: WordBuffers,
    path: PathBuffers,
}

/// Buffers that are not in use.
#[derive(Default)]
struct Spare<T>(Mutex<Vec<T>>);

impl<T: Default> Spare<T> {
    fn take(&self) -> T {
        self.list().pop().unwrap_or_default()
    }

    /// Keeps a buffer, unless there are `most` already.
    fn put(&self, buffer: T, most: usize) {
        let mut list = self.list();
        if list.len() < most {
            list.push(buffer);
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<T>> {
        // A panic elsewhere cannot corrupt the list, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Encoder {
    /// Creates an encoder from the compiled-in weights: twelve layers, 384 dimensions, 256 tokens.
    ///
    /// The weights stay mapped from the program file. A test verifies their checksum, so that startup does not have to.
    ///
    /// # Errors
    /// The compiled-in weights are damaged or of another version.
    pub fn built_in() -> Result<Self, ModelError> {
        Self::new(Weights::read(Cow::Borrowed(&TOOLSIEVE_E5.0), false)?)
    }

    /// Creates an encoder from the bytes of a weights file ([`import()`]) and verifies the checksum.
    ///
    /// # Errors
    /// The bytes are no weights file of this version, or it is incomplete or damaged.
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, ModelError> {
        Self::new(Weights::read(bytes.into(), true)?)
    }

    /// Creates an encoder from a sentence-transformers folder. The model's id starts with `name`.
    ///
    /// # Errors
    /// Like [`import()`].
    pub fn from_folder(folder: &Path, name: &str, prompts: &PromptOverrides) -> Result<Self, ImportError> {
        let bytes = import::import_prompted(folder, name, prompts, WordFormat::Int8)?;
        Ok(Self::new(Weights::read(bytes.into(), false)?)?)
    }

    fn new(weights: Weights) -> Result<Self, ModelError> {
        Ok(Self {
            model_id: format!("{}-int8-{}", weights.config.name, weights.digest),
            processor: Processor::new(Kernel::detect())?,
            model: Model::new(weights),
            spare: Spare::default(),
            spare_tokens: Spare::default(),
            since_release: AtomicUsize::new(0),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
        })
    }

    /// Uses the given code path, for tests and comparisons.
    ///
    /// # Errors
    /// The processor does not support the code path.
    pub fn with_kernel(mut self, kernel: Kernel) -> Result<Self, ModelError> {
        self.processor = Processor::new(kernel)?;
        Ok(self)
    }

    /// The code path in use.
    pub fn kernel(&self) -> Kernel {
        self.processor.kernel()
    }

    /// An id derived from the name and the weights. It changes whenever the vectors change, so it can be a cache key.
    pub fn model_id(&self) -> &str {
        &self.model_id
    }

    /// The number of values in a vector.
    pub fn dimension(&self) -> usize {
        self.model.weights.config.hidden
    }

    /// Maximum number of tokens per text, including the special tokens at its start and end, `[CLS]` and `[SEP]`. The rest is cut off.
    pub fn maximum_tokens(&self) -> usize {
        self.model.weights.config.positions
    }

    /// The prefixes that the model needs, which the caller must add to texts.
    pub fn prompts(&self) -> &Prompts {
        &self.model.weights.config.prompts
    }

    /// The token ids of `text`, including `[CLS]` and `[SEP]`, at most [`Self::maximum_tokens`].
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.tokenize_into([text], &mut ids);
        ids
    }

    /// The tokens of the vocabulary in order of id. With a Unigram tokenizer, special tokens are empty.
    pub fn vocabulary(&self) -> impl Iterator<Item = &str> {
        self.tokens_table().tokens()
    }

    /// Encodes texts: one unit vector of [`Self::dimension`] values per text, in order.
    ///
    /// A text's vector is bit-identical in every batch. Up to 32 texts are encoded on the calling thread; more are spread
    /// over the cores.
    pub fn encode(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut ids = Vec::new();
        let lengths = self.tokenize_into(texts.iter().copied(), &mut ids);
        let passes = passes(&ids, &lengths);
        let threads = if texts.len() > ALONE { self.cores.min(passes.len()) } else { 1 };
        if threads > 1 { self.encode_on(threads, &passes) } else { self.encode_here(&passes) }
    }

    /// Gives the memory of compiled-in weights back to the operating system, which reads them from the program file again when they
    /// are needed. Does nothing for other weights.
    pub fn release(&self) {
        if let Cow::Borrowed(weights) = &self.model.weights.bytes {
            residency::release(weights);
        }
    }

    /// Gives the vectors of words back to the operating system after every [`TOKENS_UNTIL_RELEASE`] tokens.
    fn release_words(&self, encoded: usize) {
        let Weights { bytes: Cow::Borrowed(weights), layout, .. } = &self.model.weights else { return };
        let tokens = self.since_release.fetch_add(encoded, Ordering::Relaxed) + encoded;
        if tokens >= TOKENS_UNTIL_RELEASE {
            self.since_release.store(0, Ordering::Relaxed);
            residency::release(&weights[layout.words.start..layout.word_scales.end]);
        }
    }

    /// Appends the ids of all texts, and returns the number of ids of each.
    fn tokenize_into<'a>(&self, texts: impl IntoIterator<Item = &'a str>, ids: &mut Vec<u32>) -> Vec<usize> {
        let Weights { bytes, config, layout, .. } = &self.model.weights;
        let (vocabulary, limit) = (self.tokens_table(), config.positions);
        let mut buffers = self.spare_tokens.take();
        let texts = texts.into_iter();
        let lengths = match (&config.tokenizer, &layout.unigram) {
            (TokenizerKind::Unigram(unigram), Some(layout)) => {
                let unigram = Unigram::new(bytes, layout, vocabulary, config.special, unigram);
                texts.map(|text| unigram.tokenize(text, limit, &mut buffers.path, ids)).collect()
            }
            _ => {
                texts.map(|text| tokenize(text, vocabulary, config.special, config.normalization, limit, &mut buffers.word, ids)).collect()
            }
        };
        self.spare_tokens.put(buffers, self.cores);
        lengths
    }

    fn tokens_table(&self) -> Vocabulary<'_> {
        let Weights { bytes, config, layout, .. } = &self.model.weights;
        Vocabulary::new(bytes, &layout.tokens, config.longest_token)
    }

    fn encode_here(&self, passes: &[Pass<'_>]) -> Vec<Vec<f32>> {
        let mut scratch = self.spare.take();
        let mut vectors = Vec::new();
        for pass in passes {
            self.model.forward(self.processor, pass.ids, pass.lengths, &mut scratch, &mut vectors);
            self.release_words(pass.ids.len());
        }
        self.spare.put(scratch, self.cores);
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

/// Splits a sequence of texts into passes of at most [`PASS`] tokens or a single text.
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

#[cfg(test)]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    const PAGE: usize = 4096;

    /// The number of these pages that this process has in memory.
    fn resident(bytes: &[u8]) -> usize {
        let mut entries = vec![0; bytes.len() / PAGE * 8];
        let first = bytes.as_ptr() as usize / PAGE;
        File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entries, first as u64 * 8).unwrap();
        let is_present = |entry: &&[u8; 8]| u64::from_le_bytes(**entry) >> 63 == 1;
        entries.as_chunks().0.iter().filter(is_present).count()
    }

    #[test]
    fn words_go_back_to_the_system_after_some_tokens() {
        let encoder = Encoder::built_in().unwrap();
        let words = &encoder.model.weights.bytes[encoder.model.weights.layout.words.clone()];
        assert_ne!(words.iter().step_by(PAGE).map(|byte| usize::from(*byte)).sum::<usize>(), 0, "all of them are read");
        encoder.since_release.store(TOKENS_UNTIL_RELEASE - 1, Ordering::Relaxed);
        encoder.encode(&["tea"]);
        assert!(resident(words) < words.len() / PAGE / 4, "{} pages", resident(words));
        assert_eq!(encoder.since_release.load(Ordering::Relaxed), 0);
    }
}
