//! Stylesheet, scripts and icon; see [`leasehold_http::assets`].

use std::sync::LazyLock;

use leasehold_http::assets::{Assets, CSS, JS, SVG};
use leasehold_http::theme::{CONTROLS_CSS, LAYOUT_CSS, theme_script};

/// For pages of other origins, under a fixed name that they can link to.
pub const EMBED: &str = include_str!("../assets/scripts/embed.js");

static STYLES: LazyLock<String> = LazyLock::new(|| {
    [
        LAYOUT_CSS,
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

static THEME: LazyLock<String> = LazyLock::new(|| theme_script("notes"));

pub static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    Assets::at("/assets/")
        .with("notes.css", CSS, STYLES.as_bytes())
        .with("notes.js", JS, SCRIPTS.as_bytes())
        .with("theme.js", JS, THEME.as_bytes())
        .with("icon.svg", SVG, include_bytes!("../assets/icon.svg"))
});

#[cfg(test)]
mod tests {
    #[test]
    fn assets_reference_no_other_host() {
        assert_eq!(super::ASSETS.with_external_references(), [""; 0]);
    }
}
