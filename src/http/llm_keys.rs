//! Reads callers' own API keys for language models from the request headers, in their order of use.

use actix_web::HttpRequest;
use secrecy::SecretString;

use crate::domain::selection::judgement::Provider;
use crate::service::ports::Advisor;
use crate::settings::llm::is_key;

/// The header for each provider's key, in the order of [`Provider::ALL`].
const HEADERS: [&str; 3] = ["X-Gemini-Api-Key", "X-OpenAI-Api-Key", "X-Anthropic-Api-Key"];
/// The header for a key of any provider.
const ANY: &str = "X-LLM-Api-Key";
const MAX_BYTES: usize = 512;

/// Language models that use the caller's own accounts, and warnings about the caller's keys.
pub(crate) type OwnModels = (Vec<Advisor>, Vec<String>);

/// The language model accounts that the headers contain, and the errors in these headers. Errors never contain a key.
pub(crate) fn advisors(request: &HttpRequest) -> OwnModels {
    read(|header| Some(request.headers().get(header)?.as_bytes()))
}

/// Like [`advisors`], for the headers of an MCP request.
pub(crate) fn advisors_in(headers: &http::HeaderMap) -> OwnModels {
    read(|header| Some(headers.get(header)?.as_bytes()))
}

fn read<'a>(header_value: impl Fn(&str) -> Option<&'a [u8]>) -> OwnModels {
    let mut warnings = Vec::new();
    let mut key = |header: &str| {
        let value = header_value(header)?;
        let key = std::str::from_utf8(value).ok().map(str::trim).filter(|key| is_key(key) && key.len() <= MAX_BYTES);
        if key.is_none() && !value.is_empty() {
            warnings.push(format!("the key in {header} is none: it is too long, or holds a blank or a letter outside ASCII"));
        }
        key.map(str::to_owned)
    };
    let mut keys: Vec<(Provider, String)> =
        Provider::ALL.into_iter().zip(HEADERS).filter_map(|(provider, header)| Some((provider, key(header)?))).collect();
    if let Some(key) = key(ANY) {
        match Provider::of_key(&key) {
            Some(provider) if keys.iter().any(|(known, _)| *known == provider) => {}
            Some(provider) => keys.push((provider, key)),
            None => warnings.push(format!("the key in {ANY} is of no known provider: Gemini, OpenAI or Anthropic")),
        }
    }
    keys.sort_by_key(|(provider, _)| *provider);
    (keys.into_iter().map(|(provider, key)| Advisor::Own { provider, key: SecretString::from(key) }).collect(), warnings)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use secrecy::ExposeSecret;

    use super::advisors;
    use crate::service::ports::Advisor;

    fn read(headers: &[(&'static str, &'static str)]) -> (Vec<(&'static str, String)>, Vec<String>) {
        let request = headers.iter().fold(TestRequest::default(), |request, header| request.insert_header(*header));
        let (advisors, warnings) = advisors(&request.to_http_request());
        let account = |advisor: &Advisor| match advisor {
            Advisor::Own { key, .. } => (advisor.name(), key.expose_secret().to_owned()),
            Advisor::Configured => panic!("not from headers"),
        };
        (advisors.iter().map(account).collect(), warnings)
    }

    #[test]
    fn keys_come_in_the_order_of_the_providers() {
        let (keys, warnings) = read(&[("x-anthropic-api-key", "c"), ("x-openai-api-key", "b"), ("X-LLM-Api-Key", "AIzaX")]);
        assert_eq!(keys, [("gemini", "AIzaX".to_owned()), ("openai", "b".to_owned()), ("anthropic", "c".to_owned())]);
        assert_eq!(warnings, Vec::<String>::new());
        let (keys, _) = read(&[("x-openai-api-key", "mine"), ("x-llm-api-key", "sk-other")]);
        assert_eq!(keys, [("openai", "mine".to_owned())], "the provider's own header goes before");
    }

    #[test]
    fn what_is_no_key_is_named_without_its_value() {
        let (keys, warnings) = read(&[("x-openai-api-key", "two words"), ("x-llm-api-key", "unknown-form"), ("x-gemini-api-key", "")]);
        assert!(keys.is_empty() && warnings.len() == 2, "{warnings:?}");
        assert!(warnings.iter().all(|warning| !warning.contains("two words") && !warning.contains("unknown-form")));
    }
}
