//! The frame of every page.

use leasehold_http::page::{Site, help, keys_item, theme_item};
use maud::{Markup, html};

use crate::assets::ASSETS;
use crate::model::User;

static SITE: Site = Site {
    name: "notes",
    home: "/",
    assets: &ASSETS,
    style: "notes.css",
    script: "notes.js",
    listed: true,
};

/// Returns a page with one column of text.
pub fn page(title: &str, user: Option<&User>, main: &Markup) -> Markup {
    around(title, user, &html! { main #main tabindex="-1" { (main) } })
}

/// Returns the frame around a `main`.
pub fn around(title: &str, user: Option<&User>, main: &Markup) -> Markup {
    let items = html! {
        li {
            @match user {
                Some(user) => a href="/account" { (user.name) },
                None => a href="/account" { "Sign up / Log in" },
            }
        }
        (theme_item(true))
        (keys_item())
    };
    let body = html! {
        (SITE.header(&items))
        (main)
        footer {
            p {
                a href="/openapi.json" { "API" }
            }
        }
        (help(&html! {}))
    };
    SITE.page(title, &html! {}, &body)
}
