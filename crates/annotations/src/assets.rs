//! Stylesheet, scripts and icon: inside the executable, under names that change with their bytes.
//!
//! # What is true
//! - `/assets/notes.<hash>.css` always has the same bytes, so browsers may keep it for ever
//!   ([`CACHE_CONTROL`]). A new build has new names; a page names the files of its own build.
//! - Names are compared with a fixed list: no path is ever built from a request.

use std::sync::LazyLock;

use leasehold_http::look::{CONTROLS_CSS, FRAME_CSS};
use sha2::{Digest, Sha256};

/// For answers that carry an asset.
pub const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

/// For pages of other origins, under a name that they can write down.
pub const EMBED: &str = include_str!("../assets/scripts/embed.js");

/// A file to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    pub bytes: &'static [u8],
    pub content_type: &'static str,
}

struct Named {
    /// As the sources call it: `notes.css`.
    plain: &'static str,
    /// As the pages call it: `/assets/notes.0123456789abcdef.css`.
    href: String,
    asset: Asset,
}

static STYLES: LazyLock<String> = LazyLock::new(|| {
    [
        FRAME_CSS,
        CONTROLS_CSS,
        include_str!("../assets/styles/reader.css"),
        include_str!("../assets/styles/margin.css"),
        include_str!("../assets/styles/media.css"),
    ]
    .concat()
});
const SCRIPTS: &str = concat!(
    include_str!("../assets/scripts/common.js"),
    include_str!("../assets/scripts/anchor.js"),
    include_str!("../assets/scripts/margin.js"),
    include_str!("../assets/scripts/compose.js"),
    include_str!("../assets/scripts/keys.js"),
);

static ASSETS: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let css = "text/css; charset=utf-8";
    let js = "text/javascript; charset=utf-8";
    vec![
        named("notes.css", css, STYLES.as_bytes()),
        named("notes.js", js, SCRIPTS.as_bytes()),
        named("theme.js", js, include_bytes!("../assets/scripts/theme.js")),
        named("icon.svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
    ]
});

fn named(plain: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Named {
    let digest = Sha256::digest(bytes);
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let (stem, extension) = plain.rsplit_once('.').unwrap_or((plain, ""));
    let href = format!("/assets/{stem}.{hash}.{extension}");
    Named { plain, href, asset: Asset { bytes, content_type } }
}

/// The file with this hashed name (what follows `/assets/` in the URL).
pub fn asset(name: &str) -> Option<Asset> {
    let found = ASSETS.iter().find(|a| a.href.strip_prefix("/assets/") == Some(name))?;
    Some(found.asset)
}

/// Where pages find the file that the sources call `name`. Empty when there is none.
pub fn href(name: &str) -> &'static str {
    ASSETS.iter().find(|a| a.plain == name).map_or("", |a| a.href.as_str())
}

#[cfg(test)]
mod tests {
    use super::{ASSETS, asset, href};

    #[test]
    fn every_file_is_served_under_its_hashed_name_and_no_other() {
        for named in ASSETS.iter() {
            let name = href(named.plain).strip_prefix("/assets/").expect("a name");
            assert_eq!(asset(name), Some(named.asset));
            assert_eq!(asset(named.plain), None, "a name without hash would be kept for ever");
        }
        for name in ["", "/", "..", "../Cargo.toml", "%2e%2e/notes.css", "notes.css\0"] {
            assert_eq!(asset(name), None, "{name:?}");
        }
    }

    #[test]
    fn files_name_no_other_host() {
        for named in ASSETS.iter() {
            let text = std::str::from_utf8(named.asset.bytes).expect("text");
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{} names a host", named.plain);
            assert!(!text.contains("@import") && !text.contains("url("), "{}", named.plain);
        }
    }
}
