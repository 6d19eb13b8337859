//! The remembered messages of one scope, and their votes for a new message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexSet;

use super::evidence::{Aspect, Evidence, EvidenceKind, Minute, fading};
use super::vector::{MessageVector, dot};
use crate::domain::catalog::tool::ToolId;

/// Maximum number of remembered messages per scope.
pub(crate) const MOST: usize = 5_000;
/// Maximum number of one person's messages in a scope of several people, so that nobody can displace the others.
pub(crate) const MOST_OF_ONE: usize = 250;
/// Number of messages that vote: the nearest ones. In a scope of several people: the number of people.
const NEAREST: usize = 8;
/// The cosine from which messages count as alike in explanations.
const ALIKE: f32 = 0.6;
/// How fast votes lose weight with the distance of their message.
const WIDTH: f32 = 0.3;
/// Bounds of the weight of one message for one tool.
const WEIGHTS: std::ops::RangeInclusive<f32> = -1.5..=1.5;

/// Who must agree, and how long evidence counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoteParameters {
    /// Number of different people whose evidence must agree on a tool. 1 in a caller's own scope.
    pub people: usize,
    pub half_life: Duration,
    pub now: Minute,
}

/// The vote of a scope on a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Vote {
    /// Positive for the tool, negative against it.
    pub sum: f32,
    /// Number of similar messages with evidence for the tool.
    pub messages: u32,
}

/// A message to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct RememberedMessage {
    pub id: Arc<str>,
    pub vector: MessageVector,
}

/// The remembered messages of a scope. All vectors are in one array, which is read from front to back.
#[derive(Debug, Default)]
pub struct Memory {
    dimension: usize,
    vectors: Vec<i8>,
    rows: Vec<Row>,
    places: HashMap<Arc<str>, usize>,
    people: IndexSet<Arc<str>>,
    /// Number of messages of each person.
    counts: Vec<usize>,
    tools: IndexSet<ToolId>,
}

#[derive(Debug)]
struct Row {
    id: Arc<str>,
    scale: f32,
    person: usize,
    /// The time of the newest evidence.
    at: Minute,
    evidence: Vec<(usize, EvidenceKind, Minute)>,
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

    /// The votes of the remembered messages for a new message.
    pub fn votes(&self, message: &MessageVector, parameters: &VoteParameters) -> HashMap<ToolId, Vote> {
        if message.dimension() != self.dimension || self.people.len() < parameters.people {
            return HashMap::new();
        }
        let shared = parameters.people > 1;
        let nearest = if shared { self.nearest_of_people(message, parameters.people) } else { self.nearest(message) };
        // With more voices, each one weighs less, so that a scope of many people is not louder than one of few.
        let share = (NEAREST as f32 / nearest.len().max(1) as f32).min(1.0);
        let mut tallies: HashMap<usize, Tally> = HashMap::new();
        for &(cosine, place) in &nearest {
            let near = ((cosine - 1.0) / WIDTH).exp() * share;
            for (tool, weight) in self.rows[place].weights(parameters) {
                tallies.entry(tool).or_default().add(near * weight, cosine);
            }
        }
        let votes = tallies.into_iter().filter_map(|(tool, tally)| Some((self.tools[tool].clone(), tally.vote(parameters.people)?)));
        votes.collect()
    }

    /// Calls `each` with all evidence.
    pub fn evidence(&self, mut each: impl FnMut(&ToolId, EvidenceKind, Minute)) {
        for (tool, kind, at) in self.rows.iter().flat_map(|row| &row.evidence) {
            each(&self.tools[*tool], *kind, *at);
        }
    }

    /// The nearest messages, with their cosines.
    fn nearest(&self, message: &MessageVector) -> Vec<(f32, usize)> {
        let mut nearest: Vec<(f32, usize)> = Vec::with_capacity(NEAREST + 1);
        for (place, cosine) in self.cosines(message).enumerate() {
            if nearest.len() == NEAREST && nearest.last().is_some_and(|(worst, _)| cosine <= *worst) {
                continue;
            }
            let at = nearest.partition_point(|(known, _)| *known >= cosine);
            nearest.insert(at, (cosine, place));
            nearest.truncate(NEAREST);
        }
        nearest
    }

    /// The nearest message of each of the nearest people.
    fn nearest_of_people(&self, message: &MessageVector, people: usize) -> Vec<(f32, usize)> {
        let mut best: Vec<Option<(f32, usize)>> = vec![None; self.people.len()];
        for (place, cosine) in self.cosines(message).enumerate() {
            let known = &mut best[self.rows[place].person];
            if known.is_none_or(|(known, _)| cosine > known) {
                *known = Some((cosine, place));
            }
        }
        let mut best: Vec<(f32, usize)> = best.into_iter().flatten().collect();
        best.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        best.truncate(NEAREST.max(2 * people));
        best
    }

    fn cosines(&self, message: &MessageVector) -> impl Iterator<Item = f32> {
        let (values, scale) = (message.values(), message.scale());
        self.vectors
            .chunks_exact(self.dimension.max(1))
            .zip(&self.rows)
            .map(move |(vector, row)| dot(vector, values) as f32 * scale * row.scale)
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

    /// The weight of this message for each of its tools.
    fn weights(&self, parameters: &VoteParameters) -> HashMap<usize, f32> {
        let mut weights: HashMap<usize, f32> = HashMap::new();
        for (tool, kind, at) in &self.evidence {
            *weights.entry(*tool).or_default() += kind.weight() * fading(*at, parameters.now, parameters.half_life);
        }
        for weight in weights.values_mut() {
            *weight = weight.clamp(*WEIGHTS.start(), *WEIGHTS.end());
        }
        weights
    }
}

/// The voices for and against a tool.
#[derive(Default)]
struct Tally {
    positive: f32,
    supporters: usize,
    negative: f32,
    opponents: usize,
    alike: u32,
}

impl Tally {
    fn add(&mut self, weight: f32, cosine: f32) {
        if weight > 0.0 {
            self.positive += weight;
            self.supporters += 1;
            self.alike += u32::from(cosine >= ALIKE);
        } else {
            self.negative += weight;
            self.opponents += 1;
        }
    }

    /// `None` if too few people agree.
    fn vote(&self, people: usize) -> Option<Vote> {
        let counted = |sum: f32, voices: usize| if voices >= people { sum } else { 0.0 };
        let sum = counted(self.positive, self.supporters) + counted(self.negative, self.opponents);
        let messages = if self.supporters >= people { self.alike } else { 0 };
        (sum != 0.0).then_some(Vote { sum, messages })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Evidence, EvidenceKind, MOST, Memory, Minute, RememberedMessage, Vote, VoteParameters};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::vector::MessageVector;

    const NOW: Minute = Minute(1_000_000);

    fn parameters(people: usize) -> VoteParameters {
        VoteParameters { people, half_life: Duration::from_hours(24 * 30), now: NOW }
    }

    fn vector(values: &[f32]) -> MessageVector {
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        MessageVector::of(&values.iter().map(|value| value / length).collect::<Vec<_>>()).unwrap()
    }

    fn tool(name: &str) -> ToolId {
        ToolId::new("server", name)
    }

    fn add(memory: &mut Memory, id: &str, values: &[f32], person: &str, name: &str, kind: EvidenceKind) {
        let message = RememberedMessage { id: id.into(), vector: vector(values) };
        memory.add(&message, &Arc::from(person), &Evidence { tool: tool(name), kind, at: NOW }, 250);
    }

    fn vote(memory: &Memory, values: &[f32], name: &str, people: usize) -> Option<Vote> {
        memory.votes(&vector(values), &parameters(people)).get(&tool(name)).copied()
    }

    #[test]
    fn a_similar_message_votes_more_than_another() {
        let mut memory = Memory::default();
        add(&mut memory, "1", &[1.0, 0.1, 0.0], "a", "right", EvidenceKind::Called);
        let (near, far) = (vote(&memory, &[1.0, 0.0, 0.0], "right", 1).unwrap(), vote(&memory, &[0.0, 0.0, 1.0], "right", 1).unwrap());
        assert!(near.sum > 0.9 && far.sum < 0.1, "{near:?} {far:?}");
        assert_eq!((near.messages, far.messages), (1, 0));
        assert_eq!(vote(&memory, &[1.0, 0.0], "right", 1), None, "a vector of another model");
    }

    #[test]
    fn a_message_counts_once_however_often_the_tool_was_called() {
        let mut memory = Memory::default();
        for _ in 0..100 {
            add(&mut memory, "1", &[1.0, 0.0], "a", "right", EvidenceKind::Called);
        }
        assert_eq!((memory.messages(), memory.uses()), (1, 1));
        assert!(vote(&memory, &[1.0, 0.0], "right", 1).unwrap().sum < 1.01);
    }

    #[test]
    fn a_called_tool_was_not_passed_over() {
        let weight = |kinds: [EvidenceKind; 2]| {
            let mut memory = Memory::default();
            kinds.into_iter().for_each(|kind| add(&mut memory, "1", &[1.0, 0.0], "a", "tool", kind));
            vote(&memory, &[1.0, 0.0], "tool", 1).unwrap().sum
        };
        let [first, then, called] = [
            [EvidenceKind::PassedOver, EvidenceKind::Called],
            [EvidenceKind::Called, EvidenceKind::PassedOver],
            [EvidenceKind::Called, EvidenceKind::Called],
        ]
        .map(weight);
        assert!((first - called).abs() < 1e-6 && (then - called).abs() < 1e-6, "{first} {then} {called}");
    }

    #[test]
    fn a_later_verdict_replaces_the_earlier_one() {
        let mut memory = Memory::default();
        add(&mut memory, "1", &[1.0, 0.0], "a", "tool", EvidenceKind::Wrong);
        assert!(vote(&memory, &[1.0, 0.0], "tool", 1).unwrap().sum < 0.0);
        add(&mut memory, "1", &[1.0, 0.0], "a", "tool", EvidenceKind::Helpful);
        assert!(vote(&memory, &[1.0, 0.0], "tool", 1).unwrap().sum > 0.9);
    }

    #[test]
    fn others_count_once_enough_people_agree() {
        let mut memory = Memory::default();
        for (person, needed) in [("a", None), ("b", None), ("c", Some(()))] {
            for message in 0..20 {
                add(&mut memory, &format!("{person}{message}"), &[1.0, 0.0], person, "right", EvidenceKind::Called);
            }
            assert_eq!(vote(&memory, &[1.0, 0.0], "right", 3).map(drop), needed, "{person}");
        }
    }

    #[test]
    fn a_flood_by_one_person_displaces_nobody() {
        let mut memory = Memory::default();
        for person in 0..10 {
            add(&mut memory, &format!("p{person}"), &[1.0, 0.0], &format!("p{person}"), "right", EvidenceKind::Called);
        }
        let before = memory.votes(&vector(&[1.0, 0.1]), &parameters(10));
        for message in 0..2 * MOST {
            add(&mut memory, &format!("m{message}"), &[1.0, 0.1], "attacker", "wrong", EvidenceKind::Called);
        }
        let after = memory.votes(&vector(&[1.0, 0.1]), &parameters(10));
        assert_eq!((before.len(), after.len(), memory.messages()), (1, 1, 260));
        assert!((before[&tool("right")].sum - after[&tool("right")].sum).abs() < 0.1 * before[&tool("right")].sum, "{before:?} {after:?}");
    }

    #[test]
    fn old_evidence_fades() {
        let mut memory = Memory::default();
        add(&mut memory, "1", &[1.0, 0.0], "a", "right", EvidenceKind::Called);
        let later = VoteParameters { now: Minute(NOW.0 + 60 * 24 * 300), ..parameters(1) };
        assert!(memory.votes(&vector(&[1.0, 0.0]), &later)[&tool("right")].sum < 0.002);
    }

    #[test]
    fn what_is_forgotten_votes_no_more() {
        let mut memory = Memory::default();
        add(&mut memory, "1", &[1.0, 0.0], "a", "one", EvidenceKind::Called);
        add(&mut memory, "1", &[1.0, 0.0], "a", "two", EvidenceKind::Called);
        add(&mut memory, "2", &[1.0, 0.0], "b", "one", EvidenceKind::Called);
        assert!(memory.holds("1", &tool("two")) && !memory.holds("2", &tool("two")));
        assert_eq!(memory.retain(|_, evidence| evidence.tool != tool("two")), 1);
        assert_eq!(memory.retain(|person, _| person != "a"), 1);
        assert_eq!((memory.messages(), memory.uses()), (1, 1));
        assert!(vote(&memory, &[1.0, 0.0], "one", 1).is_some() && vote(&memory, &[1.0, 0.0], "two", 1).is_none());
    }

    /// The filter reads up to six scopes per message.
    #[test]
    fn a_full_scope_is_compact() {
        let mut memory = Memory::default();
        for number in 0..MOST + 50 {
            let values: Vec<f32> = (0..384).map(|at| ((number * 31 + at * 17) % 101) as f32 - 50.0).collect();
            add(&mut memory, &number.to_string(), &values, &(number % 40).to_string(), "tool", EvidenceKind::Called);
        }
        assert_eq!((memory.messages(), memory.vectors.len(), memory.places.len()), (MOST, MOST * 384, MOST));
    }

    proptest! {
        #[test]
        fn one_person_never_decides_for_others(uses in prop::collection::vec((0_usize..30, 0_usize..4, 0_usize..8), 1..60)) {
            let mut memory = Memory::default();
            for (number, name, kind) in &uses {
                let values = [1.0, *number as f32 / 10.0];
                add(&mut memory, &number.to_string(), &values, "a", &name.to_string(), EvidenceKind::ALL[*kind]);
            }
            prop_assert!(memory.votes(&vector(&[1.0, 0.0]), &parameters(2)).is_empty());
            for vote in memory.votes(&vector(&[1.0, 0.0]), &parameters(1)).values() {
                prop_assert!(vote.sum.abs() <= 12.0 && vote.sum.is_finite());
            }
        }
    }
}
