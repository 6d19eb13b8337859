//! What remembered messages change for a new message.
//!
//! The messages of one person pull tools up and down (see `fit`). In a scope of several people, each person has one vote (see `people`).

use std::collections::HashMap;
use std::time::Duration;

use super::evidence::{Minute, fading};
use super::memory::Memory;
use super::row::Row;
use super::vector::{MessageVector, dot, widened};
use crate::domain::catalog::tool::ToolId;

/// How far a person's own messages move a tool up or down at most.
pub(super) const MOST: f32 = 3.0;
/// A smaller change is none.
const LEAST: f32 = 0.02;
/// The cosine from which a message that needed a tool is so similar that this one needs a tool too.
const NEARLY_THE_SAME: f32 = 0.86;
/// The votes from which a message surely needs a tool: those of one person's messages that are nearly the same, or of several people.
pub(super) const AGREED: f32 = 0.5;
/// The cosine from which messages count as alike in explanations.
pub(super) const ALIKE: f32 = 0.6;
/// Maximum number of tools that other people raise, so that wrong uses can't fill the first ranks.
pub(super) const MOST_RAISED: usize = 2;
/// Bounds of the weight of one message for one tool.
const WEIGHTS: std::ops::RangeInclusive<f32> = -1.5..=1.5;

/// Who must agree, and how long evidence counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoteParameters {
    /// Number of different people whose evidence must agree on a tool, in a scope of several people.
    pub people: usize,
    pub half_life: Duration,
    pub now: Minute,
    /// Whether one person's messages count only if learning from them predicts better than no learning.
    pub must_help: bool,
}

/// What a scope changes for a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Vote {
    /// The change of the tool's score, in standard deviations of the candidates.
    pub delta: f32,
    /// Number of similar messages with evidence for the tool.
    pub messages: u32,
    /// Whether nearly the same message needed the tool.
    pub is_certain: bool,
}

/// The evidence for a tool by messages that are like a new one.
#[derive(Clone, Copy, Default)]
struct Alike {
    /// Number of messages and of words of calls that support the tool.
    rows: u32,
    /// Number of messages among them.
    messages: u32,
    /// Sum of the weights, for and against the tool, of nearly the same messages.
    of_the_same: f32,
}

impl Vote {
    /// Adds what another scope changes.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            delta: (self.delta + other.delta).clamp(-MOST, MOST),
            messages: self.messages.max(other.messages),
            is_certain: self.is_certain || other.is_certain,
        }
    }
}

/// Keeps the tools that the votes of several scopes raise most, as many as one scope may raise, and all that they lower.
pub(crate) fn keep_most_raised(votes: &mut HashMap<ToolId, Vote>) {
    let mut raised: Vec<(f32, &ToolId)> =
        votes.iter().filter(|(_, vote)| vote.delta > 0.0).map(|(tool, vote)| (vote.delta, tool)).collect();
    raised.sort_unstable_by(|(delta, tool), (other_delta, other)| other_delta.total_cmp(delta).then_with(|| tool.cmp(other)));
    let others: Vec<ToolId> = raised.into_iter().skip(MOST_RAISED).map(|(_, tool)| tool.clone()).collect();
    votes.retain(|tool, _| !others.contains(tool));
}

impl Memory {
    /// What the remembered messages change for a new message.
    pub fn votes(&self, message: &MessageVector, parameters: &VoteParameters) -> HashMap<ToolId, Vote> {
        let enough = self.is_of_one || self.people.len() >= parameters.people;
        if message.dimension() != self.dimension || !enough {
            return HashMap::new();
        }
        let votes = if self.is_of_one { self.votes_of_one(message, parameters) } else { self.votes_of_people(message, parameters) };
        votes.into_iter().map(|(tool, vote)| (self.tools[tool].clone(), vote)).collect()
    }

    /// How far the messages of one person pull tools.
    fn votes_of_one(&self, message: &MessageVector, parameters: &VoteParameters) -> Vec<(usize, Vote)> {
        if parameters.must_help && !self.helps() {
            return Vec::new();
        }
        let mut deltas = vec![0.0_f32; self.tools.len()];
        let mut alike: HashMap<usize, Alike> = HashMap::new();
        let offset = self.fit.offset(message.values(), message.scale());
        // Many messages in a row have the same age in minutes.
        let (mut at, mut faded) = (Minute(u32::MAX), 1.0);
        for (row, cosine) in self.rows.iter().zip(self.cosines(message)) {
            if row.at != at {
                (at, faded) = (row.at, fading(row.at, parameters.now, parameters.half_life));
            }
            let kernel = self.fit.kernel(cosine, offset + row.offset) * faded;
            for stake in &row.stakes {
                deltas[stake.tool()] += kernel * stake.pull();
            }
            if cosine >= ALIKE {
                for (tool, weight) in row.weights(parameters) {
                    let alike = alike.entry(tool).or_default();
                    alike.rows += u32::from(weight > 0.0);
                    alike.messages += u32::from(weight > 0.0 && row.is_message());
                    if cosine >= NEARLY_THE_SAME {
                        alike.of_the_same += weight;
                    }
                }
            }
        }
        let vote = |(tool, delta): (usize, f32)| {
            let Alike { rows, messages, of_the_same } = alike.get(&tool).copied().unwrap_or_default();
            let vote = Vote { delta: delta.clamp(-MOST, MOST), messages, is_certain: of_the_same >= AGREED };
            (vote.delta.abs() >= LEAST || rows > 0).then_some((tool, vote))
        };
        deltas.into_iter().enumerate().filter_map(vote).collect()
    }

    pub(super) fn cosines(&self, message: &MessageVector) -> impl Iterator<Item = f32> {
        let (values, scale) = (widened(message.values()), message.scale());
        self.vectors
            .chunks_exact(self.dimension.max(1))
            .zip(&self.rows)
            .map(move |(vector, row)| dot(vector, &values) as f32 * scale * row.scale)
    }
}

impl Row {
    /// The weight of this message for each of its tools.
    pub(super) fn weights(&self, parameters: &VoteParameters) -> HashMap<usize, f32> {
        let mut weights: HashMap<usize, f32> = HashMap::new();
        for known in &self.evidence {
            *weights.entry(known.tool()).or_default() += known.kind.weight() * fading(known.at(), parameters.now, parameters.half_life);
        }
        for weight in weights.values_mut() {
            *weight = weight.clamp(*WEIGHTS.start(), *WEIGHTS.end());
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Memory, Vote, VoteParameters, keep_most_raised};
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::arguments::id_of_words;
    use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
    use crate::domain::learning::memory::{MOST, RememberedMessage};
    use crate::domain::learning::vector::MessageVector;

    const NOW: Minute = Minute(1_000_000);

    fn parameters(people: usize) -> VoteParameters {
        VoteParameters { people, half_life: Duration::from_hours(24 * 30), now: NOW, must_help: true }
    }

    fn vector(values: &[f32]) -> MessageVector {
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        MessageVector::of(&values.iter().map(|value| value / length).collect::<Vec<_>>()).unwrap()
    }

    fn tool(name: &str) -> ToolId {
        ToolId::new("server", name)
    }

    fn add(memory: &mut Memory, id: &str, values: &[f32], person: &str, name: &str, kind: EvidenceKind) {
        let message = RememberedMessage { id: id.into(), vector: vector(values), rivals: [].into() };
        memory.add(&message, &Arc::from(person), &Evidence { tool: tool(name), kind, at: NOW }, 250);
    }

    fn vote(memory: &Memory, values: &[f32], name: &str, people: usize) -> Option<Vote> {
        memory.votes(&vector(values), &parameters(people)).get(&tool(name)).copied()
    }

    #[test]
    fn a_similar_message_votes_more_than_another() {
        let mut memory = Memory::of_one();
        add(&mut memory, "1", &[1.0, 0.1, 0.0], "a", "right", EvidenceKind::Called);
        let (near, far) = (vote(&memory, &[1.0, 0.0, 0.0], "right", 1).unwrap(), vote(&memory, &[0.0, 0.0, 1.0], "right", 1));
        assert!(near.delta > 0.5 && far.is_none_or(|far| far.delta < 0.1), "{near:?} {far:?}");
        assert!(near.messages == 1 && near.is_certain);
        assert_eq!(vote(&memory, &[1.0, 0.0], "right", 1), None, "a vector of another model");
    }

    /// Regression test: after one use, no number of verdicts could close the gate again.
    #[test]
    fn later_verdicts_on_the_same_message_take_the_certainty_away() {
        let mut memory = Memory::of_one();
        add(&mut memory, "1", &[1.0, 0.1], "a", "right", EvidenceKind::Missing);
        let is_certain = |memory: &Memory| vote(memory, &[1.0, 0.0], "right", 1).is_some_and(|vote| vote.is_certain);
        assert!(is_certain(&memory));
        add(&mut memory, "2", &[1.0, 0.05], "a", "right", EvidenceKind::Wrong);
        assert!(!is_certain(&memory));
        add(&mut memory, "3", &[1.0, 0.0], "a", "right", EvidenceKind::Called);
        assert!(is_certain(&memory));
        add(&mut memory, "4", &[0.0, 1.0], "a", "right", EvidenceKind::Wrong);
        assert!(is_certain(&memory), "another message");
    }

    #[test]
    fn a_message_counts_once_however_often_the_tool_was_called() {
        let mut memory = Memory::of_one();
        for _ in 0..100 {
            add(&mut memory, "1", &[1.0, 0.0], "a", "right", EvidenceKind::Called);
        }
        assert_eq!((memory.messages(), memory.uses()), (1, 1));
        let once = {
            let mut memory = Memory::of_one();
            add(&mut memory, "1", &[1.0, 0.0], "a", "right", EvidenceKind::Called);
            vote(&memory, &[1.0, 0.0], "right", 1)
        };
        assert_eq!(vote(&memory, &[1.0, 0.0], "right", 1), once);
    }

    /// Regression test: one message with one call counted as two of each.
    #[test]
    fn the_words_of_a_call_are_no_further_message() {
        let mut memory = Memory::of_one();
        add(&mut memory, "1", &[1.0, 0.1], "a", "right", EvidenceKind::Called);
        let alone = vote(&memory, &[1.0, 0.0], "right", 1).unwrap();
        add(&mut memory, &id_of_words("1", &tool("right")), &[1.0, 0.2], "a", "right", EvidenceKind::Called);
        let counts = |memory: &Memory| {
            let mut pieces = 0;
            memory.evidence(|_, _, _| pieces += 1);
            (memory.messages(), memory.uses(), pieces, memory.rows())
        };
        assert_eq!(counts(&memory), (1, 1, 1, 2));
        let both = vote(&memory, &[1.0, 0.0], "right", 1).unwrap();
        assert!(both.messages == 1 && both.delta > alone.delta, "{alone:?} {both:?}");
        memory.retain(|_, evidence| evidence.tool != tool("other"));
        add(&mut memory, "2", &[0.0, 1.0], "a", "other", EvidenceKind::Called);
        memory.retain(|_, evidence| evidence.tool != tool("other"));
        assert_eq!(counts(&memory), (1, 1, 1, 2), "known after forgetting too");
    }

    #[test]
    fn a_called_tool_was_not_passed_over() {
        let weight = |kinds: [EvidenceKind; 2]| {
            let mut memory = Memory::of_one();
            for kind in kinds {
                add(&mut memory, "1", &[1.0, 0.0], "a", "tool", kind);
            }
            vote(&memory, &[1.0, 0.0], "tool", 1).unwrap().delta
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
        let mut memory = Memory::of_one();
        add(&mut memory, "1", &[1.0, 0.0], "a", "tool", EvidenceKind::Wrong);
        assert!(vote(&memory, &[1.0, 0.0], "tool", 1).unwrap().delta < 0.0);
        add(&mut memory, "1", &[1.0, 0.0], "a", "tool", EvidenceKind::Helpful);
        assert!(vote(&memory, &[1.0, 0.0], "tool", 1).unwrap().delta > 0.5);
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

    /// Five accounts among fifty write the message itself again and again, each time with other wrong tools.
    #[test]
    fn few_accounts_do_not_outvote_many() {
        let mut memory = Memory::default();
        for person in 0..45 {
            add(&mut memory, &format!("p{person}"), &[1.0, 0.6], &format!("p{person}"), "right", EvidenceKind::Called);
        }
        for (message, person) in (0..250).map(|message| (message, message % 5)) {
            for wrong in 0..8 {
                add(&mut memory, &format!("m{message}"), &[1.0, 0.0], &format!("bad{person}"), &format!("w{wrong}"), EvidenceKind::Called);
            }
        }
        let votes = memory.votes(&vector(&[1.0, 0.0]), &parameters(3));
        assert_eq!(votes.keys().collect::<Vec<_>>(), [&tool("right")]);
    }

    /// Nobody else writes about the topic.
    #[test]
    fn agreeing_accounts_raise_few_tools() {
        let mut memory = Memory::default();
        for (person, wrong) in (0..5).flat_map(|person| (0..8).map(move |wrong| (person, wrong))) {
            add(&mut memory, &format!("m{person}"), &[1.0, 0.0], &format!("bad{person}"), &format!("w{wrong}"), EvidenceKind::Called);
        }
        let votes = memory.votes(&vector(&[1.0, 0.0]), &parameters(3));
        assert_eq!(votes.len(), 2);
        assert!(votes.values().all(|vote| vote.delta < 1.4), "{votes:?}");
    }

    /// Fifty people use a tool after everything. That three of their messages are barely similar says nothing about this one.
    #[test]
    fn dissimilar_messages_do_not_vote() {
        let delta = |others: usize| {
            let mut memory = Memory::default();
            for person in 0..3 + others {
                let values = if person < 3 { [0.41, 0.912, 0.0] } else { [0.38, 0.0, 0.925] };
                for (name, kind) in [("popular", EvidenceKind::Called), ("unpopular", EvidenceKind::Wrong)] {
                    add(&mut memory, &format!("m{person}"), &values, &format!("p{person}"), name, kind);
                }
            }
            ["popular", "unpopular"].map(|name| vote(&memory, &[1.0, 0.0, 0.0], name, 3).unwrap())
        };
        let [popular, unpopular] = delta(47);
        assert!(popular.delta < 0.2 && !popular.is_certain && unpopular.delta > -0.2, "{popular:?} {unpopular:?}");
        assert_eq!([popular, unpopular], delta(0));
    }

    #[test]
    fn several_scopes_raise_few_tools() {
        let of = |delta: f32| Vote { delta, ..Vote::default() };
        let mut votes = [("a", 1.0), ("d", 0.5), ("c", 0.5), ("b", 1.5), ("low", -0.1)].map(|(name, delta)| (tool(name), of(delta))).into();
        keep_most_raised(&mut votes);
        let mut kept: Vec<&str> = votes.keys().map(|tool| &*tool.name).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["a", "b", "low"]);
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
        assert!((before[&tool("right")].delta - after[&tool("right")].delta).abs() < 1e-6, "{before:?} {after:?}");
    }

    #[test]
    fn old_evidence_fades() {
        let mut memory = Memory::of_one();
        add(&mut memory, "1", &[1.0, 0.0], "a", "right", EvidenceKind::Called);
        let later = VoteParameters { now: Minute(NOW.0 + 60 * 24 * 300), ..parameters(1) };
        assert!(memory.votes(&vector(&[1.0, 0.0]), &later).get(&tool("right")).is_none_or(|vote| vote.delta < 0.02));
    }

    #[test]
    fn what_is_forgotten_votes_no_more() {
        let mut memory = Memory::of_one();
        add(&mut memory, "1", &[1.0, 0.0], "a", "one", EvidenceKind::Called);
        add(&mut memory, "1", &[1.0, 0.0], "a", "two", EvidenceKind::Called);
        add(&mut memory, "2", &[1.0, 0.0], "b", "one", EvidenceKind::Called);
        assert!(memory.holds("1", &tool("two")) && !memory.holds("2", &tool("two")));
        assert_eq!(memory.retain(|_, evidence| evidence.tool != tool("two")), 1);
        assert_eq!(memory.retain(|person, _| person != "a"), 1);
        assert_eq!((memory.messages(), memory.uses()), (1, 1));
        assert!(vote(&memory, &[1.0, 0.0], "one", 1).is_some() && vote(&memory, &[1.0, 0.0], "two", 1).is_none());
    }

    fn rivals(memory: &mut Memory, id: &str, values: &[f32], scores: &[(&str, f32)], used: &str) {
        let rivals = scores.iter().map(|(name, score)| (tool(name), *score)).collect();
        let message = RememberedMessage { id: id.into(), vector: vector(values), rivals };
        memory.add(&message, &Arc::from("a"), &Evidence { tool: tool(used), kind: EvidenceKind::Called, at: NOW }, MOST);
    }

    #[test]
    fn what_came_first_anyway_changes_little() {
        let (mut hit, mut miss) = (Memory::of_one(), Memory::of_one());
        rivals(&mut hit, "1", &[1.0, 0.0], &[("a", 4.0), ("b", 2.0)], "a");
        rivals(&mut miss, "1", &[1.0, 0.0], &[("a", 4.0), ("b", 2.0)], "b");
        let delta = |memory: &Memory, name| vote(memory, &[1.0, 0.0], name, 1).map_or(0.0, |vote| vote.delta);
        assert!(delta(&hit, "a").abs() < 0.2 && delta(&hit, "b").abs() < 0.2);
        assert!(delta(&miss, "b") > 0.4 && delta(&miss, "a") < -0.4, "{} {}", delta(&miss, "b"), delta(&miss, "a"));
    }

    /// Uses that follow no pattern: what was learned from them must not change the ranking.
    #[test]
    fn messages_that_teach_nothing_are_switched_off() {
        let mut memory = Memory::of_one();
        for number in 0..120_usize {
            let used = if number * number * 7 % 13 < 4 { "b" } else { "a" };
            let values = [1.0, (number * 5 % 7) as f32 / 10.0, (number * 3 % 11) as f32 / 10.0];
            rivals(&mut memory, &number.to_string(), &values, &[("a", 3.0), ("b", 2.4)], used);
        }
        memory.refit();
        let votes = memory.votes(&vector(&[1.0, 0.2, 0.3]), &parameters(1));
        assert!(votes.is_empty() && !memory.helps(), "{:?}", memory.gain());
        assert!(!memory.votes(&vector(&[1.0, 0.2, 0.3]), &VoteParameters { must_help: false, ..parameters(1) }).is_empty());
    }

    #[test]
    fn many_messages_are_learned_one_by_one_and_together() {
        let mut memory = Memory::of_one();
        for number in 0..100_usize {
            let values = [1.0, (number % 9) as f32 / 10.0, 0.0];
            rivals(&mut memory, &number.to_string(), &values, &[("a", 3.0), ("b", 2.4)], "b");
        }
        let delta = |memory: &Memory| vote(memory, &[1.0, 0.2, 0.0], "b", 1).unwrap().delta;
        let before = delta(&memory);
        assert!(memory.is_due() && before > 0.3, "{before}");
        memory.refit();
        assert!(!memory.is_due() && delta(&memory) > 0.3 && memory.helps());
    }

    /// Learning again takes long, so forgetting leaves it to whoever has time.
    #[test]
    fn after_forgetting_the_rest_still_counts_until_it_is_learned_again() {
        let mut memory = Memory::of_one();
        for number in 0..100_usize {
            let values = [1.0, (number % 9) as f32 / 10.0, 0.0];
            rivals(&mut memory, &number.to_string(), &values, &[("a", 3.0), ("b", 2.4)], if number == 0 { "old" } else { "b" });
        }
        memory.refit();
        let delta = |memory: &Memory| vote(memory, &[1.0, 0.2, 0.0], "b", 1).unwrap().delta;
        assert_eq!(memory.retain(|_, evidence| evidence.tool != tool("old")), 1);
        assert!(memory.is_due() && delta(&memory) > 0.3, "{}", delta(&memory));
        assert_eq!(vote(&memory, &[1.0, 0.0, 0.0], "old", 1), None);
        memory.refit();
        assert!(!memory.is_due() && delta(&memory) > 0.3);
    }

    proptest! {
        #[test]
        fn one_person_never_decides_for_others(uses in prop::collection::vec((0_usize..30, 0_usize..4, 0_usize..8), 1..60)) {
            let (mut memory, mut own) = (Memory::default(), Memory::of_one());
            for (number, name, kind) in &uses {
                let values = [1.0, *number as f32 / 10.0];
                add(&mut memory, &number.to_string(), &values, "a", &name.to_string(), EvidenceKind::ALL[*kind]);
                add(&mut own, &number.to_string(), &values, "a", &name.to_string(), EvidenceKind::ALL[*kind]);
            }
            prop_assert!(memory.votes(&vector(&[1.0, 0.0]), &parameters(2)).is_empty());
            for vote in own.votes(&vector(&[1.0, 0.0]), &parameters(1)).values() {
                prop_assert!(vote.delta.abs() <= 3.0);
            }
        }
    }
}
