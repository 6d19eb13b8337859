//! What is remembered of one message.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use indexmap::IndexSet;

use super::arguments::is_of_words;
use super::evidence::{Aspect, Evidence, EvidenceKind, Minute};
use super::stake::Stake;
use crate::domain::catalog::tool::ToolId;

/// Messages are found by the hashes of their ids, which need less memory.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a message's id, different in each process. The last bit says whether the row is one of a call's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MessageHash(u64);

impl MessageHash {
    pub(super) fn of(id: &str) -> Self {
        Self(HASHES.hash_one(id) & !1 | u64::from(is_of_words(id)))
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    fn is_of_words(self) -> bool {
        self.0 & 1 == 1
    }
}

/// What is known about a message, apart from its vector. Kept small, because there are up to 100,000.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: MessageHash,
    pub(super) scale: f32,
    pub(super) person: u32,
    /// The time of the newest evidence.
    pub(super) at: Minute,
    /// Usually one or two pieces.
    pub(super) evidence: Box<[Known]>,
    /// The tools that this message moves. Empty in a scope of several people.
    pub(super) stakes: Box<[Stake]>,
    /// The product of this message's vector with the centre of all messages.
    pub(super) offset: f32,
}

/// A piece of evidence, with the place of its tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Known {
    tool: u32,
    at: Minute,
    pub(super) kind: EvidenceKind,
}

impl Row {
    pub(super) fn person(&self) -> usize {
        self.person as usize
    }

    /// Whether this row is a message, and not the words of a call after one, which are no further use.
    pub(super) fn is_message(&self) -> bool {
        !self.id.is_of_words()
    }

    /// The weight of the evidence for a tool, or against it if negative. What was passed over counts by the scores of the tools instead.
    pub(super) fn weight(&self, tool: usize) -> f32 {
        let counts = |known: &&Known| known.tool() == tool && known.kind != EvidenceKind::PassedOver;
        self.evidence.iter().filter(counts).map(|known| known.kind.weight()).sum::<f32>().clamp(-1.0, 1.5)
    }

    /// Whether it teaches nothing new about a tool.
    pub(super) fn knows(&self, tool: usize, evidence: &Evidence) -> bool {
        let is_known = |known: &&Known| {
            let is_same = known.kind == evidence.kind && known.at == evidence.at;
            known.tool() == tool && known.kind.aspect() == evidence.kind.aspect() && (is_same || known.at > evidence.at)
        };
        self.evidence.iter().any(|known| is_known(&known)) || self.was_called(tool, evidence)
    }

    /// Whether the tool was called although it was passed over. If a message led to calls of several tools, none of them was passed over.
    fn was_called(&self, tool: usize, evidence: &Evidence) -> bool {
        let has_helped = |known: &Known| known.tool() == tool && helped(known.kind);
        evidence.kind == EvidenceKind::PassedOver && self.evidence.iter().any(has_helped)
    }

    pub(super) fn learn(&mut self, tool: usize, evidence: &Evidence) {
        self.at = self.at.max(evidence.at);
        if self.was_called(tool, evidence) {
            return;
        }
        let of_tool = |known: &Known| known.tool() == tool;
        let is_replaced =
            |kind: EvidenceKind| kind.aspect() == evidence.kind.aspect() || (kind == EvidenceKind::PassedOver && helped(evidence.kind));
        let kept = self.evidence.iter().filter(|known| !of_tool(known) || !is_replaced(known.kind)).copied();
        self.evidence = kept.chain([Known { tool: small(tool), at: evidence.at, kind: evidence.kind }]).collect();
    }
}

impl Known {
    pub(super) fn tool(&self) -> usize {
        self.tool as usize
    }

    pub(super) fn at(&self) -> Minute {
        self.at
    }

    pub(super) fn of(self, tools: &IndexSet<ToolId>) -> Evidence {
        Evidence { tool: tools[self.tool()].clone(), kind: self.kind, at: self.at }
    }
}

/// Whether it says that a call had success.
fn helped(kind: EvidenceKind) -> bool {
    kind.aspect() == Aspect::Call && kind.weight() > 0.0
}

/// A place or a number as stored in a row. It always fits, because memory holds far fewer messages, people and tools.
pub(super) fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
