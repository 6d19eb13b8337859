//! Measures encoding times, for `toolsieve bench embed` and for comparisons with other runtimes.

use std::time::Instant;

use serde::Serialize;

use super::Encoder;

/// Measured wall-clock times.
#[derive(Clone, Debug, Serialize)]
pub struct TextTimes {
    /// The model's id.
    pub model: String,
    /// The name of the code path.
    pub kernel: &'static str,
    /// Number of tokens per text, including `[CLS]` and `[SEP]`.
    pub tokens: Vec<usize>,
    /// For each round, the milliseconds per text, with texts encoded one by one on one thread.
    pub milliseconds: Vec<Vec<f64>>,
}

/// Encodes every text individually on the calling thread: an unmeasured warm-up, then `rounds` measured rounds.
pub fn time_texts(encoder: &Encoder, texts: &[&str], rounds: usize) -> TextTimes {
    let round = || {
        let times = texts.iter().map(|text| {
            let start = Instant::now();
            std::hint::black_box(encoder.encode(&[text]));
            start.elapsed().as_secs_f64() * 1e3
        });
        times.collect::<Vec<f64>>()
    };
    round();
    TextTimes {
        model: encoder.model_id().to_owned(),
        kernel: encoder.kernel().name(),
        tokens: texts.iter().map(|text| encoder.tokens(text).len()).collect(),
        milliseconds: (0..rounds).map(|_| round()).collect(),
    }
}
