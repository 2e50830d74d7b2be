//! Changes that are meant for the version that a client has seen.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{Site, note};

/// Returns the `ETag` of a response.
fn tag(answer: &Response) -> String {
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn change_of_another_version_is_refused() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let made =
        site.post("/api/annotations").bearer_auth(&token).json(&note("one")).send().await.unwrap();
    let first = tag(&made);
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
    let changed = send(Method::PATCH, &first, "two").await.unwrap();
    assert_eq!(changed.status(), StatusCode::OK);
    let second = tag(&changed);
    assert_ne!(first, second);
    let (several, weak) = (format!("{first}, \"3\""), format!("W/{second}"));
    for method in [Method::PATCH, Method::DELETE] {
        for seen in [first.as_str(), &several, &weak, "\"strange\""] {
            let late = send(method.clone(), seen, "late").await.unwrap();
            assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED, "{method} of {seen}");
            assert_eq!(late.json::<Value>().await.unwrap()["code"], "changed_meanwhile");
        }
        let odd = send(method, "2", "odd").await.unwrap();
        assert_eq!(odd.status(), StatusCode::BAD_REQUEST);
    }
    let read = site.get(&path).send().await.unwrap();
    assert_eq!(tag(&read), second);
    assert_eq!(read.json::<Value>().await.unwrap()["body"][0]["value"], "two");
    let again = send(Method::PATCH, "*", "three").await.unwrap();
    assert_eq!(again.status(), StatusCode::OK);
    let third = tag(&again);
    let gone = send(Method::DELETE, &format!("{second}, {third}"), "").await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    let unknown = send(Method::DELETE, &third, "").await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND, "what is gone has no version");
}

#[tokio::test]
async fn other_users_learn_no_version_from_refusals() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let made = site.save(&alba, &note("one")).await;
    let path = format!("/api/annotations/{}", made["key"].as_str().unwrap());
    let version = made["version"].as_i64().unwrap();
    for seen in [version, version + 1] {
        let request = site.request(Method::DELETE, &path).bearer_auth(&bela);
        let seen = format!("\"{seen}\"");
        let refused = request.header("if-match", seen).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    }
}
