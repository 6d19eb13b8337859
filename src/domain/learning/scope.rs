//! Scopes: for whom evidence counts.

use std::fmt;
use std::sync::Arc;

use crate::domain::access::principal::{Principal, PrincipalId, PrincipalKind};

/// The tenant of callers without a named key.
const UNNAMED: &str = "-";
/// Maximum number of a caller's groups that count.
const GROUPS: usize = 4;

/// For whom evidence counts. Scopes of different keys never meet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The id of the named key; `-` without one.
    pub key: Arc<str>,
    pub audience: Audience,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Audience {
    /// One caller, by the id of its principal.
    Caller(Arc<str>),
    Group(Arc<str>),
    /// All callers of the key.
    All,
}

impl Scope {
    /// The scopes of a caller, its own first. A key that may act for users but names none is like one user of its own: what it teaches
    /// counts for nobody else, because its messages may come from several people.
    pub fn of(principal: &Principal) -> Vec<Self> {
        if principal.kind == PrincipalKind::Nobody {
            return Vec::new();
        }
        let key: Arc<str> = principal.key.as_ref().map_or_else(|| UNNAMED.into(), |key| key.id.as_str().into());
        let groups =
            principal.groups.iter().filter(|group| !group.is_empty()).take(GROUPS).map(|group| Audience::Group(group.as_str().into()));
        let own = Audience::Caller(principal.id.as_str().into());
        if principal.vouches {
            return vec![Self { key, audience: own }];
        }
        let audiences = std::iter::once(own).chain(groups).chain([Audience::All]);
        audiences.map(|audience| Self { key: Arc::clone(&key), audience }).collect()
    }

    /// The scope of a caller's own messages, with the id of the named key with which they came.
    pub fn own(key: Option<&str>, caller: &PrincipalId) -> Self {
        Self { key: key.unwrap_or(UNNAMED).into(), audience: Audience::Caller(caller.as_str().into()) }
    }

    /// The only caller whose messages the scope contains.
    pub(crate) fn caller(&self) -> Option<&str> {
        match &self.audience {
            Audience::Caller(id) => Some(id),
            Audience::Group(_) | Audience::All => None,
        }
    }

    /// Parses what [`Display`](fmt::Display) writes.
    pub fn read(text: &str) -> Option<Self> {
        let (key, audience) = text.split_once('/')?;
        let audience = match audience.split_once('=') {
            Some(("caller", id)) if !id.is_empty() => Audience::Caller(id.into()),
            Some(("group", name)) if !name.is_empty() => Audience::Group(name.into()),
            None if audience == "all" => Audience::All,
            _ => return None,
        };
        (!key.is_empty()).then(|| Self { key: key.into(), audience })
    }

    /// Whether the scope contains only one caller's messages.
    pub(crate) fn is_own(&self) -> bool {
        self.caller().is_some()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.audience {
            Audience::Caller(id) => write!(formatter, "{}/caller={id}", self.key),
            Audience::Group(name) => write!(formatter, "{}/group={name}", self.key),
            Audience::All => write!(formatter, "{}/all", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Scope;
    use crate::domain::access::principal::{GroupTable, Principal, User};

    #[test]
    fn scopes_follow_from_the_caller() {
        let key = Principal { vouches: true, ..Principal::service_key() };
        let groups = BTreeSet::from(["ops".to_owned()]);
        let user = key.on_behalf_of(User { id: "a/b=c".into(), groups, ..User::default() }, &GroupTable::default());
        let names: Vec<String> = Scope::of(&user).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["-/caller=user:a/b=c", "-/group=ops", "-/all"]);
        assert_eq!(Scope::of(&user)[0], Scope::own(None, &user.id));
        for scope in Scope::of(&user) {
            assert_eq!(Scope::read(&scope.to_string()), Some(scope));
        }
        let nameless = BTreeSet::from([String::new()]);
        let user = key.on_behalf_of(User { id: "b".into(), groups: nameless, ..User::default() }, &GroupTable::default());
        assert!(Scope::of(&user).iter().all(|scope| Scope::read(&scope.to_string()).is_some()));
        let names = |principal: &Principal| Scope::of(principal).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&key), ["-/caller=service-key"], "people whom the key does not name");
        assert_eq!(names(&Principal::service_key()), ["-/caller=service-key", "-/all"], "a key that may not name people");
        assert_eq!(names(&Principal::anyone()).len(), 2, "without keys");
        assert!(Scope::of(&Principal::nobody()).is_empty());
        for text in ["", "all", "-/", "/all", "-/caller=", "-/nobody=a"] {
            assert_eq!(Scope::read(text), None, "{text}");
        }
    }
}
