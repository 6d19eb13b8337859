//! Rules that assign tags to tools: `[[tag]]` in the settings, with the conditions on tools that policy rules have.

use serde_json::Value;

use crate::domain::access::policy::tool_side::ToolSide;
use crate::domain::access::rule::Rule;
use crate::domain::catalog::hints::ToolHints;
use crate::domain::catalog::tool::{OperationId, ToolId};
use crate::domain::text::similar::nearest;

/// The known fields of a tag rule.
const KNOWN: [&str; 4] = ["tag", "servers", "tools", "annotations"];
/// Fields of policy rules that tag rules do not support.
const NOT_FOR_TAGS: [&str; 5] = ["effect", "tags", "principals", "groups", "models"];

/// A tag and the conditions under which a tool gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRule {
    pub tag: String,
    /// The conditions on tools; the effect is unused.
    pub conditions: Rule,
}

impl TagRule {
    /// Parses a rule: a `tag` with the conditions `servers`, `tools` and `annotations`.
    ///
    /// # Errors
    /// A description of the problem for the rule's author.
    pub fn read(value: &Value) -> Result<Self, String> {
        let Some(object) = value.as_object() else { return Err("it is not a table".to_owned()) };
        let tag = match object.get("tag").map(|tag| tag.as_str().map(str::trim)) {
            None => return Err("it has no tag: write tag = \"…\"".to_owned()),
            Some(Some(tag)) if !tag.is_empty() => tag.to_owned(),
            Some(_) => return Err("its tag is not a text".to_owned()),
        };
        if let Some(name) = object.keys().find(|name| NOT_FOR_TAGS.contains(&name.as_str())) {
            return Err(format!("{name} can't be a condition for a tag: write servers, tools or annotations"));
        }
        if let Some(name) = object.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let hint = nearest(name, KNOWN.into_iter())
                .map_or_else(|| "it has no meaning here".to_owned(), |near| format!("did you mean `{near}`?"));
            return Err(format!("unknown field `{name}`: {hint}"));
        }
        let mut conditions = object.clone();
        conditions.shift_remove("tag");
        conditions.insert("effect".to_owned(), "allow".into());
        Ok(Self { tag, conditions: Rule::read(&Value::Object(conditions))? })
    }
}

/// All compiled tag rules.
#[derive(Debug, Default)]
pub struct Tagging {
    rules: Vec<(String, ToolSide)>,
}

impl Tagging {
    pub fn new(rules: &[TagRule]) -> Self {
        Self { rules: rules.iter().map(|rule| (rule.tag.clone(), ToolSide::of(&rule.conditions))).collect() }
    }

    /// The tags that the rules assign to a tool.
    pub fn of<'a>(&'a self, id: &'a ToolId, published: &'a OperationId, hints: &'a ToolHints) -> impl Iterator<Item = &'a str> {
        self.rules.iter().filter(move |(_, side)| side.fits(id, published, hints)).map(|(tag, _)| tag.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{TagRule, Tagging};
    use crate::domain::catalog::hints::ToolHints;
    use crate::domain::catalog::tool::{OperationId, ToolId};

    #[test]
    fn tools_get_the_tags_of_all_rules_that_fit() {
        let rules = [
            json!({"tag": "writes", "annotations": ["readOnlyHint=false"]}),
            json!({"tag": "money", "servers": ["bank*"], "tools": ["pay_*", "bank__get_*"]}),
            json!({"tag": "all"}),
        ];
        let tagging = Tagging::new(&rules.map(|rule| TagRule::read(&rule).unwrap()));
        let tags = |server: &str, name: &str, reads: bool| {
            let id = ToolId::new(server, name);
            let hints = ToolHints::of(&json!({"annotations": {"readOnlyHint": reads}}));
            tagging.of(&id, &OperationId::of(&id), &hints).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(tags("bank", "pay_bill", false), ["writes", "money", "all"]);
        assert_eq!(tags("bank", "get_balance", true), ["money", "all"]);
        assert_eq!(tags("shop", "pay_bill", true), ["all"]);
    }

    #[test]
    fn what_is_no_rule_says_why() {
        for (rule, reason) in [
            (json!("x"), "not a table"),
            (json!({"servers": ["a"]}), "it has no tag"),
            (json!({"tag": " "}), "not a text"),
            (json!({"tag": "a", "groups": ["b"]}), "groups can't be a condition for a tag"),
            (json!({"tag": "a", "effect": "allow"}), "effect can't be a condition"),
            (json!({"tag": "a", "tools": []}), "tools is empty"),
            (json!({"tag": "a", "tool": ["b"]}), "unknown field `tool`: did you mean `tools`?"),
            (json!({"tag": "a", "tools": ["b["]}), "b["),
            (json!({"tag": "a", "annotations": ["x"]}), "annotations: write readOnlyHint"),
        ] {
            let found = TagRule::read(&rule).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
    }
}
