//! What was rendered is kept for the next reader.

use quick_cache::Weighter;
use quick_cache::sync;

use super::{Content, Language, find, render};

/// Rendered pastes up to a number of bytes. The least used go first.
///
/// Keyed by content and language, so one paste that many people read is coloured once, and pastes
/// with equal content share. It knows nothing of who may read what, nor of what has ended: ask the
/// service first, always. Pastes that burn have no place in it.
pub struct Cache(sync::Cache<Key, Content, Bytes>);

/// The content's id, which is never used twice, and the id of the language that was asked for.
type Key = (i64, Option<&'static str>);

impl Cache {
    /// A cache for `bytes` bytes of HTML.
    pub fn new(bytes: u64) -> Self {
        // Most pastes are a few KiB; a wrong guess costs a little memory, nothing else.
        let pastes = usize::try_from(bytes / 16_384).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        Self(sync::Cache::with_weighter(pastes, bytes, Bytes))
    }

    /// As [`render`]. Readers who come while the same content is being rendered wait for it
    /// instead of doing it again, so call it where waiting is allowed (`spawn_blocking`).
    pub fn render(&self, content_id: i64, bytes: &[u8], language: Option<&str>) -> Content {
        // Only names that we know are part of the key: nobody can fill the cache with others.
        let language = language.and_then(find).map(|Language { id, .. }| *id);
        let made: Result<Content, std::convert::Infallible> =
            self.0.get_or_insert_with(&(content_id, language), || Ok(render(bytes, language)));
        match made {
            Ok(content) => content,
        }
    }

    /// What the cache has of this content, without making it.
    pub fn get(&self, content_id: i64, language: Option<&str>) -> Option<Content> {
        self.0.get(&(content_id, language.and_then(find).map(|language| language.id)))
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Content> for Bytes {
    fn weight(&self, _: &Key, content: &Content) -> u64 {
        let html = match content {
            Content::Text(text) => text.html.len(),
            Content::Binary => 0,
        };
        html as u64 + 200
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_questions_are_answered_once() {
        let cache = Cache::new(1 << 20);
        let first = cache.render(1, b"let x;", Some("rs"));
        // Other bytes under a known id: if it looked at them, it would render again.
        assert_eq!(cache.render(1, b"other", Some("RUST")), first);
        assert_eq!(cache.get(1, Some("rust")), Some(first.clone()));
        assert_ne!(cache.render(1, b"other", Some("python")), first);
        assert_ne!(cache.render(2, b"other", Some("rust")), first);
    }

    #[test]
    fn what_does_not_fit_is_rendered_but_not_kept() {
        let cache = Cache::new(2000);
        let text = "x\n".repeat(1000);
        let shown = cache.render(1, text.as_bytes(), None);
        assert!(matches!(&shown, Content::Text(text) if text.lines == 1000));
        assert_eq!(cache.get(1, None), None);
    }
}
