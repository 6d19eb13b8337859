//! The remembered messages of one scope.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;

use super::evidence::{Evidence, EvidenceKind, Minute};
use super::fit::{Fit, Lesson};
use super::roster::Roster;
use super::row::{Known, MessageHash, Row, small};
use super::stake::Stake;
use super::vector::{MessageVector, dot, widened};
use super::verdict::{NEEDED, Replayed, Verdict};
use crate::domain::catalog::tool::ToolId;

/// Maximum number of remembered messages per scope.
pub(crate) const MOST: usize = 5_000;
/// Maximum number of one person's messages in a scope of several people, so that nobody can displace the others.
pub(crate) const MOST_OF_ONE: usize = 250;

/// Up to this many messages, all of them are learned from again with each use.
const FEW: usize = 32;
/// Maximum number of a message's best tools that are remembered.
pub const RIVALS: usize = 12;

/// A message to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct RememberedMessage {
    pub id: Arc<str>,
    pub vector: MessageVector,
    /// The best tools without learning, with their scores. Empty if they are unknown.
    pub rivals: Arc<[(ToolId, f32)]>,
}

/// The remembered messages of a scope. All vectors are in one array, which is read from front to back.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(super) dimension: usize,
    pub(super) vectors: Vec<i8>,
    pub(super) rows: Vec<Row>,
    places: HashMap<MessageHash, u32>,
    /// Counts the messages of each person.
    pub(super) people: Roster,
    pub(super) tools: IndexSet<ToolId>,
    /// Whether all messages are one person's. Then they pull tools by what plain relevance got wrong.
    pub(super) is_of_one: bool,
    pub(super) fit: Fit,
    /// The last replay, and its time.
    replayed: Option<(Minute, Replayed)>,
    /// Number of changes since the last fit.
    changes: usize,
    /// Changes with every message and every piece of evidence.
    version: u64,
}

/// What all messages of a scope teach.
#[derive(Debug)]
pub struct Refitted {
    fit: Fit,
    /// For each message, by its place.
    pulls: Vec<(usize, Vec<f32>)>,
    version: u64,
}

impl Memory {
    /// An empty memory for one person's messages.
    pub fn of_one() -> Self {
        Self { is_of_one: true, ..Self::default() }
    }

    /// Number of remembered messages.
    pub fn messages(&self) -> usize {
        self.rows.iter().filter(|row| row.is_message()).count()
    }

    /// A hash of each remembered message's id.
    pub(crate) fn message_hashes(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().filter(|row| row.is_message()).map(|row| row.id.number())
    }

    /// Number of remembered vectors: of messages, and of the words of calls.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Number of pieces of evidence of messages.
    pub fn uses(&self) -> usize {
        self.rows.iter().filter(|row| row.is_message()).map(|row| row.evidence.len()).sum()
    }

    /// The time of the newest evidence.
    pub fn newest(&self) -> Minute {
        self.rows.iter().map(|row| row.at).max().unwrap_or_default()
    }

    /// Adds evidence from a person's message. Ignores vectors of another length than the first. If the memory is full, the oldest message
    /// is forgotten. `most_of_one` limits the messages of a person.
    pub fn add(&mut self, message: &RememberedMessage, person: &Arc<str>, evidence: &Evidence, most_of_one: usize) {
        if let Some(place) = self.insert(message, person, evidence, most_of_one)
            && self.is_of_one
        {
            self.changes += 1;
            if self.rows.len() <= FEW { self.refit() } else { self.settle(place) }
        }
    }

    /// Adds evidence without learning from it, until [`Self::refit`]. Returns the place of the message.
    pub fn insert(&mut self, message: &RememberedMessage, person: &Arc<str>, evidence: &Evidence, most_of_one: usize) -> Option<usize> {
        self.insert_hashed(MessageHash::of(&message.id), message, person, evidence, most_of_one)
    }

    fn insert_hashed(
        &mut self,
        id: MessageHash,
        message: &RememberedMessage,
        person: &Arc<str>,
        evidence: &Evidence,
        most_of_one: usize,
    ) -> Option<usize> {
        let vector = &message.vector;
        if self.rows.is_empty() {
            self.dimension = vector.dimension();
        }
        if vector.dimension() != self.dimension {
            return None;
        }
        let (tool, _) = self.tools.insert_full(evidence.tool.clone());
        let place = self.places.get(&id).map(|place| *place as usize);
        let place = place.unwrap_or_else(|| self.placed(id, &message.vector, person, most_of_one));
        self.rows[place].learn(tool, evidence);
        self.version += 1;
        if self.is_of_one {
            let rivals = message.rivals.iter().take(RIVALS).map(|(tool, score)| (self.tools.insert_full(tool.clone()).0, *score));
            let rivals: Vec<(usize, f32)> = rivals.collect();
            let row = &mut self.rows[place];
            row.stakes = Stake::joined(&row.stakes, &rivals, row.evidence.iter().map(Known::tool));
        }
        Some(place)
    }

    /// By how much learning from these messages predicts better than no learning, as a mean difference of log likelihoods. `None` in a
    /// scope of several people, whose messages vote.
    pub fn gain(&self) -> Option<f32> {
        self.is_of_one.then(|| self.fit.gain())
    }

    /// The standard error of [`Self::gain`].
    pub fn gain_error(&self) -> Option<f32> {
        self.is_of_one.then(|| self.fit.error())
    }

    /// Whether these messages help, by the last replay, or without a clear one, by the gain. Those of several people always vote.
    pub fn helps(&self) -> bool {
        let verdict = self.replayed.as_ref().map(|(_, replayed)| replayed.verdict);
        match verdict {
            Some(Verdict::Better) => true,
            Some(Verdict::Worse) => false,
            Some(Verdict::Unsure) | None => !self.is_of_one || self.fit.helps(),
        }
    }

    /// The last replay, and its time.
    pub fn last_replay(&self) -> Option<(Minute, Replayed)> {
        self.replayed
    }

    /// Takes over the verdict of a replay.
    pub fn judge(&mut self, replayed: Replayed, at: Minute) {
        self.replayed = Some((at, replayed));
    }

    /// Whether so much has changed that [`Self::refitted`] is worth its time.
    pub fn is_due(&self) -> bool {
        self.is_of_one && self.changes > self.rows.len() / 8
    }

    /// Learns from all messages again.
    pub fn refit(&mut self) {
        let refitted = self.refitted();
        self.take(refitted);
    }

    /// What all messages teach, to be taken over later. Takes a tenth of a second for thousands of messages.
    pub fn refitted(&self) -> Refitted {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|&place| self.rows[place].at);
        let lessons: Vec<Lesson<'_>> = order.iter().map(|&place| self.lesson(place)).collect();
        let (fit, pulls) = Fit::of(&lessons, self.dimension, self.tools.len());
        Refitted { fit, pulls: order.into_iter().zip(pulls).collect(), version: self.version }
    }

    /// Takes over what messages teach, unless they have changed meanwhile.
    pub fn take(&mut self, refitted: Refitted) {
        if refitted.version != self.version {
            return;
        }
        self.fit = refitted.fit;
        self.changes = 0;
        for (place, pulls) in refitted.pulls {
            let vector = &self.vectors[place * self.dimension..(place + 1) * self.dimension];
            let row = &mut self.rows[place];
            row.offset = self.fit.offset(vector, row.scale);
            row.stakes.iter_mut().zip(pulls).for_each(|(stake, pull)| *stake = stake.with_pull(pull));
        }
    }

    /// Learns from one message.
    fn settle(&mut self, place: usize) {
        let lesson = self.lesson(place);
        let offset = self.fit.offset(lesson.vector, lesson.scale);
        let values = widened(lesson.vector);
        let mut sums = vec![0.0_f32; self.tools.len()];
        for (other, (vector, row)) in self.vectors.chunks_exact(self.dimension.max(1)).zip(&self.rows).enumerate() {
            if other != place {
                let cosine = dot(vector, &values) as f32 * lesson.scale * row.scale;
                let kernel = self.fit.kernel(cosine, offset + row.offset);
                row.stakes.iter().for_each(|stake| sums[stake.tool()] += kernel * stake.pull());
            }
        }
        let deltas: Vec<f32> = lesson.stakes.iter().map(|stake| sums[stake.tool()]).collect();
        let square = dot(lesson.vector, &values) as f32 * lesson.scale * lesson.scale;
        let pulls = self.fit.settled(&lesson, &deltas, self.fit.kernel(square, 2.0 * offset));
        let row = &mut self.rows[place];
        row.offset = offset;
        row.stakes.iter_mut().zip(pulls).for_each(|(stake, pull)| *stake = stake.with_pull(pull));
    }

    pub(super) fn lesson(&self, place: usize) -> Lesson<'_> {
        let row = &self.rows[place];
        let weight = |stake: &Stake| row.weight(stake.tool());
        let vector = &self.vectors[place * self.dimension..(place + 1) * self.dimension];
        Lesson { vector, scale: row.scale, stakes: &row.stakes, weights: row.stakes.iter().map(weight).collect() }
    }

    fn place_of(&self, message: &str) -> Option<usize> {
        self.places.get(&MessageHash::of(message)).map(|place| *place as usize)
    }

    /// Whether a message of this person would displace another one.
    pub fn is_full_for(&self, message: &str, person: &str, most_of_one: usize) -> bool {
        self.place_of(message).is_none() && (self.rows.len() >= MOST || self.people.count_of(person) >= most_of_one)
    }

    /// Finds a place for a new message.
    fn placed(&mut self, id: MessageHash, vector: &MessageVector, person: &Arc<str>, most_of_one: usize) -> usize {
        let person = self.people.add(person);
        let row = Row {
            id,
            scale: vector.scale(),
            person: small(person),
            at: Minute(0),
            evidence: Box::default(),
            stakes: Box::default(),
            offset: 0.0,
        };
        let oldest = |is_candidate: &dyn Fn(&Row) -> bool| {
            let candidates = self.rows.iter().enumerate().filter(|(_, row)| is_candidate(row));
            candidates.min_by_key(|(_, row)| row.at).map(|(place, _)| place)
        };
        let replaced = if self.people.counts[person] > most_of_one {
            oldest(&|row| row.person() == person)
        } else if self.rows.len() >= MOST {
            oldest(&|_| true)
        } else {
            None
        };
        let values = vector.values();
        let place = if let Some(place) = replaced {
            self.vectors[place * self.dimension..(place + 1) * self.dimension].copy_from_slice(values);
            let old = std::mem::replace(&mut self.rows[place], row);
            self.places.remove(&old.id);
            self.remove_from_person(old.person());
            place
        } else {
            if self.vectors.capacity() < self.vectors.len() + values.len() {
                // Grows by an eighth instead of doubling, to save memory.
                let more = (self.rows.len() / 8).max(4);
                self.vectors.reserve_exact(more * self.dimension);
                self.rows.reserve_exact(more);
            }
            self.vectors.extend_from_slice(values);
            self.rows.push(row);
            self.rows.len() - 1
        };
        self.places.insert(id, small(place));
        place
    }

    fn remove_from_person(&mut self, person: usize) {
        if let Some(renumbered) = self.people.remove(person) {
            self.rows.iter_mut().filter(|row| row.person() == renumbered).for_each(|row| row.person = small(person));
        }
    }

    /// Keeps only this evidence, and messages that still have some. What they teach is kept until [`Self::refitted`], which is then due.
    /// Returns how many pieces of evidence of messages were removed.
    pub fn retain(&mut self, keep: impl Fn(&str, &Evidence) -> bool) -> usize {
        let is_kept = |row: &Row, known: &Known| keep(self.people.name(row.person()), &known.of(&self.tools));
        if self.rows.iter().all(|row| row.evidence.iter().all(|known| is_kept(row, known))) {
            return 0;
        }
        let before = self.uses();
        let (is_of_one, replayed, fit) = (self.is_of_one, self.replayed, self.fit.clone());
        let emptied = Self { is_of_one, replayed, fit, version: self.version + 1, ..Self::default() };
        let old = std::mem::replace(self, emptied);
        for (place, row) in old.rows.into_iter().enumerate() {
            let person = old.people.name(row.person());
            let values = old.vectors[place * old.dimension..(place + 1) * old.dimension].into();
            let rivals = row.stakes.iter().filter_map(|stake| Some((old.tools[stake.tool()].clone(), stake.score()?)));
            let vector = MessageVector::of_parts(values, row.scale);
            let message = RememberedMessage { id: "".into(), vector, rivals: rivals.collect() };
            let (mut kept, mut forgotten) = (None, Vec::new());
            for known in row.evidence {
                let evidence = known.of(&old.tools);
                if keep(person, &evidence) {
                    kept = self.insert_hashed(row.id, &message, person, &evidence, usize::MAX);
                } else {
                    forgotten.push(known.tool());
                }
            }
            let Some(kept) = kept else { continue };
            let kept = &mut self.rows[kept];
            kept.offset = row.offset;
            for stake in &mut kept.stakes {
                let is_same = |known: &&Stake| old.tools[known.tool()] == self.tools[stake.tool()] && !forgotten.contains(&known.tool());
                let pull = row.stakes.iter().find(is_same).map_or(0.0, |known| known.pull());
                *stake = stake.with_pull(pull);
            }
        }
        self.changes = self.rows.len();
        // The verdict rests on messages that are gone.
        if self.rows.len() < NEEDED {
            self.replayed = None;
        }
        before - self.uses()
    }

    /// Whether this evidence of a message, or newer evidence on the same aspect, is remembered.
    pub fn knows(&self, message: &str, evidence: &Evidence) -> bool {
        let tool = self.tools.get_index_of(&evidence.tool);
        self.place_of(message).zip(tool).is_some_and(|(place, tool)| self.rows[place].knows(tool, evidence))
    }

    /// Whether there is evidence on a tool from this message.
    pub fn holds(&self, message: &str, tool: &ToolId) -> bool {
        let evidence = self.place_of(message).map(|place| &self.rows[place].evidence);
        evidence.into_iter().flatten().any(|known| self.tools[known.tool()] == *tool)
    }

    /// Calls `each` with all evidence of messages.
    pub fn evidence(&self, mut each: impl FnMut(&ToolId, EvidenceKind, Minute)) {
        for known in self.rows.iter().filter(|row| row.is_message()).flat_map(|row| &row.evidence) {
            each(&self.tools[known.tool()], known.kind, known.at());
        }
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
            let message =
                RememberedMessage { id: number.to_string().into(), vector: MessageVector::of(&values).unwrap(), rivals: [].into() };
            let evidence = Evidence { tool: ToolId::new("server", "tool"), kind: EvidenceKind::Called, at: Minute(1_000_000) };
            memory.add(&message, &Arc::from((number % 40).to_string()), &evidence, 250);
        }
        assert_eq!((memory.messages(), memory.vectors.len(), memory.places.len()), (MOST, MOST * 384, MOST));
    }

    /// As on a public page, where everybody is new.
    #[test]
    fn a_person_without_messages_is_forgotten() {
        let mut memory = Memory::default();
        let add = |memory: &mut Memory, id: usize, person: usize| {
            let message =
                RememberedMessage { id: id.to_string().into(), vector: MessageVector::of(&[1.0, 0.5]).unwrap(), rivals: [].into() };
            let at = Minute(1_000_000 + u32::try_from(id).unwrap());
            let evidence = Evidence { tool: ToolId::new("server", "tool"), kind: EvidenceKind::Called, at };
            memory.add(&message, &Arc::from(format!("p{person}")), &evidence, 2);
        };
        (0..MOST + 50).for_each(|number| add(&mut memory, number, number));
        // One who stays displaces only an own message.
        (0..3).for_each(|more| add(&mut memory, MOST + 50 + more, 100));
        assert_eq!((memory.people.len(), memory.people.counts.len(), memory.messages()), (MOST - 1, MOST - 1, MOST));
        let mut counts = vec![0; memory.people.len()];
        memory.rows.iter().for_each(|row| counts[row.person()] += 1);
        assert_eq!(counts, memory.people.counts);
        assert_eq!(memory.people.count_of("p100"), 2);
        let removed = memory.retain(|person, _| person != format!("p{}", MOST + 49));
        assert_eq!((removed, memory.people.len()), (1, MOST - 2), "rows and people still belong together");
    }
}
