//! The version of a note that a response shows, and the one that a change is meant for: `ETag` and
//! `If-Match`.
//!
//! # Invariants
//! - A client that sends `If-Match` changes the version that it has seen, or nothing.

use axum::http::{HeaderMap, HeaderValue, header};
use leasehold_http::headers::header_value;

use super::errors::Failure;

/// Returns the version of a note as a header.
pub fn etag(version: i64) -> HeaderValue {
    header_value(&format!("\"{version}\""))
}

/// Returns the versions that a change is meant for; `None`: any. A tag that is not ours matches no
/// version.
pub fn if_match(headers: &HeaderMap) -> Result<Option<Vec<i64>>, Failure> {
    let malformed = || {
        Failure::malformed(
            "If-Match must be the ETag of a note, several with commas between them, or *.",
        )
    };
    let mut versions = None;
    let mut any = false;
    for value in headers.get_all(header::IF_MATCH) {
        let value = value.to_str().map_err(|_| malformed())?;
        for tag in value.split(',').map(str::trim) {
            if tag == "*" {
                any = true;
                continue;
            }
            let versions = versions.get_or_insert_with(Vec::new);
            let strong = tag.strip_prefix("W/").unwrap_or(tag);
            let inner = strong.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let inner = inner.filter(|inner| !inner.contains('"')).ok_or_else(malformed)?;
            // Weak tags and foreign ones match no version.
            if let Ok(version) = inner.parse::<i64>()
                && etag(version) == tag
            {
                versions.push(version);
            }
        }
    }
    match (any, versions) {
        (true, Some(_)) => Err(malformed()),
        (_, versions) => Ok(versions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Option<Vec<i64>>, ()> {
        let pairs = values.iter().filter_map(|value| HeaderValue::from_str(value).ok());
        let mut headers = HeaderMap::new();
        for value in pairs {
            headers.append(header::IF_MATCH, value);
        }
        if_match(&headers).map_err(|_| ())
    }

    #[test]
    fn if_match_accepts_versions_and_matches_foreign_tags_with_none() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["*"]), Ok(None));
        assert_eq!(read(&[r#""3""#]), Ok(Some(vec![3])));
        assert_eq!(read(&[r#""3", "4""#, r#""5""#]), Ok(Some(vec![3, 4, 5])));
        for strange in [r#"W/"3""#, r#""x""#, r#""03""#, r#""+3""#, r#""""#] {
            assert_eq!(read(&[strange]), Ok(Some(Vec::new())), "{strange}");
        }
        for bad in ["", "3", r#"""#, r#""3"#, r#"*, "3""#, r#""3" "4""#, "**"] {
            assert_eq!(read(&[bad]), Err(()), "{bad}");
        }
    }
}
