//! Shortens expensive definitions: cuts long enums and descriptions step by step, until the definition fits the token budget or
//! nothing is left to cut.
//!
//! The published form then forbids less, but arguments are still validated against the server's own schema. Each cut is described
//! in words and recorded as a loss.

use serde_json::{Map, Value};

use crate::domain::catalog::schema::{InputSchema, LossReason, SchemaLoss};
use crate::domain::catalog::tool::Tool;
use crate::domain::text::json::pointer;
use crate::domain::text::json_text::JsonText;

/// Maximum number of recorded losses.
const MAX_LOSSES: usize = 100;
/// Number of values that the description of a cut enum names.
const NAMED_VALUES: usize = 8;

/// One step of shortening: the limits that it applies.
#[derive(Clone, Copy)]
struct Step {
    /// Maximum number of enum values.
    values: usize,
    /// Maximum length of a description, in characters.
    characters: usize,
}

const STEPS: [Step; 6] = [
    Step { values: 100, characters: 2_000 },
    Step { values: 50, characters: 1_000 },
    Step { values: 30, characters: 500 },
    Step { values: 20, characters: 250 },
    Step { values: 10, characters: 120 },
    Step { values: 5, characters: 60 },
];

/// Shortens the tools that cost more than `budget` tokens. `count` returns the token count of each text.
pub(crate) fn shorten(tools: &mut [Tool], budget: u32, count: &dyn Fn(&[String]) -> Vec<u32>) {
    let mut long: Vec<(&mut Tool, String, InputSchema)> = tools
        .iter_mut()
        .filter(|tool| tool.tokens > budget)
        .map(|tool| {
            let (description, input) = (tool.description.clone(), tool.input.clone());
            (tool, description, input)
        })
        .collect();
    for step in STEPS {
        if long.is_empty() {
            return;
        }
        let definitions: Vec<String> = long
            .iter_mut()
            .map(|(tool, description, input)| {
                tool.input = shortened(input, step);
                tool.description = described(description, input.hint.as_deref(), step.characters);
                tool.function_text()
            })
            .collect();
        for ((tool, ..), tokens) in long.iter_mut().zip(count(&definitions)) {
            tool.tokens = tokens;
        }
        long.retain(|(tool, ..)| tool.tokens > budget);
    }
}

fn shortened(input: &InputSchema, step: Step) -> InputSchema {
    let mut published = input.published.value();
    let mut losses = Vec::new();
    schema(&mut published, step, &mut String::new(), &mut losses);
    losses.extend(input.losses.iter().cloned());
    losses.sort_unstable();
    InputSchema { published: JsonText::of(&published), losses, ..input.clone() }
}

/// Cuts the description of a tool but keeps its sentence about the arguments.
fn described(description: &str, hint: Option<&str>, characters: usize) -> String {
    match hint.and_then(|hint| Some((hint, description.strip_suffix(hint)?))) {
        Some((hint, own)) => format!("{}\n\n{hint}", cut(own.trim_end(), characters)),
        None => cut(description, characters),
    }
}

fn schema(value: &mut Value, step: Step, pointer: &mut String, losses: &mut Vec<SchemaLoss>) {
    let Value::Object(object) = value else { return };
    let mut lose = |keyword: &str, described| {
        if losses.len() < MAX_LOSSES {
            losses.push(SchemaLoss { pointer: pointer.clone(), keyword: keyword.to_owned(), reason: LossReason::Shortened, described });
        }
    };
    if let Some(Value::String(description)) = object.get_mut("description")
        && description.chars().nth(step.characters).is_some()
    {
        *description = cut(description, step.characters);
        lose("description", false);
    }
    if let Some(Value::Array(values)) = object.get("enum")
        && values.len() > step.values
    {
        let note = one_of(values);
        object.shift_remove("enum");
        let description = object.get("description").and_then(Value::as_str).filter(|text| !text.is_empty());
        let description = description.map_or_else(|| note.clone(), |text| format!("{text} {note}"));
        object.insert("description".into(), description.into());
        lose("enum", true);
    }
    if let Some(Value::Array(examples)) = object.get_mut("examples")
        && examples.len() > step.values.min(3)
    {
        examples.truncate(step.values.min(3));
        lose("examples", false);
    }
    inside(object, step, pointer, losses);
}

/// Shortens nested schemas, except conditions (`not`, `if`, `contains`): a weaker condition could make the schema stricter.
fn inside(object: &mut Map<String, Value>, step: Step, pointer: &mut String, losses: &mut Vec<SchemaLoss>) {
    for (keyword, value) in object {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(keyword);
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(named)) => {
                for (name, inner) in named {
                    within(&pointer::escaped(name), inner, step, pointer, losses);
                }
            }
            ("anyOf" | "prefixItems", Value::Array(listed)) => {
                for (place, inner) in listed.iter_mut().enumerate() {
                    within(&place.to_string(), inner, step, pointer, losses);
                }
            }
            ("items" | "additionalProperties", inner) => schema(inner, step, pointer, losses),
            _ => {}
        }
        pointer.truncate(length);
    }
}

fn within(name: &str, value: &mut Value, step: Step, pointer: &mut String, losses: &mut Vec<SchemaLoss>) {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(name);
    schema(value, step, pointer, losses);
    pointer.truncate(length);
}

/// Describes a cut enum: "One of 250 values, such as "a" and "b"."
fn one_of(values: &[Value]) -> String {
    let named: Vec<String> = values.iter().take(NAMED_VALUES).map(|value| cut(&value.to_string(), 40)).collect();
    format!("One of {} values, such as {}.", values.len(), named.join(", "))
}

/// The beginning of a text, cut at a space if possible.
fn cut(text: &str, characters: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(characters) else { return text.to_owned() };
    let beginning = &text[..end];
    let words = beginning.rfind(char::is_whitespace).filter(|place| place * 2 > end).map_or(beginning, |place| &beginning[..place]);
    format!("{}…", words.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::shorten;
    use crate::domain::catalog::catalog;
    use crate::domain::catalog::schema::LossReason;
    use crate::domain::catalog::tool::{ServerName, Tool};

    /// Estimates four characters per token.
    fn count(texts: &[String]) -> Vec<u32> {
        texts.iter().map(|text| u32::try_from(text.len() / 4).unwrap()).collect()
    }

    fn tool(raw: &Value) -> Tool {
        let mut tool = catalog::tool(&ServerName::from("s"), raw).unwrap();
        tool.tokens = count(&[tool.function_text()])[0];
        tool
    }

    fn long() -> Tool {
        let values: Vec<String> = (0..400).map(|number| format!("value-{number}")).collect();
        tool(&json!({"name": "long", "description": "Say it. ".repeat(300), "inputSchema": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": values, "description": "Which kind."},
                "few": {"type": "string", "enum": ["a", "b"]},
                "list": {"type": "array", "items": {"anyOf": [{"type": "string", "description": "word ".repeat(100)}, {"type": "integer"}]}}
            },
            "dependentRequired": {"kind": ["few"]}
        }}))
    }

    #[test]
    fn a_tool_within_the_budget_is_left_alone() {
        let (before, mut after) = (long(), long());
        let budget = before.tokens;
        shorten(std::slice::from_mut(&mut after), budget, &count);
        assert_eq!((&after.input, &after.description), (&before.input, &before.description));
    }

    #[test]
    fn a_long_one_is_cut_until_it_fits_and_says_so() {
        let mut tool = long();
        shorten(std::slice::from_mut(&mut tool), 300, &count);
        assert!(tool.tokens <= 300, "{}", tool.tokens);
        let properties = &tool.input.published.value()["properties"];
        assert!(properties["kind"].get("enum").is_none());
        assert!(properties["kind"]["description"].as_str().unwrap().starts_with("Which kind. One of 400 values, such as \"value-0\", "));
        assert_eq!(properties["few"]["enum"], json!(["a", "b"]));
        assert!(tool.description.contains('…') && tool.description.ends_with("`kind` needs `few` too."), "{}", tool.description);
        let lost: Vec<&str> =
            tool.input.losses.iter().filter(|loss| loss.reason == LossReason::Shortened).map(|loss| loss.pointer.as_str()).collect();
        assert_eq!(lost, ["/properties/kind", "/properties/list/items/anyOf/0"]);
    }

    #[test]
    fn nothing_is_forbidden_that_was_allowed() {
        let mut tool = long();
        shorten(std::slice::from_mut(&mut tool), 1, &count);
        let validator = jsonschema::validator_for(&tool.input.published.value()).unwrap();
        for arguments in [json!({"kind": "value-399", "few": "b", "list": ["x", 1]}), json!({"list": []})] {
            assert!(validator.is_valid(&arguments), "{arguments}");
        }
    }
}
