//! Embeds messages again that were learned from with another embedding model, if their texts were kept.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use crate::service::learning::learn::Learning;
use crate::service::selection::retrieve::Retrieve;

/// Number of messages that are embedded before what they teach is stored.
const CHUNK: usize = 2_048;

/// Learns again from the messages of other models. Ends with the first failure: the next start tries again.
pub(crate) async fn learn_again(learning: &Learning, retrieve: &Retrieve, stop: &CancellationToken) {
    let messages = match learning.earlier_messages().await {
        Ok(messages) => messages,
        Err(error) => {
            tracing::warn!(%error, "what was learned with another embedding model can't be read");
            return;
        }
    };
    let mut learned = 0;
    for chunk in messages.chunks(CHUNK) {
        let mut vectors = HashMap::with_capacity(chunk.len());
        for message in chunk {
            if stop.is_cancelled() {
                return;
            }
            match retrieve.message_vector(&message.text).await {
                Ok(vector) => vectors.extend(vector.map(|vector| (message.id.clone(), vector))),
                Err(error) => {
                    tracing::warn!(%error, learned, "messages were not embedded again, so they teach nothing until the next start");
                    return;
                }
            }
        }
        learned += vectors.len();
        if let Err(error) = learning.learn_again(vectors).await {
            tracing::warn!(%error, "what messages taught with another embedding model was not stored");
            return;
        }
    }
    if learned > 0 {
        tracing::info!(learned, "messages were embedded again, because the embedding model has changed");
    }
}
