//! Reads the number of tokens from a completion.

use serde_json::Value;

use crate::service::ports::ExchangeTokens;

/// Maximum number of tokens that one request can have. Higher counts are invalid.
const MOST: u64 = 10_000_000;

/// The tokens of a completion: as reported in `usage`, or the texts from which to estimate them. `None` if there are neither
/// counts nor an answer.
pub(super) fn tokens(completion: &Value, prompt: [&str; 2], answer: Option<&str>) -> Option<ExchangeTokens> {
    let estimate = |answer: &str| ExchangeTokens::Unreported { prompt: prompt.join("\n"), answer: answer.to_owned() };
    reported(completion).or_else(|| answer.map(estimate))
}

fn reported(completion: &Value) -> Option<ExchangeTokens> {
    let count = |name: &str| completion.pointer(&format!("/usage/{name}"))?.as_u64().filter(|count| *count <= MOST);
    // No prompt has zero tokens: some endpoints send zeros instead of counts.
    let input = count("prompt_tokens").filter(|input| *input > 0)?;
    // Some endpoints count a model's reasoning only in the total, but its provider charges for it.
    let reasoning = count("total_tokens").map_or(0, |total| total.saturating_sub(input));
    Some(ExchangeTokens::Reported { input, output: count("completion_tokens")?.max(reasoning) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::tokens;
    use crate::service::ports::ExchangeTokens;

    fn read(usage: &Value) -> Option<ExchangeTokens> {
        tokens(&json!({"usage": usage}), ["system", "user"], Some("answer"))
    }

    #[test]
    fn reported_counts_are_used() {
        let reported = |input, output| Some(ExchangeTokens::Reported { input, output });
        assert_eq!(read(&json!({"prompt_tokens": 120, "completion_tokens": 9, "total_tokens": 129})), reported(120, 9));
        assert_eq!(read(&json!({"prompt_tokens": 120, "completion_tokens": 0})), reported(120, 0));
        assert_eq!(read(&json!({"prompt_tokens": 120, "completion_tokens": 9, "total_tokens": 400})), reported(120, 280), "with reasoning");
        let without_answer = json!({"usage": {"prompt_tokens": 5, "completion_tokens": 7}, "choices": []});
        assert_eq!(tokens(&without_answer, ["a", "b"], None), reported(5, 7), "no content, but paid");
    }

    #[test]
    fn without_valid_counts_the_texts_are_kept_for_an_estimate() {
        let unreported = Some(ExchangeTokens::Unreported { prompt: "system\nuser".into(), answer: "answer".into() });
        for usage in [
            json!(null),
            json!({}),
            json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
            json!({"prompt_tokens": 120}),
            json!({"prompt_tokens": "120", "completion_tokens": 9}),
            json!({"prompt_tokens": -1, "completion_tokens": 9}),
            json!({"prompt_tokens": u64::MAX, "completion_tokens": 9}),
            json!({"prompt_tokens": 120, "completion_tokens": u64::MAX}),
        ] {
            assert_eq!(read(&usage), unreported, "{usage}");
        }
        assert_eq!(tokens(&json!({"choices": []}), ["a", "b"], None), None);
    }
}
