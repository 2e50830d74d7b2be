//! Reads a request: its path, its query, its token, and which formats its client accepts.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::Request;
use axum::http::{HeaderMap, header};

/// Returns the segment of a path after `before` others, still escaped.
pub fn segment(path: &str, before: usize) -> Option<&str> {
    path.strip_prefix('/')?.split('/').nth(before)
}

/// Decodes percent escapes: `%61` is `a`. Returns `None` for a broken escape, invalid UTF-8 or a NUL.
pub fn percent_decode(part: &str) -> Option<String> {
    let is_escape = |rest: &[u8]| matches!(rest, [one, two, ..] if one.is_ascii_hexdigit() && two.is_ascii_hexdigit());
    // The decoder leaves a broken escape as it is.
    if !part.as_bytes().split(|byte| *byte == b'%').skip(1).all(is_escape) {
        return None;
    }
    let text = percent_encoding::percent_decode_str(part).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

/// Returns a value of the query.
pub fn query(request: &Request, name: &str) -> Option<String> {
    url::form_urlencoded::parse(request.uri().query()?.as_bytes())
        .find(|(found, _)| found == name)
        .map(|(_, value)| value.into_owned())
}

/// Reads `?limit=`, from 1 to `most`. The error names that range.
pub fn limit<N>(request: &Request, usual: N, most: N) -> Result<N, String>
where
    N: FromStr + PartialOrd + Display + From<u8>,
{
    match query(request, "limit") {
        None => Ok(usual),
        Some(text) => match text.parse::<N>() {
            Ok(limit) if limit >= 1.into() && limit <= most && !text.starts_with('+') => Ok(limit),
            _ => Err(format!("limit must be a number from 1 to {most}.")),
        },
    }
}

/// Reads `Authorization: Bearer …`. Returns `None` without such a header. A malformed one becomes an
/// empty token, which matches none.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?;
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    Some(token.unwrap_or_default())
}

/// Returns true for a browser: it names `text/html` when it opens a page or sends a form, and curl and
/// scripts do not.
pub fn is_browser(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

/// Returns true if the client asks for this media type by name.
pub fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|value| {
        value.as_bytes().windows(media_type.len()).any(|part| part == media_type.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn h4_segments_are_decoded_and_broken_escapes_are_refused() {
        assert_eq!(segment("/raw/a%62", 1), Some("a%62"));
        assert_eq!(segment("/raw", 1), None);
        for (sent, plain) in [
            ("abc", Some("abc")),
            ("%61b%63", Some("abc")),
            ("%C3%A4", Some("ä")),
            ("a%2Fb", Some("a/b")),
            ("a%00", None),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(sent).as_deref(), plain, "{sent}");
        }
    }

    #[test]
    fn limit_is_a_number_from_one_to_the_maximum() {
        let limit = |query: &str| {
            let request = Request::builder().uri(format!("/x{query}")).body(Body::empty());
            limit(&request.expect("a request"), 50_u32, 200)
        };
        assert_eq!(limit(""), Ok(50));
        assert_eq!(limit("?limit=200"), Ok(200));
        for bad in ["0", "201", "-1", "%2B5", "", "x"] {
            assert!(limit(&format!("?limit={bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn bearer_reads_the_authorization_header() {
        let with = |value: &str| {
            let headers = [(header::AUTHORIZATION, value.parse().expect("a value"))];
            bearer(&HeaderMap::from_iter(headers)).map(str::to_owned)
        };
        assert_eq!(bearer(&HeaderMap::new()), None);
        assert_eq!(with("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(with("bearer  abc").as_deref(), Some("abc"));
        for odd in ["abc", "Basic abc", "Bearer "] {
            assert_eq!(with(odd).as_deref(), Some(""), "{odd}");
        }
    }
}
