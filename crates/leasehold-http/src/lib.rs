//! What the HTTP side of every service needs: none of it knows what the service is about.
//!
//! In the order in which a request meets it:
//! - [`server`] listens: connections are counted, and none of them can hold on for ever;
//! - [`frame`] surrounds every answer: panics, slowness and [`failures`] are written for whoever asks;
//! - [`limits`] counts requests for each client; [`request`] says what is asked, [`cookies`] whose
//!   browser it is and whether a form is our own; [`body`] receives bodies within a budget, [`json`]
//!   those of programs;
//! - [`answers`] are those that every service gives, [`openapi`] describes them; [`headers`] guard
//!   what a browser may do with one;
//! - [`mod@page`] surrounds every page, [`look`] is how all of them look; [`assets`] are files inside
//!   the executable.

#![forbid(unsafe_code)]

pub mod answers;
pub mod assets;
pub mod body;
pub mod cookies;
pub mod failures;
pub mod frame;
pub mod headers;
pub mod json;
pub mod limits;
pub mod look;
pub mod openapi;
pub mod page;
mod patience;
pub mod request;
pub mod server;
