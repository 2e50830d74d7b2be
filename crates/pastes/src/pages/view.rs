//! A paste, to read.

use maud::{Markup, PreEscaped, html};

use super::layout::Page;
use super::model::{Links, PasteView};
use super::parts;
use crate::highlight::{Content, Highlighted, Plain};

/// A paste that can be read.
pub fn paste(view: &PasteView) -> Markup {
    let title = format!("Paste {}", view.code);
    let main = html! {
        @if let Some(created) = &view.created { (parts::created(&view.links, created)) }
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
            div { dt { "Ends" } dd { (parts::ends(view.life, view.expires_at)) } }
        }
    }
}

fn tools(view: &PasteView) -> Markup {
    let links = &view.links;
    html! {
        ul.tools aria-label="What you can do with this paste" {
            @if let Content::Text(text) = &view.content {
                // A text that is not whole on the page is fetched when it is copied.
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

/// The button that copies the text on the page.
pub fn copy_text(from: Option<&str>) -> Markup {
    html! {
        li {
            button.quiet #copy type="button" hidden data-copy="#code" data-from=[from]
                data-key="c" aria-keyshortcuts="c" data-does="Copy the text" { "Copy" }
        }
    }
}

/// What a reader should know about what is shown.
pub fn notices(text: &Highlighted, links: Option<&Links>) -> Markup {
    html! {
        @if text.truncated {
            p.notice {
                "Only the beginning is shown. "
                @if let Some(links) = links { a href=(links.download) { "Download all of it" } "." }
            }
        }
        @if text.reorders {
            p.notice {
                strong { "Careful: " }
                "this text holds characters that change the order in which it is shown. "
                "They are marked."
            }
        }
        @match text.plain {
            Some(Plain::TooLarge) => p.notice { "Too large for colours." },
            Some(Plain::LongLines) => p.notice { "Very long lines have no colours." },
            Some(Plain::TooSlow) => p.notice { "Colours end where they took too long." },
            None => {}
        }
    }
}

/// The text itself.
pub fn code(text: &Highlighted) -> Markup {
    // The numbers are as wide as the last one needs; classes, because styles cannot be inline.
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
            h2 { "This is not text" }
            p { (parts::size(view.size)) " of data. It can be downloaded, but not shown." }
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
                    p.hint #delete-hint { "It was shown when the paste was saved." }
                    button.danger type="submit" { "Delete for good" }
                }
            }
            details {
                summary { "Report" }
                form method="post" action=(links.report) {
                    label for="reason" { "What is wrong with it?" }
                    select #reason name="reason" {
                        option value="illegal" { "It is against the law" }
                        option value="personal" { "It shows private data" }
                        option value="malware" { "It harms computers" }
                        option value="spam" { "It is spam" }
                        option value="other" { "Something else" }
                    }
                    label for="details" { "What should we know? " span.aside { "(optional)" } }
                    textarea #details name="details" rows="3" maxlength="2000" {}
                    button type="submit" { "Send report" }
                }
            }
        }
    }
}
