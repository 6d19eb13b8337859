//! Recent selections in memory, so that later calls and searches can refer to them.
//!
//! A caller finds only its own selections. There are two exceptions. The user of a chat may be unknown at selection, because signed
//! users are known only at calls. So if a key that may act for users selects for a chat, its selection applies to every caller of the
//! same key in that chat. And calls may lack the user that the selection named. So if such a key names no user, the last selection of
//! the chat by the same key applies.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::{Principal, PrincipalId, PrincipalKind};
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::canonical::Fingerprint;
use crate::service::learning::open_message::OpenMessage;
use crate::service::ports::OfferedTools;

/// Maximum number of selections, each stored by id and by chat.
const HELD: u64 = 10_000;
const IDLE: Duration = Duration::from_hours(2);
/// Maximum number of shared lists of all tools. There is one per catalog and visibility.
const VIEWS: u64 = 64;

/// A caller's selection.
#[derive(Debug)]
pub(super) struct LastSelection {
    pub(super) id: Arc<str>,
    /// The selected tools that are ours.
    tools: OfferedTools,
    /// What later calls may teach.
    pub(super) lesson: Lesson,
    /// The user whose message it was, if one was named.
    pub(super) user: Option<Arc<Principal>>,
}

/// The message and the first choice of a selection. Empty if nothing can be learned from it.
#[derive(Clone, Debug, Default)]
pub(in crate::service) struct Lesson {
    /// The chat's last message that can be understood by itself.
    pub(in crate::service) message: Option<OpenMessage>,
    /// The tool that ranked first.
    pub(in crate::service) first: Option<ToolId>,
    /// The number of forgettings before the selection. What is forgotten afterwards isn't learned again from its chat.
    pub(in crate::service) since: u64,
}

/// Everything belongs to a key, by its id if it has one: users of different keys never meet, even if both are called alike.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Selection(Option<KeyId>, PrincipalId, Arc<str>),
    Chat(Option<KeyId>, PrincipalId, Arc<str>),
    /// A chat, for a selection by a key that may act for users.
    TrustedChat(Option<KeyId>, Arc<str>),
    /// The same for a selection for a named user.
    ChatOfUser(Option<KeyId>, Arc<str>),
}

#[derive(Clone)]
pub(super) struct LastSelections {
    selections: Cache<Key, Arc<LastSelection>>,
    /// Shared lists for selections that kept all tools.
    views: Cache<Fingerprint, OfferedTools>,
}

impl Default for LastSelections {
    fn default() -> Self {
        Self {
            selections: Cache::builder().max_capacity(2 * HELD).time_to_idle(IDLE).build(),
            views: Cache::builder().max_capacity(VIEWS).time_to_idle(IDLE).build(),
        }
    }
}

impl LastSelections {
    /// Shares equal lists: returns the stored copy, or stores this one.
    pub(super) fn shared(&self, tools: OfferedTools) -> OfferedTools {
        match tools.view() {
            Some(view) => self.views.get_with(view, || tools),
            None => tools,
        }
    }

    pub(super) fn remember(&self, principal: &Principal, id: &str, chat: Option<&str>, (tools, lesson): (&OfferedTools, Lesson)) {
        let id: Arc<str> = id.into();
        let user = (principal.kind == PrincipalKind::User).then(|| Arc::new(principal.clone()));
        let selection = Arc::new(LastSelection { id: Arc::clone(&id), tools: tools.clone(), lesson, user });
        if let Some(chat) = chat {
            if principal.vouches {
                self.selections.insert(Key::TrustedChat(key_of(principal), chat.into()), Arc::clone(&selection));
            }
            if principal.kind == PrincipalKind::User {
                self.selections.insert(Key::ChatOfUser(key_of(principal), chat.into()), Arc::clone(&selection));
            }
            self.selections.insert(Key::Chat(key_of(principal), principal.id.clone(), chat.into()), Arc::clone(&selection));
        }
        self.selections.insert(Key::Selection(key_of(principal), principal.id.clone(), id), selection);
    }

    /// The selection with this id, otherwise the last one of this chat.
    pub(super) fn of(&self, principal: &Principal, id: Option<&str>, chat: Option<&str>) -> Option<Arc<LastSelection>> {
        let named = id.and_then(|id| self.selections.get(&Key::Selection(key_of(principal), principal.id.clone(), id.into())));
        named.or_else(|| {
            let chat: Arc<str> = chat?.into();
            let own = self.selections.get(&Key::Chat(key_of(principal), principal.id.clone(), Arc::clone(&chat)));
            let own = own.or_else(|| self.selections.get(&Key::TrustedChat(key_of(principal), Arc::clone(&chat))));
            own.or_else(|| principal.vouches.then(|| self.selections.get(&Key::ChatOfUser(key_of(principal), chat)))?)
        })
    }
}

/// The id of a caller's named key.
pub(super) fn key_of(principal: &Principal) -> Option<KeyId> {
    principal.key.as_ref().map(|key| key.id.clone())
}

impl LastSelection {
    pub(super) fn offered(&self, tool: &ToolId) -> bool {
        self.tools.tools().contains(tool)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Fingerprint, KeyId, LastSelections, Lesson};
    use crate::domain::access::api_key::Presented;
    use crate::domain::access::principal::{GroupTable, Principal, User};
    use crate::domain::catalog::tool::ToolId;
    use crate::service::ports::OfferedTools;

    /// Regression test: two hours of an experiment over 2,000 tools took a gigabyte.
    #[test]
    fn selections_that_kept_everything_share_one_list() {
        let selections = LastSelections::default();
        let key = Principal::service_key();
        let tools = |reversed: bool| {
            let mut tools: Vec<ToolId> = (0..2_000).map(|number| ToolId::new("server", format!("tool{number}"))).collect();
            if reversed {
                tools.reverse();
            }
            selections.shared(OfferedTools::all(tools))
        };
        selections.remember(&key, "one", Some("a"), (&tools(false), Lesson::default()));
        selections.remember(&key, "two", Some("b"), (&tools(true), Lesson::default()));
        let of = |id| selections.of(&key, Some(id), None).unwrap();
        assert!(Arc::ptr_eq(&of("one").tools.tools, &of("two").tools.tools));
        assert!(of("two").offered(&ToolId::new("server", "tool7")) && !of("two").offered(&ToolId::new("server", "none")));
    }

    #[test]
    fn a_caller_meets_its_own_selections_alone() {
        let selections = LastSelections::default();
        let key = Principal::service_key();
        let other = Principal::anyone();
        selections.remember(&key, "one", Some("chat"), (&[ToolId::new("a", "b")].into_iter().collect(), Lesson::default()));
        selections.remember(&key, "two", Some("chat"), (&OfferedTools::default(), Lesson::default()));
        let found = |principal: &Principal, id, chat| selections.of(principal, id, chat).map(|found| found.id.to_string());
        assert_eq!(found(&key, Some("one"), Some("chat")).as_deref(), Some("one"));
        assert_eq!(found(&key, Some("none"), Some("chat")).as_deref(), Some("two"));
        assert_eq!(found(&key, None, None), None);
        assert_eq!(found(&other, Some("one"), Some("chat")), None);
        let one = selections.of(&key, Some("one"), None).unwrap();
        assert!(one.offered(&ToolId::new("a", "b")) && !one.offered(&ToolId::new("a", "c")));
    }

    #[test]
    fn a_trusted_key_selects_for_the_users_of_a_chat() {
        let selections = LastSelections::default();
        let key = Principal { vouches: true, ..Principal::service_key() };
        let user = key.on_behalf_of(User { id: "u".into(), ..User::default() }, &GroupTable::default());
        selections.remember(&key, "of the key", Some("chat"), (&OfferedTools::default(), Lesson::default()));
        let found = |chat| selections.of(&user, Some("of the key"), Some(chat)).map(|found| found.id.to_string());
        assert_eq!((found("chat").as_deref(), found("other")), (Some("of the key"), None));
        // Any key may send this chat's id.
        let key_of_others =
            Principal { key: Some(Presented { id: KeyId::new("other"), hash: Fingerprint::of_text("other") }), ..user.clone() };
        assert!(selections.of(&key_of_others, None, Some("chat")).is_none());
        selections.remember(&user, "of the user", Some("chat"), (&OfferedTools::default(), Lesson::default()));
        assert_eq!(found("chat").as_deref(), Some("of the user"));
        // Nor may another key's user with the same id.
        for id in [None, Some("of the user")] {
            assert!(selections.of(&key_of_others, id, Some("chat")).is_none(), "{id:?}");
        }
        // A call that lacks the user.
        selections.remember(&user, "of another chat", Some("other"), (&OfferedTools::default(), Lesson::default()));
        let found = |caller: &Principal| selections.of(caller, None, Some("other")).map(|found| found.id.to_string());
        assert_eq!((found(&key).as_deref(), found(&Principal::service_key())), (Some("of another chat"), None));
    }
}
