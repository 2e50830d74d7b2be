//! A load tool: HTTP/1.1 over raw TCP, the same for every service that is measured.
//!
//! In reading order: [`Source`] makes the requests, [`Connection`] sends them one at a time and
//! reads the [`answer`]s, [`run`] keeps a number of connections busy on one thread of its own.
//!
//! # What is true
//! - Closed loop: each connection sends its next request when the answer to the last one is read.
//!   With a [`Pace`] the loop is open: a request is due at its own time, and its latency counts
//!   from there, so that a server that stalls cannot hide it by slowing the tool down.
//! - Any answer but the expected status is an error, and one error fails the run: a server is not
//!   fast because it refuses.
//! - One thread with a runtime of its own. The server under test has the rest of the machine.
//!
//! # What can go wrong
//! - The tool itself is the limit: with two cores, beyond some 50,000 requests a second. It is
//!   then the limit for every service alike.

mod answer;
mod connection;
mod measured;
mod run;
mod source;

pub use answer::Answer;
pub use connection::Connection;
pub use measured::Measured;
pub use run::{Load, Pace, Until, run};
pub use source::{Body, Creates, Reads, Source, get};
