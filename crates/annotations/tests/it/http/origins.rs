//! Pages of other origins that the settings allow: they read and write notes, and learn who is logged
//! in.

use annotations::Settings;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Site, note};
use crate::fixture::settings;

#[tokio::test]
async fn h10_cors_allows_only_the_origins_of_the_settings() {
    let own = "http://127.0.0.1:3000";
    let site = Site::with(Settings { origins: vec![own.to_owned()], ..settings() }).await;
    let token = site.token("sophia").await;
    let cookie = site.cookie(&token).await;
    for (origin, allowed) in [
        (own, true),
        ("http://127.0.0.1:3001", false),
        ("null", false),
        ("https://127.0.0.1:3000", false),
    ] {
        let asked = site
            .request(Method::OPTIONS, "/api/annotations")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .send()
            .await
            .unwrap();
        let granted = asked
            .headers()
            .get("access-control-allow-origin")
            .map(|it| it.to_str().unwrap().to_owned());
        assert_eq!(granted.as_deref(), allowed.then_some(origin));
        let saved = site
            .post("/api/annotations")
            .header("origin", origin)
            .header("sec-fetch-site", "same-site")
            .header("cookie", cookie.clone())
            .json(&note("x"))
            .send()
            .await
            .unwrap();
        assert_eq!(saved.status().is_success(), allowed, "{origin}");
    }
    let script = site.get("/embed.js").send().await.unwrap();
    assert_eq!(script.headers()["cross-origin-resource-policy"], "cross-origin");
    let closed = Site::new().await;
    let asked = closed.get("/api/search").header("origin", own).send().await.unwrap();
    assert!(
        asked.headers().get("access-control-allow-origin").is_none(),
        "no origin is allowed by default"
    );
}

/// The settings allow pages of this origin.
const PAGE_ELSEWHERE: &str = "http://127.0.0.1:3000";

#[tokio::test]
async fn h10_allowed_origin_reads_and_writes_notes_and_nothing_else() {
    let origins = vec![PAGE_ELSEWHERE.to_owned()];
    let site = Site::with(Settings { origins, ..settings() }).await;
    let token = site.token("sophia").await;
    let cookie = site.cookie(&token).await;
    let group = site.post("/api/groups").bearer_auth(&token).json(&json!({ "name": "One" }));
    let group: Value = group.send().await.unwrap().json().await.unwrap();
    let group = format!("/api/groups/{}", group["id"].as_str().unwrap());
    let saved = site.save(&token, &note("x")).await;
    let note_path = format!("/api/annotations/{}", saved["key"].as_str().unwrap());
    let from_there = |method: Method, path: &str, body: Option<Value>| {
        let request = site.request(method, path).header("cookie", cookie.clone());
        let request =
            request.header("origin", PAGE_ELSEWHERE).header("sec-fetch-site", "same-site");
        match body {
            Some(body) => request.json(&body).send(),
            None => request.send(),
        }
    };
    for (method, path, body) in [
        (Method::PATCH, "/api/users/sophia", Some(json!({ "name": "stolen" }))),
        (Method::DELETE, "/api/users/sophia", None),
        (Method::POST, "/api/groups", Some(json!({ "name": "Two" }))),
        (Method::POST, &format!("{group}/members"), Some(json!({}))),
        (Method::DELETE, &format!("{group}/members"), None),
        (Method::POST, &format!("{group}/move"), Some(json!({ "to": "x" }))),
        (Method::POST, "/account/rename", None),
        (Method::POST, "/account/delete", None),
        (Method::POST, "/account/logout", None),
    ] {
        let refused = from_there(method.clone(), path, body).await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{method} {path}");
        assert!(refused.headers().get("access-control-allow-origin").is_none(), "{path}");
    }
    // Simple requests and preflight requests.
    let asks = |path: &str| {
        let request = site.request(Method::OPTIONS, path).header("origin", PAGE_ELSEWHERE);
        request.header("access-control-request-method", "DELETE").send()
    };
    for hidden in ["/", "/account", "/margin", "/api/groups", "/api/users/sophia", "/openapi.json"]
    {
        for response in [from_there(Method::GET, hidden, None).await, asks(hidden).await] {
            let headers = response.unwrap().headers().clone();
            assert!(headers.get("access-control-allow-origin").is_none(), "{hidden}");
            assert_eq!(headers["cross-origin-resource-policy"], "same-origin", "{hidden}");
        }
    }
    for shown in ["/api/search", "/api/profile", note_path.as_str(), "/embed.js"] {
        let seen = from_there(Method::GET, shown, None).await.unwrap();
        assert_eq!(seen.status(), StatusCode::OK, "{shown}");
        assert_eq!(seen.headers()["access-control-allow-origin"], PAGE_ELSEWHERE, "{shown}");
        let asked = asks(shown).await.unwrap();
        assert_eq!(asked.status(), StatusCode::OK, "{shown}");
        assert_eq!(asked.headers()["access-control-allow-origin"], PAGE_ELSEWHERE, "{shown}");
        assert_eq!(asked.headers()["x-content-type-options"], "nosniff", "{shown}");
    }
    let body = json!({ "body": [{ "value": "y" }] });
    for (method, path, body) in [
        (Method::POST, "/api/annotations", Some(note("from there"))),
        (Method::PATCH, note_path.as_str(), Some(body)),
        (Method::DELETE, note_path.as_str(), None),
    ] {
        let done = from_there(method.clone(), path, body).await.unwrap();
        assert!(done.status().is_success(), "{method} {path}: {}", done.status());
    }
}

#[tokio::test]
async fn h10_allowed_origin_gets_the_user_without_the_groups() {
    let origins = vec![PAGE_ELSEWHERE.to_owned()];
    let site = Site::with(Settings { origins, ..settings() }).await;
    let token = site.token("sophia").await;
    let open = json!({ "name": "Reading", "open": true });
    site.post("/api/groups").bearer_auth(&token).json(&open).send().await.unwrap();
    let cookie = site.cookie(&token).await;
    let profile = || site.get("/api/profile").header("cookie", cookie.clone());
    let seen = profile().header("origin", PAGE_ELSEWHERE).send().await.unwrap();
    let seen: Value = seen.json().await.unwrap();
    assert_eq!(seen, json!({ "user": { "name": "sophia", "displayName": "" } }));
    let own: Value = profile().send().await.unwrap().json().await.unwrap();
    assert_eq!(own["groups"].as_array().unwrap().len(), 2, "our own pages have them");
}
