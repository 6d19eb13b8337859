//! Stores the selection for a message until the tools for this message are listed.
//!
//! Open WebUI first runs filters and then lists the tools of an MCP server, once per message. So the list contains the tools that
//! the filter received. Selections are only in memory: a request to another replica, or a late one, gets the whole list.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::service::records::last_selections::key_of;

/// Maximum number of messages. While one is answered, a call may wait for a person's approval, after which tools are listed
/// again.
const HELD: u64 = 10_000;
const IDLE: Duration = Duration::from_hours(1);

/// Everything belongs to a key, by its id if it has one.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Message(Option<KeyId>, PrincipalId, Box<str>),
    /// A message, for a selection by a key that may act for users. The signed user is known only when the tools are listed.
    TrustedMessage(Option<KeyId>, Box<str>),
}

pub(crate) struct MessageSelections(Cache<Key, Arc<[String]>>);

impl Default for MessageSelections {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(2 * HELD).time_to_idle(IDLE).build())
    }
}

impl MessageSelections {
    /// Stores a selection. `names` are published names, in list order.
    pub(crate) fn remember(&self, principal: &Principal, message: &str, names: impl IntoIterator<Item = String>) {
        let names: Arc<[String]> = names.into_iter().collect();
        if principal.vouches {
            self.0.insert(Key::TrustedMessage(key_of(principal), message.into()), Arc::clone(&names));
        }
        self.0.insert(Key::Message(key_of(principal), principal.id.clone(), message.into()), names);
    }

    /// The selection for this message, if any. Does not check whether the caller may see the tools.
    pub(crate) fn of(&self, principal: &Principal, message: &str) -> Option<Arc<[String]>> {
        let own = self.0.get(&Key::Message(key_of(principal), principal.id.clone(), message.into()));
        own.or_else(|| self.0.get(&Key::TrustedMessage(key_of(principal), message.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::MessageSelections;
    use crate::domain::access::api_key::{KeyId, Presented};
    use crate::domain::access::principal::{Principal, PrincipalId};
    use crate::domain::text::canonical::Fingerprint;

    fn principal(id: &str, vouches: bool) -> Principal {
        Principal { id: PrincipalId::new(id), vouches, ..Principal::service_key() }
    }

    #[test]
    fn a_message_belongs_to_its_caller() {
        let selections = MessageSelections::default();
        let names = || ["b".to_owned(), "a".to_owned()];
        selections.remember(&principal("user:anna", false), "m1", names());
        assert_eq!(selections.of(&principal("user:anna", false), "m1").as_deref(), Some(&names()[..]));
        assert_eq!(selections.of(&principal("user:berta", false), "m1"), None);
        assert_eq!(selections.of(&principal("user:anna", false), "m2"), None);
        selections.remember(&principal("key:webui", true), "m3", names());
        assert!(selections.of(&principal("user:anna", false), "m3").is_some(), "who comes signed is not known to the key");
        let key = Presented { id: KeyId::new("other"), hash: Fingerprint::of_text("other") };
        let of_others = Principal { key: Some(key), ..principal("user:anna", false) };
        assert!(["m1", "m3"].iter().all(|message| selections.of(&of_others, message).is_none()), "another key's user is somebody else");
    }
}
