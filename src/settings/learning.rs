//! Section `[learning]`: what is learned from use, and which parts of messages are stored.

use std::time::Duration;

use crate::domain::text::named::named;
use crate::settings::values::section;

named! {
    /// Whether tools that helped are found first for similar messages.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LearningMode {
        /// Only where learning from the recorded uses predicts better than no learning.
        Auto = "auto",
        Always = "always",
        #[default]
        Off = "off",
    }
}

named! {
    /// What the arguments of calls teach.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LearnedArguments {
        #[default]
        Off = "off",
        /// Which parameters are filled.
        Names = "names",
        /// Also what calls are about: their words are embedded and dropped.
        Vector = "vector",
    }
}

section! {
    /// Section `[learning]`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct LearningSettings = read(reader) {
        pub mode: LearningMode = reader.choice("learning.mode", LearningMode::of_name, ("unknown value", "write \"auto\", \"always\" or \"off\"")),
        /// After this time, evidence counts half.
        pub half_life: Duration = reader.days("learning.half_life_days", 1..=3650),
        /// Number of different people of a group whose uses must agree before they count for the group.
        pub group_people: usize = reader.whole("learning.group_people", 2..=1_000),
        /// The same for all callers of a key.
        pub all_people: usize = reader.whole("learning.all_people", 2..=1_000),
        /// The share of messages for which a tool that the caller has never used is offered too.
        pub explore: f64 = reader.fraction("learning.explore", 0.0..=1.0),
        pub arguments: LearnedArguments =
            reader.choice("learning.arguments", LearnedArguments::of_name, ("unknown value", "write \"off\", \"names\" or \"vector\"")),
        /// Whether the text of messages is stored with the events.
        pub message_text: bool = reader.switch("learning.message_text"),
    }
}
