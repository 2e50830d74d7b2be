//! What one response may cost, and the responses of one address together.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use pastes::{NewPaste, ShortCode};
use reqwest::StatusCode;
use tower::ServiceExt;

use super::{BROWSER, Site};
use crate::fixture::until;

const MIB: usize = 1024 * 1024;

/// One of the characters that need the most HTML.
const REORDERS: &str = "\u{202e}";

/// Sends a request as if it came from this address. The response is read no further than its caller
/// reads it.
async fn ask(router: &Router, from: u8, method: &str, path: &str) -> Response {
    router.clone().oneshot(request(from, method, path, Body::empty())).await.unwrap()
}

fn request(from: u8, method: &str, path: &str, body: Body) -> Request {
    let mut request = Request::new(body);
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert("accept", BROWSER.parse().unwrap());
    request.headers_mut().insert("sec-fetch-site", "same-origin".parse().unwrap());
    let peer = SocketAddr::new(IpAddr::from([192, 0, 2, from]), 1000);
    request.extensions_mut().insert(ConnectInfo(peer));
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request
}

async fn burning(site: &Site, content: &str) -> ShortCode {
    let new = NewPaste { content: content.to_owned().into(), burn: true, ..NewPaste::default() };
    site.fixture.pastes.create(new).await.unwrap().code
}

/// Sends a body that never ends from this address: one piece arrives, the rest does not.
fn stall(
    router: &Router,
    from: u8,
    path: &str,
    piece: Vec<u8>,
) -> tokio::task::JoinHandle<Response> {
    let first = futures_util::stream::iter([Ok::<_, std::io::Error>(piece)]);
    let body = Body::from_stream(first.chain(futures_util::stream::pending()));
    let request = request(from, "POST", path, body);
    tokio::spawn(router.clone().oneshot(request).map(Result::unwrap))
}

#[tokio::test]
async fn h22_bodies_count_for_the_address_that_sends_them() {
    let site = Site::new().await;
    for path in ["/", "/api/v1/pastes"] {
        let router = pastes::router(site.fixture.pastes.clone());
        let stalled: Vec<_> = (0..40).map(|_| stall(&router, 1, path, vec![b'x'; MIB])).collect();
        // The memory of one address is 32 MiB. Bodies that found none are refused.
        until(async || stalled.iter().filter(|one| one.is_finished()).count() == 8).await;
        let mut refused = Vec::new();
        for one in stalled {
            match one.is_finished() {
                true => refused.push(one.await.unwrap()),
                false => one.abort(),
            }
        }
        assert!(
            refused.iter().all(|one| one.status() == StatusCode::SERVICE_UNAVAILABLE),
            "{path}"
        );
        let other = stall(&router, 2, path, vec![b'x'; MIB]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!other.is_finished(), "{path}: another address has memory");
        other.abort();
    }
}

#[tokio::test]
async fn e40_page_ends_at_four_mebibytes_and_links_to_the_rest() {
    let site = Site::new().await;
    let text = REORDERS.repeat(MIB / REORDERS.len());
    let code = site.ready("", text.clone()).await;
    let page = site.get(&format!("/{code}")).header("accept", BROWSER).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.len() < 4 * MIB + 64 * 1024, "{}", page.len());
    assert!(page.contains("Only the beginning is shown."));
    assert!(page.contains(&format!("/raw/{code}\">Read all of it as raw text</a>")));
    let raw = site.get(&format!("/raw/{code}")).send().await.unwrap();
    assert_eq!(raw.text().await.unwrap(), text);
}

#[tokio::test]
async fn e40_burnt_text_that_is_too_large_for_a_page_is_downloaded_whole() {
    let site = Site::new().await;
    let large = REORDERS.repeat(MIB / REORDERS.len());
    for text in [large.as_str(), "short"] {
        let code = burning(&site, text).await;
        site.fixture.work().await;
        let burn = site.post(&format!("/{code}/burn")).header("accept", BROWSER);
        let burnt = burn.header("sec-fetch-site", "same-origin").send().await.unwrap();
        assert_eq!(burnt.status(), StatusCode::OK);
        let downloads = burnt.headers().contains_key("content-disposition");
        let body = burnt.text().await.unwrap();
        match text {
            "short" => assert!(!downloads && body.contains("short")),
            _ => assert!(downloads && body == text, "{}", body.len()),
        }
    }
}

#[tokio::test]
async fn e40_unread_responses_are_bounded_per_address() {
    let site = Site::new().await;
    let code = site.ready("", REORDERS.repeat(MIB / REORDERS.len())).await;
    let mut burns = Vec::new();
    for _ in 0..16 {
        burns.push(burning(&site, &REORDERS.repeat(70_000)).await);
    }
    site.fixture.work().await;
    let router = pastes::router(site.fixture.pastes.clone());
    let of_page = |path: String| vec![path; 48];
    let burn = |path: fn(&ShortCode) -> String| burns.iter().map(path).collect::<Vec<_>>();
    let kinds = [
        ("GET", of_page(format!("/{code}"))),
        ("GET", of_page(format!("/raw/{code}"))),
        ("GET", of_page(format!("/download/{code}"))),
        ("GET", of_page(format!("/api/v1/pastes/{code}"))),
        ("POST", burn(|code| format!("/{code}/burn"))),
    ];
    let kept = join_all(kinds.iter().zip(1_u8..).map(|((method, paths), from)| {
        let router = &router;
        async move {
            let mut kept = Vec::new();
            for path in paths {
                let response = ask(router, from, method, path).await;
                if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                    assert!(response.headers().contains_key("retry-after"));
                    return (kept, path);
                }
                assert_eq!(response.status(), StatusCode::OK, "{path}");
                kept.push(response);
            }
            panic!("{} responses of {method} {} are kept", kept.len(), paths[0]);
        }
    }))
    .await;
    for (((kept, path), (method, _)), from) in kept.into_iter().zip(&kinds).zip(1..) {
        let bytes: u64 = kept
            .iter()
            .map(|response| axum::body::HttpBody::size_hint(response.body()).lower())
            .sum();
        assert!(bytes < 33 * MIB as u64 && bytes > 20 * MIB as u64, "{path}: {bytes}");
        let other = ask(&router, 200 + from, "GET", &format!("/raw/{code}")).await;
        assert_eq!(other.status(), StatusCode::OK, "another address");
        drop(kept);
        // A paste that was not sent was not burnt either.
        let again = ask(&router, from, method, path).await;
        assert_eq!(again.status(), StatusCode::OK, "{path}");
    }
}
