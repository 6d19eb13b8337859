//! Recognises the provider of a user's own key.

use std::fmt;

use crate::domain::text::named::named;

named! {
    /// Providers with an OpenAI-compatible endpoint, in order of preference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Provider {
        Gemini = "gemini",
        OpenAi = "openai",
        Anthropic = "anthropic",
    }
}

impl Provider {
    /// The provider of a key, by the key's prefix. Gemini's keys start with `AIza` if created before 2026, with `AQ.` since. Other vendors
    /// also have keys that start with `sk-` alone, which can't be told apart.
    pub fn of_key(key: &str) -> Option<Self> {
        let begins = |starts: &[&str]| starts.iter().any(|start| key.starts_with(start));
        match () {
            () if begins(&["AIza", "AQ."]) => Some(Self::Gemini),
            () if begins(&["sk-ant-"]) => Some(Self::Anthropic),
            // OpenRouter's.
            () if begins(&["sk-or-"]) => None,
            () if begins(&["sk-"]) && key.len() > "sk-".len() => Some(Self::OpenAi),
            () => None,
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Provider;

    #[test]
    fn a_key_identifies_its_provider() {
        for (key, provider) in [
            ("AIzaSyB-1", Some(Provider::Gemini)),
            ("AQ.Ab8R", Some(Provider::Gemini)),
            ("sk-ant-api03-x", Some(Provider::Anthropic)),
            ("sk-proj-x", Some(Provider::OpenAi)),
            ("sk-x", Some(Provider::OpenAi)),
            ("sk-or-v1-x", None),
            ("sk-", None),
            ("gsk_x", None),
            ("", None),
        ] {
            assert_eq!(Provider::of_key(key), provider, "{key}");
        }
    }
}
