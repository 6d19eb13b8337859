//! Replays what is remembered: learns from the older half of one person's messages, and measures the newer half.

use super::fit::Fit;
use super::memory::Memory;
use super::vector::{dot, widened};
use super::verdict::{MEASURED, NEEDED, Replayed, ndcg};
use super::votes::MOST;

/// A replay of the messages of a scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// Number of messages that can be measured: those with a ranking and a used tool.
    pub uses: usize,
    /// Number of such messages that a replay needs.
    pub needed: usize,
    /// `None` if there are too few.
    pub replayed: Option<Replayed>,
}

impl Memory {
    /// `None` in a scope of several people: it keeps no rankings, so nothing can be measured.
    pub fn replay(&self) -> Option<Replay> {
        if !self.is_of_one {
            return None;
        }
        let mut places: Vec<usize> = (0..self.rows.len()).filter(|&place| self.is_measurable(place)).collect();
        places.sort_by_key(|&place| self.rows[place].at);
        let (uses, needed) = (places.len(), NEEDED);
        if uses < needed {
            return Some(Replay { uses, needed, replayed: None });
        }
        let (older, newer) = places.split_at(uses / 2);
        let lessons: Vec<_> = older.iter().map(|&place| self.lesson(place)).collect();
        let (fit, pulls) = Fit::of(&lessons, self.dimension, self.tools.len());
        let offsets: Vec<f32> = lessons.iter().map(|lesson| fit.offset(lesson.vector, lesson.scale)).collect();
        let newest = &newer[newer.len().saturating_sub(MEASURED)..];
        let mut deltas = vec![0.0_f32; self.tools.len()];
        let mut scores = Vec::with_capacity(newest.len());
        for &place in newest {
            deltas.fill(0.0);
            let message = self.lesson(place);
            let (values, offset) = (widened(message.vector), fit.offset(message.vector, message.scale));
            for ((lesson, pulls), of_lesson) in lessons.iter().zip(&pulls).zip(&offsets) {
                let cosine = dot(lesson.vector, &values) as f32 * message.scale * lesson.scale;
                let kernel = fit.kernel(cosine, offset + of_lesson);
                lesson.stakes.iter().zip(pulls).for_each(|(stake, pull)| deltas[stake.tool()] += kernel * pull);
            }
            let plain = message.plain();
            let is_used = |at: usize| message.weights[at] > 0.0;
            let learned = plain.iter().zip(message.stakes).map(|(score, stake)| score + deltas[stake.tool()].clamp(-MOST, MOST));
            let before: Vec<(f32, bool)> = plain.iter().enumerate().map(|(at, score)| (*score, is_used(at))).collect();
            let after: Vec<(f32, bool)> = learned.enumerate().map(|(at, score)| (score, is_used(at))).collect();
            scores.push((ndcg(&before), ndcg(&after)));
        }
        Some(Replay { uses, needed, replayed: Some(Replayed::of(&scores)) })
    }

    fn is_measurable(&self, place: usize) -> bool {
        let lesson = self.lesson(place);
        lesson.weights.iter().any(|weight| *weight > 0.0) && lesson.stakes.iter().filter(|stake| stake.score().is_some()).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
    use crate::domain::learning::memory::{MOST, Memory, RememberedMessage};
    use crate::domain::learning::vector::MessageVector;
    use crate::domain::learning::verdict::{Replayed, Verdict};

    /// A person whose messages need the tool that `used` says. Without learning, "a" comes first.
    fn person(messages: usize, used: impl Fn(usize) -> &'static str) -> Memory {
        let (mut memory, tool) = (Memory::of_one(), |name| ToolId::new("server", name));
        for number in 0..messages {
            let values = [1.0, (number * 5 % 7) as f32 / 10.0, (number * 3 % 11) as f32 / 10.0];
            let rivals = [(tool("a"), 3.0), (tool("b"), 2.4), (tool("c"), 0.0)].into();
            let message = RememberedMessage { id: number.to_string().into(), vector: MessageVector::of(&values).unwrap(), rivals };
            let at = Minute(1_000_000 + u32::try_from(number).unwrap());
            memory.insert(&message, &Arc::from("a"), &Evidence { tool: tool(used(number)), kind: EvidenceKind::Called, at }, MOST);
        }
        memory.refit();
        memory
    }

    #[test]
    fn a_habit_is_better_with_learning_and_a_change_of_habits_is_worse() {
        let verdict = |memory: &Memory| memory.replay().unwrap().replayed.unwrap().verdict;
        assert_eq!(verdict(&person(80, |_| "b")), Verdict::Better);
        assert_eq!(verdict(&person(80, |number| if number < 40 { "b" } else { "a" })), Verdict::Worse);
    }

    #[test]
    fn a_replay_decides_whether_messages_count() {
        let mut memory = person(80, |_| "b");
        let replayed = memory.replay().unwrap().replayed.unwrap();
        memory.judge(replayed, Minute(5));
        assert!(memory.helps() && memory.last_replay() == Some((Minute(5), replayed)));
        memory.judge(Replayed { verdict: Verdict::Worse, ..replayed }, Minute(6));
        assert!(!memory.helps());
        memory.judge(replayed, Minute(7));
        assert!(memory.helps());
    }

    #[test]
    fn a_verdict_does_not_outlive_its_messages() {
        let mut memory = person(80, |number| if number < 50 { "b" } else { "a" });
        let replayed = memory.replay().unwrap().replayed.unwrap();
        memory.judge(Replayed { verdict: Verdict::Worse, ..replayed }, Minute(5));
        memory.retain(|_, evidence| evidence.at > Minute(1_000_000));
        assert_eq!((memory.messages(), memory.helps()), (79, false), "enough remain");
        memory.retain(|_, evidence| evidence.tool != ToolId::new("server", "a"));
        assert_eq!((memory.messages(), memory.helps()), (49, false));
        memory.retain(|_, evidence| evidence.at > Minute(1_000_020));
        assert_eq!((memory.messages(), memory.last_replay()), (29, None));
    }

    #[test]
    fn too_few_messages_are_not_measured() {
        let replay = person(39, |_| "b").replay().unwrap();
        assert_eq!((replay.uses, replay.needed, replay.replayed), (39, 40, None));
        assert_eq!(Memory::default().replay(), None, "several people");
    }
}
