//! The types of the JSON API. The document in [`super::openapi`] is generated from them; reports and
//! the operator's requests and responses are in [`super::moderation`].

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::options::expires_in;
use super::web::Web;
use crate::model::{Created, Listed, Paste};

/// A paste to create.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRequest {
    /// The text. Bytes that are not UTF-8 go to `POST /` as they are.
    #[schema(min_length = 1)]
    pub content: String,
    /// When it expires: `10m`, `1d`, `2 weeks`, or a number of seconds. Default: the service's setting.
    #[serde(default, deserialize_with = "expiry")]
    #[schema(value_type = Option<String>)]
    pub expires_in: Option<Duration>,
    /// A custom link.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_-]{3,32}$")]
    pub alias: Option<String>,
    /// For highlighting. Default: detected from the text. An unknown language is refused.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9+#._ -]{1,40}$")]
    pub language: Option<String>,
    /// Burn after reading: the first reader who confirms gets the paste, and it is deleted.
    #[serde(default)]
    pub burn_after_reading: bool,
}

fn expiry<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    struct Expiry;
    impl<'de> Visitor<'de> for Expiry {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as \"10m\", \"1d\", \"2 weeks\", or a number of seconds")
        }

        fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Self::Value, E> {
            Ok(Some(Duration::from_secs(seconds)))
        }

        fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Self::Value, E> {
            // 60.0 is a whole number in JSON.
            if seconds.fract() == 0.0 && (0.0..1e12).contains(&seconds) {
                return Ok(Some(Duration::from_secs_f64(seconds)));
            }
            Err(E::invalid_value(de::Unexpected::Float(seconds), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            expires_in(text)
                .map(Some)
                .map_err(|_| E::invalid_value(de::Unexpected::Other("text"), &self))
        }

        fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    input.deserialize_any(Expiry)
}

/// A paste that was created.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedPaste {
    pub code: String,
    pub url: String,
    pub raw_url: String,
    /// `IN_PROGRESS` until it is uploaded, then `PROCESSED`.
    pub state: &'static str,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// Lets its holder delete the paste.
    pub delete_token: String,
}

impl CreatedPaste {
    pub fn of(web: &Web, created: &Created) -> Self {
        Self {
            code: created.code.to_string(),
            url: format!("{}/{}", web.base_url, created.code),
            raw_url: format!("{}/raw/{}", web.base_url, created.code),
            state: created.status.as_str(),
            expires_at: created.expires_at,
            delete_token: created.delete_token.clone(),
        }
    }
}

/// A paste with its content.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FullPaste {
    /// The paste's identity. Its code can belong to another paste later.
    pub id: Uuid,
    pub code: String,
    pub url: String,
    pub raw_url: String,
    pub language: Option<String>,
    /// In bytes.
    pub size: usize,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    pub content: String,
    /// How `content` is encoded: as text, or in Base64 if it is not UTF-8.
    pub encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

impl FullPaste {
    pub fn of(web: &Web, paste: &Paste) -> Self {
        let (content, encoding) = encoded(&paste.content);
        Self {
            id: paste.paste_id,
            code: paste.code.to_string(),
            url: format!("{}/{}", web.base_url, paste.code),
            raw_url: format!("{}/raw/{}", web.base_url, paste.code),
            language: paste.language.clone(),
            size: paste.content.len(),
            created_at: paste.created_at,
            expires_at: paste.expires_at,
            content,
            encoding,
        }
    }
}

fn encoded(content: &Bytes) -> (String, Encoding) {
    match std::str::from_utf8(content) {
        Ok(text) => (text.to_owned(), Encoding::Utf8),
        Err(_) => (base64(content), Encoding::Base64),
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for position in 0..4 {
            let letter = LETTERS[(group >> (18 - 6 * position) & 63) as usize];
            text.push(if position <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// One of the owner's pastes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnPaste {
    pub code: String,
    pub url: String,
    /// `IN_PROGRESS`, `PROCESSED` or `FAILED`.
    pub state: &'static str,
    pub language: Option<String>,
    /// In bytes.
    pub size: usize,
    pub burn_after_reading: bool,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

impl OwnPaste {
    pub fn of(web: &Web, listed: &Listed) -> Self {
        Self {
            code: listed.code.to_string(),
            url: format!("{}/{}", web.base_url, listed.code),
            state: listed.status.as_str(),
            language: listed.language.clone(),
            size: listed.size,
            burn_after_reading: listed.burn,
            created_at: listed.created_at,
            expires_at: listed.expires_at,
        }
    }
}

/// The owner's pastes, newest first.
#[derive(Serialize, ToSchema)]
pub struct OwnPastes {
    pub pastes: Vec<OwnPaste>,
    /// Send it as `before` to get the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A new owner.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewOwner {
    /// Send it as `Authorization: Bearer …`. It is not shown again.
    pub owner_token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CreateRequest, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn expires_in_is_a_duration_or_seconds() {
        for (text, seconds) in [
            (r#"{"content":"x","expiresIn":"10m"}"#, Some(600)),
            (r#"{"content":"x","expiresIn":"2 weeks"}"#, Some(1_209_600)),
            (r#"{"content":"x","expiresIn":90}"#, Some(90)),
            (r#"{"content":"x","expiresIn":90.0}"#, Some(90)),
            (r#"{"content":"x","expiresIn":null}"#, None),
            (r#"{"content":"x"}"#, None),
        ] {
            let expires = read(text).map(|new| new.expires_in).ok();
            assert_eq!(expires, Some(seconds.map(Duration::from_secs)), "{text}");
        }
    }

    #[test]
    fn h1_h2_invalid_json_is_refused() {
        let deep = format!(r#"{{"content":{}"#, "[".repeat(100_000));
        let wide: String = (0..100_000).map(|n| format!(r#""k{n}":0,"#)).collect();
        for bad in [
            r#"{"content":"\ud800"}"#,
            r#"{"content":"\udc00x"}"#,
            r#"{"content":"x","expire":"1d"}"#,
            r#"{"content":"x","content":"y"}"#,
            r#"{"content":"x","expiresIn":1e999}"#,
            r#"{"content":"x","expiresIn":-1}"#,
            r#"{"content":"x","expiresIn":1.5}"#,
            r#"{"content":"x","expiresIn":[]}"#,
            r#"{"content":1}"#,
            r#"{"content":"x"} x"#,
            "[]",
            "",
            &deep,
            &format!("{{{wide}\"content\":\"x\"}}"),
        ] {
            assert!(read(bad).is_err(), "{}", bad.chars().take(60).collect::<String>());
        }
        assert_eq!(
            read(r#"{"content":"a\u0000b"}"#).map(|new| new.content).ok().as_deref(),
            Some("a\0b")
        );
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_encoded_in_base64() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(
            encoded(&Bytes::from_static(b"\xff\x00")),
            ("/wA=".to_owned(), Encoding::Base64)
        );
        assert_eq!(encoded(&Bytes::from_static(b"a\0b")), ("a\0b".to_owned(), Encoding::Utf8));
    }
}
