//! Bodies of JSON.

use axum::body::Body;
use axum::http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::body::{BodyError, Budget, Held, Share};
use crate::headers::media_type;

/// Most characters of the parser's message that the client sees.
const LONGEST_REASON: usize = 400;

/// Why a body of JSON was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("the body is not called JSON")]
    NotJson,
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A sentence for the client.
    #[error("{0}")]
    Misfit(String),
}

impl Budget {
    /// Receives a JSON object without counting it against a client: for small bodies.
    pub async fn json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<(T, Held), JsonError> {
        self.of(None).json(headers, body, limit).await
    }
}

impl Share {
    /// Receives a JSON object, and the memory that is reserved for it. Every body type is flat, so
    /// nested JSON is refused at its first level.
    pub async fn json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<(T, Held), JsonError> {
        if media_type(headers).as_deref() != Some("application/json") {
            return Err(JsonError::NotJson);
        }
        let taken = self.read(headers, body, limit).await?;
        // serde would read a list of the right length as the fields in their order.
        if taken.bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(misfit("send an object, {\"name\": value}"));
        }
        match serde_json::from_slice(&taken.bytes) {
            Ok(value) => Ok((value, taken.held)),
            Err(error) => Err(misfit(&error.to_string())),
        }
    }
}

fn misfit(why: &str) -> JsonError {
    let why: String = why.chars().take(LONGEST_REASON).collect();
    JsonError::Misfit(format!("The JSON does not fit: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};

    #[tokio::test]
    async fn h2_only_an_object_that_is_called_json_is_taken() {
        #[derive(Debug, serde::Deserialize)]
        struct Pair {
            one: u8,
        }
        let read = async |kind, text: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
            let budget = Budget::new(1 << 20);
            budget.json::<Pair>(&headers, Body::from(text), 100).await.map(|(pair, _)| pair.one)
        };
        let json = "application/json; charset=utf-8";
        assert!(matches!(read(json, r#" {"one":1}"#).await, Ok(1)));
        assert!(matches!(read("text/plain", r#"{"one":1}"#).await, Err(JsonError::NotJson)));
        assert!(matches!(read(json, "[1]").await, Err(JsonError::Misfit(_))));
        let Err(JsonError::Misfit(why)) = read(json, r#"{"one":"1"}"#).await else { panic!() };
        assert!(why.starts_with("The JSON does not fit: invalid type"), "{why}");
    }
}
