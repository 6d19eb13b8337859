//! Recognises keys that can be guessed.

/// A random key of letters and digits with this length can't be guessed.
const SHORTEST: usize = 16;
/// A key with at most this many different characters was probably typed, not generated.
const FEWEST_CHARACTERS: usize = 7;
/// Minimum number of characters that must remain after well-known words are removed from a key.
const SHORTEST_REST: usize = 12;
const WORDS: [&str; 20] = [
    "password",
    "passwort",
    "passwd",
    "changeme",
    "change-me",
    "letmein",
    "secret",
    "toolsieve",
    "openwebui",
    "open-webui",
    "example",
    "default",
    "service",
    "admin",
    "token",
    "test",
    "mcpo",
    "key",
    "qwerty",
    "123456",
];

/// Why a key is weak; `None` if it seems strong.
pub(super) fn weakness(key: &str) -> Option<&'static str> {
    if key.chars().count() < SHORTEST {
        return Some("too short: it can be guessed");
    }
    let mut characters: Vec<char> = key.chars().collect();
    characters.sort_unstable();
    characters.dedup();
    if characters.len() <= FEWEST_CHARACTERS {
        return Some("has too few different characters: it can be guessed");
    }
    let rest = WORDS.iter().fold(key.to_lowercase(), |rest, word| rest.replace(word, ""));
    (rest.chars().count() < SHORTEST_REST).then_some("made of well-known words")
}

#[cfg(test)]
mod tests {
    use super::weakness;

    #[test]
    fn what_is_drawn_at_random_is_strong_and_what_is_typed_is_not() {
        for key in ["4f2a9c1be07d5836", "tsk_0123456789ab_Zk3vQ9xWm2", "test_7f3d9b2e8a41c605", "kX9-mQ2_vB7+nR4!"] {
            assert_eq!(weakness(key), None, "{key}");
        }
        for key in ["", "a", "0p3n-w3bu!", "topsecret", "aaaaaaaaaaaaaaaaaaaaaaaa", "1212121212121212", "my-toolsieve-admin-secret-key"] {
            assert!(weakness(key).is_some(), "{key}");
        }
    }
}
