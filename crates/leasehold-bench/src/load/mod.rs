//! A load generator: HTTP/1.1 over raw TCP, the same for every measured service.
//!
//! In reading order: [`Source`] makes the requests, [`Connection`] sends them one at a time and
//! reads the [`answer`]s, [`mod@run`] keeps a number of connections busy on its own thread.
//!
//! # Invariants
//! - Closed loop: each connection sends its next request when it has read the last response.
//!   With a [`Rate`] the loop is open: a request is due at its own time, and its latency counts
//!   from there, so that a server that stalls cannot hide it by slowing the load generator down.
//! - Any response but the expected status is an error, and one error fails the run: a server that
//!   refuses requests must not look fast.
//! - One thread with its own runtime. The server under test has the rest of the machine.
//!
//! # What can go wrong
//! - The load generator itself is the limit: with two cores, beyond some 50,000 requests per second.
//!   It then limits every service alike.

mod answer;
mod connection;
mod measured;
mod run;
mod source;

pub use answer::Answer;
pub use connection::Connection;
pub use measured::Measured;
pub use run::{Load, Rate, Until, run};
pub use source::{Body, Creates, Reads, Source, get};
