//! Sanitises texts from servers for logs, status and responses: one line, limited length, without configured secrets.

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::domain::catalog::hidden_text::is_unseen;
use crate::settings::servers::{ServerSettings, TransportSettings};

/// Maximum length of a server's message, in characters.
const FOREIGN_LIMIT: usize = 4000;
/// Minimum length of masked values. Masking shorter ones would garble harmless text.
const SHORTEST_SECRET: usize = 6;
/// Parts of argument names that suggest a secret value.
const SECRET_WORDS: [&str; 7] = ["token", "key", "passw", "secret", "auth", "credential", "header"];
const MASK: &str = "***";

/// Sanitises a server's error message for display.
pub(super) fn foreign(text: &str) -> String {
    // A character has up to four bytes, and some are removed below.
    let mut text = plain(cut(text, 8 * FOREIGN_LIMIT));
    if let Some((end, _)) = text.char_indices().nth(FOREIGN_LIMIT) {
        text.truncate(end);
    }
    text
}

/// Reduces a text to one line without control characters, bidirectional marks and zero-width characters.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.trim_end().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // Skip the rest of an ANSI escape sequence.
            '\u{1b}' if characters.next_if_eq(&'[').is_some() => {
                while characters.next().is_some_and(|character| !character.is_ascii_alphabetic()) {}
            }
            '\t' | '\n' => plain.push(' '),
            character if is_unseen(character) => {}
            character => plain.push(character),
        }
    }
    plain
}

/// Cuts a text to `limit` bytes, on a character boundary.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// The configured values of one server that may be secret.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<SecretString>);

impl Secrets {
    pub(super) fn of(settings: &ServerSettings) -> Self {
        let mut found = Vec::new();
        match &settings.transport {
            TransportSettings::Stdio { args, env, .. } => {
                for value in env.values() {
                    found.push(value.expose_secret().to_owned());
                    found.extend(credentials(value.expose_secret()));
                }
                found.extend(args.iter().flat_map(|arg| credentials(arg)));
                found.extend(secret_arguments(args).flat_map(with_last_word));
            }
            TransportSettings::StreamableHttp { url, headers } | TransportSettings::Sse { url, headers } => {
                found.extend(headers.values().flat_map(|value| with_last_word(value.expose_secret())));
                found.extend([url.username(), url.password().unwrap_or_default()].map(str::to_owned));
                found.extend(credentials(url.as_str()));
                found.extend(url.query().map(str::to_owned));
                // Include both the encoded and the decoded form.
                found.extend(
                    url.query()
                        .into_iter()
                        .flat_map(|query| query.split('&'))
                        .map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value).to_owned()),
                );
                found.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
            }
        }
        // Processes print line by line, so mask each line of a value separately.
        let mut found: Vec<String> = found.iter().flat_map(|value| value.lines()).map(|line| plain(line.trim())).collect();
        found.retain(|value| value.chars().count() >= SHORTEST_SECRET);
        // Sort by length, longest first, because one value may be a prefix of another.
        found.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        found.dedup();
        Self(found.into_iter().map(SecretString::from).collect())
    }

    #[cfg(test)]
    pub(super) fn of_value(value: &str) -> Self {
        Self(vec![SecretString::from(value)])
    }

    /// Length of the longest secret, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, |secret| secret.expose_secret().len())
    }

    /// The first `limit` bytes of a plain text. Masks every secret, including those that cross the limit.
    pub(super) fn mask(&self, text: &str, limit: usize) -> String {
        let mut masked = String::with_capacity(text.len().min(limit));
        let mut position = 0;
        while position < limit
            && let Some(character) = text[position..].chars().next()
        {
            let rest = &text[position..];
            if let Some(secret) = self.0.iter().map(ExposeSecret::expose_secret).find(|secret| rest.starts_with(*secret)) {
                masked.push_str(MASK);
                position += secret.len();
            } else {
                masked.push(character);
                position += character.len_utf8();
            }
        }
        masked
    }
}

/// The values of arguments such as `--token X`, `--api-key=X` or `PASSWORD=X`.
fn secret_arguments(args: &[String]) -> impl Iterator<Item = &str> {
    let is_secret = |name: &str| {
        let name = name.to_lowercase();
        SECRET_WORDS.iter().any(|word| name.contains(word))
    };
    let assigned = args.iter().filter_map(move |arg| arg.split_once('=').filter(|(name, _)| is_secret(name)).map(|(_, value)| value));
    let following = args.windows(2).filter_map(move |pair| match pair {
        [flag, value] if flag.starts_with('-') && !flag.contains('=') && is_secret(flag) => Some(value.as_str()),
        _ => None,
    });
    assigned.chain(following)
}

/// The value, and the value without its first word, as in `Bearer …` or `Name: …`.
fn with_last_word(value: &str) -> [String; 2] {
    [value.to_owned(), value.split_whitespace().next_back().unwrap_or_default().to_owned()]
}

/// The password in a URL, or the user name if there is no password, both encoded and decoded.
fn credentials(text: &str) -> Vec<String> {
    let Ok(url) = Url::parse(text) else { return Vec::new() };
    let secret = url.password().unwrap_or(url.username());
    let encoded = secret.replace('+', "%2B");
    vec![secret.to_owned(), url::form_urlencoded::parse(encoded.as_bytes()).map(|(name, _)| name.into_owned()).collect()]
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    fn secrets(transport: TransportSettings) -> Secrets {
        Secrets::of(&ServerSettings::of_test(transport))
    }

    fn secret_map(name: &str, value: &str) -> IndexMap<String, SecretString> {
        [(name.to_owned(), SecretString::from(value))].into()
    }

    #[test]
    fn foreign_text_is_made_harmless_and_short() {
        assert_eq!(foreign("\u{1b}[31mkey\u{202e}=1\u{7}\tand\r\nthe end\r\n"), "key=1 and the end");
        assert_eq!(foreign(&"é".repeat(1 << 20)).chars().count(), FOREIGN_LIMIT);
    }

    #[test]
    fn configured_values_of_a_process_are_masked() {
        let args = [
            "run",
            "--token",
            "tok-123456",
            "--api-key=key-123456",
            "PASSWORD=pass-123456",
            "--header",
            "Authorization: Bearer bear-123456",
            "postgres://dbuser:db%2Dpassword@host/base",
            "--verbose",
            "harmless-word",
            "--pin",
            "12345",
        ];
        let secrets = secrets(TransportSettings::Stdio {
            command: "npx".into(),
            args: args.map(str::to_owned).into(),
            env: secret_map("PEM", "-----BEGIN\nline-one-1\n\n  line-two-2\r\nend\n"),
            directory: None,
        });
        let text = "tok-123456 key-123456 pass-123456 bear-123456 db%2Dpassword db-password line-one-1 line-two-2";
        assert_eq!(secrets.mask(text, 1000), "*** *** *** *** *** *** *** ***");
        let harmless = "run dbuser harmless-word 12345 end host/base";
        assert_eq!(secrets.mask(harmless, 1000), harmless);
        assert!(!format!("{secrets:?}").contains("tok-123456"));
    }

    #[test]
    fn configured_values_of_a_remote_server_are_masked() {
        let secrets = secrets(TransportSettings::StreamableHttp {
            url: "https://someone:hunter22@example.org/mcp?key=q%2Dsecret&short=1".parse().unwrap(),
            headers: secret_map("Authorization", "Bearer abcdef-abcdef"),
        });
        let text = "someone hunter22 q-secret q%2Dsecret abcdef-abcdef (Bearer abcdef-abcdef) Bearer short";
        assert_eq!(secrets.mask(text, 1000), "*** *** *** *** *** (***) Bearer short");
    }

    #[test]
    fn a_secret_is_masked_that_reaches_over_the_limit_or_begins_like_another() {
        let env = [("A", "secret-long"), ("B", "secret")].map(|(name, value)| (name.to_owned(), SecretString::from(value)));
        let secrets = secrets(TransportSettings::Stdio { command: String::new(), args: Vec::new(), env: env.into(), directory: None });
        assert_eq!(secrets.mask("é secret-long secret", 8), "é ***");
        assert_eq!(secrets.mask("é secret-long secrets", 100), "é *** ***s");
        assert_eq!(secrets.longest(), 11);
    }
}
