//! Stylesheets, scripts and icons: inside the executable, under names that change with their bytes.
//!
//! # Invariants
//! - A hashed name always has the same bytes, so browsers may cache it for ever ([`CACHE_CONTROL`]). A
//!   new build has new names; a page names the files of its own build.
//! - Names are compared with a fixed list: no path is ever built from a request.
//!
//! # What can go wrong
//! - During a rolling deploy a page of the new build asks an old process for its stylesheet and
//!   gets 404 there. The page works unstyled and without scripts; a reload repairs it.

use sha2::{Digest, Sha256};

/// `Cache-Control` of a response that carries an asset.
pub const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

pub const CSS: &str = "text/css; charset=utf-8";
pub const JS: &str = "text/javascript; charset=utf-8";
pub const SVG: &str = "image/svg+xml";

/// A file to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    pub bytes: &'static [u8],
    pub content_type: &'static str,
}

struct Named {
    /// The name in the sources: `paste.css`.
    plain: &'static str,
    /// The name in pages: `/assets/paste.0123456789abcdef.css`.
    href: String,
    asset: Asset,
}

/// The files of one service.
pub struct Assets {
    prefix: &'static str,
    files: Vec<Named>,
}

impl Assets {
    /// Creates an empty set of files, served below `prefix`, such as `/assets/`.
    pub fn at(prefix: &'static str) -> Self {
        Self { prefix, files: Vec::new() }
    }

    #[must_use]
    pub fn with(
        mut self,
        plain: &'static str,
        content_type: &'static str,
        bytes: &'static [u8],
    ) -> Self {
        let digest = Sha256::digest(bytes);
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let (stem, extension) = plain.rsplit_once('.').unwrap_or((plain, ""));
        let href = format!("{}{stem}.{hash}.{extension}", self.prefix);
        self.files.push(Named { plain, href, asset: Asset { bytes, content_type } });
        self
    }

    /// Returns the file with this hashed name: the part of the URL after `prefix`.
    pub fn find(&self, name: &str) -> Option<Asset> {
        let found = self.files.iter().find(|a| a.href.strip_prefix(self.prefix) == Some(name))?;
        Some(found.asset)
    }

    /// Returns the URL of the file that the sources call `name`, or an empty string if there is none.
    pub fn href(&self, name: &str) -> &str {
        self.files.iter().find(|a| a.plain == name).map_or("", |a| a.href.as_str())
    }

    /// Returns every file with its name in the sources.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Asset)> {
        self.files.iter().map(|named| (named.plain, named.asset))
    }

    /// Returns the files that name another host or load something by themselves. For tests: there
    /// must be none.
    pub fn with_external_references(&self) -> Vec<&'static str> {
        let is_external = |asset: &Asset| {
            let text = String::from_utf8_lossy(asset.bytes);
            let text = text.replace("http://www.w3.org/2000/svg", "");
            ["://", "@import", "url("].iter().any(|reference| text.contains(reference))
        };
        self.all().filter(|(_, asset)| is_external(asset)).map(|(plain, _)| plain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_files_are_found_only_by_their_hashed_names() {
        let assets = Assets::at("/x/").with("a.css", CSS, b"body {}").with("b.js", JS, b"1");
        for (plain, asset) in assets.all() {
            let name = assets.href(plain).strip_prefix("/x/").expect("a name");
            assert_eq!(assets.find(name), Some(asset));
            assert_eq!(
                assets.find(plain),
                None,
                "browsers would cache a name without hash for ever"
            );
        }
        for name in ["", "/", "..", "../Cargo.toml", "%2e%2e/a.css", "a.css\0", "..\\x"] {
            assert_eq!(assets.find(name), None, "{name:?}");
        }
        assert_eq!(assets.href("c.css"), "");
    }

    #[test]
    fn with_external_references_lists_files_that_name_a_host() {
        let icon = br#"<svg xmlns="http://www.w3.org/2000/svg"/>"#;
        let assets = Assets::at("/")
            .with("icon.svg", SVG, icon)
            .with("evil.css", CSS, b"@import 'x'")
            .with("evil.js", JS, b"fetch('https://example.org')");
        assert_eq!(assets.with_external_references(), ["evil.css", "evil.js"]);
    }
}
