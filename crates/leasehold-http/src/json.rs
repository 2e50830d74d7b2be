//! Bodies of JSON.

use axum::body::Body;
use axum::http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::body::{BodyError, Budget, Held};
use crate::headers::media_type;

/// Characters of what the parser says.
const LONGEST_REASON: usize = 400;

/// Why a body of JSON was not taken.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("the body is not called JSON")]
    NotJson,
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A sentence for whoever sent it.
    #[error("{0}")]
    Misfit(String),
}

impl Budget {
    /// Receives an object of JSON, and the memory that it holds on to. Every body is flat, so that
    /// depth is refused where it begins.
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
        // A list of the right length would be taken for the fields in their order.
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
