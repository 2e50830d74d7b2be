//! Clients that are slow on purpose, and too many of them.

use std::time::Duration;

use pastes::http::ServerLimits;
use reqwest::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Site, listen, long_limits, settings};

/// Limits short enough for a test to wait for.
fn short() -> ServerLimits {
    ServerLimits {
        head: Duration::from_millis(300),
        body: Duration::from_millis(500),
        stall: Duration::from_millis(500),
        ..long_limits()
    }
}

/// The same limits, except that the head of a request may take long.
fn short_after_the_head() -> ServerLimits {
    ServerLimits { head: long_limits().head, ..short() }
}

/// Fails the test if `work` takes longer than two minutes.
async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work)
        .await
        .unwrap_or_else(|_| panic!("{what} does not end"))
}

#[tokio::test]
async fn h11_slow_head_is_cut_off() {
    let site = Site::with(settings(), short()).await;
    let mut stream = site.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let dripping = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if writing.write_all(b"X-A: b\r\n").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let closed = async {
        let mut received = Vec::new();
        let _ = reading.read_to_end(&mut received).await;
    };
    ends("a dripping head", async {
        tokio::select! { () = dripping => {}, () = closed => {} }
    })
    .await;
}

#[tokio::test]
async fn h11_idle_connections_are_closed_and_free_their_slots() {
    let site = Site::with(settings(), ServerLimits { connections: 4, ..short() }).await;
    let mut idle = Vec::new();
    for _ in 0..12 {
        idle.push(site.connect().await);
    }
    // Queued behind all of them: served as soon as they are closed, unless it is slow itself.
    crate::fixture::until(async || {
        let response = ends("waiting", site.get("/healthz").send()).await;
        response.is_ok_and(|response| response.status() == StatusCode::OK)
    })
    .await;
    for mut stream in idle {
        ends("an idle connection", listen(&mut stream)).await;
    }
}

/// Returns the number of connections that the kernel has accepted and the server has not, from the
/// kernel's own table.
#[cfg(target_os = "linux")]
fn in_the_queue(address: std::net::SocketAddr) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", address.port());
    let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.len() > 4 && row[1].ends_with(&port) && row[3] == "0A")?;
    u64::from_str_radix(row[4].split(':').nth(1)?, 16).ok()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn h11_clients_beyond_the_limit_wait_for_a_connection() {
    let limits = ServerLimits { connections: 2, ..long_limits() };
    let site = Site::with(settings(), limits).await;
    let first = site.connect().await;
    let _second = site.connect().await;
    crate::fixture::until(async || in_the_queue(site.address) == Some(0)).await;
    let third = tokio::spawn(site.get("/healthz").send());
    crate::fixture::until(async || in_the_queue(site.address) == Some(1)).await;
    drop(first);
    let response = ends("waiting for a place", third).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn h11_missing_body_is_refused_after_its_time_limit() {
    let site = Site::with(settings(), short_after_the_head()).await;
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome";
    let response = ends("a missing body", site.speak(head.as_bytes())).await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("connection: close"), "{response}");
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 0);
}

#[tokio::test]
async fn h11_slow_body_is_refused_after_its_time_limit() {
    let site = Site::with(settings(), short_after_the_head()).await;
    let mut stream = site.connect().await;
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let dripping = async {
        while writing.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<String>().await
    };
    let responded = async {
        let mut received = vec![0; 4096];
        let length = reading.read(&mut received).await.unwrap_or(0);
        String::from_utf8_lossy(&received[..length]).into_owned()
    };
    let response = ends("a dripping body", async {
        tokio::select! { response = responded => response, never = dripping => never }
    })
    .await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

#[tokio::test]
async fn h11_endless_chunks_are_cut_off() {
    let site =
        Site::with(pastes::Settings { max_size: 100_000, ..settings() }, long_limits()).await;
    let mut stream = site.connect().await;
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
    let flooding = async {
        let mut sent = 0_u64;
        while writing.write_all(chunk.as_bytes()).await.is_ok() {
            sent += 0x2000;
            assert!(sent < 1 << 30, "a gigabyte was accepted");
        }
        std::future::pending::<String>().await
    };
    let responded = async {
        let mut received = vec![0; 4096];
        let length = reading.read(&mut received).await.unwrap_or(0);
        String::from_utf8_lossy(&received[..length]).into_owned()
    };
    let response = ends("an endless body", async {
        tokio::select! { response = responded => response, never = flooding => never }
    })
    .await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 0);
}

#[tokio::test]
async fn h11_too_many_headers_are_refused() {
    let site = Site::new().await;
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(20_000));
    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n");
    let path = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(20_000));
    for request in [long, many, path] {
        let response = ends("a flood of headers", site.speak(request.as_bytes())).await;
        let status = response.split(' ').nth(1).unwrap_or("closed");
        assert!(matches!(status, "431" | "414" | "closed"), "{response}");
    }
    let fits = format!(
        "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: {}\r\n\r\n",
        "x".repeat(12_000)
    );
    assert!(site.speak(fits.as_bytes()).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn h11_client_that_does_not_read_its_response_is_cut_off() {
    let most = 32 * 1024 * 1024;
    let site = Site::with(
        pastes::Settings { max_size: most, ..settings() },
        ServerLimits { connections: 1, ..short_after_the_head() },
    )
    .await;
    let code = site
        .fixture
        .pastes
        .create(pastes::NewPaste { content: vec![b'x'; most].into(), ..Default::default() })
        .await
        .unwrap()
        .code;
    site.fixture.work().await;
    let mut stream = site.connect().await;
    let request = format!("GET /raw/{code} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    // It reads nothing, and holds the only slot. Another client must still be served.
    let response = ends("a stalled response", site.get("/healthz").send()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    drop(stream);
}

#[tokio::test]
async fn stop_lets_running_requests_end_and_accepts_no_new_ones() {
    let mut site = Site::with(settings(), long_limits()).await;
    let mut running = site.connect().await;
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel";
    running.write_all(head).await.unwrap();
    // The request has begun once a later connection got its response.
    assert_eq!(site.get("/healthz").send().await.unwrap().status(), StatusCode::OK);
    site.stop();
    crate::fixture::until(async || tokio::net::TcpStream::connect(site.address).await.is_err())
        .await;
    running.write_all(b"lo").await.unwrap();
    let response = ends("the last request", listen(&mut running)).await;
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    ends("the server", site.serving.take().unwrap()).await.unwrap();
}
