//! Saving: a note and the job that brings it into the index, in one commit.
//!
//! # Invariants
//! - A save that was acknowledged is committed, with its job. Nothing here waits for the index: the
//!   direct write runs in the background.
//! - A user can neither change nor answer a note that is not visible, nor distinguish it from one that
//!   does not exist.

use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::id::AnnotationId;
use crate::model::{Annotation, Change, Kind, NewAnnotation, Saved, User, WORLD};
use crate::service::Annotations;

/// The longest text of a note, in bytes.
pub const LONGEST_TEXT: usize = 65_536;
/// The longest quote, in bytes.
pub const LONGEST_QUOTE: usize = 16_384;
pub const MOST_TAGS: usize = 20;
/// The longest tag, in characters.
pub const LONGEST_TAG: usize = 64;
pub(crate) const NEEDS_TEXT: &str = "a note without a passage must have a text";
const LONGEST_URL: usize = 2000;
const LONGEST_TITLE: usize = 300;

impl Annotations {
    pub async fn create(&self, author: &User, new: NewAnnotation) -> Result<Saved, Refused> {
        let kind = match (&new.reply_to, new.quote.is_empty()) {
            (Some(_), true) => Kind::Reply,
            (Some(_), false) => {
                return Err(Refused::malformed("a reply has no quote; leave out the selector"));
            }
            (None, false) => Kind::Annotation,
            (None, true) => Kind::PageNote,
        };
        check_texts(&new.text, &new.tags)?;
        check_quote(&new)?;
        if kind != Kind::Annotation && new.text.trim().is_empty() {
            return Err(Refused::malformed(NEEDS_TEXT));
        }
        // A reply is on its parent's page.
        let url = if kind == Kind::Reply { String::new() } else { canonical(&new.url)? };
        let title: String = new.title.chars().take(LONGEST_TITLE).filter(|c| *c != '\0').collect();
        let selectors = serde_json::Value::Array(new.selectors.clone());
        let (key, digest) = match &new.idempotency_key {
            Some(key) => (Some(key_hash(author.id, key)?), Some(request_hash(&new, &url))),
            None => (None, None),
        };
        let id = AnnotationId::random();
        check_group(new.group.as_deref())?;
        // Without a group, a reply is in its parent's group.
        let group = new.group.as_deref().or((kind != Kind::Reply).then_some(WORLD));
        let parent = new.reply_to.as_ref().map(AnnotationId::as_str);
        let row = self
            .row(
                "select id, replayed from annotations.create_annotation(\
                 $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
                &[
                    (&author.id, Type::INT8),
                    (&id.as_str(), Type::TEXT),
                    (&url, Type::TEXT),
                    (&title, Type::TEXT),
                    (&group, Type::TEXT),
                    (&kind.as_str(), Type::TEXT),
                    (&parent, Type::TEXT),
                    (&new.quote, Type::TEXT),
                    (&selectors, Type::JSONB),
                    (&new.text, Type::TEXT),
                    (&new.tags, Type::TEXT_ARRAY),
                    (&key, Type::BYTEA),
                    (&digest, Type::BYTEA),
                ],
            )
            .await?;
        let (stored, replayed): (String, bool) = (row.get(0), row.get(1));
        let id: AnnotationId = stored.parse().map_err(|_| Refused::NotFound)?;
        if !replayed {
            self.changed(&id);
        }
        let annotation = self.read(Some(author.id), &id).await?;
        Ok(Saved { annotation, replayed })
    }

    pub async fn update(
        &self,
        author: &User,
        id: &AnnotationId,
        change: Change,
    ) -> Result<Annotation, Refused> {
        check_group(change.group.as_deref())?;
        check_texts(
            change.text.as_deref().unwrap_or_default(),
            change.tags.as_deref().unwrap_or_default(),
        )?;
        // A text of only spaces is empty; the SQL function decides whether it may be.
        let text =
            change.text.map(|text| if text.trim().is_empty() { String::new() } else { text });
        self.rows(
            "select annotations.update_annotation($1, $2, $3, $4, $5, $6)",
            &[
                (&author.id, Type::INT8),
                (&id.as_str(), Type::TEXT),
                (&text, Type::TEXT),
                (&change.tags, Type::TEXT_ARRAY),
                (&change.group, Type::TEXT),
                (&change.expected, Type::INT8_ARRAY),
            ],
        )
        .await?;
        self.changed(id);
        self.read(Some(author.id), id).await
    }

    pub async fn delete(&self, author: &User, id: &AnnotationId) -> Result<(), Refused> {
        self.delete_if(author, id, None).await
    }

    /// Deletes the note only in one of these versions; `None`: in any.
    pub async fn delete_if(
        &self,
        author: &User,
        id: &AnnotationId,
        expected: Option<Vec<i64>>,
    ) -> Result<(), Refused> {
        self.rows(
            "select annotations.delete_annotation($1, $2, $3)",
            &[(&author.id, Type::INT8), (&id.as_str(), Type::TEXT), (&expected, Type::INT8_ARRAY)],
        )
        .await?;
        self.changed(id);
        Ok(())
    }

    /// Hands the note to the direct path after a commit, so that the index has it at once. The direct path
    /// may drop it; the job remains.
    fn changed(&self, id: &AnnotationId) {
        if let Some(mirrored) = &self.0.mirrored {
            mirrored.changed(id.as_str());
        }
    }
}

/// Refuses NUL: no group has it in its id, and Postgres does not take it in a text.
fn check_group(group: Option<&str>) -> Result<(), Refused> {
    match group {
        Some(group) if group.contains('\0') => Err(Refused::NoSuchGroup),
        _ => Ok(()),
    }
}

fn check_texts(text: &str, tags: &[String]) -> Result<(), Refused> {
    if text.len() > LONGEST_TEXT || text.contains('\0') {
        return Err(Refused::malformed(format!(
            "the text has {} bytes; it must have at most {LONGEST_TEXT}, and no NUL",
            text.len()
        )));
    }
    let fits = |tag: &String| {
        let length = tag.chars().count();
        (1..=LONGEST_TAG).contains(&length) && tag.trim() == tag && !tag.contains('\0')
    };
    if tags.len() > MOST_TAGS || !tags.iter().all(fits) {
        return Err(Refused::malformed(format!(
            "a note may have {MOST_TAGS} tags of 1 to {LONGEST_TAG} characters each, without spaces around them"
        )));
    }
    Ok(())
}

fn check_quote(new: &NewAnnotation) -> Result<(), Refused> {
    if new.quote.len() > LONGEST_QUOTE || new.quote.contains('\0') {
        return Err(Refused::malformed(format!(
            "the quote has {} bytes; it must have at most {LONGEST_QUOTE}, and no NUL",
            new.quote.len()
        )));
    }
    Ok(())
}

/// Returns the canonical form of an address: scheme and host in lower case, no fragment, no password.
pub fn canonical(text: &str) -> Result<String, Refused> {
    let bad = || {
        Refused::malformed(format!(
            "the address of a page must begin with http:// or https:// and may have {LONGEST_URL} bytes"
        ))
    };
    if text.len() > LONGEST_URL {
        return Err(bad());
    }
    let mut url = url::Url::parse(text).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad());
    }
    url.set_fragment(None);
    // A password does not belong in a search index.
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return Err(bad());
    }
    let text = String::from(url);
    if text.len() > LONGEST_URL { Err(bad()) } else { Ok(text) }
}

/// The hash covers the author, so that keys of different users never collide.
fn key_hash(author: i64, key: &str) -> Result<Vec<u8>, Refused> {
    let fits = (1..=200).contains(&key.len()) && key.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !fits {
        return Err(Refused::malformed(
            "an Idempotency-Key must have 1 to 200 printable characters",
        ));
    }
    Ok(Sha256::digest(format!("{author}\n{key}")).to_vec())
}

fn request_hash(new: &NewAnnotation, url: &str) -> Vec<u8> {
    let parts = serde_json::json!([
        url,
        new.group,
        new.reply_to.as_ref().map(AnnotationId::as_str),
        new.quote,
        new.selectors,
        new.text,
        new.tags,
    ]);
    Sha256::digest(parts.to_string()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn canonical_address_is_one_per_page() {
        for same in
            ["HTTP://Example.com/a?b#c", "http://example.com:80/a?b", "http://u:p@example.com/a?b"]
        {
            assert_eq!(canonical(same).ok().as_deref(), Some("http://example.com/a?b"), "{same}");
        }
        for bad in
            ["", "x", "javascript:alert(1)", "file:///etc/passwd", "http://", "data:text/html,x"]
        {
            assert!(canonical(bad).is_err(), "{bad}");
        }
        assert!(
            canonical(&format!("http://a/{}", "ä".repeat(900))).is_err(),
            "too long when percent-encoded"
        );
    }
}
