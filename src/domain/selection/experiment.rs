//! A/B test: some chats get all tools with every message, the others a selection.

use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;

named! {
    /// The arm of a chat. It never changes, so that metrics of both arms can be compared.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Arm {
        /// Every message gets all tools.
        Static = "static",
        /// Messages get selected, found or loaded tools.
        Dynamic = "dynamic",
    }
}

impl Arm {
    /// Assigns a chat to an arm by a hash of its id, identically on every replica and after every restart. `static_share` (0 to
    /// 1) is the share of static chats; 0 means no experiment and returns `None`.
    pub fn of(chat: &str, static_share: f64) -> Option<Self> {
        if static_share <= 0.0 {
            return None;
        }
        let place = Fingerprint::of_text(&format!("arm {chat}")).prefix() as f64 / u64::MAX as f64;
        Some(if place < static_share || static_share >= 1.0 { Self::Static } else { Self::Dynamic })
    }
}

#[cfg(test)]
mod tests {
    use super::Arm;

    #[test]
    fn a_share_of_the_chats_is_static_and_stays_so() {
        let arms: Vec<_> = (0..4_000).map(|number| Arm::of(&format!("chat-{number}"), 0.25)).collect();
        let of_static = arms.iter().filter(|arm| **arm == Some(Arm::Static)).count();
        assert!((900..1_100).contains(&of_static), "{of_static}");
        assert_eq!(arms[17], Arm::of("chat-17", 0.25));
        assert_eq!((Arm::of("any", 0.0), Arm::of("any", 1.0)), (None, Some(Arm::Static)));
    }
}
