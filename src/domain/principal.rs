//! Who calls, and what they may see.
//!
//! One value, [`Visibility`], goes into every use case (publish, search, select, describe, call) and into the index.
//! Nothing else decides what a caller sees. Rules that give callers different views come with the policy; until a
//! policy is configured the key opens everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::tool::{ServerName, Tool};

/// Stable identity of a caller: keys the chat's set, limits and the record of use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId(Arc<str>);

impl PrincipalId {
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The caller of a use case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    pub groups: Vec<String>,
}

/// How the caller proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrincipalKind {
    /// No key is configured: everybody who can reach the address.
    Anyone,
    /// Nobody who was let in: only what is public is for them.
    Nobody,
    /// The service key.
    ServiceKey,
}

impl Principal {
    #[must_use]
    pub fn anyone() -> Self {
        Self { id: PrincipalId::new("anyone"), kind: PrincipalKind::Anyone, groups: Vec::new() }
    }

    #[must_use]
    pub fn nobody() -> Self {
        Self { id: PrincipalId::new("nobody"), kind: PrincipalKind::Nobody, groups: Vec::new() }
    }

    #[must_use]
    pub fn service_key() -> Self {
        Self { id: PrincipalId::new("service-key"), kind: PrincipalKind::ServiceKey, groups: Vec::new() }
    }
}

/// Tools that all rules treat alike share a class, so that an index filters on a small number instead of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisibilityClass(pub u32);

/// Which tools a caller may see: a scope over servers and one over classes, both must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Visibility {
    pub servers: Scope<ServerName>,
    pub classes: Scope<VisibilityClass>,
}

/// All values, or only the listed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope<T: Ord> {
    #[default]
    All,
    Only(BTreeSet<T>),
}

impl<T: Ord> Scope<T> {
    pub fn contains(&self, value: &T) -> bool {
        match self {
            Self::All => true,
            Self::Only(values) => values.contains(value),
        }
    }
}

impl Visibility {
    /// What a principal may see. Here one key opens everything; the policy refines it.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        match principal.kind {
            PrincipalKind::Anyone | PrincipalKind::ServiceKey => Self::default(),
            PrincipalKind::Nobody => Self { servers: Scope::Only(BTreeSet::new()), classes: Scope::All },
        }
    }

    #[must_use]
    pub fn allows(&self, tool: &Tool) -> bool {
        self.servers.contains(&tool.id.server) && self.classes.contains(&tool.class)
    }

    /// The part of this view that lies on one server.
    #[must_use]
    pub fn on_server(&self, server: &ServerName) -> Self {
        let servers = if self.servers.contains(server) { BTreeSet::from([server.clone()]) } else { BTreeSet::new() };
        Self { servers: Scope::Only(servers), classes: self.classes.clone() }
    }
}
