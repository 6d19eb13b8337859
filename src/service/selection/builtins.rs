//! Judges Open WebUI's own tools by family; see [`domain::selection::builtins`](crate::domain::selection::builtins).

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use crate::domain::selection::builtins::{Families, Family, Nearness};
use crate::domain::selection::relevance::{Courtesy, QueryPlan, Role, courtesy};
use crate::domain::selection::remembering::Remembering;
use crate::service::ports::Embedder;
use crate::service::selection::request::SelectRequest;

/// Number of earlier user messages whose families stay, so that the definitions in a chat change rarely.
const EARLIER: usize = 5;
/// Maximum number of their texts, those of the latest messages first. Most have been embedded before, but not on another replica.
const EARLIER_TEXTS: usize = 32;
/// Maximum number of searches that are considered, the last ones.
const SEARCHES: usize = 16;
/// The family of the tools that remember something about the user.
const MEMORIES: &str = "memories";

/// The vectors of the families' examples.
#[derive(Default)]
pub(super) struct BuiltinExamples {
    /// In the order of the examples; `None` until they are embedded.
    vectors: ArcSwapOption<Vec<Arc<[f32]>>>,
    /// Whether any texts were judged without them.
    were_missed: watch::Sender<bool>,
}

/// The texts by which families are judged.
pub(super) struct BuiltinTexts {
    /// The message with its parts or its context.
    message: Vec<String>,
    /// Earlier messages of the user.
    earlier: Vec<String>,
    /// What the model has searched for.
    searches: Vec<String>,
}

/// The families that stay.
#[derive(Default)]
pub(super) struct BuiltinFamilies {
    /// Those that the message may need.
    pub(super) needed: BTreeSet<Family>,
    /// Further ones that earlier messages needed or that the chat uses.
    pub(super) staying: BTreeSet<Family>,
    /// Further ones that the model searched for.
    pub(super) searched: BTreeSet<Family>,
}

impl BuiltinTexts {
    pub(super) fn of(request: &SelectRequest) -> Self {
        let turns: Vec<(Role, &str)> = request.turns.iter().map(|turn| (turn.role, turn.text.as_str())).collect();
        let whole = |text: &str| Some(QueryPlan::new(text).whole().to_owned()).filter(|text| !text.is_empty());
        let mut message = QueryPlan::of_conversation(&turns).texts().to_vec();
        let of_user = turns.iter().enumerate().rev().filter(|(_, (role, text))| *role == Role::User && !text.trim().is_empty());
        // As they were judged when they were the last message, so that their families stay.
        let texts = |(at, _): (usize, _)| QueryPlan::of_conversation(&turns[..=at]).texts().to_vec();
        let mut earlier: Vec<String> = of_user.skip(1).take(EARLIER).flat_map(texts).take(EARLIER_TEXTS).collect();
        // "Thanks!" needs nothing itself, whatever the turn before it was about.
        if message.first().is_some_and(|text| courtesy(text) == Some(Courtesy::Courtesy)) {
            earlier.append(&mut message);
        }
        let last = request.searched.len().saturating_sub(SEARCHES);
        Self { message, earlier, searches: request.searched[last..].iter().filter_map(|text| whole(text)).collect() }
    }
}

impl BuiltinExamples {
    pub(super) fn set(&self, vectors: Vec<Arc<[f32]>>) {
        self.vectors.store(Some(Arc::new(vectors)));
    }

    /// Waits until texts are judged without the vectors.
    pub(super) async fn missed(&self) {
        // The sender is this struct's, so waiting can't fail.
        let _ = self.were_missed.subscribe().wait_for(|were_missed| *were_missed).await;
    }

    /// The families that these texts need. If the embedder fails, cues decide alone.
    pub(super) async fn judge(&self, texts: &BuiltinTexts, embedder: &dyn Embedder) -> BuiltinFamilies {
        BuiltinFamilies {
            needed: self.families(&texts.message, Nearness::OF_MESSAGE, embedder).await,
            staying: self.families(&texts.earlier, Nearness::OF_MESSAGE, embedder).await,
            searched: self.families(&texts.searches, Nearness::OF_SEARCH, embedder).await,
        }
    }

    async fn families(&self, texts: &[String], nearness: Nearness, embedder: &dyn Embedder) -> BTreeSet<Family> {
        let all = Families::all();
        let mut found: BTreeSet<Family> = texts.iter().flat_map(|text| all.with_cue(text)).collect();
        if texts.iter().any(|text| Remembering::of(text).is_some()) {
            found.extend(all.of_name(MEMORIES));
        }
        let examples = self.vectors.load_full();
        if examples.is_none() {
            self.were_missed.send_replace(true);
        }
        if let Some(examples) = examples
            && !texts.is_empty()
        {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            // The embedder has cached the texts of the ranking. An outage has already caused a warning there.
            let vectors = embedder.embed_queries(&texts).await.unwrap_or_default();
            found.extend(vectors.iter().flat_map(|vector| all.near(vector, &examples, nearness)));
        }
        all.with_needed(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use futures::FutureExt as _;

    use super::{BuiltinExamples, BuiltinTexts, Role, SelectRequest};
    use crate::service::ports::{EmbedError, Embedder};
    use crate::service::selection::request::Turn;

    struct Broken;

    #[async_trait]
    impl Embedder for Broken {
        fn model(&self) -> &'static str {
            "broken"
        }

        fn dimension(&self) -> usize {
            0
        }

        async fn embed_queries(&self, _: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
            Err(EmbedError::Failed("it is broken".to_owned()))
        }

        async fn embed_passages(&self, _: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
            Err(EmbedError::Failed("it is broken".to_owned()))
        }
    }

    /// Regression test: each new data folder embedded the examples at its first start, also where nobody offers these tools.
    #[tokio::test]
    async fn examples_are_wanted_once_texts_are_judged_without_them() {
        let examples = BuiltinExamples::default();
        assert!(examples.missed().now_or_never().is_none(), "nothing was judged");
        let texts = BuiltinTexts { message: vec!["take a note: milk".to_owned()], earlier: Vec::new(), searches: Vec::new() };
        let families = examples.judge(&texts, &Broken).await;
        assert!(!families.needed.is_empty(), "cues decide alone");
        for _ in 0..2 {
            assert!(examples.missed().now_or_never().is_some(), "also once embedding them has failed");
        }
    }

    /// Regression test: thanks after an answer about the calendar needed the calendar.
    #[test]
    fn thanks_need_nothing_of_what_was_said_before() {
        let texts = |message: &str| {
            let said = [(Role::User, "What's on my calendar today?"), (Role::Assistant, "You have a meeting at 3."), (Role::User, message)];
            let turns = said.map(|(role, text)| Turn { role, text: text.to_owned(), called: Vec::new() }).to_vec();
            BuiltinTexts::of(&SelectRequest { turns, ..SelectRequest::default() })
        };
        let thanks = texts("thanks!");
        assert!(thanks.message.is_empty() && thanks.earlier[0].contains("calendar"), "{:?}", thanks.message);
        assert!(texts("move it to 4").message[1].contains("calendar"));
        assert!(!texts("yes, thanks").message.is_empty(), "may answer a question");
    }

    /// Regression test: a family that only a part of a message needed left with the next message.
    #[test]
    fn earlier_messages_are_judged_as_they_were() {
        let of_user = |text: &str| Turn { role: Role::User, text: text.to_owned(), called: Vec::new() };
        let said = [of_user("What time is it in Tokyo, and what's on my calendar today?"), of_user("and tomorrow?")];
        let before = |count: usize| BuiltinTexts::of(&SelectRequest { turns: said[..count].to_vec(), ..SelectRequest::default() }).message;
        let turns = [said.to_vec(), vec![of_user("List the files in the project folder.")]].concat();
        let earlier = BuiltinTexts::of(&SelectRequest { turns, ..SelectRequest::default() }).earlier;
        assert!(before(1).len() > 1 && before(2).len() > 1, "parts and context");
        assert_eq!(earlier, [before(2), before(1)].concat());
    }
}
