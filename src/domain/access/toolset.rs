//! Toolsets: named lists of tools, defined by conditions. [`Toolsets`](crate::domain::access::policy::Toolsets) computes
//! their members for each catalog.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::access::policy::{Effect, Rule};
use crate::domain::text::named::name_text;

/// Longest name of a toolset.
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 2_000;

/// The name of a toolset, usable in URLs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolsetName(Arc<str>);

impl ToolsetName {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Validates the name of a toolset.
    ///
    /// # Errors
    /// A message for the user.
    pub fn check(name: &str) -> Result<(), &'static str> {
        let is_fine = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_fine) {
            return Err("the name of a toolset is 1 to 64 letters, digits, - and _");
        }
        Ok(())
    }
}

name_text!(ToolsetName);

impl From<&str> for ToolsetName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The definition of a toolset. A tool is a member if all conditions hold and no pattern excludes it, or if it is always
/// on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Its purpose, in its author's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Patterns of server names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Patterns of tool names as the server reports them; patterns with `__` also match published names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns of tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// As in rules: `readOnlyHint` etc., each optionally with `=false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    /// Patterns of tools to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Patterns of always-on tools: members regardless of the conditions, and part of every document and selection of the
    /// toolset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<String>,
}

/// A toolset with its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toolset {
    pub name: ToolsetName,
    pub definition: Definition,
}

impl Toolset {
    /// Parses a definition.
    ///
    /// # Errors
    /// Why it is invalid, in words for its author.
    pub fn read(name: &str, value: &Value) -> Result<Self, String> {
        ToolsetName::check(name)?;
        if !value.is_object() {
            return Err("it is not a table".to_owned());
        }
        let definition = Definition::deserialize(value).map_err(|error| error.to_string())?;
        definition.check(value)?;
        Ok(Self { name: ToolsetName::new(name), definition })
    }
}

impl Definition {
    fn check(&self, value: &Value) -> Result<(), String> {
        if self.description.len() > MAX_DESCRIPTION {
            return Err(format!("description has more than {MAX_DESCRIPTION} bytes"));
        }
        for name in ["servers", "tools", "tags", "annotations", "exclude", "always"] {
            if value.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty) {
                return Err(format!("{name} is empty: leave it out"));
            }
        }
        let conditions = [&self.servers, &self.tools, &self.tags, &self.annotations, &self.always];
        if conditions.iter().all(|texts| texts.is_empty()) {
            return Err("it selects no tool: give servers, tools, tags, annotations or always".to_owned());
        }
        // The conditions are those of rules, so their check applies.
        self.conditions().check()?;
        for (name, texts) in [("exclude", &self.exclude), ("always", &self.always)] {
            let rule = Rule { tools: texts.clone(), ..Rule::default() };
            rule.check().map_err(|reason| reason.replacen("tools", name, 1))?;
        }
        Ok(())
    }

    /// The conditions as a rule.
    #[must_use]
    pub fn conditions(&self) -> Rule {
        Rule {
            effect: Effect::Allow,
            servers: self.servers.clone(),
            tools: self.tools.clone(),
            tags: self.tags.clone(),
            annotations: self.annotations.clone(),
            ..Rule::default()
        }
    }

    /// Whether it has members other than always-on tools.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        [&self.servers, &self.tools, &self.tags, &self.annotations].iter().any(|texts| !texts.is_empty())
    }
}

/// The toolsets to publish, if the service was started with such a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Published {
    /// Empty: all tools, including those in no toolset.
    pub toolsets: BTreeSet<ToolsetName>,
    pub exclude: BTreeSet<ToolsetName>,
}

impl Published {
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.toolsets.is_empty() && self.exclude.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Toolset, ToolsetName};

    #[test]
    fn what_is_wrong_is_told_with_its_reason() {
        for (name, value, part) in [
            ("a b", json!({"servers": ["mail"]}), "letters, digits"),
            ("", json!({"servers": ["mail"]}), "letters, digits"),
            ("mail", json!("mail"), "not a table"),
            ("mail", json!({}), "selects no tool"),
            ("mail", json!({"description": "All of it", "exclude": ["x"]}), "selects no tool"),
            ("mail", json!({"servers": []}), "servers is empty"),
            ("mail", json!({"server": ["mail"]}), "unknown field `server`, expected one of"),
            ("mail", json!({"servers": ["a["]}), "servers: `a[`"),
            ("mail", json!({"servers": ["a"], "exclude": ["b["]}), "exclude: `b[`"),
            ("mail", json!({"always": [""]}), "always: a pattern has"),
            ("mail", json!({"annotations": ["readonly"]}), "write readOnlyHint"),
            ("mail", json!({"servers": "mail"}), "expected a sequence"),
        ] {
            let reason = Toolset::read(name, &value).unwrap_err();
            assert!(reason.contains(part), "{name} {value}: {reason}");
        }
        let mail = Toolset::read("mail", &json!({"servers": ["mail"], "description": "Letters"})).unwrap();
        assert_eq!((mail.name, mail.definition.description.as_str()), (ToolsetName::from("mail"), "Letters"));
    }
}
