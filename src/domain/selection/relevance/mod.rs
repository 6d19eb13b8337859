//! Which tools matter for a message: the ranking core.
//!
//! Pure and synchronous. The index, the embedding model and the clock are elsewhere; this module makes what goes into
//! them and judges what comes out:
//!
//! ```text
//! tool     ─ dense::passages ─────────── texts to embed, one or two
//!          └ lexical::document_vector ── sparse vector for an index with IDF
//! server   ─ server_text::server_passage ─ the text to embed
//!
//! message  ─ message::QueryPlan ─ texts (whole, sentences, with the turns before it)
//!            each text ─ embedded, and lexical::query_vector (synonyms, vocabulary) ─ two searches in the index
//!          ─ fusion::Candidates ── both lists by key ─ fuse ─ ranking
//!          ─ gate::Gate ────────── does it need a tool at all (raw evidence)
//!          ├ ambiguity ─────────── whether a language model should be asked
//!          └ cut::cut ──────────── how many of the ranking are worth their tokens
//! ```
//!
//! Every constant is a named default of a parameters struct and says what it was measured on. What use has taught
//! (learning), pinned tools, the chat's set and policy are not here: they come after, in the services.

pub mod ambiguity;
pub mod arrange;
pub mod courtesies;
pub mod cut;
pub mod dense;
pub mod examples;
pub mod fusion;
pub mod gate;
pub mod gate_head;
pub mod lexical;
pub mod liveness;
pub mod message;
pub mod server_text;
pub mod synonyms;
pub mod turn;
pub mod turn_head;

pub use ambiguity::is_ambiguous;
pub use courtesies::{Courtesy, courtesy};
pub use cut::{CutCandidate, CutParameters, GAP, GAP_OF_PARTS, companions, cut};
pub use dense::{bounded_passage, context_passage, passages};
pub use fusion::{Candidates, FusionParameters, PREFERENCE, PREFERENCE_IN_CONTEXT, Ranked, prefer, readable_score, z_scores};
pub use gate::{Gate, GateEvidence, GateParameters, Verdict};
pub use gate_head::{GateHead, Signals};
pub use lexical::{LexicalModel, LexicalParameters, SparseVector};
pub use liveness::living_first;
pub use message::{Parts, QueryPlan, Role};
pub use server_text::{ServerText, server_passage};
pub use synonyms::{SynonymProblem, Synonyms};
pub use turn::{LeftOpen, TurnEvidence};
pub use turn_head::{TurnHead, TurnSignals};
