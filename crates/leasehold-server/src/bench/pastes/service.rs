//! What the benchmark asks of a paste service: how to start it, and how to speak to it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::bench::load::{Answer, Body};

/// A paste service under test.
pub trait Service: Send + Sync {
    fn name(&self) -> &'static str;

    /// What survives a power cut right after a create was answered, in one sentence.
    fn durability(&self) -> &'static str;

    /// What the page is, in a few words: the services differ.
    fn page_is(&self) -> &'static str;

    /// The program that listens on `127.0.0.1:port`. Its data goes into `dir`, which is empty; a
    /// service that keeps its data elsewhere goes on with what it has.
    fn command(&self, port: u16, dir: &Path) -> Result<Command>;

    /// A path that is answered with 200 once the service is up.
    fn ready(&self) -> &'static str {
        "/"
    }

    /// Where and how a paste is posted, and the status that says that it was stored.
    fn create(&self) -> Create;

    /// The name of a paste, from the answer to its creation.
    fn created(&self, answer: &Answer) -> Result<String>;

    fn raw(&self, code: &str) -> String;

    fn page(&self, code: &str) -> String;

    /// How many pastes one process of it can be trusted to take before it fails.
    fn most_pastes(&self) -> Option<u64> {
        None
    }

    /// True: end it with SIGTERM and let it put things in order.
    fn ends_gently(&self) -> bool {
        false
    }
}

/// The request that creates a paste.
#[derive(Clone, Debug)]
pub struct Create {
    pub path: &'static str,
    pub body: Body,
    pub status: u16,
}
