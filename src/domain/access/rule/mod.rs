//! A rule as written in the settings or sent to the API, and the patterns of its conditions.

pub(in crate::domain::access) mod pattern;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::pattern::Reach;
pub(crate) use self::pattern::{CallerPatterns, PatternSet, glob, is_plain};
use crate::domain::catalog::hints::Hint;
use crate::domain::text::named::named;

named! {
    /// The effect of a rule on the tools that it matches.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Effect {
        #[default]
        Allow = "allow",
        #[serde(alias = "deny")]
        Block = "block",
    }
}

impl Effect {
    pub(in crate::domain::access) fn reach(self) -> Reach {
        match self {
            Self::Allow => Reach::Separator,
            Self::Block => Reach::Anywhere,
        }
    }
}

/// A rule matches if all its conditions hold. A condition holds if one of its patterns matches; `annotations` must match all. A
/// rule without conditions matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub effect: Effect,
    /// Patterns of server names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Patterns of raw tool names. Patterns with `__` match published names, and raw names only if the rule blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns of tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`, each optionally with `=false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    /// Patterns of toolset names. A tool matches if one of its toolsets does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolsets: Vec<String>,
    /// Patterns of callers: `key:NAME`, `user:ID`, `user:E-MAIL`, `service-key`, `admin`, `anyone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub principals: Vec<String>,
    /// Patterns of group names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Patterns of model names. They never match an unknown model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

/// The location of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RulePlace {
    pub source: RuleSource,
    /// The rule's position in its source, starting at 1.
    pub number: usize,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RuleSource {
        /// `[[policy]]` in the settings file. These rules come first.
        Settings = "settings",
        /// The admin API.
        Api = "api",
    }
}

impl fmt::Display for RulePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            RuleSource::Settings => write!(formatter, "rule {} of the settings", self.number),
            RuleSource::Api => write!(formatter, "rule {}", self.number),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlacedRule {
    pub place: RulePlace,
    pub rule: Rule,
}

/// A problem with a rule, or a warning about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleProblem {
    #[serde(flatten)]
    pub place: RulePlace,
    pub reason: String,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.reason)
    }
}

/// An invalid condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{condition}: {reason}")]
pub struct ConditionProblem {
    pub condition: &'static str,
    pub reason: String,
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// A description of the problem for the rule's author.
    pub fn read(value: &Value) -> Result<Self, String> {
        let Some(object) = value.as_object() else { return Err("it is not a table of conditions".to_owned()) };
        if let Some((name, _)) = object.iter().find(|(_, value)| value.as_array().is_some_and(Vec::is_empty)) {
            return Err(format!("{name} is empty and would match nothing: leave it out"));
        }
        if !object.contains_key("effect") {
            return Err("it has no effect: write \"allow\" or \"block\"".to_owned());
        }
        let rule: Self = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        rule.check().map_err(|problem| problem.to_string())?;
        Ok(rule)
    }

    pub(in crate::domain) fn check(&self) -> Result<(), ConditionProblem> {
        for (condition, patterns) in self.patterns() {
            for text in patterns {
                glob(text).map_err(|reason| ConditionProblem { condition, reason })?;
            }
        }
        let invalid = |reason| ConditionProblem { condition: "annotations", reason };
        let mut hints: Vec<(Hint, bool)> = Vec::new();
        for text in &self.annotations {
            let (hint, stated) =
                Hint::read(text).ok_or_else(|| invalid(format!("write {}, each also with =false", Hint::NAMES.join(", "))))?;
            if hints.iter().any(|(known, value)| *known == hint && *value != stated) {
                return Err(invalid(format!("{} is both required and excluded", hint.name())));
            }
            hints.push((hint, stated));
        }
        Ok(())
    }

    /// All conditions that consist of patterns, by name.
    pub(in crate::domain::access) fn patterns(&self) -> [(&'static str, &[String]); 7] {
        [
            ("servers", &self.servers),
            ("tools", &self.tools),
            ("tags", &self.tags),
            ("toolsets", &self.toolsets),
            ("principals", &self.principals),
            ("groups", &self.groups),
            ("models", &self.models),
        ]
    }

    /// Whether the rule matches every caller.
    pub(in crate::domain::access) fn is_for_all(&self) -> bool {
        self.principals.is_empty() && self.groups.is_empty() && self.models.is_empty()
    }

    /// Whether the rule applies to whole servers, not to single tools.
    pub(in crate::domain::access) fn is_for_whole_servers(&self) -> bool {
        self.tools.is_empty() && self.tags.is_empty() && self.annotations.is_empty() && self.toolsets.is_empty()
    }

    /// The conditions in canonical order, without the effect.
    pub(in crate::domain::access) fn conditions(&self) -> Self {
        let mut conditions = Self { effect: Effect::Allow, ..self.clone() };
        let Self { servers, tools, tags, annotations, toolsets, principals, groups, models, .. } = &mut conditions;
        for texts in [servers, tools, tags, annotations, toolsets, principals, groups, models] {
            texts.sort_unstable();
            texts.dedup();
        }
        conditions
    }
}
