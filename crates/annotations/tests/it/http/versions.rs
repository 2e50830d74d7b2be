//! Changes that are meant for what somebody has seen.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Site, note};

#[tokio::test]
async fn a_change_that_names_another_version_is_not_made() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let made =
        site.post("/api/annotations").bearer_auth(&token).json(&note("one")).send().await.unwrap();
    assert_eq!(made.headers()["etag"], "\"1\"");
    let made: Value = made.json().await.unwrap();
    let path = format!("/api/annotations/{}", made["key"].as_str().unwrap());
    let send = |method: Method, seen: &str, text: &str| {
        let request = site.request(method.clone(), &path).bearer_auth(&token);
        let request = request.header("if-match", seen);
        match method {
            Method::PATCH => request.json(&json!({ "body": [{ "value": text }] })).send(),
            _ => request.send(),
        }
    };
    let changed = send(Method::PATCH, "\"1\"", "two").await.unwrap();
    assert_eq!(
        (changed.status(), &changed.headers()["etag"]),
        (StatusCode::OK, &"\"2\"".parse().unwrap())
    );
    for method in [Method::PATCH, Method::DELETE] {
        for seen in ["\"1\"", "\"1\", \"3\"", "W/\"2\"", "\"strange\""] {
            let late = send(method.clone(), seen, "late").await.unwrap();
            assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED, "{method} of {seen}");
            assert_eq!(late.json::<Value>().await.unwrap()["code"], "changed_meanwhile");
        }
        let odd = send(method, "2", "odd").await.unwrap();
        assert_eq!(odd.status(), StatusCode::BAD_REQUEST);
    }
    let read = site.get(&path).send().await.unwrap();
    assert_eq!(read.headers()["etag"], "\"2\"");
    assert_eq!(read.json::<Value>().await.unwrap()["body"][0]["value"], "two");
    assert_eq!(send(Method::PATCH, "*", "three").await.unwrap().status(), StatusCode::OK);
    let gone = send(Method::DELETE, "\"2\", \"3\"", "").await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    let unknown = send(Method::DELETE, "\"3\"", "").await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND, "what is gone has no version");
}

#[tokio::test]
async fn others_learn_no_version_by_asking_for_changes() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let made = site.save(&alba, &note("one")).await;
    let path = format!("/api/annotations/{}", made["key"].as_str().unwrap());
    for seen in ["\"1\"", "\"2\""] {
        let request = site.request(Method::DELETE, &path).bearer_auth(&bela);
        let refused = request.header("if-match", seen).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    }
}
