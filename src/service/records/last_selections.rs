//! Recent selections in memory, so that later calls and searches can refer to them.
//!
//! A caller finds only its own selections. There are two exceptions. The user of a chat may be unknown at selection, because signed
//! users are known only at calls. So if a key that may act for users selects for a chat, its selection applies to every caller of the
//! same key in that chat. And calls may lack the user that the selection named. So if such a key names no user, the last selection of
//! the chat by the same key applies.
//!
//! A call that names its message never follows a selection for another one: another replica may have selected for its own message, and
//! several models may answer in one chat at once.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::{Principal, PrincipalId, PrincipalKind};
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::canonical::Fingerprint;
use crate::service::learning::open_message::OpenMessage;
use crate::service::ports::{FollowedName, OfferedTools, Unfollowed};

/// Maximum weight of all entries. A selection has one entry by its id, and for each kind of caller that it applies to one by its chat and
/// one by its message.
const HELD: u64 = 40_000;
const WEIGHT_BY_ID: u32 = 2;
const WEIGHT_BY_CHAT: u32 = 1;
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
    /// Whether its message was named.
    names_message: bool,
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
    Chat(Option<KeyId>, PrincipalId, Place),
    /// A chat, for a selection by a key that may act for users.
    TrustedChat(Option<KeyId>, Place),
    /// The same for a selection for a named user.
    ChatOfUser(Option<KeyId>, Place),
}

/// A chat, or one of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    chat: Arc<str>,
    message: Option<Arc<str>>,
}

impl Place {
    pub(super) fn of(chat: Option<&str>, message: Option<&str>) -> Option<Self> {
        Some(Self { chat: chat?.into(), message: message.map(Arc::from) })
    }

    /// The chat as a whole.
    fn chat(&self) -> Self {
        Self { message: None, ..self.clone() }
    }
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
            selections: Cache::builder().max_capacity(HELD).weigher(weight).time_to_idle(IDLE).build(),
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

    pub(super) fn remember(&self, principal: &Principal, id: &str, place: Option<&Place>, (tools, lesson): (&OfferedTools, Lesson)) {
        let id: Arc<str> = id.into();
        let user = (principal.kind == PrincipalKind::User).then(|| Arc::new(principal.clone()));
        let names_message = place.is_some_and(|place| place.message.is_some());
        let selection = Arc::new(LastSelection { id: Arc::clone(&id), tools: tools.clone(), lesson, user, names_message });
        if let Some(place) = place {
            self.insert(principal, &place.chat(), &selection);
            if names_message {
                self.insert(principal, place, &selection);
            }
        }
        self.selections.insert(Key::Selection(key_of(principal), principal.id.clone(), id), selection);
    }

    fn insert(&self, principal: &Principal, place: &Place, selection: &Arc<LastSelection>) {
        if principal.vouches {
            self.selections.insert(Key::TrustedChat(key_of(principal), place.clone()), Arc::clone(selection));
        }
        if principal.kind == PrincipalKind::User {
            self.selections.insert(Key::ChatOfUser(key_of(principal), place.clone()), Arc::clone(selection));
        }
        self.selections.insert(Key::Chat(key_of(principal), principal.id.clone(), place.clone()), Arc::clone(selection));
    }

    /// The selection with this id, otherwise the last one for this message, or of this chat if no message is named.
    pub(super) fn of(&self, principal: &Principal, id: Option<&str>, place: Option<&Place>) -> Option<Arc<LastSelection>> {
        let named = id.and_then(|id| self.selections.get(&Key::Selection(key_of(principal), principal.id.clone(), id.into())));
        named.or_else(|| {
            let place = place?;
            let last = || self.at(principal, place.chat()).filter(|last| place.message.is_none() || !last.names_message);
            place.message.as_ref().and_then(|_| self.at(principal, place.clone())).or_else(last)
        })
    }

    /// The selection that a call or a verdict at another service follows.
    pub(super) fn left(&self, left: &Unfollowed) -> Option<Arc<LastSelection>> {
        let Unfollowed { key, principal, vouches, followed, .. } = left;
        match followed {
            FollowedName::Selection(id) => self.selections.get(&Key::Selection(key.clone(), principal.clone(), id.as_str().into())),
            FollowedName::Message(chat, message) => {
                self.at_place((key.clone(), principal, *vouches), Place::of(Some(chat), Some(message))?)
            }
        }
    }

    /// The last selection at exactly this place.
    fn at(&self, principal: &Principal, place: Place) -> Option<Arc<LastSelection>> {
        self.at_place((key_of(principal), &principal.id, principal.vouches), place)
    }

    fn at_place(&self, (key, id, vouches): (Option<KeyId>, &PrincipalId, bool), place: Place) -> Option<Arc<LastSelection>> {
        let own = self.selections.get(&Key::Chat(key.clone(), id.clone(), place.clone()));
        let own = own.or_else(|| self.selections.get(&Key::TrustedChat(key.clone(), place.clone())));
        own.or_else(|| vouches.then(|| self.selections.get(&Key::ChatOfUser(key, place)))?)
    }
}

fn weight(key: &Key, _: &Arc<LastSelection>) -> u32 {
    match key {
        Key::Selection(..) => WEIGHT_BY_ID,
        Key::Chat(..) | Key::TrustedChat(..) | Key::ChatOfUser(..) => WEIGHT_BY_CHAT,
    }
}

/// The id of a caller's named key.
pub(in crate::service) fn key_of(principal: &Principal) -> Option<KeyId> {
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

    use super::{Fingerprint, KeyId, LastSelections, Lesson, Place};
    use crate::domain::access::api_key::Presented;
    use crate::domain::access::principal::{GroupTable, Principal, User};
    use crate::domain::catalog::tool::ToolId;
    use crate::service::ports::OfferedTools;

    fn chat(chat: &str) -> Option<Place> {
        Place::of(Some(chat), None)
    }

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
        selections.remember(&key, "one", chat("a").as_ref(), (&tools(false), Lesson::default()));
        selections.remember(&key, "two", chat("b").as_ref(), (&tools(true), Lesson::default()));
        let of = |id| selections.of(&key, Some(id), None).unwrap();
        assert!(Arc::ptr_eq(&of("one").tools.tools, &of("two").tools.tools));
        assert!(of("two").offered(&ToolId::new("server", "tool7")) && !of("two").offered(&ToolId::new("server", "none")));
    }

    #[test]
    fn a_caller_meets_its_own_selections_alone() {
        let selections = LastSelections::default();
        let key = Principal::service_key();
        let other = Principal::anyone();
        selections.remember(&key, "one", chat("chat").as_ref(), (&[ToolId::new("a", "b")].into_iter().collect(), Lesson::default()));
        selections.remember(&key, "two", chat("chat").as_ref(), (&OfferedTools::default(), Lesson::default()));
        let found = |principal: &Principal, id, named: Option<&str>| {
            selections.of(principal, id, Place::of(named, None).as_ref()).map(|found| found.id.to_string())
        };
        assert_eq!(found(&key, Some("one"), Some("chat")).as_deref(), Some("one"));
        assert_eq!(found(&key, Some("none"), Some("chat")).as_deref(), Some("two"));
        assert_eq!(found(&key, None, None), None);
        assert_eq!(found(&other, Some("one"), Some("chat")), None);
        let one = selections.of(&key, Some("one"), None).unwrap();
        assert!(one.offered(&ToolId::new("a", "b")) && !one.offered(&ToolId::new("a", "c")));
    }

    /// Regression test: with a chat's messages at several replicas, a call taught what another message of the chat had asked for.
    #[test]
    fn a_call_follows_the_selection_for_its_own_message() {
        let selections = LastSelections::default();
        let key = Principal { vouches: true, ..Principal::service_key() };
        let user = key.on_behalf_of(User { id: "u".into(), ..User::default() }, &GroupTable::default());
        let message = |id: &str| Place::of(Some("chat"), Some(id));
        let found =
            |caller: &Principal, place: Option<Place>| selections.of(caller, None, place.as_ref()).map(|found| found.id.to_string());
        selections.remember(&user, "without", chat("chat").as_ref(), (&OfferedTools::default(), Lesson::default()));
        assert_eq!(found(&user, message("m1")).as_deref(), Some("without"), "nobody named the message of the selection");
        for (id, named) in [("one", "m1"), ("two", "m2")] {
            selections.remember(&user, id, message(named).as_ref(), (&OfferedTools::default(), Lesson::default()));
        }
        for caller in [&user, &key] {
            let ids = [message("m1"), message("m2"), message("m3"), chat("chat")].map(|place| found(caller, place));
            assert_eq!(ids.each_ref().map(Option::as_deref), [Some("one"), Some("two"), None, Some("two")]);
        }
        assert_eq!(selections.of(&user, Some("one"), message("m3").as_ref()).unwrap().id.as_ref(), "one");
    }

    #[test]
    fn a_trusted_key_selects_for_the_users_of_a_chat() {
        let selections = LastSelections::default();
        let key = Principal { vouches: true, ..Principal::service_key() };
        let user = key.on_behalf_of(User { id: "u".into(), ..User::default() }, &GroupTable::default());
        selections.remember(&key, "of the key", chat("chat").as_ref(), (&OfferedTools::default(), Lesson::default()));
        let found = |named: &str| selections.of(&user, Some("of the key"), chat(named).as_ref()).map(|found| found.id.to_string());
        assert_eq!((found("chat").as_deref(), found("other")), (Some("of the key"), None));
        // Any key may send this chat's id.
        let key_of_others =
            Principal { key: Some(Presented { id: KeyId::new("other"), hash: Fingerprint::of_text("other") }), ..user.clone() };
        assert!(selections.of(&key_of_others, None, chat("chat").as_ref()).is_none());
        selections.remember(&user, "of the user", chat("chat").as_ref(), (&OfferedTools::default(), Lesson::default()));
        assert_eq!(found("chat").as_deref(), Some("of the user"));
        // Nor may another key's user with the same id.
        for id in [None, Some("of the user")] {
            assert!(selections.of(&key_of_others, id, chat("chat").as_ref()).is_none(), "{id:?}");
        }
        // A call that lacks the user.
        selections.remember(&user, "of another chat", chat("other").as_ref(), (&OfferedTools::default(), Lesson::default()));
        let found = |caller: &Principal| selections.of(caller, None, chat("other").as_ref()).map(|found| found.id.to_string());
        assert_eq!((found(&key).as_deref(), found(&Principal::service_key())), (Some("of another chat"), None));
    }
}
