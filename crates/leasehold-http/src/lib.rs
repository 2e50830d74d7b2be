//! The HTTP side that all services share; it knows nothing about what a service does.
//!
//! In the order in which a request meets the modules:
//! - [`server`] listens, counts connections, and closes those that stall;
//! - [`middleware`] wraps every request and writes panics, timeouts and [`problems`] in the client's
//!   format;
//! - [`limits`] counts requests per client; [`request`] reads path, query and token, [`cookies`] its
//!   cookies and whether a form is our own; [`body`] receives bodies within a budget, [`json`] those
//!   of programs;
//! - [`responses`] are responses that every service uses, [`openapi`] describes them; [`headers`] limit
//!   what a browser may do with one;
//! - [`mod@page`] wraps every page, [`theme`] has the common styles; [`assets`] are files inside the
//!   executable.
//!
//! [`tls`] is for clients: it selects their cryptography.

#![forbid(unsafe_code)]

pub mod assets;
pub mod body;
mod budget;
mod connections;
pub mod cookies;
pub mod headers;
pub mod json;
pub mod limits;
pub mod middleware;
pub mod openapi;
pub mod page;
pub mod problems;
pub mod request;
pub mod responses;
pub mod server;
mod stall;
pub mod theme;
pub mod tls;
