//! Escapes text as HTML.

/// What [`push`] did.
#[derive(Clone, Copy)]
pub struct Pushed {
    /// The text contains characters that reorder what is shown.
    pub reorders: bool,
    /// All of the text was appended.
    pub whole: bool,
}

/// Appends `text` so that a browser's text content is `text` again. Stops when the HTML has `most`
/// bytes, or one escaped character more: a character of three bytes can become 50.
pub fn push(html: &mut String, text: &str, most: usize) -> Pushed {
    let mut reorders = false;
    let mut rest = text;
    loop {
        let at = rest.find(special).unwrap_or(rest.len());
        let (before, from) = rest.split_at(at);
        let room = most.saturating_sub(html.len());
        if before.len() > room {
            html.push_str(before.split_at(before.floor_char_boundary(room)).0);
            return Pushed { reorders, whole: false };
        }
        html.push_str(before);
        if from.is_empty() {
            return Pushed { reorders, whole: true };
        }
        if html.len() >= most {
            return Pushed { reorders, whole: false };
        }
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
}

fn special(c: char) -> bool {
    matches!(c, '&' | '<' | '>' | '\r' | '\0') || reordering(c)
}

/// Embeddings, overrides and isolates: with them code can read differently from what it does.
fn reordering(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
