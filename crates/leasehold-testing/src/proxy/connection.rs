//! One client and its server connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::lane::{Direction, Lane};
use super::rules::Rules;
use super::session::Session;
use super::upstream::{Stream, Upstream};
use super::wire::{Startup, read_startup};
use super::{client_side, server_side};

pub(super) async fn accept(
    listener: std::net::TcpListener,
    upstream: Upstream,
    rules: Arc<Rules>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    // Dropping this ends all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Out of descriptors, or a client that left at once: the next accept may succeed.
                let Ok((client, _)) = accepted else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let resets = rules.resets();
                if let Some(rule) = rules.at_connecting() {
                    let _ = client.set_zero_linger();
                    rules.fire(rule);
                    continue;
                }
                connections.spawn(serve(client, upstream.clone(), rules.clone(), resets));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(
    mut client: TcpStream,
    upstream: Upstream,
    rules: Arc<Rules>,
    mut resets: watch::Receiver<u64>,
) {
    let _counted = Counted::new(&rules);
    let _ = client.set_nodelay(true);
    tokio::select! {
        _ = resets.changed() => {
            let _ = client.set_zero_linger();
        }
        _ = carry(&mut client, &upstream, &rules) => {}
    }
}

async fn carry(client: &mut TcpStream, upstream: &Upstream, rules: &Rules) -> io::Result<()> {
    let session = Session::default();
    let lane = Lane { session: &session, rules, direction: Direction::ToServer };
    lane.wait_for_passage().await;
    let Some((server, startup)) = open(client, upstream).await? else {
        return Ok(());
    };
    let (from_client, to_client) = client.split();
    let (from_server, mut to_server) = tokio::io::split(server);
    session.asked(false);
    lane.write(&startup, &mut to_server).await?;
    // Whichever side ends, the other one ends with it.
    tokio::select! {
        ended = client_side::forward(BufReader::new(from_client), to_server, &session, rules) => ended,
        ended = server_side::forward(BufReader::new(from_server), to_client, &session, rules) => ended,
    }
}

/// Reads the client's first message and connects to the server. Returns `None` if there is no session
/// to forward.
async fn open(
    client: &mut TcpStream,
    upstream: &Upstream,
) -> io::Result<Option<(Box<dyn Stream>, Vec<u8>)>> {
    loop {
        match read_startup(client).await? {
            Startup::Encryption => client.write_all(b"N").await?,
            Startup::Session(bytes) => return Ok(Some((upstream.connect().await?, bytes))),
            Startup::Cancel(bytes) => {
                let mut server = upstream.connect().await?;
                server.write_all(&bytes).await?;
                // The server closes when it has handled the request, and the client waits for that.
                let _ = server.read(&mut [0; 1]).await;
                return Ok(None);
            }
        }
    }
}

/// Counts a connection while it is open, however it ends.
struct Counted<'a>(&'a Rules);

impl<'a> Counted<'a> {
    fn new(rules: &'a Rules) -> Self {
        rules.connected();
        Self(rules)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}
