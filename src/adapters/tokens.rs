//! Counts tokens with the cl100k vocabulary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tiktoken_rs::CoreBPE;

/// Idle time after which the vocabulary is dropped. It occupies tens of megabytes and is needed only for new tools.
const IDLE: Duration = Duration::from_secs(2);

/// Counts tokens, and keeps the vocabulary in memory while it is in use.
#[derive(Clone, Default)]
pub struct TokenCounter {
    vocabulary: Arc<Mutex<Option<(CoreBPE, Instant)>>>,
}

impl TokenCounter {
    /// The token count of each text. Blocks and is CPU-bound.
    pub fn count(&self, texts: &[String]) -> Vec<u32> {
        let mut held = self.vocabulary.lock();
        if held.is_none() {
            match tiktoken_rs::cl100k_base() {
                Ok(vocabulary) => *held = Some((vocabulary, Instant::now())),
                Err(error) => tracing::error!(error = %error, "tokens are estimated: the vocabulary can't be loaded"),
            }
            self.release_when_idle();
        }
        let estimate = |text: &String| text.len().div_ceil(4);
        let counts = match held.as_mut() {
            Some((vocabulary, used)) => {
                *used = Instant::now();
                texts.iter().map(|text| vocabulary.encode_ordinary(text).len()).collect::<Vec<_>>()
            }
            None => texts.iter().map(estimate).collect(),
        };
        counts.into_iter().map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect()
    }

    fn release_when_idle(&self) {
        let vocabulary = Arc::clone(&self.vocabulary);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(IDLE);
                let mut held = vocabulary.lock();
                if held.as_ref().is_none_or(|(_, used)| used.elapsed() >= IDLE) {
                    *held = None;
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::TokenCounter;

    #[test]
    fn counts_as_cl100k_does() {
        let texts = ["hello world".to_owned(), String::new(), "{\"name\":\"get_current_time\"}".to_owned()];
        assert_eq!(TokenCounter::default().count(&texts), [2, 0, 7]);
    }
}
