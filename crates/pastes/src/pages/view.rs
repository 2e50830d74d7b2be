//! The page of a paste.

use maud::{Markup, PreEscaped, html};

use super::layout::Page;
use super::model::{JustCreated, Links, PasteView};
use super::parts;
use crate::highlight::{Content, Highlighted, Plain};

/// Renders a paste.
pub fn paste(view: &PasteView) -> Markup {
    let title = format!("Paste {}", view.code);
    let main = html! {
        div.paste-head {
            h1 { span.visually-hidden { "Paste " } (view.code) }
            (facts(view))
            (tools(view))
        }
        @match &view.content {
            Content::Text(text) => { (notices(text, Some(&view.links))) (code(text)) }
            Content::Binary => (binary(view)),
        }
        (more(view))
    };
    Page::new(&title, main).wide().render()
}

/// Adds the author's panel to the page of a paste. The page itself is the same for all readers, and is
/// rendered once.
pub fn with_created(page: &str, links: &Links, created: &JustCreated) -> String {
    let main = page.find("<main ").unwrap_or(page.len());
    let inside = page.get(main..).and_then(|rest| rest.find('>')).map_or(0, |at| at + 1);
    let (before, after) = page.split_at_checked(main + inside).unwrap_or((page, ""));
    [before, &parts::created(links, created).into_string(), after].concat()
}

fn facts(view: &PasteView) -> Markup {
    html! {
        dl.facts {
            @if let Content::Text(text) = &view.content {
                div { dt { "Language" } dd { (text.language.label) } }
                div { dt { "Length" } dd { (parts::lines(text.lines)) ", " (parts::size(view.size)) } }
            } @else {
                div { dt { "Length" } dd { (parts::size(view.size)) } }
            }
            div { dt { "Saved" } dd { (parts::moment(view.created_at)) } }
            div { dt { "Expires" } dd { (parts::expires(view.life, view.expires_at)) } }
        }
    }
}

fn tools(view: &PasteView) -> Markup {
    let links = &view.links;
    html! {
        ul.tools aria-label="Actions" {
            @if let Content::Text(text) = &view.content {
                // A truncated text is fetched in full when the user copies it.
                (copy_text(text.truncated.then_some(links.raw.as_str())))
                li {
                    button.quiet #wrap type="button" hidden aria-pressed="false" data-key="w"
                        aria-keyshortcuts="w" data-does="Wrap long lines" { "Wrap" }
                }
                li {
                    a.button.quiet href=(links.raw) data-key="r" aria-keyshortcuts="r"
                        data-does="Raw text" { "Raw" }
                }
            }
            li {
                a.button.quiet href=(links.download) download data-key="d" aria-keyshortcuts="d"
                    data-does="Download" { "Download" }
            }
        }
    }
}

/// Renders the button that copies the text on the page.
pub fn copy_text(from: Option<&str>) -> Markup {
    html! {
        li {
            button.quiet #copy type="button" hidden data-copy="#code" data-from=[from]
                data-key="c" aria-keyshortcuts="c" data-does="Copy the text" { "Copy" }
        }
    }
}

/// Renders what a reader should know about the text.
pub fn notices(text: &Highlighted, links: Option<&Links>) -> Markup {
    html! {
        @if text.truncated {
            p.notice {
                "Only the beginning is shown. "
                @if let Some(links) = links {
                    a href=(links.raw) { "Read all of it as raw text" }
                    " or " a href=(links.download) { "download it" } "."
                }
            }
        }
        @if text.reorders {
            p.notice {
                strong { "Careful: " }
                "this text contains characters that change the order in which it is shown. "
                "They are marked."
            }
        }
        @match text.plain {
            Some(Plain::TooLarge) => p.notice { "Not highlighted: the text is too large." },
            Some(Plain::LongLines) => p.notice { "Very long lines are not highlighted." },
            Some(Plain::TooSlow) => p.notice { "Only the beginning is highlighted: the rest would take too long." },
            Some(Plain::Busy) => p.notice {
                "Not highlighted: the service is highlighting too many pages right now."
            },
            None => {}
        }
    }
}

/// Renders the text itself.
pub fn code(text: &Highlighted) -> Markup {
    // The numbers are as wide as the last one needs. Classes, because the CSP forbids inline styles.
    let digits = format!("digits-{}", text.lines.to_string().len().clamp(1, 6));
    html! {
        pre .code .(digits) #code tabindex="0" role="region" aria-label="Text of the paste" {
            code { (PreEscaped(&text.html)) }
        }
    }
}

fn binary(view: &PasteView) -> Markup {
    html! {
        div.panel.binary {
            h2 { "Binary data" }
            p { (parts::size(view.size)) " that are not text. Download them to see them." }
            p { a.button.primary href=(view.links.download) download { "Download" } }
        }
    }
}

fn more(view: &PasteView) -> Markup {
    let links = &view.links;
    html! {
        div.more {
            details {
                summary data-key="q" data-does="QR code" { "QR code" }
                img.qr src=(links.qr) width="240" height="240" loading="lazy"
                    alt={ "QR code of " (links.page) };
            }
            details {
                summary { "Delete" }
                form method="post" action=(links.delete) {
                    label for="delete-token" { "Delete token" }
                    input #delete-token type="text" name="token" required spellcheck="false"
                        autocapitalize="off" autocomplete="off" aria-describedby="delete-hint";
                    p.hint #delete-hint { "The author saw it after saving the paste." }
                    button.danger type="submit" { "Delete permanently" }
                }
            }
            details {
                summary { "Report" }
                form method="post" action=(links.report) {
                    // The paste that the reader saw: by the time of the report, another paste may have
                    // the name.
                    input type="hidden" name="paste" value=(view.paste_id);
                    label for="reason" { "Reason" }
                    select #reason name="reason" {
                        option value="illegal" { "Illegal content" }
                        option value="personal" { "Private data" }
                        option value="malware" { "Malware" }
                        option value="spam" { "Spam" }
                        option value="other" { "Other" }
                    }
                    label for="details" { "Details " span.aside { "(optional)" } }
                    textarea #details name="details" rows="3" maxlength="2000" {}
                    button type="submit" { "Send report" }
                }
            }
        }
    }
}
