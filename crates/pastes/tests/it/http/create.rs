//! Creating pastes, in every accepted form.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{BROWSER, Site, header, long_limits, settings};

#[tokio::test]
async fn create_returns_only_the_link_to_curl() {
    let site = Site::new().await;
    let response = site.post("/?expires=1h").body("hello").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let headers = response.headers().clone();
    let text = response.text().await.unwrap();
    let code = site.code_of(&text);
    assert_eq!(text, format!("{}\n", site.url(&format!("/{code}"))));
    assert_eq!(header(&headers, "location"), text.trim_end());
    assert_eq!(header(&headers, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(header(&headers, "x-delete-token").len(), 64);
    header(&headers, "x-expires-at").parse::<jiff::Timestamp>().unwrap();
    assert_eq!(header(&headers, "cache-control"), "no-store");
}

#[tokio::test]
async fn form_content_type_of_curl_is_raw_bytes() {
    let site = Site::new().await;
    let response = site
        .post("/")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "*/*")
        .body("a=1&content=2%20")
        .send()
        .await
        .unwrap();
    let code = site.code_of(&response.text().await.unwrap());
    site.fixture.work().await;
    assert_eq!(site.fixture.bytes(&code).await, b"a=1&content=2%20");
}

#[tokio::test]
async fn put_file_name_sets_the_language() {
    let site = Site::new().await;
    let response =
        site.request(Method::PUT, "/notes.rs").body("fn main() {}").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let code = site.code_of(&response.text().await.unwrap());
    let plain = site.request(Method::PUT, "/").body("x").send().await.unwrap();
    assert_eq!(plain.status(), StatusCode::CREATED);
    site.fixture.work().await;
    let shown: Value = serde_json::from_slice(
        &site.get(&format!("/api/v1/pastes/{code}")).send().await.unwrap().bytes().await.unwrap(),
    )
    .unwrap();
    assert_eq!(shown["language"], "rust");
    assert_eq!(shown["content"], "fn main() {}");
}

#[tokio::test]
async fn json_create_accepts_every_option() {
    let site = Site::new().await;
    let new = json!({ "content": "fn main() {}", "expiresIn": "2 weeks", "alias": "my-notes",
        "language": "rust", "burnAfterReading": true });
    let response = site.post("/api/v1/pastes").json(&new).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let made: Value = response.json().await.unwrap();
    assert_eq!(made["code"], "my-notes");
    assert_eq!(made["url"], site.url("/my-notes"));
    assert_eq!(made["rawUrl"], site.url("/raw/my-notes"));
    assert_eq!(made["state"], "IN_PROGRESS");
    assert_eq!(made["deleteToken"].as_str().unwrap().len(), 64);
    let row = site
        .fixture
        .client
        .query_one(
            "select language::text, burn, (expires_at - created_at)::text from pastes.pastes",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), ("rust", true, "14 days"));
}

#[tokio::test]
async fn options_are_accepted_by_query_and_by_header() {
    let site = Site::new().await;
    for (query, header) in [("?alias=one&lang=go", None), ("?lang=go", Some(("x-alias", "two")))] {
        let mut request = site.post(&format!("/{query}")).body("x");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        assert_eq!(request.send().await.unwrap().status(), StatusCode::CREATED, "{query}");
    }
    let sql =
        "select count(*) from pastes.pastes where language = 'go' and short_code in ('one', 'two')";
    assert_eq!(site.fixture.count(sql).await, 2);
}

#[tokio::test]
async fn refusal_has_its_status_and_says_what_to_do() {
    let site = Site::new().await;
    site.make("?alias=taken", "x").await;
    let cases = [
        ("?expires=never", 400, "is not a duration"),
        ("?expire=1d", 400, "The options are expires, lang, burn and alias"),
        ("?burn=perhaps", 400, "burn must be 1 or 0"),
        ("?expires=0", 422, "between 1 second and 365 days"),
        ("?expires=9999w", 422, "between 1 second and 365 days"),
        ("?alias=a", 422, "3 to 32"),
        ("?alias=api", 422, "our own paths"),
        ("?alias=taken", 409, "taken"),
        ("?lang=%3Cscript%3E", 422, "language"),
        ("?lang=klingon", 422, "\"klingon\" is not known"),
        ("?lang=klingon", 422, "choose one: text, batch, c,"),
    ];
    for (query, status, words) in cases {
        let response = site.post(&format!("/{query}")).body("x").send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{query}");
        assert_eq!(header(response.headers(), "content-type"), "text/plain; charset=utf-8");
        let text = response.text().await.unwrap();
        assert!(text.contains(words) && text.ends_with('\n'), "{query}: {text}");
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 1);
}

#[tokio::test]
async fn json_refusal_is_a_problem() {
    let site = Site::new().await;
    let cases = [
        (r#"{"content":"x","expire":"1d"}"#, 400, "malformed", "unknown field `expire`"),
        (r#"{"content":""}"#, 400, "empty", "at least one byte"),
        (r#"{"content":"x","expiresIn":0}"#, 422, "bad_expiry", "between 1 second"),
        (r#"{"content":"x","alias":"no/slash"}"#, 422, "bad_alias", "3 to 32"),
        ("{", 400, "malformed", "EOF"),
        (r#"["x"]"#, 400, "malformed", "send an object"),
    ];
    for (body, status, code, words) in cases {
        let response = site
            .post("/api/v1/pastes")
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), status, "{body}");
        assert_eq!(header(response.headers(), "content-type"), "application/problem+json");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&json!(code), &json!(status)),
            "{body}"
        );
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    let untyped = site.post("/api/v1/pastes").body("{}").send().await.unwrap();
    assert_eq!(untyped.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn e21_create_accepts_one_byte_up_to_the_limit() {
    let most = 100_000;
    let site = Site::with(pastes::Settings { max_size: most, ..settings() }, long_limits()).await;
    for (size, status) in [(0, 400), (1, 201), (most, 201), (most + 1, 413), (100 * most, 413)] {
        let raw = site.post("/").body(vec![b'x'; size]).send().await.unwrap();
        assert_eq!(raw.status().as_u16(), status, "raw {size}");
        // Every character escaped as six.
        let escaped = format!(r#"{{"content":"{}"}}"#, r"\u0001".repeat(size));
        let api = site
            .post("/api/v1/pastes")
            .header("content-type", "application/json")
            .body(escaped)
            .send()
            .await
            .unwrap();
        assert_eq!(api.status().as_u16(), status, "json {size}");
        // A client that is still sending when the server stops reading may miss the response body.
        if size == most + 1 {
            let problem: Value = api.json().await.unwrap();
            let words = format!("at most {most} bytes");
            assert!(problem["detail"].as_str().unwrap().contains(&words), "{problem}");
        }
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 4);
}

#[tokio::test]
async fn body_without_a_length_is_counted_while_it_arrives() {
    let site = Site::with(pastes::Settings { max_size: 1000, ..settings() }, long_limits()).await;
    for (pieces, status) in [(10, "201"), (11, "413")] {
        let mut request =
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        for _ in 0..pieces {
            request.extend_from_slice(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes());
        }
        request.extend_from_slice(b"0\r\n\r\n");
        let response = site.speak(&request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    }
}

#[tokio::test]
async fn owner_lists_and_deletes_pastes_of_the_token() {
    let site = Site::new().await;
    let owner: Value = site.post("/api/v1/owners").send().await.unwrap().json().await.unwrap();
    let token = owner["ownerToken"].as_str().unwrap();
    let mut codes = Vec::new();
    for text in ["one", "two", "three"] {
        let response = site.post("/").bearer_auth(token).body(text).send().await.unwrap();
        codes.insert(0, site.code_of(&response.text().await.unwrap()).to_string());
    }
    site.make("", "another user's").await;
    let list = async |query: &str| -> Value {
        let path = format!("/api/v1/pastes{query}");
        site.get(&path).bearer_auth(token).send().await.unwrap().json().await.unwrap()
    };
    let named = |list: &Value| -> Vec<String> {
        let pastes = list["pastes"].as_array().unwrap();
        pastes.iter().map(|paste| paste["code"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named(&list("").await), codes);
    let first = list("?limit=2").await;
    assert_eq!(named(&first), codes[..2]);
    let rest = list(&format!("?limit=2&before={}", first["next"].as_str().unwrap())).await;
    assert_eq!((named(&rest), &rest["next"]), (codes[2..].to_vec(), &Value::Null));
    let path = format!("/api/v1/pastes/{}", codes[0]);
    let gone = site.request(Method::DELETE, &path).bearer_auth(token).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    assert_eq!(named(&list("").await), codes[1..]);
    for (path, status) in [("/api/v1/pastes?limit=0", 400), ("/api/v1/pastes?before=a%2Fb", 400)] {
        assert_eq!(site.get(path).bearer_auth(token).send().await.unwrap().status(), status);
    }
    assert_eq!(site.get("/api/v1/pastes").send().await.unwrap().status(), 401);
    let unknown = "unknown-token-that-is-long-enough";
    let refused = site.post("/").bearer_auth(unknown).body("x").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn private_service_accepts_pastes_only_with_its_token() {
    let token = "c4nary-create-token-0123456789";
    let create_token = pastes::Bearer::new(token);
    let site = Site::with(pastes::Settings { create_token, ..settings() }, long_limits()).await;
    let form = "--b\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\nx\r\n--b--\r\n";
    let kind = "multipart/form-data; boundary=b";
    let requests = || {
        [
            site.post("/").body("x"),
            site.request(Method::PUT, "/notes.rs").body("x"),
            site.post("/").header("content-type", kind).body(form),
            site.post("/api/v1/pastes").json(&json!({ "content": "x" })),
            site.post("/api/v1/owners"),
        ]
    };
    for (shown, status) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some("c4nary-create-token-0123456788"), StatusCode::FORBIDDEN),
        (Some(token), StatusCode::CREATED),
    ] {
        for request in requests() {
            let request = match shown {
                Some(shown) => request.header("x-create-token", shown),
                None => request,
            };
            assert_eq!(request.send().await.unwrap().status(), status, "{shown:?}");
        }
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 4);
    // The page asks for the token, and shows the form again if it is missing.
    let page = site.get("/").header("accept", BROWSER).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("name=\"create_token\"") && page.contains("X-Create-Token"));
    for (field, status) in [("", StatusCode::UNAUTHORIZED), (token, StatusCode::SEE_OTHER)] {
        let body = format!("content=kept&page=1&create_token={field}");
        let request = site.post("/").header("accept", BROWSER).body(body);
        let kind = "application/x-www-form-urlencoded";
        let response = request.header("content-type", kind).send().await.unwrap();
        assert_eq!(response.status(), status);
        let text = response.text().await.unwrap();
        assert!(status != StatusCode::UNAUTHORIZED || text.contains("kept"), "{text}");
        assert!(!text.contains(token));
    }
    // Reading needs no token.
    let code = "select short_code::text from pastes.pastes limit 1";
    let code: String = site.fixture.client.query_one(code, &[]).await.unwrap().get(0);
    site.fixture.work().await;
    assert_eq!(site.get(&format!("/raw/{code}")).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn service_whose_quota_is_used_up_stores_nothing_more() {
    let site = Site::with(pastes::Settings { quota: Some(100), ..settings() }, long_limits()).await;
    site.make("", "x".repeat(60)).await;
    let full = site.post("/").body("y".repeat(60)).send().await.unwrap();
    assert_eq!(full.status(), StatusCode::INSUFFICIENT_STORAGE);
    assert!(full.text().await.unwrap().contains("at most 100 bytes"));
    let json = json!({ "content": "y".repeat(60) });
    let full = site.post("/api/v1/pastes").json(&json).send().await.unwrap();
    assert_eq!(full.json::<Value>().await.unwrap()["code"], "quota_full");
    site.make("", "z".repeat(40)).await;
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 2);
    // Existing content counts from the start.
    let store = site.fixture.pastes.store().clone();
    let settings = pastes::Settings { quota: Some(120), ..settings() };
    let again = pastes::Pastes::start(site.fixture.engine.clone(), store, settings).await.unwrap();
    let refused = again.create(crate::fixture::new(&"w".repeat(30))).await;
    assert!(matches!(refused, Err(pastes::CreateError::QuotaFull { quota: 120 })), "{refused:?}");
    assert!(again.create(crate::fixture::new(&"w".repeat(20))).await.is_ok());
}

/// Every route of the service, as in the router.
const ROUTES: &[&str] = &[
    "get /",
    "post /",
    "put /",
    "get /{code}",
    "put /{code}",
    "delete /{code}",
    "post /{code}/burn",
    "post /{code}/delete",
    "post /{code}/report",
    "get /raw/{code}",
    "get /download/{code}",
    "get /qr/{code}",
    "get /mine",
    "post /api/v1/pastes",
    "get /api/v1/pastes",
    "get /api/v1/pastes/{code}",
    "delete /api/v1/pastes/{code}",
    "post /api/v1/pastes/{code}/burn",
    "post /api/v1/pastes/{code}/reports",
    "post /api/v1/owners",
    "get /api/v1/reports",
    "post /api/v1/takedowns",
    "get /api/v1/moderation",
    "get /api/v1/bans",
    "put /api/v1/bans/{hash}",
    "delete /api/v1/bans/{hash}",
    "get /openapi.json",
    "get /healthz",
];

#[tokio::test]
async fn openapi_document_lists_exactly_the_routes() {
    let site = Site::new().await;
    let document: Value = site.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let mut described: Vec<String> = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let methods = operations.as_object().unwrap().keys();
        described.extend(methods.map(|method| format!("{method} {path}")));
    }
    let mut routes: Vec<String> = ROUTES.iter().map(|route| (*route).to_owned()).collect();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
    for route in routes {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace("{code}", "abc").replace("{hash}", "abc");
        let method: Method = method.to_uppercase().parse().unwrap();
        let response = site.request(method, &path).send().await.unwrap();
        assert_ne!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{route}");
    }
}
