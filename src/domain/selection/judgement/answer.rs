//! Parses a model's answer strictly: an answer in any other form is rejected.

use serde::Deserialize;

use crate::domain::selection::judgement::{Entry, cut, one_line};
use crate::domain::text::json::{NoObject, object};

/// Maximum length of a reason, in characters.
const REASON_CHARACTERS: usize = 200;

/// A tool that the model chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The tool's position in the list of the prompt.
    pub place: usize,
    /// The model's reason, as short plain text.
    pub reason: Option<String>,
}

/// The reason why an answer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerProblem {
    #[error("not a chat completion")]
    NoCompletion,
    #[error("too long")]
    TooLong,
    #[error(transparent)]
    NoObject(#[from] NoObject),
    #[error("no tool at all")]
    Empty,
    #[error("more tools than requested")]
    TooMany,
    #[error("a tool that was not in the catalogue")]
    UnknownName,
    #[error("a duplicate tool")]
    RepeatedName,
}

#[derive(Deserialize)]
struct Answer {
    tools: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Item {
    Name(String),
    Reasoned { name: String, reason: Option<String> },
}

pub(super) fn read(answer: &str, entries: &[Entry], limit: usize) -> Result<Vec<Choice>, AnswerProblem> {
    let Answer { tools } = object(answer)?;
    if tools.is_empty() {
        return Err(AnswerProblem::Empty);
    }
    if tools.len() > limit {
        return Err(AnswerProblem::TooMany);
    }
    let mut choices: Vec<Choice> = Vec::with_capacity(tools.len());
    for item in tools {
        let (name, reason) = match item {
            Item::Name(name) => (name, None),
            Item::Reasoned { name, reason } => (name, reason),
        };
        let place = entries.iter().position(|entry| entry.name() == name).ok_or(AnswerProblem::UnknownName)?;
        if choices.iter().any(|choice| choice.place == place) {
            return Err(AnswerProblem::RepeatedName);
        }
        let reason = reason.map(|reason| cut(&one_line(&reason), REASON_CHARACTERS)).filter(|reason| !reason.is_empty());
        choices.push(Choice { place, reason });
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    use super::{AnswerProblem, Choice, read};
    use crate::domain::selection::judgement::Entry;
    use crate::domain::text::json::NoObject;

    fn ask(answer: &str) -> Result<Vec<usize>, AnswerProblem> {
        let entries = ["a", "b", "c"].map(|name| Entry::new(name, "x"));
        read(answer, &entries, 2).map(|choices| choices.iter().map(|choice| choice.place).collect())
    }

    #[test]
    fn one_object_with_known_names_counts() {
        assert_eq!(ask(r#"{"tools": ["c", "a"]}"#), Ok(vec![2, 0]));
        assert_eq!(ask(" {\"tools\":[\"b\"],\"note\":1}\n"), Ok(vec![1]));
        assert_eq!(ask(r#"{"tools": [{"name": "b", "reason": "r"}, {"name": "a"}]}"#), Ok(vec![1, 0]));
    }

    #[test]
    fn everything_else_does_not() {
        for (answer, problem) in [
            ("", NoObject::Prose.into()),
            ("The best tool is a.", NoObject::Prose.into()),
            (r#"{"tools": ["a"]} I hope that helps."#, NoObject::Prose.into()),
            (r#"{"tools": ["a"]} {"tools": ["b"]}"#, NoObject::Prose.into()),
            (r#"{"tools": ["a""#, NoObject::Prose.into()),
            ("```json\n{\"tools\": [\"a\"]}\n```", NoObject::Fence.into()),
            (r#"["a"]"#, NoObject::Form.into()),
            (r#"{"names": ["a"]}"#, NoObject::Form.into()),
            (r#"{"tools": "a"}"#, NoObject::Form.into()),
            (r#"{"tools": [1]}"#, NoObject::Form.into()),
            ("null", NoObject::Form.into()),
            (r#"{"tools": []}"#, AnswerProblem::Empty),
            (r#"{"tools": ["a", "d"]}"#, AnswerProblem::UnknownName),
            (r#"{"tools": ["A"]}"#, AnswerProblem::UnknownName),
            (r#"{"tools": ["a", "a"]}"#, AnswerProblem::RepeatedName),
            (r#"{"tools": ["a", "b", "c"]}"#, AnswerProblem::TooMany),
        ] {
            assert_eq!(ask(answer), Err(problem), "{answer}");
        }
    }

    #[test]
    fn a_reason_is_plain_and_short() {
        let answer = serde_json::json!({"tools": [{"name": "a", "reason": format!("it\n\u{1b}sends {}", "x".repeat(900))}]}).to_string();
        let choices = read(&answer, &[Entry::new("a", "x")], 1).unwrap();
        let Choice { place: 0, reason: Some(reason) } = &choices[0] else { panic!("{choices:?}") };
        assert!(reason.starts_with("it sends x") && reason.chars().count() <= 201, "{reason}");
    }
}
