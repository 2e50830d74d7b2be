//! Stylesheet, scripts and icon of the console; see [`leasehold_http::assets`].

use std::sync::LazyLock;

use leasehold_http::assets::{Asset, Assets, CSS, JS, SVG};
use leasehold_http::look::{CONTROLS_CSS, FRAME_CSS};

pub use leasehold_http::assets::CACHE_CONTROL;

static STYLES: LazyLock<String> =
    LazyLock::new(|| [FRAME_CSS, CONTROLS_CSS, include_str!("assets/console.css")].concat());

static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    Assets::at("/console/assets/")
        .with("console.css", CSS, STYLES.as_bytes())
        .with("console.js", JS, include_bytes!("assets/console.js"))
        .with("theme.js", JS, include_bytes!("assets/theme.js"))
        .with("icon.svg", SVG, include_bytes!("../../../pastes/assets/icon.svg"))
});

/// The file with this hashed name.
pub fn asset(name: &str) -> Option<Asset> {
    ASSETS.find(name)
}

/// Where pages find the file that the sources call `name`.
pub fn href(name: &str) -> &'static str {
    ASSETS.href(name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_name_no_other_host() {
        assert_eq!(super::ASSETS.strangers(), [""; 0]);
    }
}
