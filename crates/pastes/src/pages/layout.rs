//! The layout of every page.

use leasehold_http::page::{Site, help, keys_item, theme_item};
use maud::{Markup, html};

use crate::assets::ASSETS;

static SITE: Site = Site {
    name: "pastes",
    home: "/",
    assets: &ASSETS,
    style: "paste.css",
    script: "paste.js",
    listed: false,
};

/// The navigation entry of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nav {
    New,
    Mine,
    Elsewhere,
}

/// How a page reloads itself.
pub struct Refresh {
    pub seconds: u64,
    /// Only without scripts: the script polls more often, and first checks whether the user is busy on
    /// the page.
    pub without_scripts: bool,
}

impl Refresh {
    fn tag(self) -> Markup {
        let tag = html! { meta http-equiv="refresh" content=(self.seconds); };
        match self.without_scripts {
            true => html! { noscript { (tag) } },
            false => tag,
        }
    }
}

/// A page's head and its content.
pub struct Page<'a> {
    pub title: &'a str,
    pub nav: Nav,
    /// When the page reloads.
    pub refresh: Option<Refresh>,
    /// Wide pages give code the full width.
    pub wide: bool,
    pub main: Markup,
}

impl<'a> Page<'a> {
    pub fn new(title: &'a str, main: Markup) -> Self {
        Self { title, nav: Nav::Elsewhere, refresh: None, wide: false, main }
    }

    pub fn at(self, nav: Nav) -> Self {
        Self { nav, ..self }
    }

    pub fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    pub fn refresh(self, refresh: Refresh) -> Self {
        Self { refresh: Some(refresh), ..self }
    }

    pub fn render(self) -> Markup {
        let here = |nav: Nav| (nav == self.nav).then_some("page");
        let items = html! {
            li {
                a href="/" aria-current=[here(Nav::New)] aria-keyshortcuts="n"
                    data-key="n" data-does="New paste" { "New" }
            }
            li {
                a href="/mine" aria-current=[here(Nav::Mine)] aria-keyshortcuts="m"
                    data-key="m" data-does="My pastes" { "My pastes" }
            }
            (theme_item(true))
            (keys_item())
        };
        let single_keys = html! {
            p {
                label.check {
                    input #single-keys type="checkbox" checked;
                    " Use single-key shortcuts"
                }
            }
        };
        let body = html! {
            (SITE.header(&items))
            main #main tabindex="-1" .wide[self.wide] { (self.main) }
            footer {
                p {
                    "Pastes are deleted when they expire. "
                    a href="/openapi.json" { "API" }
                }
            }
            (help(&single_keys))
        };
        SITE.page(self.title, &self.refresh.map(Refresh::tag).unwrap_or_default(), &body)
    }
}
