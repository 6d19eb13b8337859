//! Reads query parameters. Errors name the invalid parameter.

use std::borrow::Cow;
use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::error::QueryPayloadError;
use actix_web::{FromRequest, HttpRequest, web};
use serde::de::DeserializeOwned;

use crate::http::problem::{Code, Problem};

/// The query parameters of a request. All parameters are optional.
pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request.query_string()).map(Self))
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let parameters = web::Query::<T>::from_query(query).map_err(|error| {
        let parameter = misfit::<T>(query).map(Cow::from);
        let reason = match error {
            QueryPayloadError::Deserialize(reason) => reason.to_string(),
            other => other.to_string(),
        };
        // Not all reasons contain the name.
        let missing = parameter.as_ref().filter(|name| !reason.contains(&format!("`{name}`")));
        let detail = missing.map_or_else(|| reason.clone(), |name| format!("{name}: {reason}"));
        Problem { parameter, ..Problem::new(Code::InvalidRequest, detail) }
    })?;
    Ok(parameters.into_inner())
}

/// Finds the first parameter that is invalid or occurs twice.
fn misfit<T: DeserializeOwned>(query: &str) -> Option<String> {
    let mut known = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, _) = web::Query::<Vec<(String, String)>>::from_query(pair).ok()?.into_inner().pop()?;
        if known.contains(&name) || web::Query::<T>::from_query(pair).is_err() {
            return Some(name);
        }
        known.push(name);
    }
    None
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::read;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Parameters {
        limit: Option<u8>,
        text: Option<String>,
    }

    #[test]
    fn the_wrong_parameter_is_named() {
        let Parameters { limit, text } = read("limit=5&text=a%20b").unwrap();
        assert_eq!((limit, text.as_deref()), (Some(5), Some("a b")));
        for (query, wrong) in [
            ("limit=x", "limit"),
            ("text=a&limit=-1", "limit"),
            ("text=a&limits=1", "limits"),
            ("text=a&text=b&limit=1", "text"),
            ("a%20b=", "a b"),
        ] {
            let problem = read::<Parameters>(query).unwrap_err();
            assert!(problem.detail.contains(wrong), "{query}: {}", problem.detail);
            assert_eq!((problem.code.name(), problem.parameter.as_deref()), ("invalid_request", Some(wrong)), "{query}");
        }
    }
}
