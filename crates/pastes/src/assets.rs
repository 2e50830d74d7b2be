//! Stylesheet, scripts and icon; see [`leasehold_http::assets`].

use std::sync::LazyLock;

use leasehold_http::assets::{Assets, CSS, JS, SVG};
use leasehold_http::theme::{CONTROLS_CSS, LAYOUT_CSS, theme_script};

pub static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    Assets::at("/assets/")
        .with("paste.css", CSS, STYLES.as_bytes())
        .with("paste.js", JS, SCRIPTS.as_bytes())
        .with("theme.js", JS, THEME.as_bytes())
        .with("icon.svg", SVG, include_bytes!("../assets/icon.svg"))
});

// Served as one file each; they are split only for the developers.
pub(crate) static STYLES: LazyLock<String> = LazyLock::new(|| {
    [
        LAYOUT_CSS,
        CONTROLS_CSS,
        include_str!("../assets/styles/pages.css"),
        include_str!("../assets/styles/paste.css"),
        include_str!("../assets/styles/media.css"),
    ]
    .concat()
});
static THEME: LazyLock<String> =
    LazyLock::new(|| [&theme_script("pastes"), include_str!("../assets/scripts/wrap.js")].concat());
const SCRIPTS: &str = concat!(
    include_str!("../assets/scripts/common.js"),
    include_str!("../assets/scripts/switch.js"),
    include_str!("../assets/scripts/copy.js"),
    include_str!("../assets/scripts/lines.js"),
    include_str!("../assets/scripts/keys.js"),
    include_str!("../assets/scripts/form.js"),
    include_str!("../assets/scripts/waiting.js"),
);

#[cfg(test)]
mod tests {
    #[test]
    fn assets_reference_no_other_host() {
        assert_eq!(super::ASSETS.with_external_references(), [""; 0]);
    }
}
