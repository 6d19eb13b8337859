//! Embeds messages again that were learned from with another embedding model, if their texts were kept.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::domain::learning::vector::MessageVector;
use crate::service::learning::learn::Learning;
use crate::service::ports::{EmbedError, recovered};
use crate::service::selection::retrieve::Retrieve;

/// Number of messages that are embedded before what they teach is stored.
const CHUNK: usize = 2_048;
/// How long to wait after a failure. Doubles with each failure after which nothing was embedded.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Learns again from the messages of other models. After a failure, goes on when the embedder has recovered, or after a pause.
pub(crate) async fn learn_again(
    learning: &Learning,
    retrieve: &Retrieve,
    recoveries: &mut Option<watch::Receiver<u64>>,
    stop: &CancellationToken,
) {
    let embed = |text: String| async move { retrieve.message_vector(&text).await };
    let work = repeatedly(learning, embed, recoveries, FIRST_PAUSE);
    if let Some(learned @ 1..) = stop.run_until_cancelled(work).await {
        tracing::info!(learned, "messages were embedded again, because the embedding model has changed");
    }
}

/// Returns the number of messages. `first_pause` is how long to wait after a failure.
async fn repeatedly<F: Future<Output = Result<Option<MessageVector>, EmbedError>>>(
    learning: &Learning,
    embed: impl Fn(String) -> F,
    recoveries: &mut Option<watch::Receiver<u64>>,
    first_pause: Duration,
) -> usize {
    let (mut learned, mut pause) = (0, first_pause);
    // How often each message failed. One that always fails must not stop the others.
    let mut failures: HashMap<Arc<str>, u32> = HashMap::new();
    loop {
        let before = learned;
        let Err(error) = once(learning, &embed, &mut failures, &mut learned).await else { return learned };
        if learned > before {
            pause = first_pause;
        }
        tracing::warn!(error, learned, pause = ?pause, "messages were not embedded again yet, so they teach nothing until that succeeds");
        let _ = tokio::time::timeout(pause, recovered(recoveries)).await;
        pause = LONGEST_PAUSE.min(2 * pause);
    }
}

/// Learns from all messages that are left, until the first failure. What was embedded before it is stored.
async fn once<F: Future<Output = Result<Option<MessageVector>, EmbedError>>>(
    learning: &Learning,
    embed: &impl Fn(String) -> F,
    failures: &mut HashMap<Arc<str>, u32>,
    learned: &mut usize,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    // Read again each time: what was forgotten meanwhile isn't among them any more.
    let mut messages = learning.earlier_messages().await?;
    messages.sort_by_key(|message| failures.get(&message.id).copied());
    for chunk in messages.chunks(CHUNK) {
        let mut vectors = HashMap::with_capacity(chunk.len());
        let mut failed = None;
        for message in chunk {
            match embed(message.text.clone()).await {
                Ok(vector) => vectors.extend(vector.map(|vector| (Arc::clone(&message.id), vector))),
                Err(error) => {
                    *failures.entry(Arc::clone(&message.id)).or_default() += 1;
                    failed = Some(error);
                    break;
                }
            }
        }
        let embedded = vectors.len();
        if embedded > 0 {
            learning.learn_again(vectors).await?;
            *learned += embedded;
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::{EmbedError, MessageVector, repeatedly};
    use crate::service::learning::learn::Learning;
    use crate::service::learning::together::tests::{Counting, settings};
    use crate::service::ports::LearningStore;

    /// Regression test: one failure of the embedder lost the messages until the next start.
    #[tokio::test]
    async fn a_failure_of_the_embedder_loses_no_message() {
        let store = Arc::new(Counting::with_earlier(&["one", "two", "bad", "three", "four"]));
        let (stop, kept) = (CancellationToken::new(), ("model", Duration::from_hours(24)));
        let (learning, writing) = Learning::start(Arc::clone(&store) as Arc<dyn LearningStore>, settings(), kept, stop.clone()).await;
        let (asked, of_bad) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let embed = |text: String| {
            // The embedder fails at the third message, whichever it is, and three times for one of them.
            let is_away = asked.fetch_add(1, Ordering::Relaxed) == 2;
            let is_bad = text == "bad" && of_bad.fetch_add(1, Ordering::Relaxed) < 3;
            std::future::ready(if is_away || is_bad {
                Err(EmbedError::Failed("away".to_owned()))
            } else {
                Ok(MessageVector::of(&[1.0, 0.0]))
            })
        };
        let begun = std::time::Instant::now();
        let pause = Duration::from_millis(10);
        let learned = repeatedly(&learning, embed, &mut None, pause).await;
        assert_eq!((learned, learning.messages()), (5, 5));
        assert!(store.replaced() > 1, "what was embedded before a failure is stored");
        assert!(begun.elapsed() >= pause);
        stop.cancel();
        writing.await.unwrap();
    }
}
