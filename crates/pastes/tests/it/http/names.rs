//! Names that are used again: tokens, reports and lists of the earlier paste do not affect the later
//! one.

#![allow(clippy::string_slice, reason = "a wrong slice ends the test, as it should")]

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BROWSER, Site, header};

/// Saves a text under a name, and returns the delete token.
async fn save(site: &Site, name: &str, text: &'static str) -> String {
    let response = site.post(&format!("/?alias={name}")).body(text).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED, "{name}");
    header(response.headers(), "x-delete-token").to_owned()
}

async fn raw(site: &Site, name: &str) -> (StatusCode, String) {
    let response = site.get(&format!("/raw/{name}")).send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

#[tokio::test]
async fn e25_delete_token_of_an_earlier_paste_leaves_the_later_one_alone() {
    let site = Site::new().await;
    let name = "release-notes".parse().unwrap();
    let first = save(&site, "release-notes", "first").await;
    site.fixture.expire(&name).await;
    let second = save(&site, "release-notes", "second").await;
    site.fixture.work().await;
    assert_ne!(first, second);
    let delete = async |token: &str| {
        let request =
            site.request(Method::DELETE, "/release-notes").header("x-delete-token", token);
        request.send().await.unwrap().status()
    };
    assert_eq!(delete(&first).await, StatusCode::NO_CONTENT, "its paste has ended");
    assert_eq!(raw(&site, "release-notes").await, (StatusCode::OK, "second".to_owned()));
    // The identity of one with the HMAC of the other.
    let forged = format!("{}{}", &second[..32], &first[32..]);
    assert_eq!(delete(&forged).await, StatusCode::FORBIDDEN);
    assert_eq!(raw(&site, "release-notes").await, (StatusCode::OK, "second".to_owned()));
    assert_eq!(delete(&second).await, StatusCode::NO_CONTENT);
    assert_eq!(raw(&site, "release-notes").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn e25_owner_deletes_the_paste_that_the_page_showed_and_no_later_one() {
    let site = Site::new().await;
    let owner: Value = site.post("/api/v1/owners").send().await.unwrap().json().await.unwrap();
    let owner = owner["ownerToken"].as_str().unwrap();
    let new = |text: &str| json!({ "content": text, "alias": "daily" });
    let make = async |text: &str| {
        let request = site.post("/api/v1/pastes").bearer_auth(owner).json(&new(text));
        assert_eq!(request.send().await.unwrap().status(), StatusCode::CREATED);
    };
    make("monday").await;
    let cookie = format!("owner={owner}");
    let page = site.get("/mine").header("cookie", &cookie).send().await.unwrap();
    let page = page.text().await.unwrap();
    let seen = page.split("name=\"paste\" value=\"").nth(1).unwrap();
    let seen = seen.split('"').next().unwrap().to_owned();
    site.fixture.expire(&"daily".parse().unwrap()).await;
    make("tuesday").await;
    site.fixture.work().await;
    let delete = async |body: String| {
        let request =
            site.post("/daily/delete").header("accept", BROWSER).header("cookie", &cookie);
        let kind = "application/x-www-form-urlencoded";
        request.header("content-type", kind).body(body).send().await.unwrap().status()
    };
    assert_eq!(delete(format!("paste={seen}")).await, StatusCode::FORBIDDEN);
    assert_eq!(raw(&site, "daily").await.1, "tuesday");
    assert_eq!(delete(String::new()).await, StatusCode::OK);
    assert_eq!(raw(&site, "daily").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn e30_replay_returns_the_same_paste_or_410() {
    let site = Site::new().await;
    let send = async |key: &str, text: &'static str| {
        let request = site.post("/?alias=shared-name").header("idempotency-key", key).body(text);
        let response = request.send().await.unwrap();
        let replayed = response.headers().contains_key("idempotent-replayed");
        let token =
            response.headers().get("x-delete-token").map(|t| t.to_str().unwrap().to_owned());
        (response.status(), replayed, token)
    };
    let (status, _, first) = send("k1", "mine").await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(send("k1", "mine").await, (StatusCode::CREATED, true, first));
    site.fixture.expire(&"shared-name".parse().unwrap()).await;
    assert_eq!(send("k1", "mine").await, (StatusCode::GONE, false, None), "its paste has ended");
    let (status, _, other) = send("k2", "another user's").await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(
        send("k1", "mine").await,
        (StatusCode::GONE, false, None),
        "and another paste has the name"
    );
    assert_eq!(send("k2", "another user's").await, (StatusCode::CREATED, true, other.clone()));
    let delete = site.request(Method::DELETE, "/shared-name");
    let delete = delete.header("x-delete-token", other.unwrap()).send().await.unwrap();
    assert_eq!(delete.status(), StatusCode::NO_CONTENT);
    assert_eq!(send("k2", "another user's").await.0, StatusCode::GONE, "deleted");
}

#[tokio::test]
async fn e31_name_accepts_the_same_bytes_repeatedly() {
    let site = Site::new().await;
    // Another paste keeps the content referenced, so that every round uses the same row of it.
    site.make("", "unchanged").await;
    for round in 0..4 {
        let response = site.post("/?alias=daily").body("unchanged").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED, "round {round}");
        site.fixture.expire(&"daily".parse().unwrap()).await;
    }
    site.fixture.assert_ref_counts().await;
    site.fixture.sweep().await;
    site.fixture.assert_ref_counts().await;
    assert_eq!(site.fixture.objects(), 1);
}

#[tokio::test]
async fn e31_name_of_a_swept_paste_that_was_never_uploaded_is_free() {
    let site = Site::new().await;
    for round in 0..3 {
        let response = site.post("/?alias=daily").body("unchanged").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED, "round {round}");
        let daily = "daily".parse().unwrap();
        site.fixture.expire(&daily).await;
        // The sweep without the jobs: the staged bytes of the paste are still there.
        let sweep = site.fixture.pastes.expiry_sweep().unwrap();
        sweep.run_once(&site.fixture.engine).await.unwrap();
        assert_eq!(site.fixture.deletion_status(&daily).await, "DELETED");
    }
    save(&site, "daily", "the last").await;
    site.fixture.work().await;
    assert_eq!(raw(&site, "daily").await, (StatusCode::OK, "the last".to_owned()));
    assert_eq!(site.fixture.count("select count(*) from pastes.staged").await, 0);
    site.fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e37_click_burns_only_the_paste_that_the_page_showed() {
    let site = Site::new().await;
    site.ready("?alias=once&burn=1", "first").await;
    let page = site.get("/once").header("accept", BROWSER).send().await.unwrap();
    let page = page.text().await.unwrap();
    let asked = page.split("name=\"paste\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    site.fixture.expire(&"once".parse().unwrap()).await;
    site.ready("?alias=once&burn=1", "second").await;
    let burn = async |body: String| {
        let request = site.post("/once/burn").header("accept", BROWSER);
        let kind = "application/x-www-form-urlencoded";
        let response = request.header("content-type", kind).body(body).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    assert_eq!(burn(format!("as=page&paste={asked}")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(burn("as=page&paste=nonsense".to_owned()).await.0, StatusCode::NOT_FOUND);
    let (status, page) = burn("as=page".to_owned()).await;
    assert!(status == StatusCode::OK && page.contains("second"), "{status}");
}

#[tokio::test]
async fn e26_report_by_api_can_name_the_paste_that_was_read() {
    let site = Site::new().await;
    site.ready("?alias=seen", "bad").await;
    let read = site.get("/api/v1/pastes/seen").send().await.unwrap();
    let read: Value = read.json().await.unwrap();
    let report = async || {
        let report = json!({ "reason": "phishing", "paste": read["id"] });
        site.post("/api/v1/pastes/seen/reports").json(&report).send().await.unwrap().status()
    };
    assert_eq!(report().await, StatusCode::ACCEPTED);
    site.fixture.expire(&"seen".parse().unwrap()).await;
    site.ready("?alias=seen", "harmless").await;
    assert_eq!(report().await, StatusCode::NOT_FOUND);
    assert_eq!(site.fixture.count("select count(*) from pastes.reports").await, 1);
}

#[tokio::test]
async fn e35_page_shows_the_paste_that_has_the_name_now() {
    let site = Site::new().await;
    let shown = async || {
        let page = site.get("/stale").header("accept", BROWSER).send().await.unwrap();
        page.text().await.unwrap()
    };
    let response = site.post("/?alias=stale&lang=rust").body("let x = 1;").send().await.unwrap();
    let token = header(response.headers(), "x-delete-token").to_owned();
    // The content stays, so that both pastes share it.
    site.make("", "let x = 1;").await;
    site.fixture.work().await;
    assert!(shown().await.contains("<dd>Rust</dd>"));
    let delete = site.request(Method::DELETE, "/stale").header("x-delete-token", token);
    assert_eq!(delete.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    site.ready("?alias=stale&lang=python", "let x = 1;").await;
    assert!(shown().await.contains("<dd>Python</dd>"));
}

#[tokio::test]
async fn e26_report_concerns_the_paste_that_the_reader_saw() {
    let site = Site::new().await;
    save(&site, "seen", "bad").await;
    site.fixture.work().await;
    let page = site.get("/seen").header("accept", BROWSER).send().await.unwrap();
    let page = page.text().await.unwrap();
    let seen = page.split("name=\"paste\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    site.fixture.expire(&"seen".parse().unwrap()).await;
    save(&site, "seen", "harmless").await;
    site.fixture.work().await;
    let report = async |paste: &str| {
        let request = site.post("/seen/report").header("accept", BROWSER);
        let kind = "application/x-www-form-urlencoded";
        let body = format!("reason=illegal&paste={paste}");
        request.header("content-type", kind).body(body).send().await.unwrap().status()
    };
    assert_eq!(report(seen).await, StatusCode::NOT_FOUND);
    assert_eq!(report("nonsense").await, StatusCode::NOT_FOUND);
    assert_eq!(site.fixture.count("select count(*) from pastes.reports").await, 0);
    let row =
        site.fixture.client.query_one("select paste_id from pastes.find_live('{seen}')", &[]).await;
    let present: Uuid = row.unwrap().get(0);
    assert_eq!(report(&present.simple().to_string()).await, StatusCode::OK);
}

#[tokio::test]
async fn e37_list_continues_after_a_name_that_was_used_again() {
    let site = Site::new().await;
    let owner: Value = site.post("/api/v1/owners").send().await.unwrap().json().await.unwrap();
    let owner = owner["ownerToken"].as_str().unwrap();
    for name in ["first", "second", "third"] {
        let new = json!({ "content": name, "alias": name });
        site.post("/api/v1/pastes").bearer_auth(owner).json(&new).send().await.unwrap();
    }
    let list = async |query: &str| -> Value {
        let path = format!("/api/v1/pastes?limit=1{query}");
        site.get(&path).bearer_auth(owner).send().await.unwrap().json().await.unwrap()
    };
    let page = list("").await;
    assert_eq!(page["pastes"][0]["code"], "third");
    // The last paste of the page has ended, and another user has its name.
    site.fixture.expire(&"third".parse().unwrap()).await;
    save(&site, "third", "another").await;
    let page = list(&format!("&before={}", page["next"].as_str().unwrap())).await;
    assert_eq!(page["pastes"][0]["code"], "second");
    let bad = site.get("/api/v1/pastes?before=third").bearer_auth(owner).send().await.unwrap();
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
}
