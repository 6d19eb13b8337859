//! The caller: identity, limits and permissions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use crate::domain::access::api_key::{ApiKey, KeyRole, Presented};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Scope;
use crate::domain::catalog::tool::ServerName;

/// Prefixes of the ids of users and named keys.
const USER: &str = "user:";
const KEY: &str = "key:";
/// Ids of the principals that exist only once.
const ANYONE: &str = "anyone";
const NOBODY: &str = "nobody";
const SERVICE_KEY: &str = "service-key";
const ADMIN: &str = "admin";

/// Stable identity of a caller, by which its chats, limits and records are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId(Arc<str>);

impl PrincipalId {
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id of a named key.
    pub fn of_key(name: &str) -> Self {
        Self::new(format!("{KEY}{name}"))
    }

    /// The name of the key, if this is the id of a named key.
    pub(crate) fn name_of_key(&self) -> Option<&str> {
        self.as_str().strip_prefix(KEY)
    }

    /// Parses an id; `None` if no principal can have it.
    pub fn read(text: &str) -> Option<Self> {
        let is_whole = matches!(text, ANYONE | NOBODY | SERVICE_KEY | ADMIN);
        (is_whole || Self::is_of_somebody(text)).then(|| Self::new(text))
    }

    /// Parses the id of a user or a named key, the only principals that can own data. `None` for other texts.
    pub fn of_owner(text: &str) -> Option<Self> {
        Self::is_of_somebody(text).then(|| Self::new(text))
    }

    fn is_of_somebody(text: &str) -> bool {
        let mut names = [USER, KEY].into_iter().filter_map(|kind| text.strip_prefix(kind));
        names.any(|name| !name.is_empty() && !name.contains(char::is_control))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A caller with its attributes and limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    /// The named key that authenticated the caller, for itself or for a user.
    pub key: Option<Presented>,
    pub groups: BTreeSet<String>,
    /// The user's e-mail address in lower case.
    pub email: Option<String>,
    /// The user's name, unchanged.
    pub name: Option<String>,
    /// The model that makes the request, if known.
    pub model: Option<String>,
    /// The servers that the key permits, regardless of the policy.
    pub servers: Scope<ServerName>,
    /// Limits from the key and from the URL of the request. A tool is visible only if it is in at least one toolset of each set.
    pub within: Vec<BTreeSet<ToolsetName>>,
    /// Whether the caller may state for which user it acts.
    pub vouches: bool,
    /// Whether the caller may use the admin routes.
    pub administers: bool,
    /// Whether the caller may read the admin routes.
    pub views: bool,
}

/// The type of caller, by its authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// Any caller that can reach the address, because no key is configured.
    Anyone,
    /// Not authenticated: may use only public routes.
    Nobody,
    /// The holder of the service key.
    ServiceKey,
    AdminKey,
    /// The holder of a named key.
    ApiKey,
    /// A person asserted by a trusted key.
    User,
}

/// A person, as described by the chat application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub id: String,
    pub email: Option<String>,
    pub name: Option<String>,
    pub groups: BTreeSet<String>,
}

impl Principal {
    fn new(id: impl Into<Arc<str>>, kind: PrincipalKind) -> Self {
        Self {
            id: PrincipalId::new(id),
            kind,
            key: None,
            groups: BTreeSet::new(),
            email: None,
            name: None,
            model: None,
            servers: Scope::All,
            within: Vec::new(),
            vouches: false,
            administers: false,
            views: false,
        }
    }

    pub fn anyone() -> Self {
        Self::new(ANYONE, PrincipalKind::Anyone)
    }

    pub fn nobody() -> Self {
        Self { servers: Scope::Only(BTreeSet::new()), ..Self::new(NOBODY, PrincipalKind::Nobody) }
    }

    pub fn service_key() -> Self {
        Self::new(SERVICE_KEY, PrincipalKind::ServiceKey)
    }

    pub fn admin_key() -> Self {
        Self { administers: true, ..Self::new(ADMIN, PrincipalKind::AdminKey) }
    }

    /// The owner of data, known by its id: a user with these attributes, or a named key that acts for itself. `None` if nobody with this
    /// id can own data. Rules and limits of the owner's key are unknown, so this principal is for the owner's own data only.
    pub fn of_owner(id: &PrincipalId, user: User) -> Option<Self> {
        let kind = if id.as_str().starts_with(USER) { PrincipalKind::User } else { PrincipalKind::ApiKey };
        let owner = PrincipalId::of_owner(id.as_str())?;
        let User { email, name, groups, .. } = user;
        Some(Self { email, name, groups, servers: Scope::Only(BTreeSet::new()), ..Self::new(owner.0, kind) })
    }

    /// The id of the named key that authenticated the caller.
    pub fn key_id(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.id.as_str())
    }

    pub fn api_key(key: &ApiKey) -> Self {
        Self {
            key: Some(Presented { id: key.id.clone(), hash: key.hash }),
            groups: key.groups.clone(),
            servers: key.servers.clone().map_or(Scope::All, Scope::Only),
            within: key.toolsets.iter().cloned().collect(),
            vouches: key.trusted,
            views: key.role == Some(KeyRole::Viewer),
            ..Self::new(PrincipalId::of_key(&key.name).0, PrincipalKind::ApiKey)
        }
    }

    /// The user on whose behalf this caller acts. The caller's servers and toolsets limit the user. If the caller has groups, the
    /// user keeps only groups that are among them.
    #[must_use]
    pub fn on_behalf_of(&self, user: User, table: &GroupTable) -> Self {
        // Rules match e-mail addresses and ids alike, so an address must contain an `@`.
        let email = user.email.map(|email| email.to_lowercase()).filter(|email| email.contains('@'));
        let mut groups = user.groups;
        groups.extend(table.of(&user.id, email.as_deref()));
        if !self.groups.is_empty() {
            groups.retain(|group| self.groups.contains(group));
        }
        let (key, servers, within) = (self.key.clone(), self.servers.clone(), self.within.clone());
        Self { key, groups, email, name: user.name, servers, within, ..Self::new(format!("{USER}{}", user.id), PrincipalKind::User) }
    }

    /// A copy of this caller, limited to a toolset and without admin rights.
    #[must_use]
    pub fn kept_to(&self, toolset: ToolsetName) -> Self {
        let mut principal = Self { administers: false, views: false, ..self.clone() };
        principal.within.push(BTreeSet::from([toolset]));
        principal
    }

    /// Whether the caller may see everything that administrators see.
    pub fn sees_all(&self) -> bool {
        self.administers || self.views
    }

    /// A user's id in the chat application.
    pub fn user_id(&self) -> Option<&str> {
        if self.kind == PrincipalKind::User { self.id.as_str().strip_prefix(USER) } else { None }
    }

    /// The names to which patterns of callers apply: the id and, for a user, the e-mail address. Addresses are in lower case, as in
    /// [`caller_pattern`]. Many chat applications use them as ids too.
    pub fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let id = self.id.as_str();
        let lower = in_lower_case(id);
        let lower = (lower != id).then_some(lower);
        let email = self.email.as_ref().map(|email| format!("{USER}{email}").into());
        iter::once(id.into()).chain(lower).chain(email)
    }

    /// Whether the caller is one person or one program, whose data is private. False for a key that acts for others.
    pub fn is_somebody(&self) -> bool {
        match self.kind {
            PrincipalKind::User => true,
            PrincipalKind::ApiKey => !self.vouches,
            PrincipalKind::Anyone | PrincipalKind::Nobody | PrincipalKind::ServiceKey | PrincipalKind::AdminKey => false,
        }
    }

    /// A copy of this caller with the model, if one is given.
    #[must_use]
    pub fn with_model(&self, model: Option<String>) -> Self {
        Self { model: model.or_else(|| self.model.clone()), ..self.clone() }
    }
}

/// A pattern of callers, for those of [`Principal::names`] that contain an e-mail address: these are compared in lower case.
pub fn caller_pattern(pattern: &str) -> Cow<'_, str> {
    in_lower_case(pattern)
}

/// Whether a caller can have a name that this pattern matches. Judged by the text before the first wildcard.
pub fn may_match_a_caller(pattern: &str) -> bool {
    let literal = pattern.split(['*', '?', '[', '{', '\\']).next().unwrap_or_default();
    if literal.len() == pattern.len() {
        return PrincipalId::read(pattern).is_some();
    }
    let is_kind = |kind: &&str| literal.starts_with(kind) || kind.starts_with(literal);
    [USER, KEY].iter().any(is_kind) || [ANYONE, NOBODY, SERVICE_KEY, ADMIN].iter().any(|name| name.starts_with(literal))
}

/// The text in lower case, if it contains an e-mail address.
fn in_lower_case(text: &str) -> Cow<'_, str> {
    if text.contains('@') { text.to_lowercase().into() } else { text.into() }
}

/// Group members from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTable {
    groups: BTreeMap<String, BTreeSet<String>>,
}

impl GroupTable {
    /// Creates a table from the ids or e-mail addresses of each group's members.
    pub fn new(groups: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        let members = |members: Vec<String>| members.iter().map(|member| in_lower_case(member).into_owned()).collect();
        Self { groups: groups.into_iter().map(|(name, of)| (name, members(of))).collect() }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    /// The names of the groups, with the numbers of their members.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.groups.iter().map(|(name, members)| (name.as_str(), members.len()))
    }

    /// The groups of a user. `email` must be in lower case.
    fn of(&self, id: &str, email: Option<&str>) -> Vec<String> {
        let id = in_lower_case(id);
        let is_member = |members: &BTreeSet<String>| members.contains(&*id) || email.is_some_and(|email| members.contains(email));
        self.groups.iter().filter(|(_, members)| is_member(members)).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeSet;

    use super::{GroupTable, Principal, PrincipalId, User, caller_pattern, may_match_a_caller};

    /// Regression: a rule, a limit and a group that named an address in an id never applied if the id had a capital letter.
    #[test]
    fn addresses_have_no_case() {
        let table = GroupTable::new([("ops".to_owned(), vec!["Bob@Example.org".to_owned()])]);
        let user = |id: &str, email: Option<&str>| {
            let user = User { id: id.to_owned(), email: email.map(str::to_owned), ..User::default() };
            Principal::service_key().on_behalf_of(user, &table)
        };
        let names = |principal: &Principal| principal.names().map(Cow::into_owned).collect::<Vec<String>>();
        let by_id = user("BOB@example.org", None);
        assert_eq!(names(&by_id), ["user:BOB@example.org", "user:bob@example.org"]);
        assert!(by_id.groups.contains("ops"));
        let by_email = user("U1", Some("BOB@example.org"));
        assert_eq!(names(&by_email), ["user:U1", "user:bob@example.org"]);
        assert!(by_email.groups.contains("ops") && user("bob", None).groups.is_empty());
        assert_eq!((caller_pattern("user:*@Example.org"), caller_pattern("user:U1")), ("user:*@example.org".into(), "user:U1".into()));
    }

    #[test]
    fn a_principal_has_no_control_characters() {
        for text in ["user:u1", "key:ci", "admin"] {
            assert!(PrincipalId::read(text).is_some(), "{text}");
        }
        for text in ["user:", "user:a\0b", "key:\n", "bob"] {
            assert!(PrincipalId::read(text).is_none() && PrincipalId::of_owner(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_of_callers_begins_like_a_name() {
        for pattern in ["user:u1", "user:*@example.org", "key:ci", "admin", "*", "?ser:x", "{user,key}:x", "us*", "service-*", "user:{a,b}"]
        {
            assert!(may_match_a_caller(pattern), "{pattern}");
        }
        for pattern in ["bob", "bob@example.org", "users:x", "user:", "service_key", "bob*", "admins*"] {
            assert!(!may_match_a_caller(pattern), "{pattern}");
        }
    }

    #[test]
    fn groups_come_from_claims_and_configuration_and_end_at_the_key() {
        let table = GroupTable::new([("ops".to_owned(), vec!["Anna@Example.org".to_owned()]), ("all".to_owned(), vec!["u1".to_owned()])]);
        let groups = BTreeSet::from(["finance".to_owned()]);
        let user = User { id: "u1".into(), email: Some("anna@EXAMPLE.org".into()), groups, ..User::default() };
        let key = Principal { vouches: true, administers: true, ..Principal::service_key() };
        let anna = key.on_behalf_of(user.clone(), &table);
        assert_eq!(anna.groups.iter().map(String::as_str).collect::<Vec<_>>(), ["all", "finance", "ops"]);
        assert_eq!((anna.id.as_str(), anna.vouches, anna.administers), ("user:u1", false, false));
        assert_eq!((anna.user_id(), key.user_id()), (Some("u1"), None));
        let limited = Principal { groups: BTreeSet::from(["ops".to_owned(), "other".to_owned()]), ..key };
        assert_eq!(limited.on_behalf_of(user, &table).groups.iter().map(String::as_str).collect::<Vec<_>>(), ["ops"]);
    }
}
