//! Requests and responses of `/embeddings`, in the format common to `OpenAI`, Ollama, Gemini and Voyage.
//!
//! Requests specify no encoding, because Voyage has no name for plain numbers. Responses may use either encoding.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fault::AnswerFault;
use crate::settings::{Dialect, EndpointSettings};

/// Whether a text is a query or a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Query,
    Passage,
}

pub(super) fn request(settings: &EndpointSettings, role: Role, texts: &[String]) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), settings.model.as_str().into());
    body.insert("input".into(), json!(texts));
    let dimensions = settings.dimensions;
    match settings.dialect {
        Dialect::OpenAi => {
            if let Some(dimensions) = dimensions {
                body.insert("dimensions".into(), dimensions.into());
            }
        }
        Dialect::Voyage => {
            if let Some(dimensions) = dimensions {
                body.insert("output_dimension".into(), dimensions.into());
            }
            body.insert("input_type".into(), if role == Role::Query { "query" } else { "document" }.into());
        }
    }
    Value::Object(body)
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    /// The position of the text. Gemini omits it if it is 0.
    index: Option<usize>,
    embedding: Embedding,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Embedding {
    Numbers(Vec<f32>),
    /// Little-endian float32 numbers in base64.
    Base64(String),
}

/// Parses the response to a request for `texts` vectors. Returns unit vectors in order, of length `dimension` if that is known.
pub(super) fn vectors(body: &[u8], texts: usize, dimension: Option<usize>) -> Result<Vec<Vec<f32>>, AnswerFault> {
    let Answer { data } = serde_json::from_slice(body).map_err(|_| AnswerFault::NoEmbeddings)?;
    if data.len() != texts {
        return Err(AnswerFault::Count { expected: texts, found: data.len() });
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; texts];
    for (position, item) in data.into_iter().enumerate() {
        let place = vectors.get_mut(item.index.unwrap_or(position)).filter(|place| place.is_none()).ok_or(AnswerFault::Order)?;
        *place = Some(item.embedding.numbers()?);
    }
    let mut vectors: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
    let expected = dimension.or_else(|| vectors.first().map(Vec::len)).unwrap_or_default();
    for vector in &mut vectors {
        if vector.len() != expected {
            return Err(AnswerFault::Dimension { expected, found: vector.len() });
        }
        normalize(vector)?;
    }
    Ok(vectors)
}

impl Embedding {
    fn numbers(self) -> Result<Vec<f32>, AnswerFault> {
        match self {
            Self::Numbers(numbers) => Ok(numbers),
            Self::Base64(text) => {
                let bytes = BASE64_STANDARD.decode(text).map_err(|_| AnswerFault::NoEmbeddings)?;
                let (numbers, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(AnswerFault::NoEmbeddings);
                }
                Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a unit vector's values")]
fn normalize(vector: &mut [f32]) -> Result<(), AnswerFault> {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if !length.is_normal() {
        return Err(AnswerFault::NoDirection);
    }
    for value in vector {
        *value = (f64::from(*value) / length) as f32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_base64_are_the_same_vectors() {
        let numbers = br#"{"object": "list", "data": [{"index": 0, "embedding": [3, 4.0]}], "model": "m"}"#;
        let text = BASE64_STANDARD.encode([3.0f32.to_le_bytes(), 4.0f32.to_le_bytes()].concat());
        let encoded = format!(r#"{{"data": [{{"embedding": "{text}"}}]}}"#);
        let expected = vec![vec![0.6, 0.8]];
        assert_eq!(vectors(numbers, 1, None).unwrap(), expected);
        assert_eq!(vectors(encoded.as_bytes(), 1, Some(2)).unwrap(), expected);
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        let answer = |first: &str, second: &str| {
            let body = format!(r#"{{"data": [{{{first} "embedding": [1, 0]}}, {{{second} "embedding": [0, 1]}}]}}"#);
            vectors(body.as_bytes(), 2, None)
        };
        let (one, other) = (vec![1.0, 0.0], vec![0.0, 1.0]);
        assert_eq!(answer("\"index\": 1,", "\"index\": 0,").unwrap(), [other.clone(), one.clone()]);
        assert_eq!(answer("", "\"index\": 1,").unwrap(), [one.clone(), other.clone()], "as Gemini writes it");
        assert_eq!(answer("", "").unwrap(), [one, other]);
        assert_eq!(answer("\"index\": 0,", "\"index\": 0,").unwrap_err(), AnswerFault::Order);
        assert_eq!(answer("\"index\": 0,", "\"index\": 2,").unwrap_err(), AnswerFault::Order);
    }

    #[test]
    fn what_is_no_vector_is_said() {
        let fault = |body: &str| vectors(body.as_bytes(), 1, Some(2)).unwrap_err();
        assert_eq!(fault("<html>"), AnswerFault::NoEmbeddings);
        assert_eq!(fault(r#"{"error": "no"}"#), AnswerFault::NoEmbeddings);
        assert_eq!(fault(r#"{"data": [{"embedding": [1, null]}]}"#), AnswerFault::NoEmbeddings);
        assert_eq!(fault(r#"{"data": [{"embedding": "AAAA"}]}"#), AnswerFault::NoEmbeddings);
        assert_eq!(fault(r#"{"data": []}"#), AnswerFault::Count { expected: 1, found: 0 });
        assert_eq!(fault(r#"{"data": [{"embedding": [1]}]}"#), AnswerFault::Dimension { expected: 2, found: 1 });
        assert_eq!(fault(r#"{"data": [{"embedding": [0, 0]}]}"#), AnswerFault::NoDirection);
        assert_eq!(fault(r#"{"data": [{"embedding": [1e300, 0]}]}"#), AnswerFault::NoDirection);
    }
}
