//! The pages of the service: models in, markup out.
//!
//! # Invariants
//! - Pure functions. No database, no request: what a page shows is in its model.
//! - Every value is escaped by the template. Nothing is inline and nothing comes from another host.
//! - The text and its notes can be read, searched and filtered without scripts. Writing needs them.

mod account;
mod layout;
mod margin;
mod note;
mod reader;
mod text;

pub use account::{Account, account, welcome};
pub use margin::{Kept, Margin, Tab, margin};
pub use note::note;
pub use reader::reader;

use maud::{Markup, html};

/// Returns the page for a failed request.
pub fn failure(status: u16, detail: &str) -> Markup {
    let title = if status == 404 { "Not found" } else { "Request failed" };
    let main = html! {
        section.panel {
            h1 { (title) }
            p { (detail) }
            p { a href="/" { "Back to the text" } }
        }
    };
    layout::page(title, None, &main)
}
