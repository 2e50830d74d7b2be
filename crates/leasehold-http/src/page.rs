//! The layout of every page: its head, its header, and the controls that scripts activate.
//!
//! # Invariants
//! - Nothing is inline and nothing comes from another host: pages live under
//!   [`PAGE_CSP`](crate::headers::PAGE_CSP) or a stricter policy.
//! - Controls that need a script are hidden until the script shows them.

use std::sync::LazyLock;

use maud::{DOCTYPE, Markup, html};

use crate::assets::Assets;

/// The pages of one service.
pub struct Site {
    /// In every title, and beside the logo: `pastes`.
    pub name: &'static str,
    /// Where the logo leads.
    pub home: &'static str,
    /// Contains `theme.js`, `icon.svg`, and the two files below.
    pub assets: &'static LazyLock<Assets>,
    pub style: &'static str,
    pub script: &'static str,
    /// Search engines may index the pages.
    pub listed: bool,
}

impl Site {
    /// Renders a whole page; `head` is added to the usual head.
    pub fn page(&self, title: &str, head: &Markup, body: &Markup) -> Markup {
        let href = |name| self.assets.href(name);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    title { (title) " · " (self.name) }
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    // A link can be a secret: it must not travel in Referer, nor into search engines.
                    meta name="referrer" content="same-origin";
                    @if !self.listed { meta name="robots" content="noindex, nofollow"; }
                    meta name="color-scheme" content="light dark";
                    (head)
                    // Before the stylesheet and not deferred: the chosen theme is set before anything
                    // is painted, or a dark page would flash white.
                    script src=(href("theme.js")) {}
                    link rel="stylesheet" href=(href(self.style));
                    link rel="icon" type="image/svg+xml" href=(href("icon.svg"));
                    script src=(href(self.script)) defer {}
                }
                body {
                    a.skip href="#main" { "Skip to content" }
                    (body)
                }
            }
        }
    }

    /// Renders the logo and the navigation; `items` are entries of a list.
    pub fn header(&self, items: &Markup) -> Markup {
        html! {
            header {
                a.mark href=(self.home) { span.mark-sign aria-hidden="true" {} (self.name) }
                nav aria-label="Main" { ul { (items) } }
            }
        }
    }
}

/// Renders the theme button; with a shortcut on pages that have [`help`].
pub fn theme_item(key: bool) -> Markup {
    let (key, does) = (key.then_some("t"), key.then_some("Change the theme"));
    html! {
        li {
            button.quiet #theme type="button" hidden aria-keyshortcuts=[key] data-key=[key] data-does=[does] {
                span.theme-sign aria-hidden="true" {}
                span.visually-hidden { "Theme" }
            }
        }
    }
}

/// Renders the button that opens [`help`].
pub fn keys_item() -> Markup {
    html! {
        li {
            button.quiet #keys type="button" hidden aria-keyshortcuts="?"
                data-key="?" data-does="Show shortcuts" aria-haspopup="dialog" {
                span aria-hidden="true" { "?" }
                span.visually-hidden { "Keyboard shortcuts" }
            }
        }
    }
}

/// Renders the foot of a page: a live region for screen readers, and the dialog of shortcuts. The
/// script fills and opens the dialog, because it knows what the page can do.
pub fn help(choices: &Markup) -> Markup {
    html! {
        p #announcements .visually-hidden role="status" aria-live="polite" {}
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keyboard shortcuts" }
            dl #help-list {}
            (choices)
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}
