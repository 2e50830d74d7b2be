//! Stylesheet, scripts and icon of the console; see [`leasehold_http::assets`].

use std::sync::LazyLock;

use leasehold_http::assets::{Assets, CSS, JS, SVG};
use leasehold_http::theme::{CONTROLS_CSS, LAYOUT_CSS, theme_script};

static STYLES: LazyLock<String> =
    LazyLock::new(|| [LAYOUT_CSS, CONTROLS_CSS, include_str!("../../assets/console.css")].concat());

static THEME: LazyLock<String> = LazyLock::new(|| theme_script("leasehold"));

pub static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    Assets::at("/console/assets/")
        .with("console.css", CSS, STYLES.as_bytes())
        .with("console.js", JS, include_bytes!("../../assets/console.js"))
        .with("theme.js", JS, THEME.as_bytes())
        .with("icon.svg", SVG, include_bytes!("../../assets/icon.svg"))
});

#[cfg(test)]
mod tests {
    #[test]
    fn files_name_no_other_host() {
        assert_eq!(super::ASSETS.with_external_references(), [""; 0]);
    }
}
