//! What was forgotten last. What was learned before must not be learned again afterwards.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::evidence::Minute;
use crate::domain::learning::scope::Scope;
use crate::service::ports::Forgotten;

/// Number of forgettings that are remembered. After more of them, all that was there before counts as forgotten.
const REMEMBERED: usize = 256;

/// What a person taught about a tool.
#[derive(Clone, Copy)]
pub(super) struct Lesson<'a> {
    pub(super) person: &'a str,
    pub(super) scopes: &'a [Scope],
    pub(super) tool: &'a ToolId,
    pub(super) at: Minute,
}

#[derive(Clone, Default)]
pub(super) struct Forgettings(Arc<RwLock<Last>>);

#[derive(Default)]
struct Last {
    /// Number of forgettings since the start.
    count: u64,
    last: VecDeque<Forgotten>,
}

impl Forgettings {
    /// How often something was forgotten since the start.
    pub(super) fn count(&self) -> u64 {
        self.0.read().count
    }

    /// Comes before the forgetting itself.
    pub(super) fn note(&self, forgotten: &Forgotten) {
        let mut known = self.0.write();
        known.count += 1;
        if known.last.len() >= REMEMBERED {
            known.last.pop_front();
        }
        known.last.push_back(forgotten.clone());
    }

    /// Learns, unless it was forgotten after this number of forgettings. No forgetting comes between the two. Returns the number of
    /// forgettings until now if it has learned.
    pub(super) fn unless_forgotten(&self, since: u64, lesson: Lesson<'_>, learn: impl FnOnce()) -> Option<u64> {
        let Lesson { person, scopes, tool, at } = lesson;
        let known = self.0.read();
        let later = usize::try_from(known.count.saturating_sub(since)).unwrap_or(usize::MAX);
        let concerns =
            |forgotten: &Forgotten| scopes.iter().any(|scope| forgotten.has_scope(scope) || forgotten.has(scope, person, tool, at));
        let is_forgotten = later > known.last.len() || known.last.iter().rev().take(later).any(concerns);
        if is_forgotten {
            return None;
        }
        learn();
        Some(known.count)
    }
}

#[cfg(test)]
mod tests {
    use super::{Forgettings, Forgotten, Lesson, REMEMBERED};
    use crate::domain::access::api_key::KeyId;
    use crate::domain::access::principal::PrincipalId;
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::evidence::Minute;
    use crate::domain::learning::scope::Scope;

    #[test]
    fn only_what_it_concerns_is_forgotten() {
        let (forgettings, tool) = (Forgettings::default(), ToolId::new("server", "tool"));
        let scopes: Vec<Scope> = ["k/caller=user:a", "k/group=ops", "k/all"].iter().filter_map(|name| Scope::read(name)).collect();
        let lesson = Lesson { person: "user:a", scopes: &scopes, tool: &tool, at: Minute(1) };
        let learns = |since| forgettings.unless_forgotten(since, lesson, || ()).is_some();
        for (forgotten, is_learned) in [
            (Forgotten::Caller(PrincipalId::new("user:b")), true),
            (Forgotten::Key(KeyId::new("other")), true),
            (Forgotten::Tool(ToolId::new("server", "other")), true),
            (Forgotten::Caller(PrincipalId::new("user:a")), false),
            (Forgotten::Key(KeyId::new("k")), false),
            (Forgotten::Tool(tool.clone()), false),
            (Forgotten::Scope(scopes[1].clone()), false),
            (Forgotten::Own(scopes[0].clone()), false),
            (Forgotten::Own(Scope::own(Some("other"), &PrincipalId::new("user:a"))), true),
            (Forgotten::All, false),
        ] {
            let before = forgettings.count();
            assert!(learns(before));
            forgettings.note(&forgotten);
            assert_eq!((learns(before), learns(before + 1)), (is_learned, true), "{forgotten:?}");
        }
        let before = forgettings.count();
        for number in 0..=REMEMBERED {
            assert!(learns(before), "{number}");
            forgettings.note(&Forgotten::Key(KeyId::new("other")));
        }
        assert!(!learns(before), "too long ago");
    }
}
