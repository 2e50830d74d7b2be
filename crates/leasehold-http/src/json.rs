//! JSON bodies.

use axum::body::Body;
use axum::http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::body::{BodyError, Budget, MemoryPermit, Share};
use crate::headers::media_type;

/// The most characters of the parser's message that the client sees.
const LONGEST_REASON: usize = 400;

/// Why a JSON body was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("the content type of the body is not JSON")]
    NotJson,
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A sentence for the client.
    #[error("{0}")]
    Invalid(String),
}

impl Budget {
    /// Receives a JSON object without counting it against a client: for small bodies.
    pub async fn json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<(T, MemoryPermit), JsonError> {
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
    ) -> Result<(T, MemoryPermit), JsonError> {
        if media_type(headers).as_deref() != Some("application/json") {
            return Err(JsonError::NotJson);
        }
        let received = self.read(headers, body, limit).await?;
        // serde would read a list of the right length as the fields in their order.
        if received.bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(invalid("send an object, {\"name\": value}"));
        }
        match serde_json::from_slice(&received.bytes) {
            Ok(value) => Ok((value, received.permit)),
            Err(error) => Err(invalid(&error.to_string())),
        }
    }
}

fn invalid(why: &str) -> JsonError {
    let why: String = why.chars().take(LONGEST_REASON).collect();
    JsonError::Invalid(format!("The JSON is not what this address accepts: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};

    #[tokio::test]
    async fn h2_only_an_object_of_type_json_is_accepted() {
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
        assert!(matches!(read(json, "[1]").await, Err(JsonError::Invalid(_))));
        let Err(JsonError::Invalid(why)) = read(json, r#"{"one":"1"}"#).await else { panic!() };
        assert!(
            why.starts_with("The JSON is not what this address accepts: invalid type"),
            "{why}"
        );
    }
}
