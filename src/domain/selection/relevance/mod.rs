//! The core of the ranking: matches tools with a message.
//!
//! Pure and synchronous. The index and the embedding model are elsewhere; this module prepares their inputs and evaluates their
//! outputs:
//!
//! ```text
//! tool     ─ dense::passages ─────────── texts to embed, one or two
//!          └ lexical::document_vector ── sparse vector for an index with IDF
//! server   ─ server_text::server_passage ─ the text to embed
//!
//! message  ─ message::QueryPlan ─ texts (whole, sentences, with earlier turns)
//!            each text ─ embedded, and lexical::query_vector (synonyms, vocabulary) ─ two searches in the index
//!          ─ fusion::Candidates ── both lists by key ─ fuse ─ ranking
//!          ─ gate::Gate ────────── is any tool needed (raw evidence)
//!          ├ ambiguity ─────────── should a language model rerank
//!          ├ cut::cut ──────────── how many tools are worth their tokens
//!          └ weakness ──────────── which results of a search hardly match
//! ```
//!
//! Comments on tuned constants name the data behind them. Pinned tools, the chat's set and the policy are absent: the services
//! apply them afterwards.

mod acceptances;
pub(crate) mod courtesies;
pub mod cut;
pub(crate) mod dense;
pub(crate) mod evidence;
pub mod examples;
mod pasted;
mod referring;
mod resource;
mod quoted;
pub(crate) mod server_text;
pub(crate) mod synonyms;
pub(crate) mod lexical;
pub(crate) mod turn;
pub(crate) mod message;
pub(crate) mod fusion;
pub(crate) mod ambiguity;
pub(crate) mod arrange;
pub(crate) mod liveness;
pub(crate) mod weakness;
pub(crate) mod weighed_signal;
pub(crate) mod gate_head;
pub(crate) mod turn_head;
pub(crate) mod gate;

pub use ambiguity::is_ambiguous;
pub use courtesies::{Courtesy, courtesy};
pub use cut::{CutCandidate, CutParameters, CutReason, GAP, GAP_OF_PARTS, companions, cut, cut_noting, gap_at};
pub use dense::{bounded_passage, passages};
pub use evidence::{Asked, GateEvidence};
pub use fusion::{
    Candidates, FusionParameters, PREFERENCE, PREFERENCE_IN_CONTEXT, Ranked, prefer, raise, raise_to_alone, readable_score, z_scores,
};
pub use gate::{Gate, GateParameters, GateRule, GateVerdict};
pub use gate_head::{GateHead, Signals};
pub use lexical::{LexicalModel, LexicalParameters, SparseVector};
pub use liveness::living_first;
pub use message::{MessageParts, QueryPlan, Role};
pub use server_text::{ServerText, server_passage};
pub use synonyms::{SynonymProblem, Synonyms};
pub use turn::{LeftOpen, TurnEvidence};
pub use turn_head::{TurnHead, TurnSignals};
pub use weakness::{is_weak, shares_word};
pub use weighed_signal::WeighedSignal;
