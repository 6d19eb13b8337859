//! What was learned with another embedding model. Its vectors can't be compared, so only counts remain, unless texts were kept.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::memory::{MOST, RememberedMessage};
use crate::domain::learning::scope::Scope;
use crate::domain::learning::vector::MessageVector;
use crate::service::learning::learn::{Learning, MOST_READ};
use crate::service::ports::{EarlierUse, LearnedUse, StoreError};
use crate::settings::LearningMode;

/// A message of another model whose text was kept.
pub(in crate::service) struct EarlierMessage {
    pub(in crate::service) id: Arc<str>,
    pub(in crate::service) text: String,
}

impl Learning {
    /// For a caller, how many messages led to each tool before the embedding model changed. `None` if it hasn't, or if none did.
    pub(in crate::service) fn earlier(&self, caller: &Principal) -> Option<HashMap<ToolId, u32>> {
        // Mostly, there are none, and then the caller's scopes don't matter.
        if self.earlier.is_empty() { None } else { self.earlier.of(Scope::of(caller).first()?) }
    }

    /// Reads what was learned with another model, counts it, and returns the messages whose texts were kept. Empty if learning is off.
    ///
    /// # Errors
    /// The store fails.
    pub(in crate::service) async fn earlier_messages(&self) -> Result<Vec<EarlierMessage>, StoreError> {
        if self.settings.mode == LearningMode::Off {
            return Ok(Vec::new());
        }
        let uses = self.store.learned_earlier(&self.model, (MOST_READ, MOST)).await?;
        self.earlier.count(&uses);
        let mut messages: HashMap<Arc<str>, String> = HashMap::new();
        for one in uses {
            if let Some(text) = one.text {
                messages.insert(one.message, text);
            }
        }
        Ok(messages.into_iter().map(|(id, text)| EarlierMessage { id, text }).collect())
    }

    /// Takes over vectors of the present model for messages of another one. What was forgotten in the meantime stays forgotten.
    ///
    /// # Errors
    /// The store fails.
    pub(in crate::service) async fn learn_again(&self, vectors: HashMap<Arc<str>, MessageVector>) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        let uses = self.store.learned_earlier(&self.model, (MOST_READ, MOST)).await?;
        let (again, rest): (Vec<EarlierUse>, Vec<EarlierUse>) = uses.into_iter().partition(|one| vectors.contains_key(&one.message));
        let of = |one: EarlierUse| {
            let message = RememberedMessage { vector: vectors.get(&one.message)?.clone(), id: one.message, rivals: one.rivals };
            Some(LearnedUse { message, principal: one.principal, scopes: one.scopes, evidence: one.evidence })
        };
        let again: Vec<LearnedUse> = again.into_iter().filter_map(of).collect();
        let known: HashMap<&Arc<str>, &MessageVector> = again.iter().map(|one| (&one.message.id, &one.message.vector)).collect();
        let known: Vec<(Arc<str>, MessageVector)> = known.into_iter().map(|(id, vector)| (Arc::clone(id), vector.clone())).collect();
        self.store.replace_vectors(&self.model, &known).await?;
        self.memories.load(&again);
        self.earlier.count(&rest);
        let memories = Arc::clone(&self.memories);
        let _ = tokio::task::spawn_blocking(move || memories.refit(|_| true)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use crate::domain::learning::vector::MessageVector;
    use crate::domain::learning::verdict::NEEDED;
    use crate::service::learning::learn::Learning;
    use crate::service::learning::together::tests::{Counting, settings};

    /// Regression test: the best tools of each message were lost, so nothing could be measured, and any learning seemed to help.
    #[tokio::test]
    async fn messages_of_another_model_can_be_replayed() {
        let texts: Vec<String> = (0..NEEDED).map(|number| number.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (stop, kept) = (CancellationToken::new(), ("model", Duration::from_hours(24)));
        let (learning, writing) = Learning::start(Arc::new(Counting::with_earlier(&texts)), settings(), kept, stop.clone()).await;
        let vector = MessageVector::of(&[1.0, 0.5]).unwrap();
        let vectors: HashMap<Arc<str>, MessageVector> = texts.iter().map(|text| (Arc::from(*text), vector.clone())).collect();
        learning.learn_again(vectors).await.unwrap();
        let replayed = learning.replay().await;
        let shown: Vec<(usize, bool)> = replayed.iter().map(|one| (one.replay.uses, one.replay.replayed.is_some())).collect();
        assert_eq!(shown, [(NEEDED, true)]);
        stop.cancel();
        writing.await.unwrap();
    }
}
