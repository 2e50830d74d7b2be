//! The interface of a paste service in the benchmark: how to start it, and which requests to send.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::load::{Answer, Body};

/// A paste service under test.
pub trait Service: Send + Sync {
    fn name(&self) -> &'static str;

    /// What survives a power cut right after the response to a create, in one sentence.
    fn durability(&self) -> &'static str;

    /// What its page is, in a few words: the services differ.
    fn page_is(&self) -> &'static str;

    /// The program that listens on `127.0.0.1:port`. Its data goes into `dir`, which is empty; a
    /// service that keeps its data elsewhere continues with that data.
    fn command(&self, port: u16, dir: &Path) -> Result<Command>;

    /// A path that returns 200 once the service is up.
    fn ready(&self) -> &'static str {
        "/"
    }

    /// Where and how to post a paste, and the status of a stored one.
    fn create(&self) -> Create;

    /// Returns the name of a paste from the response to its creation.
    fn created(&self, answer: &Answer) -> Result<String>;

    fn raw(&self, code: &str) -> String;

    fn page(&self, code: &str) -> String;

    /// The number of pastes that one process takes before it is likely to fail.
    fn most_pastes(&self) -> Option<u64> {
        None
    }

    /// True: stop it with SIGTERM, so that it shuts down in order.
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
