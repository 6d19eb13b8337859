//! The one list of a server that lists its tools for each user: it is merged from the users' lists.
//!
//! Another user may have rights to other tools, so a tool goes only once the user whose list contained it last has a list without it.
//! Each service merges what its own users' connections list. The store merges the lists of all services in the same way.

use std::collections::{BTreeMap, HashSet};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::domain::catalog::catalog::{MAX_TOOLS, ServerListing};
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::json;
use crate::domain::text::json_text::JsonText;

/// The user of a list, as a hash, so that stored lists name nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListOwner(u64);

impl ListOwner {
    pub fn of(user: &str) -> Self {
        Self(Fingerprint::of_text(user).prefix())
    }
}

/// A user's list, for the list in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct UserList {
    pub owner: ListOwner,
    pub tools: Vec<JsonText>,
    /// The names of known tools that are over, because no list has contained them for long.
    pub expired: Vec<String>,
    /// Whether this is the first list of a server that has replaced another one under the same name.
    pub is_of_new_server: bool,
}

/// The users whose lists contained the tools last, by the tools' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListedBy(BTreeMap<String, ListOwner>);

impl ListedBy {
    /// Whether it is known whose list contained a tool last.
    pub fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds a user's list to the known tools, which keep their places. `is_over` tells which tools go although the user's list need not
    /// have contained them.
    #[must_use]
    pub fn merge(
        &mut self,
        known: &[JsonText],
        list: &[JsonText],
        owner: ListOwner,
        is_over: impl Fn(&Self, &str) -> bool,
    ) -> Vec<JsonText> {
        let list: IndexMap<String, JsonText> = list.iter().map(|tool| (name_of(tool), tool.clone())).collect();
        let mut merged: IndexMap<String, JsonText> = known.iter().map(|tool| (name_of(tool), tool.clone())).collect();
        merged.retain(|name, _| list.contains_key(name) || !(self.0.get(name) == Some(&owner) || is_over(self, name)));
        self.0.extend(list.keys().map(|name| (name.clone(), owner)));
        merged.extend(list.clone());
        if merged.len() > MAX_TOOLS {
            merged = list;
        }
        self.0.retain(|name, _| merged.contains_key(name));
        merged.into_values().collect()
    }
}

/// What is stored of a server's tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredList {
    pub tools: Vec<JsonText>,
    pub listed_by: ListedBy,
}

impl StoredList {
    /// Adds users' lists. `merged` is the service's own list, which contains them. It decides about tools of which nobody knows whose list
    /// contained them.
    pub fn add(&mut self, merged: &ServerListing, lists: &[UserList]) {
        let present: HashSet<String> = merged.tools.iter().map(name_of).collect();
        for list in lists {
            if list.is_of_new_server {
                *self = Self::default();
            }
            let is_over = |listed_by: &ListedBy, name: &str| {
                list.expired.iter().any(|expired| expired == name) || (!listed_by.knows(name) && !present.contains(name))
            };
            self.tools = self.listed_by.merge(&self.tools, &list.tools, list.owner, is_over);
        }
    }
}

/// The name of a raw tool.
pub fn name_of(tool: &JsonText) -> String {
    json::member(tool.as_str(), "name").and_then(|name| json::text(name.get())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ListOwner, StoredList, UserList};
    use crate::domain::catalog::catalog::ServerListing;
    use crate::domain::text::json_text::JsonText;

    fn tools(names: &[&str]) -> Vec<JsonText> {
        names.iter().map(|name| JsonText::of(&json!({"name": name}))).collect()
    }

    fn list(user: &str, names: &[&str]) -> UserList {
        UserList { owner: ListOwner::of(user), tools: tools(names), expired: Vec::new(), is_of_new_server: false }
    }

    /// The list of a service whose own users' lists contain these tools.
    fn merged(names: &[&str]) -> ServerListing {
        ServerListing {
            server: "crm".into(),
            title: None,
            program: None,
            version: None,
            instructions: None,
            tools: tools(names),
            skipped: Vec::new(),
        }
    }

    /// Regression: each service replaced the stored list by its own, without the tools that only other services' users had.
    #[test]
    fn the_lists_of_several_services_are_merged() {
        let mut stored = StoredList::default();
        stored.add(&merged(&["read", "write"]), &[list("anna", &["read", "write"])]);
        // Another service that has never seen `write`.
        stored.add(&merged(&["read"]), &[list("bob", &["read"])]);
        assert_eq!(stored.tools, tools(&["read", "write"]));
        // Anna was the last one who had `write`, whichever service lists her tools now.
        stored.add(&merged(&["read"]), &[list("anna", &["read"])]);
        assert_eq!(stored.tools, tools(&["read"]));
        stored.add(&merged(&[]), &[list("bob", &[])]);
        assert_eq!(stored.tools, tools(&["read"]), "Anna has it");
        stored.add(&merged(&["read"]), &[list("anna", &[])]);
        assert_eq!(stored, StoredList::default());
    }

    #[test]
    fn tools_without_a_known_user_go_once_a_service_drops_them() {
        let mut stored = StoredList { tools: tools(&["old", "older"]), ..StoredList::default() };
        stored.add(&merged(&["old", "new"]), &[list("anna", &["new"])]);
        assert_eq!(stored.tools, tools(&["old", "new"]));
        // Anna never comes back, and a service has waited for her long enough.
        let expired = UserList { expired: vec!["new".to_owned()], ..list("bob", &["other"]) };
        stored.add(&merged(&["other"]), &[expired]);
        assert_eq!(stored.tools, tools(&["other"]));
        let replaced = UserList { is_of_new_server: true, ..list("anna", &["x"]) };
        stored.add(&merged(&["x"]), &[replaced, list("bob", &["y"])]);
        assert_eq!(stored.tools, tools(&["x", "y"]));
    }
}
