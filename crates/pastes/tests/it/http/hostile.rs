//! Malicious input.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{BROWSER, Site, header, long_limits, settings};

#[tokio::test]
async fn h1_all_bytes_are_stored_unchanged() {
    let site = Site::new().await;
    let all: Vec<u8> = (0..=255).collect();
    for content in [all.clone(), b"\0".to_vec(), b"\xff\xfe\0a".to_vec(), b"a\r\nb\rc\n".to_vec()] {
        let code = site.ready("", content.clone()).await;
        for path in [format!("/raw/{code}"), format!("/download/{code}")] {
            let response = site.get(&path).send().await.unwrap();
            assert_eq!(response.bytes().await.unwrap(), content, "{path}");
        }
        let page = site.get(&format!("/{code}")).header("accept", BROWSER).send().await.unwrap();
        assert_eq!(page.status(), StatusCode::OK);
        let api = site.get(&format!("/api/v1/pastes/{code}")).send().await.unwrap();
        assert_eq!(api.json::<Value>().await.unwrap()["size"], content.len());
    }
    let binary = site.ready("", all).await;
    let download = site.get(&format!("/download/{binary}")).send().await.unwrap();
    assert!(header(download.headers(), "content-disposition").ends_with(".bin\""));
}

#[tokio::test]
async fn h1_h2_invalid_json_is_a_400() {
    let site = Site::new().await;
    let deep = format!(r#"{{"content":{}"#, "[".repeat(100_000));
    let wide: String = (0..100_000).map(|number| format!(r#""k{number}":0,"#)).collect();
    let cases: Vec<Vec<u8>> = vec![
        br#"{"content":"\ud800"}"#.to_vec(),
        br#"{"content":"\udfff\ud800"}"#.to_vec(),
        b"{\"content\":\"\xff\"}".to_vec(),
        b"{\"content\":\"\0\"}".to_vec(),
        br#"{"content":"x","content":"y"}"#.to_vec(),
        br#"{"content":"x","expiresIn":1e999}"#.to_vec(),
        br#"{"content":"x","expiresIn":99999999999999999999}"#.to_vec(),
        br#"{"content":"x","alias":{"a":{}}}"#.to_vec(),
        br#"["content"]"#.to_vec(),
        b"null".to_vec(),
        b"".to_vec(),
        deep.into_bytes(),
        format!("{{{wide}\"content\":\"x\"}}").into_bytes(),
    ];
    for body in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let request = site.post("/api/v1/pastes").header("content-type", "application/json");
        let response = request.body(body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{shown}");
        let text = response.text().await.unwrap();
        assert!(text.len() < 1000, "an response repeats little: {shown}");
    }
    // A NUL that JSON escapes is a byte like any other.
    let request = site.post("/api/v1/pastes").header("content-type", "application/json");
    let response = request.body(r#"{"content":"a\u0000b"}"#).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let made: Value = response.json().await.unwrap();
    site.fixture.work().await;
    let raw = site.get(&format!("/raw/{}", made["code"].as_str().unwrap())).send().await.unwrap();
    assert_eq!(raw.bytes().await.unwrap(), "a\0b");
}

const ACTIVE: [&str; 6] = [
    "<script>alert(1)</script>",
    "<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"alert(1)\"/>",
    "<!doctype html><html><body onload=alert(1)>",
    "</code></pre><img src=x onerror=alert(1)>",
    "\"><iframe src=javascript:alert(1)>",
    "{{constructor.constructor('alert(1)')()}}",
];

#[tokio::test]
async fn h3_pasted_scripts_do_not_run_on_a_page() {
    let site = Site::new().await;
    for content in ACTIVE {
        for language in ["", "html", "javascript", "markdown"] {
            let code = site.ready(&format!("?lang={language}"), content).await;
            let page =
                site.get(&format!("/{code}")).header("accept", BROWSER).send().await.unwrap();
            let policy = header(page.headers(), "content-security-policy").to_owned();
            assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
            assert!(!policy.contains("unsafe"), "{policy}");
            let text = page.text().await.unwrap();
            for tag in ["<script>", "<svg", "<img src=x", "<iframe", "<body onload"] {
                assert!(!text.contains(tag), "{tag} in the page of {content:?} as {language:?}");
            }
        }
    }
}

#[tokio::test]
async fn h3_input_in_a_response_is_escaped_or_plain_text() {
    let site = Site::new().await;
    let script = "%3Cscript%3Ealert(1)%3C/script%3E";
    for path in [
        format!("/?lang={script}"),
        format!("/?{script}=1"),
        format!("/?alias={script}"),
        format!("/?expires={script}"),
    ] {
        let response = site.post(&path).header("accept", BROWSER).body("x").send().await.unwrap();
        assert!(response.status().is_client_error(), "{path}");
        let kind = header(response.headers(), "content-type").to_owned();
        assert_eq!(header(response.headers(), "x-content-type-options"), "nosniff");
        let text = response.text().await.unwrap();
        assert!(
            kind.starts_with("text/plain") || !text.contains("<script>alert"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn h18_raw_and_downloaded_content_is_inactive() {
    let site = Site::new().await;
    for content in ACTIVE {
        let code = site.ready("", content).await;
        let raw = site.get(&format!("/raw/{code}")).header("accept", BROWSER).send().await.unwrap();
        let headers = raw.headers();
        assert_eq!(header(headers, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(header(headers, "x-content-type-options"), "nosniff");
        assert_eq!(header(headers, "content-security-policy"), "sandbox; default-src 'none'");
        assert_eq!(header(headers, "cross-origin-resource-policy"), "same-origin");
        assert_eq!(raw.text().await.unwrap(), content);
        let file = site.get(&format!("/download/{code}")).send().await.unwrap();
        assert!(header(file.headers(), "content-disposition").starts_with("attachment;"));
        assert_eq!(header(file.headers(), "x-content-type-options"), "nosniff");
    }
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let site = Site::new().await;
    let code = site.ready("", "x").await;
    let paths = [
        "/",
        "/mine",
        "/healthz",
        "/openapi.json",
        "/robots.txt",
        "/nothing/here",
        "/assets/none",
        "/api/v1/pastes",
        "/api/v1/reports",
        &format!("/{code}"),
        &format!("/raw/{code}"),
        &format!("/qr/{code}"),
        &format!("/api/v1/pastes/{code}"),
        &format!("/download/{code}"),
    ];
    for path in paths {
        for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS, Method::TRACE] {
            let response = site.request(method.clone(), path).send().await.unwrap();
            let headers = response.headers();
            assert!(response.status().as_u16() < 500, "{method} {path}");
            assert_eq!(header(headers, "x-content-type-options"), "nosniff", "{method} {path}");
            assert_eq!(header(headers, "referrer-policy"), "no-referrer");
            assert_eq!(header(headers, "cross-origin-opener-policy"), "same-origin");
            assert_eq!(header(headers, "cross-origin-resource-policy"), "same-origin");
            assert!(header(headers, "content-security-policy").contains("default-src 'none'"));
        }
    }
}

#[tokio::test]
async fn h4_h5_malformed_paths_are_not_found() {
    let site = Site::new().await;
    let code = site.ready("", "x").await;
    let odd = [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "....//",
        "%5c..%5c",
        "%c0%ae%c0%ae",
        "%uff0e",
        "a%00",
        "%",
        "%zz",
        "'%3Bdrop%20table%20pastes.pastes%3B--",
        "1'%20or%20'1'='1",
        "x%0d%0ay",
        "%E2%80%A5",
        "$1",
        "a%3Bb",
    ];
    for prefix in
        ["/", "/raw/", "/download/", "/qr/", "/assets/", "/api/v1/pastes/", "/api/v1/bans/"]
    {
        for path in odd {
            // Written by hand: HTTP clients normalize such paths.
            let request =
                format!("GET {prefix}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let response = site.speak(request.as_bytes()).await;
            let status: u16 = response.split(' ').nth(1).unwrap_or("0").parse().unwrap();
            assert!(matches!(status, 400 | 404 | 405), "{prefix}{path}: {response}");
        }
    }
    for path in ["/../../etc/passwd", "/assets/../Cargo.toml", "//", "/raw//", "/raw/../raw/x"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let response = site.speak(request.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 404"), "{path}: {response}");
    }
    assert_eq!(site.get(&format!("/raw/{code}")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn h5_sql_in_a_field_is_text() {
    let site = Site::new().await;
    let sql = "'; drop table pastes.pastes; --";
    let code = site.ready("", sql).await;
    let report = serde_json::json!({ "reason": sql, "contact": sql });
    let path = format!("/api/v1/pastes/{code}/reports");
    let response = site.post(&path).json(&report).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let key = site.post("/").header("idempotency-key", sql).body("x").send().await.unwrap();
    assert_eq!(key.status(), StatusCode::CREATED);
    let owner =
        site.post("/").bearer_auth("';drop-table-pastes;--").body("x").send().await.unwrap();
    assert_eq!(owner.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        site.fixture.pastes.reports(None, 1).await.unwrap()[0].contact.as_deref(),
        Some(sql)
    );
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 2);
}

#[tokio::test]
async fn h11_compressed_body_is_a_415() {
    let site = Site::new().await;
    for packing in ["gzip", "br", "deflate, gzip"] {
        let response =
            site.post("/").header("content-encoding", packing).body("x").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 0);
}

#[tokio::test]
async fn unavailable_database_is_a_503_without_its_message() {
    let site = Site::with(settings(), long_limits()).await;
    site.fixture.client.batch_execute("alter schema pastes rename to elsewhere").await.unwrap();
    for (method, path) in
        [(Method::GET, "/raw/abc"), (Method::POST, "/"), (Method::GET, "/api/v1/pastes/abc")]
    {
        let response = site.request(method, path).body("x").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(header(response.headers(), "retry-after"), "5");
        let text = response.text().await.unwrap();
        assert!(!text.contains("pastes.") && !text.contains("schema"), "{text}");
    }
}
