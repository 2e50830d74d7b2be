//! What only the operator can do.

use pastes::{Bearer, Settings};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Site, header, long_limits, settings, whole};

const TOKEN: &str = "operator-token-0123456789";

async fn site() -> Site {
    let operator_token = Bearer::new(TOKEN);
    Site::with(Settings { operator_token, ..settings() }, long_limits()).await
}

fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn orders(site: &Site) -> Vec<RequestBuilder> {
    let hash = "0".repeat(64);
    vec![
        site.get("/api/v1/reports"),
        site.get("/api/v1/bans"),
        site.post("/api/v1/takedowns").json(&json!({ "code": "abc", "reason": "x" })),
        site.request(Method::PUT, &format!("/api/v1/bans/{hash}")).json(&json!({ "reason": "x" })),
        site.request(Method::DELETE, &format!("/api/v1/bans/{hash}")),
    ]
}

#[tokio::test]
async fn operator_routes_do_not_exist_without_a_token() {
    let site = Site::new().await;
    let nothing = whole(site.get("/api/v1/nothing").send().await.unwrap()).await;
    assert_eq!(nothing.0, StatusCode::NOT_FOUND);
    for order in orders(&site) {
        assert_eq!(whole(order.bearer_auth(TOKEN).send().await.unwrap()).await, nothing);
    }
}

#[tokio::test]
async fn h8_wrong_operator_token_is_refused() {
    let site = site().await;
    for order in orders(&site) {
        assert_eq!(order.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    for wrong in
        ["operator-token-0123456788", "operator-token-012345678", "operator-token-01234567899"]
    {
        for order in orders(&site) {
            let response = order.bearer_auth(wrong).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
        }
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.banned").await, 0);
}

#[tokio::test]
async fn takedown_with_ban_ends_every_copy_and_refuses_the_bytes() {
    let site = site().await;
    let (one, other) = (site.ready("", "bad").await, site.ready("", "bad").await);
    let report = json!({ "reason": "it is bad", "contact": "me@example.org" });
    let path = format!("/api/v1/pastes/{one}/reports");
    let noted = site.post(&path).json(&report).send().await.unwrap();
    assert_eq!(noted.status(), StatusCode::ACCEPTED);
    let response = site.get("/api/v1/reports").bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(header(response.headers(), "cache-control"), "no-store");
    let reports: Value = response.json().await.unwrap();
    let report = &reports["reports"][0];
    assert_eq!((&report["code"], &report["alive"]), (&json!(one.as_str()), &json!(true)));
    let order = json!({ "code": one.as_str(), "reason": "law", "ban": true });
    let response =
        site.post("/api/v1/takedowns").bearer_auth(TOKEN).json(&order).send().await.unwrap();
    let done: Value = response.json().await.unwrap();
    let hash = hash_of(b"bad");
    assert_eq!(
        done,
        json!({ "code": one.as_str(), "contentHash": hash, "pastes": 2, "banned": true })
    );
    for code in [&one, &other] {
        let path = format!("/raw/{code}");
        crate::fixture::until(async || site.get(&path).send().await.unwrap().status() == 404).await;
    }
    let again = site.post("/").body("bad").send().await.unwrap();
    assert_eq!(again.status(), StatusCode::FORBIDDEN);
    assert!(again.text().await.unwrap().contains("taken down"));
    let bans = site.get("/api/v1/bans").bearer_auth(TOKEN).send().await.unwrap();
    let bans: Value = bans.json().await.unwrap();
    assert_eq!(bans["bans"][0]["contentHash"], hash);
    let unban = || site.request(Method::DELETE, &format!("/api/v1/bans/{hash}")).bearer_auth(TOKEN);
    assert_eq!(unban().send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(unban().send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(site.post("/").body("bad").send().await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn content_can_be_banned_before_it_is_pasted() {
    let site = site().await;
    let hash = hash_of(b"known bad");
    let ban = |hash: &str, body: Value| {
        let path = format!("/api/v1/bans/{hash}");
        site.request(Method::PUT, &path).bearer_auth(TOKEN).json(&body).send()
    };
    let response = ban(&hash, json!({ "reason": "list" })).await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(site.post("/").body("known bad").send().await.unwrap().status(), 403);
    for (hash, body) in [
        ("abc", json!({ "reason": "x" })),
        (hash.as_str(), json!({ "reason": "" })),
        (hash.as_str(), json!({ "reason": "a\0b" })),
        (hash.as_str(), json!({ "why": "x" })),
    ] {
        let response = ban(hash, body.clone()).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{hash} {body}");
    }
}
