//! Creates pastes while the sweep runs: at a steady rate, over HTTP, latency from when each was due.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::layout::Layout;
use crate::load::{self, Body, Creates, Load, Measured, Rate, Source, Until};

/// Enough that a slow response does not delay the next request.
const CONNECTIONS: usize = 64;

pub struct Creator {
    /// Stops the load on drop: it runs on its own thread.
    stop: DropGuard,
    running: JoinHandle<Result<Measured>>,
}

impl Creator {
    pub fn start(address: SocketAddr, layout: Layout, per_second: f64) -> Self {
        let stop = CancellationToken::new();
        let load = Load {
            address,
            connections: CONNECTIONS,
            expect: 201,
            until: Until::Cancelled(stop.clone()),
            warm_up: std::time::Duration::ZERO,
            rate: Some(Rate { per_second }),
            keep: false,
        };
        let fresh = Creates::new(address, "/", &Body::Raw, 1024, rand::random::<u64>());
        let source = Mixed { address, fresh, layout, number: 0 };
        Self { stop: stop.drop_guard(), running: tokio::spawn(load::run(load, Box::new(source))) }
    }

    pub async fn stop(self) -> Result<Measured> {
        drop(self.stop);
        self.running.await?
    }
}

/// Three of ten creates have the bytes of a content that is being swept: a new reference races the
/// last old one, and the counter must still be right.
struct Mixed {
    address: SocketAddr,
    fresh: Creates,
    layout: Layout,
    number: u64,
}

impl Source for Mixed {
    fn next(&mut self, request: &mut Vec<u8>) {
        self.number += 1;
        if self.number % 10 >= 3 {
            return self.fresh.next(request);
        }
        let bytes = self.layout.bytes(1 + self.number * 7919 % self.layout.groups());
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            bytes.len()
        );
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(&bytes);
    }
}
