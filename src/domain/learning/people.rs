//! The votes of a scope of several people: each person has one, by the nearest message, and enough of them must agree.

use std::collections::HashMap;

use super::memory::Memory;
use super::vector::MessageVector;
use super::votes::{AGREED, ALIKE, MOST_RAISED, Vote, VoteParameters};

/// How far unanimous votes of people move a tool up, in standard deviations of the candidates. The best tool is usually 2 to 5 above the
/// mean.
const MOST_UP: f32 = 2.0;
/// The same for a reduction. It moves a tool down among about equally good ones, and never far.
const MOST_DOWN: f32 = 0.75;
/// Number of people that vote in a scope of several people: those with the nearest messages.
const VOTERS: usize = 50;
/// The share of the people with similar messages that must agree on a tool. A few accounts can't outvote many.
const QUORUM: f32 = 0.25;
/// The cosine from which people's messages count as similar. Others don't vote.
const SIMILAR: f32 = 0.4;
/// How fast votes lose weight with the distance of their message.
const WIDTH: f32 = 0.2;
/// Voices for no tool. So a single voice has two thirds of the weight of many that agree.
const DOUBT: f32 = 0.5;

impl Memory {
    /// The votes of a scope of several people: each person has one vote, by the nearest message, and enough of them must agree.
    pub(super) fn votes_of_people(&self, message: &MessageVector, parameters: &VoteParameters) -> Vec<(usize, Vote)> {
        // Without the others: many of them would outweigh the few by whose number the sum of the votes is divided.
        let voters: Vec<(f32, usize)> = self.nearest_of_people(message).into_iter().filter(|(cosine, _)| *cosine >= SIMILAR).collect();
        let needed = parameters.people.max(share_of(voters.len()));
        let mut tallies: HashMap<usize, Tally> = HashMap::new();
        for (cosine, place) in voters {
            let weights = self.rows[place].weights(parameters);
            // A person's vote is divided if it supports several tools.
            let supported = weights.values().filter(|weight| **weight > 0.0).sum::<f32>().max(1.0);
            for (tool, weight) in weights {
                let weight = if weight > 0.0 { weight / supported } else { weight };
                tallies.entry(tool).or_default().add(nearness(cosine) * weight, weight, cosine);
            }
        }
        let mut votes: Vec<(usize, Vote)> =
            tallies.into_iter().filter_map(|(tool, tally)| Some((tool, tally.vote_of_people(needed)?))).collect();
        votes.sort_unstable_by(|(tool, vote), (other_tool, other)| other.delta.total_cmp(&vote.delta).then(tool.cmp(other_tool)));
        let raised = votes.iter().filter(|(_, vote)| vote.delta > 0.0).count();
        votes.drain(MOST_RAISED.min(raised)..raised);
        votes
    }

    /// The nearest message of each of the nearest people.
    fn nearest_of_people(&self, message: &MessageVector) -> Vec<(f32, usize)> {
        let mut best: Vec<Option<(f32, usize)>> = vec![None; self.people.len()];
        for (place, cosine) in self.cosines(message).enumerate() {
            let known = &mut best[self.rows[place].person()];
            if known.is_none_or(|(known, _)| cosine > known) {
                *known = Some((cosine, place));
            }
        }
        let mut best: Vec<(f32, usize)> = best.into_iter().flatten().collect();
        best.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        best.truncate(VOTERS);
        best
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
    fn add(&mut self, vote: f32, weight: f32, cosine: f32) {
        if weight > 0.0 {
            self.positive += vote;
            self.supporters += 1;
            self.alike += u32::from(cosine >= ALIKE);
        } else {
            self.negative += vote;
            self.opponents += 1;
        }
    }

    /// `None` if fewer people agree than are `needed`.
    fn vote_of_people(&self, needed: usize) -> Option<Vote> {
        // Divided by the voices for the tool alone, so that another person's uses of other tools change nothing.
        let counted = |sum: f32, voices: usize| if voices >= needed { sum / (voices as f32 + DOUBT) } else { 0.0 };
        let sum = counted(self.positive, self.supporters) + counted(self.negative, self.opponents);
        let messages = if self.supporters >= needed { self.alike } else { 0 };
        let delta = sum.clamp(-1.0, 1.0) * if sum < 0.0 { MOST_DOWN } else { MOST_UP };
        (sum != 0.0).then_some(Vote { delta, messages, is_certain: sum >= AGREED })
    }
}

/// How much a message with this cosine counts, between 0 and 1.
fn nearness(cosine: f32) -> f32 {
    ((cosine - 1.0) / WIDTH).exp()
}

/// The number of people that make up a quorum.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of at most 50 people")]
fn share_of(people: usize) -> usize {
    (people as f32 * QUORUM).ceil() as usize
}
