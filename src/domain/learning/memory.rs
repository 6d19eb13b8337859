//! The remembered messages of one scope.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;

use super::evidence::{Aspect, Evidence, EvidenceKind, Minute};
use super::vector::MessageVector;
use crate::domain::catalog::tool::ToolId;

/// Maximum number of remembered messages per scope.
pub(crate) const MOST: usize = 5_000;
/// Maximum number of one person's messages in a scope of several people, so that nobody can displace the others.
pub(crate) const MOST_OF_ONE: usize = 250;

/// A message to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct RememberedMessage {
    pub id: Arc<str>,
    pub vector: MessageVector,
}

/// The remembered messages of a scope. All vectors are in one array, which is read from front to back.
#[derive(Debug, Default)]
pub struct Memory {
    pub(super) dimension: usize,
    pub(super) vectors: Vec<i8>,
    pub(super) rows: Vec<Row>,
    places: HashMap<Arc<str>, usize>,
    pub(super) people: IndexSet<Arc<str>>,
    /// Number of messages of each person.
    counts: Vec<usize>,
    pub(super) tools: IndexSet<ToolId>,
}

#[derive(Debug)]
pub(super) struct Row {
    id: Arc<str>,
    pub(super) scale: f32,
    pub(super) person: usize,
    /// The time of the newest evidence.
    at: Minute,
    pub(super) evidence: Vec<(usize, EvidenceKind, Minute)>,
}

impl Memory {
    /// Number of remembered messages.
    pub fn messages(&self) -> usize {
        self.rows.len()
    }

    /// Number of pieces of evidence.
    pub fn uses(&self) -> usize {
        self.rows.iter().map(|row| row.evidence.len()).sum()
    }

    /// The time of the newest evidence.
    pub fn newest(&self) -> Minute {
        self.rows.iter().map(|row| row.at).max().unwrap_or_default()
    }

    /// Adds evidence from a person's message. Ignores vectors of another length than the first. If the memory is full, the oldest message
    /// is forgotten. `most_of_one` limits the messages of a person.
    pub fn add(&mut self, message: &RememberedMessage, person: &Arc<str>, evidence: &Evidence, most_of_one: usize) {
        let vector = &message.vector;
        if self.rows.is_empty() {
            self.dimension = vector.dimension();
        }
        if vector.dimension() != self.dimension {
            return;
        }
        let (person, _) = self.people.insert_full(Arc::clone(person));
        self.counts.resize(self.people.len(), 0);
        let (tool, _) = self.tools.insert_full(evidence.tool.clone());
        let place = self.places.get(&message.id).copied().unwrap_or_else(|| self.placed(message, person, most_of_one));
        self.rows[place].learn(tool, evidence);
    }

    /// Whether a message of this person would displace another one.
    pub fn is_full_for(&self, message: &str, person: &str, most_of_one: usize) -> bool {
        let of_person = self.people.get_index_of(person).map_or(0, |person| self.counts[person]);
        !self.places.contains_key(message) && (self.rows.len() >= MOST || of_person >= most_of_one)
    }

    /// Finds a place for a new message.
    fn placed(&mut self, message: &RememberedMessage, person: usize, most_of_one: usize) -> usize {
        let row = Row { id: Arc::clone(&message.id), scale: message.vector.scale(), person, at: Minute(0), evidence: Vec::new() };
        let oldest = |is_candidate: &dyn Fn(&Row) -> bool| {
            let candidates = self.rows.iter().enumerate().filter(|(_, row)| is_candidate(row));
            candidates.min_by_key(|(_, row)| row.at).map(|(place, _)| place)
        };
        let replaced = if self.counts[person] >= most_of_one {
            oldest(&|row| row.person == person)
        } else if self.rows.len() >= MOST {
            oldest(&|_| true)
        } else {
            None
        };
        let values = message.vector.values();
        let place = if let Some(place) = replaced {
            self.vectors[place * self.dimension..(place + 1) * self.dimension].copy_from_slice(values);
            let old = std::mem::replace(&mut self.rows[place], row);
            self.places.remove(&old.id);
            self.counts[old.person] -= 1;
            place
        } else {
            if self.vectors.capacity() < self.vectors.len() + values.len() {
                // Grows by an eighth instead of doubling, to save memory.
                self.vectors.reserve_exact((self.rows.len() / 8).max(4) * self.dimension);
            }
            self.vectors.extend_from_slice(values);
            self.rows.push(row);
            self.rows.len() - 1
        };
        self.counts[person] += 1;
        self.places.insert(Arc::clone(&message.id), place);
        place
    }

    /// Keeps only this evidence, and messages that still have some. Returns how many pieces of evidence were removed.
    pub fn retain(&mut self, keep: impl Fn(&str, &Evidence) -> bool) -> usize {
        let is_kept = |row: &Row, &(tool, kind, at): &(usize, EvidenceKind, Minute)| {
            keep(&self.people[row.person], &Evidence { tool: self.tools[tool].clone(), kind, at })
        };
        if self.rows.iter().all(|row| row.evidence.iter().all(|evidence| is_kept(row, evidence))) {
            return 0;
        }
        let before = self.uses();
        let old = std::mem::take(self);
        for (place, row) in old.rows.into_iter().enumerate() {
            let person = &old.people[row.person];
            let values = old.vectors[place * old.dimension..(place + 1) * old.dimension].into();
            let message = RememberedMessage { id: row.id, vector: MessageVector::of_parts(values, row.scale) };
            for (tool, kind, at) in row.evidence {
                let evidence = Evidence { tool: old.tools[tool].clone(), kind, at };
                if keep(person, &evidence) {
                    self.add(&message, person, &evidence, usize::MAX);
                }
            }
        }
        before - self.uses()
    }

    /// Whether there is evidence on a tool from this message.
    pub fn holds(&self, message: &str, tool: &ToolId) -> bool {
        let evidence = self.places.get(message).map(|place| &self.rows[*place].evidence);
        evidence.into_iter().flatten().any(|(known, ..)| self.tools[*known] == *tool)
    }

    /// Calls `each` with all evidence.
    pub fn evidence(&self, mut each: impl FnMut(&ToolId, EvidenceKind, Minute)) {
        for (tool, kind, at) in self.rows.iter().flat_map(|row| &row.evidence) {
            each(&self.tools[*tool], *kind, *at);
        }
    }
}

impl Row {
    fn learn(&mut self, tool: usize, evidence: &Evidence) {
        self.at = self.at.max(evidence.at);
        let helped = |kind: EvidenceKind| kind.aspect() == Aspect::Call && kind.weight() > 0.0;
        // If a message led to calls of several tools, none of them was passed over.
        if evidence.kind == EvidenceKind::PassedOver && self.evidence.iter().any(|(known, kind, _)| *known == tool && helped(*kind)) {
            return;
        }
        let is_replaced =
            |kind: EvidenceKind| kind.aspect() == evidence.kind.aspect() || (kind == EvidenceKind::PassedOver && helped(evidence.kind));
        self.evidence.retain(|(known, kind, _)| *known != tool || !is_replaced(*kind));
        self.evidence.push((tool, evidence.kind, evidence.at));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Evidence, EvidenceKind, MOST, Memory, Minute, RememberedMessage};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::vector::MessageVector;

    /// The filter reads up to six scopes per message.
    #[test]
    fn a_full_scope_is_compact() {
        let mut memory = Memory::default();
        for number in 0..MOST + 50 {
            let values: Vec<f32> = (0..384).map(|at| ((number * 31 + at * 17) % 101) as f32 - 50.0).collect();
            let message = RememberedMessage { id: number.to_string().into(), vector: MessageVector::of(&values).unwrap() };
            let evidence = Evidence { tool: ToolId::new("server", "tool"), kind: EvidenceKind::Called, at: Minute(1_000_000) };
            memory.add(&message, &Arc::from((number % 40).to_string()), &evidence, 250);
        }
        assert_eq!((memory.messages(), memory.vectors.len(), memory.places.len()), (MOST, MOST * 384, MOST));
    }
}
