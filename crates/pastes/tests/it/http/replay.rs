//! Requests that are sent twice.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Site, header};

#[tokio::test]
async fn repeated_request_returns_the_same_paste_in_every_format() {
    let site = Site::new().await;
    let raw =
        async || site.post("/").header("idempotency-key", "k1").body("x").send().await.unwrap();
    let form = async || {
        let body = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--b--\r\n";
        let kind = "multipart/form-data; boundary=b";
        let request = site.post("/").header("content-type", kind).header("idempotency-key", "k2");
        request.body(body).send().await.unwrap()
    };
    for (first, again) in [(raw().await, raw().await), (form().await, form().await)] {
        assert_eq!((first.status(), again.status()), (StatusCode::CREATED, StatusCode::CREATED));
        assert!(!first.headers().contains_key("idempotent-replayed"));
        assert_eq!(header(again.headers(), "idempotent-replayed"), "true");
        for name in ["x-delete-token", "x-expires-at", "location"] {
            assert_eq!(header(first.headers(), name), header(again.headers(), name));
        }
        assert_eq!(first.text().await.unwrap(), again.text().await.unwrap());
    }
    let api = async || {
        let new = json!({ "content": "x" });
        let request = site.post("/api/v1/pastes").header("idempotency-key", "k3").json(&new);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    assert_eq!(api().await, api().await);
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 3);
}

#[tokio::test]
async fn h13_key_with_other_content_is_a_conflict() {
    let site = Site::new().await;
    for (content, status) in [("x", 201), ("y", 409), ("x", 201)] {
        let request = site.post("/").header("idempotency-key", "key").body(content);
        assert_eq!(request.send().await.unwrap().status(), status, "{content}");
    }
    for bad in ["", &"k".repeat(201)] {
        let request = site.post("/").header("idempotency-key", bad).body("x");
        assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 1);
}

#[tokio::test]
async fn concurrent_requests_with_one_key_create_one_paste() {
    let site = Site::new().await;
    let send = || site.post("/").header("idempotency-key", "once").body("x").send();
    let responses = futures_util::future::join_all((0..8).map(|_| send())).await;
    let mut links = Vec::new();
    for response in responses {
        let response = response.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        links.push(response.text().await.unwrap());
    }
    links.dedup();
    assert_eq!(links.len(), 1);
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 1);
}
