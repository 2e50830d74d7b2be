//! What surrounds every page.

use maud::{DOCTYPE, Markup, html};

use crate::assets::ASSETS;

/// Where a page is, for the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    New,
    Mine,
    Elsewhere,
}

/// A page that asks again by itself.
pub struct Refresh {
    pub seconds: u64,
    /// Only where there are no scripts: the script asks more often, and looks first whether
    /// somebody is busy on the page.
    pub without_scripts: bool,
}

/// A page's head and its content.
pub struct Page<'a> {
    pub title: &'a str,
    pub place: Place,
    /// When the page asks again.
    pub refresh: Option<Refresh>,
    /// Wide pages give code all the room there is.
    pub wide: bool,
    pub main: Markup,
}

impl<'a> Page<'a> {
    pub fn new(title: &'a str, main: Markup) -> Self {
        Self { title, place: Place::Elsewhere, refresh: None, wide: false, main }
    }

    pub fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    pub fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    pub fn refresh(self, refresh: Refresh) -> Self {
        Self { refresh: Some(refresh), ..self }
    }

    pub fn render(self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                (head(&self))
                body {
                    a.skip href="#main" { "Skip to the content" }
                    (header(self.place))
                    main #main tabindex="-1" .wide[self.wide] { (self.main) }
                    footer {
                        p {
                            "Pastes end when they say they end. "
                            a href="/openapi.json" { "API" }
                        }
                    }
                    p #say .visually-hidden role="status" aria-live="polite" {}
                    (help())
                }
            }
        }
    }
}

fn head(page: &Page<'_>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            title { (page.title) " · pastes" }
            meta name="viewport" content="width=device-width, initial-scale=1";
            // A paste's link is its secret: it must not travel in Referer, nor into search engines.
            meta name="referrer" content="same-origin";
            meta name="robots" content="noindex, nofollow";
            meta name="color-scheme" content="light dark";
            @match &page.refresh {
                Some(refresh) if refresh.without_scripts => {
                    noscript { meta http-equiv="refresh" content=(refresh.seconds); }
                }
                Some(refresh) => meta http-equiv="refresh" content=(refresh.seconds);,
                None => {}
            }
            // Before the stylesheet and not deferred: the chosen theme is set before anything is
            // painted, or a dark page would flash white.
            script src=(ASSETS.href("theme.js")) {}
            link rel="stylesheet" href=(ASSETS.href("paste.css"));
            link rel="icon" type="image/svg+xml" href=(ASSETS.href("icon.svg"));
            script src=(ASSETS.href("paste.js")) defer {}
        }
    }
}

fn header(place: Place) -> Markup {
    let here = |own: Place| (own == place).then_some("page");
    html! {
        header {
            a.mark href="/" { span.mark-sign aria-hidden="true" {} "pastes" }
            nav aria-label="Main" {
                ul {
                    li {
                        a href="/" aria-current=[here(Place::New)] aria-keyshortcuts="n"
                            data-key="n" data-does="New paste" { "New" }
                    }
                    li {
                        a href="/mine" aria-current=[here(Place::Mine)] aria-keyshortcuts="m"
                            data-key="m" data-does="My pastes" { "Mine" }
                    }
                    li {
                        button.quiet #theme type="button" hidden aria-keyshortcuts="t"
                            data-key="t" data-does="Change the theme" {
                            span.theme-sign aria-hidden="true" {}
                            span.visually-hidden { "Theme" }
                        }
                    }
                    li {
                        button.quiet #keys type="button" hidden aria-keyshortcuts="?"
                            data-key="?" data-does="Show these shortcuts" aria-haspopup="dialog" {
                            span aria-hidden="true" { "?" }
                            span.visually-hidden { "Keyboard shortcuts" }
                        }
                    }
                }
            }
        }
    }
}

/// Filled and opened by the script, which knows what the page can do.
fn help() -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keyboard" }
            dl #help-list {}
            p {
                label.check {
                    input #single-keys type="checkbox" checked;
                    " Use single keys"
                }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}
