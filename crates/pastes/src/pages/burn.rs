//! Pastes that can be read once.

use maud::{Markup, html};

use super::layout::Page;
use super::model::{BurnConfirm, Burnt};
use super::{parts, view};

/// Asks before it opens the paste: link previews follow links, but they press no buttons.
pub fn burn_confirm(confirm: &BurnConfirm) -> Markup {
    let main = html! {
        @if let Some(created) = &confirm.created { (parts::created(&confirm.links, created)) }
        section.panel.burn aria-labelledby="burn-title" {
            h1 #burn-title { "This paste burns after reading" }
            p {
                "When you open it, it is deleted, for you and for all other readers. "
                "Reloading the page does not bring it back."
                @if confirm.created.is_some() {
                    " You just created it: leave it unread for its reader."
                }
            }
            dl.facts {
                @if let Some(language) = &confirm.language {
                    div { dt { "Language" } dd { (parts::language(language)) } }
                }
                div { dt { "Length" } dd { (parts::size(confirm.size)) } }
                div { dt { "Expires unread" } dd { (parts::expires(confirm.life, confirm.expires_at)) } }
            }
            form.inline method="post" action=(confirm.links.burn) {
                // The paste that the reader was asked about: by the time of the click, another paste
                // may have the name.
                input type="hidden" name="paste" value=(confirm.paste_id);
                button.primary type="submit" name="as" value="page" { "Read now" }
                button type="submit" name="as" value="download" { "Download now" }
            }
            p.hint { "A paste that is not text, or too long for a page, is downloaded in both cases." }
        }
    };
    Page::new("Burn after reading", main).render()
}

/// Shows the text of a paste that was just burnt.
pub fn burnt(burnt: &Burnt) -> Markup {
    let text = &burnt.content;
    let title = format!("Paste {}", burnt.code);
    let main = html! {
        div.paste-head {
            h1 { span.visually-hidden { "Paste " } (burnt.code) }
            dl.facts {
                div { dt { "Language" } dd { (text.language.label) } }
                div { dt { "Length" } dd { (parts::lines(text.lines)) ", " (parts::size(burnt.size)) } }
            }
            ul.tools aria-label="Actions" {
                (view::copy_text(None))
                li {
                    button.quiet #wrap type="button" hidden aria-pressed="false" data-key="w"
                        aria-keyshortcuts="w" data-does="Wrap long lines" { "Wrap" }
                }
                li {
                    button.quiet type="button" hidden data-save="#code"
                        data-name={ (burnt.code) ".txt" } data-key="d" aria-keyshortcuts="d"
                        data-does="Save as a file" { "Save as file" }
                }
            }
        }
        p.notice {
            strong { "This paste is deleted now. " }
            "This page shows it for the last time: copy or save what you need."
        }
        (view::notices(text, None))
        (view::code(text))
    };
    Page::new(&title, main).wide().render()
}
