//! What hostile clients send, and how the service responds.

use annotations::{Limits, Settings};
use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Site, note};
use crate::fixture::{PAGE, settings, until};

#[tokio::test]
async fn h1_h2_malformed_bodies_are_refused_with_a_reason() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let deep = "[".repeat(100_000);
    let bad = [
        ("", 400),
        ("{", 400),
        ("[]", 400),
        ("null", 400),
        (deep.as_str(), 400),
        (r#"{"target":{"source":"https://a.example/"},"body":[{"value":"\u0000"}]}"#, 422),
        (r#"{"target":{"source":"https://a.example/"},"body":[{"value":"\ud800"}]}"#, 400),
        (r#"{"target":{"source":"ftp://a.example/"},"body":[{"value":"x"}]}"#, 422),
        (r#"{"target":{"source":"https://a.example/"},"surprise":1}"#, 400),
        (
            r#"{"target":{"source":"https://a.example/","selector":[{"type":"TextPositionSelector","start":1e999,"end":2}]}}"#,
            400,
        ),
        (
            r#"{"target":{"source":"https://a.example/","selector":[{"type":"TextPositionSelector","start":5,"end":2}]}}"#,
            400,
        ),
        (r#"{"replyTo":"../../etc/passwd","body":[{"value":"x"}]}"#, 400),
    ];
    for (body, status) in bad {
        let request = site.post("/api/annotations").bearer_auth(&token);
        let response = request
            .header("content-type", "application/json")
            .body(body.to_owned())
            .send()
            .await
            .unwrap();
        let short: String = body.chars().take(120).collect();
        assert_eq!(response.status().as_u16(), status, "{short}");
        let problem: Value = response.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().ends_with('.'), "{problem}");
    }
    let refused = announced(&site, &token, 900_000).await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let form = site.post("/api/annotations").bearer_auth(&token).body("x").send().await.unwrap();
    assert_eq!(form.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(site.fixture.count("select count(*) from annotations.annotation").await, 0);
}

/// Returns the response to a request that announces a body of `bytes` bytes. Sends none of it: the
/// server closes the connection, which would collide with the body.
async fn announced(site: &Site, token: &str, bytes: usize) -> String {
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let head = format!(
        "POST /api/annotations HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n",
        site.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn h3_user_text_is_escaped_on_every_page() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&";
    let here = site.url("/");
    let mut new = note(evil);
    new["target"]["source"] = json!(here);
    new["target"]["selector"][0]["exact"] = json!(evil);
    new["body"].as_array_mut().unwrap().push(json!({ "value": "<b>\"tag", "purpose": "tagging" }));
    site.save(&token, &new).await;
    for path in [
        "/".to_owned(),
        format!("/margin?url={here}"),
        format!("/?q={}", "%3Cscript%3E"),
        "/?user=%3Cscript%3E&tag=%22%3E".to_owned(),
    ] {
        let response =
            site.get(&path).bearer_auth(&token).header("accept", "text/html").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
        let page = response.text().await.unwrap();
        assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{path}");
    }
}

#[tokio::test]
async fn h5_search_parameters_are_bound_values() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    site.save(&token, &note("100% of 'them'; drop table x -- \\")).await;
    for evil in [
        "'; drop table x; --",
        "%",
        "_",
        "\\",
        "a' or '1'='1",
        "$1",
        "*",
        ".*",
        "(((((",
        "\"",
        "a AND",
        "-",
        "\u{202e}",
    ] {
        for name in ["q", "user", "group", "tag"] {
            let response = site.search(&[(name, evil)]).bearer_auth(&token).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{name}={evil}");
        }
    }
    let find = |q: &'static str| {
        let request = site.search(&[("q", q)]).bearer_auth(&token);
        async move {
            request.send().await.unwrap().json::<Value>().await.unwrap()["rows"]
                .as_array()
                .unwrap()
                .len()
        }
    };
    assert_eq!(find("100%").await, 1);
    for wild in ["t_em", "t.em", "\"t.em drop\"", "\"1.. of\""] {
        assert_eq!(find(wild).await, 0, "no letter stands for others: {wild}");
    }
    assert_eq!(site.fixture.count("select count(*) from annotations.annotation").await, 1);
}

#[tokio::test]
async fn h17_search_parameters_are_bounded() {
    let site = Site::new().await;
    for query in [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=+5",
        "limit=x",
        "cursor=x",
        "kind=x",
        "references=x",
        "url=x",
    ] {
        let response = site.get(&format!("/api/search?{query}")).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
    }
    let long = "x".repeat(201);
    let response = site.search(&[("q", long.as_str())]).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let response = site.get("/api/search?q=%00").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

/// Headers of a request that a page of another site made the browser send.
const ELSEWHERE: [(&str, &str); 3] =
    [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", EVIL)];
const EVIL: &str = "https://evil.example";

#[tokio::test]
async fn h10_requests_of_other_sites_with_a_cookie_are_refused() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    site.token("sancho").await;
    let saved = site.save(&token, &note("x")).await;
    let group = async |name: &str| {
        let body = json!({ "name": name });
        let made = site.post("/api/groups").bearer_auth(&token).json(&body).send().await.unwrap();
        made.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let (one, other) = (group("One").await, group("Other").await);
    let note_path = format!("/api/annotations/{}", saved["key"].as_str().unwrap());
    let members = format!("/api/groups/{one}/members");
    let body = json!([{ "value": "y" }]);
    // Every request that changes something, in an order in which all of them can succeed.
    let acts = [
        (Method::POST, "/api/annotations", Some(note("x"))),
        (Method::PATCH, note_path.as_str(), Some(json!({ "body": body }))),
        (Method::DELETE, note_path.as_str(), None),
        (Method::POST, "/api/groups", Some(json!({ "name": "Third" }))),
        (Method::POST, members.as_str(), Some(json!({ "name": "sancho" }))),
        (Method::POST, &format!("/api/groups/{one}/move"), Some(json!({ "to": other }))),
        (Method::DELETE, &format!("/api/groups/{other}/members"), None),
        (Method::PATCH, "/api/users/sophia", Some(json!({ "displayName": "Sophia" }))),
        (Method::DELETE, "/api/users/sophia", None),
    ];
    let cookie = site.cookie(&token).await;
    let send = |act: &(Method, &str, Option<Value>),
                (name, value): (&'static str, &'static str)| {
        let request = site.request(act.0.clone(), act.1);
        let request = request.header("cookie", cookie.clone()).header(name, value);
        match &act.2 {
            Some(body) => request.json(body).send(),
            None => request.send(),
        }
    };
    for from in ELSEWHERE {
        for act in &acts {
            let refused = send(act, from).await.unwrap();
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{act:?} from {from:?}");
        }
    }
    let forms = ["signup", "login", "logout", "groups", "join", "members", "leave", "rename"];
    for form in forms.into_iter().chain(["delete"]) {
        for (name, value) in ELSEWHERE {
            let response = site
                .post(&format!("/account/{form}"))
                .header("cookie", cookie.clone())
                .header(name, value)
                .header("content-type", "application/x-www-form-urlencoded")
                .body("name=sophia")
                .send()
                .await
                .unwrap();
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{form} from {value}");
        }
    }
    // Reading is allowed, and our own pages may do all of it.
    let profile = site.get("/api/profile").header("cookie", cookie.clone());
    assert_eq!(profile.send().await.unwrap().status(), StatusCode::OK);
    for act in &acts {
        let done = send(act, ("sec-fetch-site", "same-origin")).await.unwrap();
        let (status, words) = (done.status(), done.text().await.unwrap());
        assert!(status.is_success(), "{act:?}: {status} {words}");
    }
}

#[tokio::test]
async fn h9_h11_rate_limited_address_gets_a_retry_after() {
    let limits = Limits {
        saves_per_second: 1,
        save_burst: 2,
        reads_per_second: 1,
        read_burst: 3,
        trusted_proxies: 0,
    };
    let site = Site::with(Settings { limits, ..settings() }).await;
    let mut reply = None;
    // Concurrently: one after the other they may take a second each.
    until(async || {
        let asked = (0..10).map(|_| site.search(&[("url", PAGE)]).send());
        let answers = join_all(asked).await.into_iter().map(Result::unwrap);
        let mut late = answers.filter(|it| it.status() == StatusCode::TOO_MANY_REQUESTS);
        reply = late.next().map(|it| it.headers()["retry-after"].to_str().unwrap().to_owned());
        reply.is_some()
    })
    .await;
    assert!(reply.is_some_and(|seconds| seconds.parse::<u64>().unwrap() >= 1));
}

#[tokio::test]
async fn h12_tokens_appear_only_in_the_response_that_creates_them() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    site.save(&token, &note("x")).await;
    let cookie = site.cookie(&token).await;
    let session = cookie.strip_prefix("notes=").unwrap();
    for path in ["/", "/account", "/api/profile", "/api/search", "/openapi.json"] {
        let answer = site
            .get(path)
            .header("cookie", cookie.clone())
            .header("accept", "text/html")
            .send()
            .await
            .unwrap();
        let headers = format!("{:?}", answer.headers());
        let body = answer.text().await.unwrap();
        for secret in [token.as_str(), session] {
            assert!(!headers.contains(secret) && !body.contains(secret), "{path}");
        }
    }
}
