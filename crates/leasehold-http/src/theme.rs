//! The styles that all pages share: colours in pairs of light and dark, the layout, and the controls.
//!
//! Services put these before their own rules and serve all of it as one file.

/// Colours, fonts, the layout of a page, text.
pub const LAYOUT_CSS: &str = include_str!("../assets/layout.css");
/// Buttons, fields, boxes, dialogs.
pub const CONTROLS_CSS: &str = include_str!("../assets/controls.css");

/// Returns the script that applies the theme chosen on the pages of this site, before anything is
/// painted.
pub fn theme_script(site: &str) -> String {
    include_str!("../assets/theme.js").replace("SITE", site)
}
