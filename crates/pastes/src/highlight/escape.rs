//! Escapes text as HTML.

/// Appends `text` so that a browser's text content is `text` again. Returns true if it contains
/// characters that reorder what is shown.
pub fn push(html: &mut String, text: &str) -> bool {
    let mut reorders = false;
    let mut rest = text;
    while let Some(at) = rest.find(special) {
        let (before, from) = rest.split_at(at);
        html.push_str(before);
        let mut chars = from.chars();
        match chars.next() {
            Some('&') => html.push_str("&amp;"),
            Some('<') => html.push_str("&lt;"),
            Some('>') => html.push_str("&gt;"),
            // A parser turns a bare CR into LF, and so would add a line to every CR LF.
            Some('\r') => html.push_str("&#13;"),
            // HTML cannot express NUL.
            Some('\0') => html.push('\u{fffd}'),
            Some(c) => {
                reorders = true;
                let code = u32::from(c);
                html.push_str(&format!(
                    "<span class=\"bidi\" data-u=\"U+{code:04X}\">&#x{code:X};</span>"
                ));
            }
            None => {}
        }
        rest = chars.as_str();
    }
    html.push_str(rest);
    reorders
}

fn special(c: char) -> bool {
    matches!(c, '&' | '<' | '>' | '\r' | '\0') || reordering(c)
}

/// Embeddings, overrides and isolates: with them code can read differently from what it does.
fn reordering(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
