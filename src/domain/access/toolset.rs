//! Toolsets: named lists of tools, defined by conditions. [`CompiledToolsets`](crate::domain::access::policy::CompiledToolsets) computes
//! their members for each catalog.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::access::rule::{ConditionProblem, Effect, Rule};
use crate::domain::access::toolset_name::ToolsetName;

/// Maximum length of a description, in bytes.
pub const MAX_DESCRIPTION: usize = 2_000;

/// The definition of a toolset. Its members are the tools that meet all conditions and match no `exclude` pattern, and the
/// always-on tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolsetDefinition {
    /// The purpose of the toolset.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Patterns of server names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Patterns of raw tool names. Patterns with `__` match published names instead, except in `exclude`, where they match both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns of tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Annotations as in policy rules: `readOnlyHint` etc., each optionally with `=false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    /// Patterns of excluded tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Patterns of always-on tools: members regardless of the conditions, and part of every document and selection of the
    /// toolset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<String>,
}

/// The reason why a toolset is invalid, for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ToolsetProblem {
    /// The invalid member of the definition, or `name`. `None` if the whole has the wrong form or lacks a condition.
    pub member: Option<&'static str>,
    pub reason: String,
}

impl From<ConditionProblem> for ToolsetProblem {
    fn from(problem: ConditionProblem) -> Self {
        Self { member: Some(problem.condition), reason: problem.to_string() }
    }
}

/// A toolset with its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toolset {
    pub name: ToolsetName,
    pub definition: ToolsetDefinition,
}

impl Toolset {
    /// Parses a definition.
    ///
    /// # Errors
    /// A [`ToolsetProblem`] if the name or the definition is invalid.
    pub fn read(name: &str, value: &Value) -> Result<Self, ToolsetProblem> {
        let problem = |member, reason| ToolsetProblem { member, reason };
        ToolsetName::check(name).map_err(|reason| problem(Some("name"), reason.to_owned()))?;
        if !value.is_object() {
            return Err(problem(None, "it is not a table".to_owned()));
        }
        let definition = ToolsetDefinition::deserialize(value).map_err(|error| problem(None, error.to_string()))?;
        definition.check(value)?;
        Ok(Self { name: ToolsetName::new(name), definition })
    }
}

impl ToolsetDefinition {
    fn check(&self, value: &Value) -> Result<(), ToolsetProblem> {
        let problem = |member, reason| Err(ToolsetProblem { member, reason });
        if self.description.len() > MAX_DESCRIPTION {
            return problem(Some("description"), format!("description has more than {MAX_DESCRIPTION} bytes"));
        }
        for name in ["servers", "tools", "tags", "annotations", "exclude", "always"] {
            if value.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty) {
                return problem(Some(name), format!("{name} is empty: leave it out"));
            }
        }
        let conditions = [&self.servers, &self.tools, &self.tags, &self.annotations, &self.always];
        if conditions.iter().all(|texts| texts.is_empty()) {
            return problem(None, "it selects no tool: give servers, tools, tags, annotations or always".to_owned());
        }
        // The conditions are the same as in policy rules, and so is their validation.
        self.conditions().check()?;
        for (condition, texts) in [("exclude", &self.exclude), ("always", &self.always)] {
            let rule = Rule { tools: texts.clone(), ..Rule::default() };
            rule.check().map_err(|problem| ConditionProblem { condition, ..problem })?;
        }
        Ok(())
    }

    /// The conditions in the form of a policy rule.
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

    /// Whether the toolset has conditions, and thus members other than always-on tools.
    pub fn has_conditions(&self) -> bool {
        [&self.servers, &self.tools, &self.tags, &self.annotations].iter().any(|texts| !texts.is_empty())
    }
}

/// Limits the toolsets that the service publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PublishedToolsets {
    /// The published toolsets. If empty, all tools are published, including those in no toolset.
    pub toolsets: BTreeSet<ToolsetName>,
    pub exclude: BTreeSet<ToolsetName>,
}

impl PublishedToolsets {
    pub fn is_everything(&self) -> bool {
        self.toolsets.is_empty() && self.exclude.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Toolset, ToolsetName};

    #[test]
    fn mistakes_are_reported_with_their_reason() {
        let long = "d".repeat(super::MAX_DESCRIPTION + 1);
        for (name, value, member, part) in [
            ("a b", json!({"servers": ["mail"]}), Some("name"), "letters, digits"),
            ("", json!({"servers": ["mail"]}), Some("name"), "letters, digits"),
            ("mail", json!("mail"), None, "not a table"),
            ("mail", json!({}), None, "selects no tool"),
            ("mail", json!({"description": "All of it", "exclude": ["x"]}), None, "selects no tool"),
            ("mail", json!({"description": long, "servers": ["a"]}), Some("description"), "description has more than 2000 bytes"),
            ("mail", json!({"servers": []}), Some("servers"), "servers is empty"),
            ("mail", json!({"server": ["mail"]}), None, "unknown field `server`, expected one of"),
            ("mail", json!({"servers": ["a["]}), Some("servers"), "servers: `a[`"),
            ("mail", json!({"servers": ["a"], "exclude": ["b["]}), Some("exclude"), "exclude: `b[`"),
            ("mail", json!({"always": [""]}), Some("always"), "always: a pattern has"),
            ("mail", json!({"annotations": ["readonly"]}), Some("annotations"), "annotations: write readOnlyHint"),
            ("mail", json!({"servers": "mail"}), None, "expected a sequence"),
        ] {
            let problem = Toolset::read(name, &value).unwrap_err();
            assert!(problem.member == member && problem.reason.contains(part), "{name} {value}: {problem:?}");
        }
        let mail = Toolset::read("mail", &json!({"servers": ["mail"], "description": "Letters"})).unwrap();
        assert_eq!((mail.name, mail.definition.description.as_str()), (ToolsetName::from("mail"), "Letters"));
    }
}
