//! The pages of the paste service: view models in, markup out.
//!
//! # Invariants
//! - Pure functions. No database, no request, no clock: everything on a page comes from its model, so
//!   every page can be viewed with sample models (`cargo run -p pastes --example pages`).
//! - The template escapes every value; only [`crate::highlight`] brings its own HTML.
//! - Nothing is inline and nothing is loaded from another host: all pages use
//!   [`PAGE_CSP`](leasehold_http::headers::PAGE_CSP), without exceptions.
//! - Pages work without scripts. The script adds copying, shortcuts and themes.
//!
//! # What the forms send
//! All are `POST`, and all that change something are sent to our own host only:
//!
//! | form | to | encoding | fields |
//! |---|---|---|---|
//! | [`create()`] | `/` | multipart | `content`, `file` (optional), `expires` (`1d`), `lang`, `alias`, `burn` (`1`), `remember` (`1`), `create_token` (of a private service), `key` (from the script: the same key is the same paste), `page` (`1`: a user sent it, respond with a page) |
//! | [`burn_confirm()`] | `/{code}/burn` | urlencoded | `as` (`page` or `download`) |
//! | delete, on several pages | [`Links::delete`] | urlencoded | `token`; on [`mine()`] `paste` instead: the owner's cookie decides |
//! | report, on [`paste()`] | [`Links::report`] | urlencoded | `paste` (the identity of the paste that the page showed), `reason`, `details` |
//!
//! # What can go wrong
//! - A browser sends CR LF for every line end of a text box, also for a pasted LF. Pass `content`
//!   through [`unix_lines`], or every paste from a browser differs from its source.
//! - A browser sends an empty `file` part, without file name, if the user chose none.

mod burn;
mod create;
mod error;
mod layout;
mod mine;
pub mod model;
mod not_found;
mod parts;
mod view;
mod waiting;

#[cfg(test)]
mod tests;

pub use burn::{burn_confirm, burnt};
pub use create::{create, unix_lines};
pub use error::{done, error};
pub use mine::mine;
pub use model::*;
pub use not_found::not_found;
pub use view::{paste, with_created};
pub use waiting::waiting;
