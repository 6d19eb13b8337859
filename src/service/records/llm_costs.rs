//! Records what language models consume. If a model's endpoint does not report tokens, they are estimated with the cl100k
//! vocabulary, in the background, because nobody waits for the record.

use std::time::SystemTime;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::service::catalog::refresh::CountTokens;
use crate::service::ports::{AnswerTokens, Attribution, Exchange, ExchangeTokens, Purpose, SelectionEvent, SelectionEventKind};
use crate::service::records::record::Recorder;

#[derive(Clone)]
pub struct LlmCosts {
    recorder: Recorder,
    count_tokens: CountTokens,
}

/// Why a language model is asked, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct AskedFor<'a> {
    pub purpose: Purpose,
    /// The caller; `None` for work of the service itself.
    pub principal: Option<&'a Principal>,
    /// Whether the caller pays, with a key of their own.
    pub is_own: bool,
}

impl LlmCosts {
    pub fn new(recorder: Recorder, count_tokens: CountTokens) -> Self {
        Self { recorder, count_tokens }
    }

    /// Queues the record of an answer, without waiting.
    pub fn record(&self, exchange: Exchange, asked: AskedFor<'_>) {
        let AskedFor { purpose, principal, is_own } = asked;
        let attribution = principal.map(|principal| self.recorder.attribution(principal)).unwrap_or_default();
        let id = principal.map_or_else(|| Principal::nobody().id, |principal| principal.id.clone());
        let Exchange { model, tokens } = exchange;
        match tokens {
            ExchangeTokens::Reported { input, output } => {
                let tokens = AnswerTokens { input, output, is_estimated: false };
                self.finish(&id, attribution, purpose, model, is_own, tokens);
            }
            ExchangeTokens::Unreported { prompt, answer } => {
                let costs = self.clone();
                tokio::task::spawn_blocking(move || {
                    let counts = (costs.count_tokens)(&[prompt, answer]);
                    let count = |place: usize| counts.get(place).copied().unwrap_or_default().into();
                    let tokens = AnswerTokens { input: count(0), output: count(1), is_estimated: true };
                    costs.finish(&id, attribution, purpose, model, is_own, tokens);
                });
            }
        }
    }

    fn finish(&self, id: &PrincipalId, attribution: Attribution, purpose: Purpose, model: String, is_own: bool, tokens: AnswerTokens) {
        self.recorder.meters().llm_answer(purpose, &model, is_own, tokens);
        self.recorder.record(SelectionEvent {
            at: SystemTime::now(),
            selection: None,
            principal: id.as_str().to_owned(),
            key: None,
            chat: None,
            conversation: None,
            attribution,
            kind: SelectionEventKind::Answered { purpose, model, is_own, tokens },
        });
    }
}
