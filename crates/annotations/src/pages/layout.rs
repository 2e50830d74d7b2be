//! What surrounds every page.

use maud::{DOCTYPE, Markup, html};

use crate::assets::ASSETS;
use crate::model::User;

/// A page of words.
pub fn page(title: &str, user: Option<&User>, main: Markup) -> Markup {
    around(title, user, html! { main #main tabindex="-1" { (main) } })
}

/// The frame around a `main`.
pub fn around(title: &str, user: Option<&User>, main: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · notes" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="same-origin";
                meta name="color-scheme" content="light dark";
                // Before the stylesheet and not deferred: the chosen theme is set before anything
                // is painted, or a dark page would flash white.
                script src=(ASSETS.href("theme.js")) {}
                link rel="stylesheet" href=(ASSETS.href("notes.css"));
                link rel="icon" type="image/svg+xml" href=(ASSETS.href("icon.svg"));
                script src=(ASSETS.href("notes.js")) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (header(user))
                (main)
                footer {
                    p {
                        "A note that was saved stays saved. "
                        a href="/openapi.json" { "API" }
                    }
                }
                p #say .visually-hidden role="status" aria-live="polite" {}
                (help())
            }
        }
    }
}

fn header(user: Option<&User>) -> Markup {
    html! {
        header {
            a.mark href="/" { span.mark-sign aria-hidden="true" {} "notes" }
            nav aria-label="Main" {
                ul {
                    li {
                        @match user {
                            Some(user) => a href="/account" { (user.name) },
                            None => a href="/account" { "Sign up / Log in" },
                        }
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
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}
