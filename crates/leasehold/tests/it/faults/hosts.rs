//! Addresses that name several hosts.

use leasehold::{Enqueue, Leasehold};
use leasehold_testing::TestDatabase;
use tokio::net::TcpListener;

use crate::support::Note;

/// Returns a URL whose first host is `port` of 127.0.0.1.
fn url(database: &TestDatabase, port: u16) -> String {
    let direct = database.direct_url();
    let (scheme, query) = direct.split_once('?').expect("a query");
    let value = |key: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(key));
        pair.expect("given").to_owned()
    };
    format!(
        "{scheme}?host=127.0.0.1,{}&port={port},{}&user={}",
        value("host="),
        value("port="),
        value("user=")
    )
}

#[tokio::test]
async fn b13_host_that_accepts_connections_and_never_replies_does_not_hide_the_next() {
    let database = TestDatabase::new().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let engine = Leasehold::connect(&url(&database, port)).await.expect("the second host");
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
}

#[tokio::test]
async fn b13_host_that_refuses_connections_does_not_hide_the_next() {
    let database = TestDatabase::new().await;
    let port = {
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        gone.local_addr().expect("an address").port()
    };
    let engine = Leasehold::connect(&url(&database, port)).await.expect("the second host");
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
}
