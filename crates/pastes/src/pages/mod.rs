//! Everything that people see of the paste service: view models in, markup out.
//!
//! # What is true
//! - Pure functions. No database, no request, no clock: what a page shows is in its model, so every
//!   page can be looked at with made-up models (`cargo run -p pastes --example pages`).
//! - Every value is escaped by the template; only [`crate::highlight`] brings its own HTML.
//! - Nothing is inline and nothing comes from another host: pages live under
//!   [`PAGE_CSP`](leasehold_http::headers::PAGE_CSP), without exceptions.
//! - Pages work without scripts. The script adds comfort: copying, shortcuts, themes.
//!
//! # What the forms send
//! All are `POST`, and all that change something go to our own host only:
//!
//! | form | to | encoding | fields |
//! |---|---|---|---|
//! | [`create()`] | `/` | multipart | `content`, `file` (optional), `expires` (`1d`), `lang`, `alias`, `burn` (`1`), `remember` (`1`), `key` (from the script: the same key is the same paste), `page` (`1`: a person, answer with a page) |
//! | [`burn_confirm()`] | `/{code}/burn` | urlencoded | `as` (`page` or `download`) |
//! | delete, on several pages | [`Links::delete`] | urlencoded | `token` (absent on [`mine()`]: the owner's cookie decides) |
//! | report, on [`paste()`] | [`Links::report`] | urlencoded | `reason`, `details` |
//!
//! # What can go wrong
//! - A browser sends CR LF for every line end of a text box, whatever was pasted. Give `content`
//!   to [`unix_lines`], or every paste from a browser has other bytes than its source.
//! - A browser sends an empty `file` part, without file name, when none was chosen.

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
pub use parts::span_words;
pub use view::paste;
pub use waiting::waiting;
