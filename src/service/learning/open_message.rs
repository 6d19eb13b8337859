//! A message from which later calls and verdicts may teach.

use std::sync::Arc;

use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::scope::Scope;
use crate::domain::text::canonical::Fingerprint;

/// Length of the hash of a caller in the id of a message, in characters.
const SHORT: usize = 32;

#[derive(Clone, Debug)]
pub(crate) struct OpenMessage {
    pub(in crate::service) message: RememberedMessage,
    /// The own scope of the caller of the selection or search.
    pub(super) owner: Option<Scope>,
    /// The number of forgettings before it.
    pub(super) since: u64,
}

impl OpenMessage {
    /// The number of forgettings before it.
    pub(in crate::service) fn since(&self) -> u64 {
        self.since
    }

    /// The message as a caller with this own scope teaches from it. Messages are stored by their ids, so two callers must not share one:
    /// each would learn from the other, and what one forgets would remain as the other's.
    pub(super) fn of(&self, own: &Scope) -> RememberedMessage {
        if self.owner.as_ref() == Some(own) {
            return self.message.clone();
        }
        let id: Arc<str> = format!("{}#{}", self.message.id, Fingerprint::of_text(&own.to_string()).digits(SHORT)).into();
        RememberedMessage { id, ..self.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::OpenMessage;
    use crate::domain::learning::memory::RememberedMessage;
    use crate::domain::learning::scope::Scope;
    use crate::domain::learning::vector::MessageVector;

    #[test]
    fn two_callers_of_a_selection_have_a_message_each() {
        let of = |name: &str| Scope::read(name).unwrap();
        let message = RememberedMessage { id: "a".into(), vector: MessageVector::of(&[1.0]).unwrap(), rivals: [].into() };
        let open = OpenMessage { message, owner: Some(of("-/caller=key:webui")), since: 0 };
        let id = |name: &str| open.of(&of(name)).id.to_string();
        assert_eq!(id("-/caller=key:webui"), "a");
        let [anna, ben] = ["-/caller=user:anna", "-/caller=user:ben"].map(id);
        assert!(anna != ben && anna.starts_with("a#") && !anna.contains('/'), "{anna} {ben}");
    }
}
