//! Learns from the arguments of calls: which parameters were filled, and what calls were about.

use std::sync::Arc;
use std::time::SystemTime;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::learning::arguments::{CallArguments, FilledParameters, id_of_words};
use crate::domain::learning::evidence::{EvidenceKind, Minute};
use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::scope::{Audience, Scope};
use crate::service::learning::call_words::CallWords;
use crate::service::learning::forgettings::Lesson;
use crate::service::learning::learn::Learning;
use crate::service::learning::open_message::OpenMessage;
use crate::service::learning::writer::Taught;
use crate::service::ports::{Embedder, FilledCall, StoreError};
use crate::settings::LearnedArguments;

impl Learning {
    /// Also learns what calls are about, if the settings say so.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>) -> Self {
        let words = (self.settings.arguments == LearnedArguments::Vector).then(|| CallWords::new(embedder));
        Self { words, ..self }
    }

    /// What the arguments of a call teach; `None` if they teach nothing.
    pub(in crate::service) fn read_arguments(&self, tool: &Tool, arguments: &str) -> Option<CallArguments> {
        let is_on = self.settings.arguments != LearnedArguments::Off;
        is_on.then(|| CallArguments::of(tool, arguments, self.words.is_some()))
    }

    /// Counts which parameters a call with success filled. `since` is the number of forgettings before the call, or before the message
    /// that led to it.
    pub(in crate::service) fn learn_filled(&self, caller: &Principal, tool: &ToolId, parameters: &[String], since: u64) {
        let mut scopes = Scope::of(caller);
        // Counts don't belong to groups.
        scopes.retain(|scope| !matches!(scope.audience, Audience::Group(_)));
        let Some(own) = scopes.first() else { return };
        let (principal, parameters) = (caller.id.as_str().into(), parameters.into());
        let call = FilledCall { tool: tool.clone(), key: Arc::clone(&own.key), principal, parameters, at: SystemTime::now() };
        let lesson = Lesson { person: caller.id.as_str(), scopes: &scopes, tool, at: Minute::of(call.at) };
        if let Some(now) = self.forgettings.unless_forgotten(since, lesson, || ()) {
            self.queue.push(Taught::Filled(now, call));
        }
    }

    /// Learns what a call after a caller's message was about, soon: the words are embedded like a further message.
    pub(in crate::service) fn learn_words(
        &self,
        caller: &Principal,
        message: &OpenMessage,
        (tool, kind): (&ToolId, EvidenceKind),
        text: String,
    ) {
        let Some(words) = self.words.clone() else { return };
        let Some(place) = words.place() else { return };
        let (learning, caller, tool) = (self.clone(), caller.clone(), tool.clone());
        let (id, open) = (id_of_words(&message.message.id, &tool), message.clone());
        tokio::spawn(async move {
            let _place = place;
            let Some(vector) = words.vector(&text).await else { return };
            let message = RememberedMessage { id, vector, rivals: [].into() };
            learning.learn(&caller, &OpenMessage { message, ..open }, tool, kind);
        });
    }

    /// Which parameters calls filled, over all callers: of one tool, or of all of them.
    ///
    /// # Errors
    /// The store fails.
    pub async fn filled(&self, tool: Option<&ToolId>) -> Result<Vec<FilledParameters>, StoreError> {
        self.store.filled(tool).await
    }
}
