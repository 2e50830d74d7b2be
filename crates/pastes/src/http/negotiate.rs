//! In which form a client reads: programs get problems as JSON, terminals plain text, browsers pages.

use axum::http::{HeaderMap, header};

pub use leasehold_http::headers::media_type;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// `application/problem+json`, under `/api`.
    Json,
    /// One line of plain text, for curl.
    Text,
    /// A page, for browsers.
    Html,
}

impl Face {
    /// The form of an answer to this path, for a client with these headers.
    pub fn of(path: &str, headers: &HeaderMap) -> Self {
        if path.starts_with("/api/") || path == "/openapi.json" {
            Self::Json
        } else if path.starts_with("/raw/") || path.starts_with("/download/") {
            // The same for everyone: these are for programs, whoever opens them.
            Self::Text
        } else if is_browser(headers) {
            Self::Html
        } else {
            Self::Text
        }
    }
}

/// Browsers name `text/html` when they open a page or send a form; curl and scripts do not.
pub fn is_browser(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

/// True when the client asks for plain text by name and not for a page.
pub fn wants_text(headers: &HeaderMap) -> bool {
    !is_browser(headers) && accepts(headers, "text/plain")
}

fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|value| {
        value.as_bytes().windows(media_type.len()).any(|part| part == media_type.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn accepting(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))])
    }

    #[test]
    fn programs_terminals_and_browsers_get_what_they_read() {
        let (browser, curl) = (accepting("text/html,application/xhtml+xml"), accepting("*/*"));
        assert_eq!(Face::of("/x", &browser), Face::Html);
        assert_eq!(Face::of("/x", &curl), Face::Text);
        assert_eq!(Face::of("/x", &HeaderMap::new()), Face::Text);
        assert_eq!(Face::of("/raw/x", &browser), Face::Text);
        assert_eq!(Face::of("/api/v1/pastes/x", &browser), Face::Json);
        assert!(wants_text(&accepting("text/plain")));
        assert!(!wants_text(&curl) && !wants_text(&accepting("text/html, text/plain")));
    }
}
