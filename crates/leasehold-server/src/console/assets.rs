//! Stylesheet, scripts and icon, inside the executable, under names that change with their bytes.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// For answers that carry an asset.
pub const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

struct Named {
    plain: &'static str,
    href: String,
    bytes: &'static [u8],
    content_type: &'static str,
}

// Colours, words and controls are those of the paste pages: one family.
const STYLES: &str = concat!(
    include_str!("../../../leasehold-http/assets/frame.css"),
    include_str!("../../../leasehold-http/assets/controls.css"),
    include_str!("assets/console.css"),
);

static ASSETS: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let js = "text/javascript; charset=utf-8";
    vec![
        named("console.css", "text/css; charset=utf-8", STYLES.as_bytes()),
        named("console.js", js, include_bytes!("assets/console.js")),
        named("theme.js", js, include_bytes!("assets/theme.js")),
        named("icon.svg", "image/svg+xml", include_bytes!("../../../pastes/assets/icon.svg")),
    ]
});

fn named(plain: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Named {
    let digest = Sha256::digest(bytes);
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let (stem, extension) = plain.rsplit_once('.').unwrap_or((plain, ""));
    Named { plain, href: format!("/console/assets/{stem}.{hash}.{extension}"), bytes, content_type }
}

/// The file with this hashed name. Names are compared with a list; no path is made of a request.
pub fn asset(name: &str) -> Option<(&'static [u8], &'static str)> {
    let found = ASSETS.iter().find(|a| a.href.strip_prefix("/console/assets/") == Some(name))?;
    Some((found.bytes, found.content_type))
}

/// Where pages find the file that the sources call `name`.
pub fn href(name: &str) -> &'static str {
    ASSETS.iter().find(|a| a.plain == name).map_or("", |a| a.href.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_hashed_name_and_name_no_other_host() {
        for named in ASSETS.iter() {
            let name = href(named.plain).strip_prefix("/console/assets/").expect("a place");
            assert_eq!(asset(name).map(|found| found.0), Some(named.bytes));
            let text = std::str::from_utf8(named.bytes).expect("text");
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://") && !text.contains("@import"), "{}", named.plain);
        }
        for name in ["", "..", "console.css", "../Cargo.toml"] {
            assert!(asset(name).is_none(), "{name}");
        }
    }
}
