//! Takedowns and bans: they affect what was reported, and leave a record.

use pastes::{Bearer, Settings};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Site, long_limits, settings};

const TOKEN: &str = "operator-token-0123456789";

async fn site() -> Site {
    let operator_token = Bearer::new(TOKEN);
    Site::with(Settings { operator_token, ..settings() }, long_limits()).await
}

async fn report(site: &Site, code: &str) {
    let path = format!("/api/v1/pastes/{code}/reports");
    let response = site.post(&path).json(&json!({ "reason": "phishing" })).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
}

async fn list(site: &Site, path: &str) -> Value {
    site.get(path).bearer_auth(TOKEN).send().await.unwrap().json().await.unwrap()
}

async fn take_down(site: &Site, order: Value) -> (StatusCode, Value) {
    let request = site.post("/api/v1/takedowns").bearer_auth(TOKEN).json(&order);
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn status_of(site: &Site, text: &'static str) -> StatusCode {
    site.post("/").body(text).send().await.unwrap().status()
}

/// Sets up a name whose reported paste has expired and which an innocent paste has now.
async fn reused() -> (Site, i64, String) {
    let site = site().await;
    site.ready("?alias=bad1", "evil").await;
    report(&site, "bad1").await;
    site.fixture.expire(&"bad1".parse().unwrap()).await;
    site.ready("?alias=bad1", "innocent").await;
    let reports = list(&site, "/api/v1/reports").await;
    let found = &reports["reports"][0];
    assert_eq!(found["alive"], false, "another paste of that name is not the reported one");
    let (id, hash) = (found["id"].as_i64().unwrap(), found["contentHash"].as_str().unwrap());
    let hash = hash.to_owned();
    (site, id, hash)
}

#[tokio::test]
async fn e26_takedown_under_a_reused_name_is_refused() {
    let (site, id, hash) = reused().await;
    for (order, code) in [
        (json!({ "code": "bad1", "reason": "law", "ban": true }), "another_paste"),
        (json!({ "code": "bad1", "contentHash": hash, "reason": "law" }), "another_paste"),
        (json!({ "report": id, "reason": "law" }), "another_paste"),
    ] {
        let (status, problem) = take_down(&site, order.clone()).await;
        assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!(code)), "{order}");
    }
    for order in [
        json!({ "report": id, "code": "bad1", "reason": "law" }),
        json!({ "reason": "law" }),
        json!({ "contentHash": hash, "reason": "law" }),
    ] {
        assert_eq!(take_down(&site, order).await.0, StatusCode::BAD_REQUEST);
    }
    assert_eq!(take_down(&site, json!({ "report": 99, "reason": "x" })).await.0, 404);
    assert_eq!(site.fixture.bytes(&"bad1".parse().unwrap()).await, b"innocent");
    assert_eq!(site.fixture.count("select count(*) from pastes.banned").await, 0);
    assert_eq!(site.fixture.count("select count(*) from pastes.moderation").await, 0);
}

#[tokio::test]
async fn e26_ban_by_report_bans_the_reported_bytes() {
    let (site, id, hash) = reused().await;
    let copy = site.ready("", "evil").await;
    let order = json!({ "report": id, "reason": "law", "ban": true });
    let (status, done) = take_down(&site, order).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&done["contentHash"], &done["pastes"]), (&json!(hash), &json!(1)));
    assert_eq!(status_of(&site, "evil").await, StatusCode::FORBIDDEN);
    assert_eq!(status_of(&site, "innocent").await, StatusCode::CREATED);
    assert_eq!(site.fixture.bytes(&"bad1".parse().unwrap()).await, b"innocent");
    let path = format!("/raw/{copy}");
    crate::fixture::until(async || site.get(&path).send().await.unwrap().status() == 404).await;
}

#[tokio::test]
async fn e26_takedown_by_hash_or_report_ends_the_paste() {
    let site = site().await;
    for name in ["one", "two"] {
        site.ready(&format!("?alias={name}"), name).await;
        report(&site, name).await;
    }
    let reports = list(&site, "/api/v1/reports").await;
    let (two, one) = (&reports["reports"][0], &reports["reports"][1]);
    assert_eq!((&two["alive"], &one["alive"]), (&json!(true), &json!(true)));
    let by_report = json!({ "report": one["id"], "reason": "law" });
    let by_hash = json!({ "code": "two", "contentHash": two["contentHash"], "reason": "law" });
    for order in [by_report, by_hash] {
        let (status, done) = take_down(&site, order).await;
        assert_eq!((status, &done["pastes"]), (StatusCode::OK, &json!(1)));
    }
    for name in ["one", "two"] {
        assert_eq!(site.get(&format!("/raw/{name}")).send().await.unwrap().status(), 404);
    }
}

#[tokio::test]
async fn e32_every_action_is_logged_with_operator_reason_and_time() {
    let site = site().await;
    let code = site.ready("", "bad").await;
    let order = json!({ "code": code.as_str(), "reason": "court order 77/12", "ban": true });
    let (_, done) = take_down(&site, order).await;
    let hash = done["contentHash"].as_str().unwrap();
    let unban = |query: &str| {
        let path = format!("/api/v1/bans/{hash}{query}");
        site.request(Method::DELETE, &path).bearer_auth(TOKEN).send()
    };
    assert_eq!(unban("?reason=appeal").await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(unban("").await.unwrap().status(), StatusCode::NOT_FOUND);
    let ban = site.request(Method::PUT, &format!("/api/v1/bans/{hash}")).bearer_auth(TOKEN);
    let ban = ban.json(&json!({ "reason": "list" })).send().await.unwrap();
    assert_eq!(ban.status(), StatusCode::NO_CONTENT);
    let acts = list(&site, "/api/v1/moderation").await;
    let acts = acts["acts"].as_array().unwrap();
    let summary =
        |act: &Value| (act["action"].clone(), act["reason"].clone(), act["pastes"].clone());
    let expected =
        [("ban", "list", 0), ("unban", "appeal", 0), ("takedown", "court order 77/12", 1)];
    let expected = expected.map(|(act, why, count)| (json!(act), json!(why), json!(count)));
    assert_eq!(acts.iter().map(summary).collect::<Vec<_>>(), expected);
    for act in acts {
        assert_eq!(act["who"], "operator token from 127.0.0.1");
        assert_eq!(act["contentHash"], hash);
        act["actedAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    }
    assert_eq!((&acts[2]["code"], &acts[2]["banned"]), (&json!(code.as_str()), &json!(true)));
}

#[tokio::test]
async fn operator_lists_continue_after_each_page() {
    let site = site().await;
    let code = site.ready("", "x").await;
    for _ in 0..5 {
        report(&site, code.as_str()).await;
    }
    for n in 0..5 {
        let path = format!("/api/v1/bans/{n:064x}");
        let ban = site.request(Method::PUT, &path).bearer_auth(TOKEN);
        ban.json(&json!({ "reason": "list" })).send().await.unwrap();
    }
    for (path, name, key) in [
        ("/api/v1/reports", "reports", "id"),
        ("/api/v1/bans", "bans", "contentHash"),
        ("/api/v1/moderation", "acts", "contentHash"),
    ] {
        let (mut seen, mut before) = (Vec::new(), String::new());
        loop {
            let page = list(&site, &format!("{path}?limit=2{before}")).await;
            let rows = page[name].as_array().unwrap();
            seen.extend(rows.iter().map(|row| row[key].to_string()));
            match page["next"].as_i64() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        let all = list(&site, path).await;
        let all: Vec<String> =
            all[name].as_array().unwrap().iter().map(|row| row[key].to_string()).collect();
        assert_eq!((seen.len(), &seen), (5, &all), "{path}");
        for bad in ["0", "-1", "x", ""] {
            let bad = site.get(&format!("{path}?before={bad}")).bearer_auth(TOKEN);
            assert_eq!(bad.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
        }
        let most = site.get(&format!("{path}?limit=201")).bearer_auth(TOKEN);
        assert_eq!(most.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    }
}
