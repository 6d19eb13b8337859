//! Shadow mode, and the A/B test in which some callers get all tools with every message and the others a selection.

use serde::{Deserialize, Serialize};

use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;

named! {
    /// What happens with the selection for a message.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Mode {
        /// The model gets the selected tools.
        #[default]
        On = "on",
        /// The model gets all tools, and the selection is only recorded.
        Shadow = "shadow",
    }

    /// The arm of a user or a chat. It never changes, so that metrics of both arms can be compared.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Arm {
        /// Every message gets all tools.
        Static = "static",
        /// Messages get selected, found or loaded tools.
        Dynamic = "dynamic",
    }
}

impl Arm {
    /// Assigns a user or a chat to an arm by a hash of the id, identically on every replica and after every restart. `share` (0
    /// to 1) is the share of ids in the dynamic arm; 1 means no experiment and returns `None`.
    pub fn of(id: &str, share: f64) -> Option<Self> {
        if share >= 1.0 {
            return None;
        }
        let place = Fingerprint::of_text(&format!("arm {id}")).prefix() as f64 / u64::MAX as f64;
        Some(if place < 1.0 - share || share <= 0.0 { Self::Static } else { Self::Dynamic })
    }
}

#[cfg(test)]
mod tests {
    use super::Arm;

    #[test]
    fn a_share_of_the_chats_is_static_and_stays_so() {
        let arms: Vec<_> = (0..4_000).map(|number| Arm::of(&format!("chat-{number}"), 0.75)).collect();
        let of_static = arms.iter().filter(|arm| **arm == Some(Arm::Static)).count();
        assert!((900..1_100).contains(&of_static), "{of_static}");
        assert_eq!(arms[17], Arm::of("chat-17", 0.75));
        assert_eq!((Arm::of("any", 1.0), Arm::of("any", 0.0)), (None, Some(Arm::Static)));
    }
}
