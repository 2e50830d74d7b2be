//! Requests to OpenSearch: each with a time limit and a response of bounded size.
//!
//! # Invariants
//! - Name and password are removed from the URL and sent as a header; they appear in no error and no
//!   log.
//! - Redirects are not followed: their targets would receive the password.

use std::time::Duration;

use leasehold::mirror::TargetError;
use leasehold_http::request::percent_decode;
use reqwest::{Client, Method, StatusCode, Url};
use serde_json::Value;

use super::bulk::reason;

/// The largest response; no request of this service gets a larger one.
const ANSWER_BYTES: usize = 256 << 20;
/// The most characters of a response in an error.
const QUOTED: usize = 300;

#[derive(Clone)]
pub struct Http {
    client: Client,
    base: Url,
    login: Option<(String, String)>,
    limit: Duration,
}

/// A response that is no success but that callers know how to handle.
#[derive(Debug)]
pub enum Refused {
    NotFound,
    /// 400, with the reason.
    Bad(String),
    /// The request had too many bytes.
    TooLarge(String),
    Failed(TargetError),
}

impl From<Refused> for TargetError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotFound => Self::Down("the index does not exist".to_owned()),
            Refused::Bad(why) => Self::Down(format!("OpenSearch refused the request: {why}")),
            Refused::TooLarge(why) => Self::Overloaded(why),
            Refused::Failed(error) => error,
        }
    }
}

impl Http {
    pub fn new(url: &str, limit: Duration) -> Result<Self, TargetError> {
        // Does not quote the URL: it may contain a password.
        let wrong = || {
            TargetError::Down(
                "the URL of OpenSearch must begin with http:// or https://".to_owned(),
            )
        };
        let mut base = Url::parse(url).map_err(|_| wrong())?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(wrong());
        }
        let decoded = |text: &str| percent_decode(text).unwrap_or_else(|| text.to_owned());
        let login = (!base.username().is_empty())
            .then(|| (decoded(base.username()), base.password().map(decoded).unwrap_or_default()));
        let _ = base.set_username("");
        let _ = base.set_password(None);
        base.set_query(None);
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        leasehold_http::tls::use_ring();
        let client = Client::builder()
            .connect_timeout(limit.min(Duration::from_secs(5)))
            .timeout(limit)
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| TargetError::Down(error.to_string()))?;
        Ok(Self { client, base, login, limit })
    }

    /// Returns the address without a password, for operators.
    pub fn address(&self) -> &str {
        self.base.as_str()
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let text = body.map(Value::to_string);
        self.send_text(method, path, "application/json", text).await
    }

    pub async fn send_text(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<String>,
    ) -> Result<Value, Refused> {
        let url = self.base.join(path).map_err(|error| down(format!("bad path: {error}")))?;
        let mut request = self.client.request(method, url);
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(body) = body {
            request = request.header("content-type", kind).body(body);
        }
        let mut response = request.send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.failed(&error))? {
            if bytes.len() + piece.len() > ANSWER_BYTES {
                return Err(down(format!("a response has more than {ANSWER_BYTES} bytes")));
            }
            bytes.extend_from_slice(&piece);
        }
        judge(status, &bytes)
    }

    fn failed(&self, error: &reqwest::Error) -> Refused {
        if error.is_timeout() && !error.is_connect() {
            let limit = self.limit.as_secs_f64();
            let why = format!("no response within {limit} s");
            return Refused::Failed(TargetError::Overloaded(why));
        }
        // The outer error names only the URL; the innermost one says what happened.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        down(format!("{}: {cause}", self.base))
    }
}

fn down(why: String) -> Refused {
    Refused::Failed(TargetError::Down(why))
}

fn judge(status: StatusCode, bytes: &[u8]) -> Result<Value, Refused> {
    let answer: Option<Value> = serde_json::from_slice(bytes).ok();
    if status.is_success() {
        return answer.ok_or_else(|| down(format!("the response is not JSON: {}", quoted(bytes))));
    }
    let error = answer.as_ref().and_then(|answer| answer.get("error"));
    let why = match error {
        Some(error) => reason(Some(error)),
        None => quoted(bytes),
    };
    Err(match status.as_u16() {
        404 => Refused::NotFound,
        400 => Refused::Bad(why),
        413 => Refused::TooLarge(format!("the request has too many bytes: {why}")),
        429 => Refused::Failed(TargetError::Overloaded(why)),
        401 | 403 => {
            down(format!("status {status}: check the name, the password and their rights"))
        }
        _ => down(format!("status {status}: {why}")),
    })
}

fn quoted(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_of_the_url_is_sent_and_not_shown() {
        let limit = Duration::from_secs(1);
        let http = Http::new("http://us%40er:s%2Becr+t@localhost:9200/base?x=1", limit).unwrap();
        assert_eq!(http.address(), "http://localhost:9200/base/");
        assert_eq!(http.login, Some(("us@er".to_owned(), "s+ecr+t".to_owned())));
    }

    #[test]
    fn invalid_url_is_refused_without_being_quoted() {
        for url in ["ftp://u:hidden@h", "hidden", "http://", "file:///hidden"] {
            let Err(error) = Http::new(url, Duration::from_secs(1)) else { panic!("{url}") };
            assert!(!error.to_string().contains("hidden"));
        }
    }

    #[test]
    fn error_statuses_map_to_overloaded_or_down() {
        let judged = |status: u16, body: &str| {
            judge(StatusCode::from_u16(status).unwrap(), body.as_bytes()).map_err(TargetError::from)
        };
        assert!(matches!(judged(429, "{}"), Err(TargetError::Overloaded(_))));
        assert!(matches!(judged(413, "too large"), Err(TargetError::Overloaded(_))));
        assert!(matches!(judged(503, "<html>"), Err(TargetError::Down(_))));
        assert!(matches!(judged(200, "<html>"), Err(TargetError::Down(_))));
        assert!(matches!(judged(401, ""), Err(TargetError::Down(why)) if why.contains("password")));
        assert!(judged(200, "{}").is_ok());
    }
}
