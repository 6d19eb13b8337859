//! Timings of single texts and of a batch, for `toolsieve bench embed` and comparisons with other runtimes.

use std::time::Instant;

use serde::Serialize;

use super::Encoder;

/// The measurements; wall-clock times.
#[derive(Clone, Debug, Serialize)]
pub struct TextTimes {
    /// The model's id.
    pub model: String,
    /// The code path.
    pub kernel: &'static str,
    /// Tokens per text, including `[CLS]` and `[SEP]`.
    pub tokens: Vec<usize>,
    /// Per round, the milliseconds of each text, encoded alone on one thread.
    pub milliseconds: Vec<Vec<f64>>,
}

/// Encodes every text alone on the calling thread, for `rounds` rounds after an unmeasured warm-up.
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
