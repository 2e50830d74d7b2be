//! QR codes, so that a reader can open a paste from a screen on a phone.

use qrcode::QrCode;
use qrcode::render::svg;

/// Returns an SVG image of `url`, dark on light in every theme: some scanners cannot read the inverse.
///
/// Returns `None` if the URL is longer than a QR code can hold (about 2900 bytes).
pub fn svg(url: &str) -> Option<String> {
    let code = QrCode::new(url).ok()?;
    Some(
        code.render()
            .min_dimensions(240, 240)
            .quiet_zone(true)
            .dark_color(svg::Color("#000"))
            .light_color(svg::Color("#fff"))
            .build(),
    )
}

#[cfg(test)]
mod tests {
    use super::svg;

    #[test]
    fn qr_code_is_an_svg_without_scripts_styles_or_other_hosts() {
        let svg = svg("https://paste.example/p/AbC").unwrap();
        assert!(svg.starts_with("<?xml"), "{svg}");
        assert!(svg.ends_with("</svg>"), "{svg}");
        for word in ["<script", "style=", "href", "AbC"] {
            assert!(!svg.contains(word), "{word} in {svg}");
        }
        assert_eq!(svg.matches("http").count(), 1, "only the namespace: {svg}");
    }

    #[test]
    fn url_that_is_too_long_has_no_qr_code() {
        assert_eq!(svg(&"x".repeat(5000)), None);
    }

    #[test]
    fn different_urls_have_different_qr_codes() {
        assert_ne!(svg("https://a.example/1"), svg("https://a.example/2"));
        assert_eq!(svg("https://a.example/1"), svg("https://a.example/1"));
    }
}
