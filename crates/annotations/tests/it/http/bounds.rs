//! How large a response can get, how many are made at a time, and what they report about the index.

use annotations::{Limits, Settings};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Site, note};
use crate::fixture::{PAGE, settings, until};

const MIB: usize = 1024 * 1024;

/// Adds notes of a kind to a page by one statement, each with 60,000 characters that HTML writes as
/// four.
async fn fill(site: &Site, root: &str, kind: &str, number: i32) {
    let sql = "insert into annotations.annotation \
                   (id, document_id, user_id, group_id, kind, parent_id, root_id, quote, text, \
                    tags, updated_at) \
               select substr(replace(gen_random_uuid()::text, '-', ''), 1, 22), a.document_id, \
                      a.user_id, a.group_id, $2, case when $2 = 'reply' then a.id end, \
                      case when $2 = 'reply' then a.id end, \
                      case when $2 = 'annotation' then repeat('<', 16000) else '' end, \
                      n || ' ' || repeat('<', 60000), \
                      array(select repeat('<', 60) || t from generate_series(1, 20) t), \
                      a.updated_at + n * interval '1 ms' \
               from annotations.annotation a, generate_series(1, $3) n where a.id = $1";
    site.fixture.client.execute(sql, &[&root, &kind, &number]).await.unwrap();
}

#[tokio::test]
async fn f19_pages_and_responses_stay_below_their_byte_limit() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let mut new = note("the beginning");
    let here = site.url("/");
    new["target"]["source"] = json!(here);
    let root = site.save(&token, &new).await["key"].as_str().unwrap().to_owned();
    for kind in ["annotation", "page_note", "reply"] {
        fill(&site, &root, kind, 150).await;
    }
    let url = format!("/margin?url={here}");
    // Every link of a page contains the filter.
    let long = format!("{url}&q={}", "%3C".repeat(150));
    let paths = ["/", "/?tab=notes", &url, &long, &format!("/note/{root}")];
    for path in paths {
        let answer = site.get(path).header("accept", "text/html").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let size = answer.bytes().await.unwrap().len();
        assert!(size < 3 * MIB, "{path}: {size}");
    }
    let (mut keys, mut cursor) = (std::collections::HashSet::new(), None::<String>);
    loop {
        let mut values = vec![("url", here.as_str()), ("limit", "200")];
        values.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let answer = site.search(&values).send().await.unwrap().bytes().await.unwrap();
        assert!(answer.len() < 2 * MIB + 64 * 1024, "{}", answer.len());
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        for row in answer["rows"].as_array().unwrap() {
            assert!(keys.insert(row["key"].as_str().unwrap().to_owned()), "twice");
        }
        match answer["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(keys.len(), 451, "every one of them, on some page");
}

#[tokio::test]
async fn f19_page_shows_the_beginning_of_a_long_text_and_links_to_the_rest() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let cookie = site.cookie(&token).await;
    let mut new = note(&format!("begin {} the very end", "x".repeat(3000)));
    new["target"]["source"] = json!(site.url("/"));
    let key = site.save(&token, &new).await["key"].as_str().unwrap().to_owned();
    let page = async |path: &str| {
        let got = site.get(path).header("accept", "text/html").header("cookie", cookie.clone());
        got.send().await.unwrap().text().await.unwrap()
    };
    let words = page("/").await;
    assert!(words.contains("begin xxx") && !words.contains("the very end"));
    let link = format!("href=\"/note/{key}\" data-more");
    assert!(words.contains(&link) && words.contains("data-cut"), "{words}");
    let whole = page(&format!("/note/{key}")).await;
    assert!(whole.contains("the very end") && !whole.contains("data-more"));
    let gone = site.get(&format!("/note/{}", "0".repeat(22))).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn f19_one_address_has_a_bounded_number_of_open_responses() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    site.save(&token, &note("x")).await;
    // Searches by words take until the test ends them.
    let slow = "create table public.go (); \
                create or replace function annotations.matches_words(words text[], phrases text[], content text) \
                returns boolean language plpgsql as $$ begin \
                    while not exists (select from public.go) loop perform pg_sleep(0.01); end loop; \
                    return true; \
                end $$";
    site.fixture.client.batch_execute(slow).await.unwrap();
    site.fixture.index().set_down(true);
    let answering: Vec<_> =
        (0..4).map(|_| tokio::spawn(site.search(&[("q", "x")]).send())).collect();
    until(async || site.fixture.count(crate::word_search::SEARCHING).await == 2).await;
    let paths = ["/".to_owned(), format!("/margin?url={PAGE}"), "/api/search".to_owned()];
    let mut refused = Vec::new();
    // The other two may still be in flight.
    until(async || {
        let asked = paths.iter().map(|path| site.get(path).send());
        let answers = futures_util::future::join_all(asked).await;
        refused = answers.into_iter().map(|answer| answer.unwrap()).collect::<Vec<_>>();
        refused.iter().all(|answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE)
    })
    .await;
    assert!(refused.iter().all(|answer| answer.headers().contains_key("retry-after")));
    site.fixture.client.batch_execute("insert into public.go default values").await.unwrap();
    site.fixture.index().set_down(false);
    for answer in answering {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(site.get("/").send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn f19_account_page_lists_groups_in_pages() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let groups = "with made as ( \
                      insert into annotations.user_group (id, name, owner_id) \
                      select 'group' || to_char(n, 'FM0000'), repeat('<', 80), u.id \
                        from annotations.user_account u, generate_series(1, 999) n returning id, owner_id) \
                  insert into annotations.membership (group_id, user_id) select id, owner_id from made";
    site.fixture.client.batch_execute(groups).await.unwrap();
    let cookie = site.cookie(&token).await;
    let mut seen = std::collections::HashSet::new();
    for number in 1..=10 {
        let path = format!("/account?page={number}");
        let page = site.get(&path).header("accept", "text/html").header("cookie", cookie.clone());
        let page = page.send().await.unwrap().text().await.unwrap();
        assert!(page.len() < MIB, "{}", page.len());
        assert!(page.contains(&format!("Page {number} of 10")));
        assert_eq!(page.contains(">Next</a>"), number < 10);
        seen.extend(
            page.split("<code>").skip(1).map(|rest| rest.chars().take(9).collect::<String>()),
        );
    }
    assert_eq!(seen.len(), 999);
    // So does the page that shows why a form was refused.
    let refused = site.post("/account/join").header("cookie", cookie).body("group=none");
    let kind = "application/x-www-form-urlencoded";
    let refused = refused.header("content-type", kind).header("sec-fetch-site", "same-origin");
    let refused = refused.header("accept", "text/html").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.bytes().await.unwrap().len() < MIB);
}

#[tokio::test]
async fn h22_body_memory_is_counted_per_address() {
    use futures_util::{FutureExt as _, StreamExt as _, stream};

    let site = Site::new().await;
    let router = annotations::router(site.fixture.notes.clone());
    // One piece of the body arrives, the rest does not.
    let stall = |from: u8| {
        let piece = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 500_000])]);
        let body = axum::body::Body::from_stream(piece.chain(stream::pending()));
        let peer = std::net::SocketAddr::from(([192, 0, 2, from], 1000));
        let request = axum::http::Request::post("/api/users")
            .header("content-type", "application/json")
            .extension(axum::extract::ConnectInfo(peer))
            .body(body)
            .unwrap();
        tokio::spawn(tower::ServiceExt::oneshot(router.clone(), request).map(Result::unwrap))
    };
    let stalled: Vec<_> = (0..20).map(|_| stall(1)).collect();
    // The memory of one address is 8 MiB. Bodies that found none are refused.
    until(async || stalled.iter().filter(|one| one.is_finished()).count() == 4).await;
    for one in stalled {
        match one.is_finished() {
            true => assert_eq!(one.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE),
            false => one.abort(),
        }
    }
    let other = stall(2);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!other.is_finished(), "another address has memory");
    other.abort();
}

#[tokio::test]
async fn f24_cursor_after_hidden_notes_reveals_none_of_them() {
    let site = Site::new().await;
    let alba = site.token("alba").await;
    let group = site.post("/api/groups").bearer_auth(&alba).json(&json!({ "name": "Ours" }));
    let group: Value = group.send().await.unwrap().json().await.unwrap();
    let mut keys = Vec::new();
    for number in 0..7 {
        let made = site.save(&alba, &note(&format!("note {number}"))).await;
        keys.push(made["key"].as_str().unwrap().to_owned());
    }
    site.fixture.work_all().await;
    // Moved to a group, and the index does not know yet.
    let sql = "update annotations.annotation set group_id = $1";
    site.fixture.client.execute(sql, &[&group["id"].as_str().unwrap()]).await.unwrap();
    let mut seen = Value::Null;
    until(async || {
        let answer = site.search(&[("q", "note"), ("limit", "1")]).send().await.unwrap();
        seen = answer.json().await.unwrap();
        seen["index"] != "down"
    })
    .await;
    assert_eq!(seen["rows"], json!([]));
    let next = seen["next"].as_str().expect("there were more hits than rounds");
    assert!(next.len() == 86 && next.bytes().all(|byte| byte.is_ascii_hexdigit()), "{next}");
    for key in keys {
        assert!(!seen.to_string().contains(&key));
    }
    let forged = site.search(&[("cursor", &"0".repeat(86))]).send().await.unwrap();
    assert_eq!(forged.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn f25_new_note_is_on_its_page_for_every_reader_at_once() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    site.save(&token, &note("just now")).await;
    let mut found = Value::Null;
    until(async || {
        found = site.search(&[("url", PAGE)]).send().await.unwrap().json().await.unwrap();
        found["index"] != "down"
    })
    .await;
    assert_eq!(found["rows"][0]["body"][0]["value"], "just now");
    assert_eq!((&found["index"], &found["counts"]["annotations"]), (&json!("behind"), &json!(1)));
    site.fixture.work_all().await;
    until(async || {
        let found = site.search(&[("url", PAGE)]).send().await.unwrap();
        found.json::<Value>().await.unwrap()["index"] == "ok"
    })
    .await;
}

#[tokio::test]
async fn f25_page_reports_an_open_breaker_and_not_a_late_index() {
    let site = Site::new().await;
    let sentence = "Search is catching up. Your notes are safe.";
    let page = async || {
        let got = site.get("/").header("accept", "text/html").send().await.unwrap();
        (got.headers()["x-index"].to_str().unwrap().to_owned(), got.text().await.unwrap())
    };
    site.fixture.index().set_hanging(true);
    // This search does not wait for the index, which has not failed yet.
    let hasty = annotations::Annotations::start(
        site.fixture.engine.clone(),
        Some(annotations::Index::new(std::sync::Arc::clone(site.fixture.store.as_ref().unwrap()))),
        Settings { index_timeout: std::time::Duration::from_millis(1), ..settings() },
    );
    let hasty = hasty.await.unwrap();
    let late = hasty.search(None, &crate::fixture::on_page(), None, 10).await.unwrap();
    assert_eq!((late.index, late.away), (annotations::IndexState::Down, false));
    site.fixture.index().set_hanging(false);
    site.fixture.index().set_down(true);
    until(async || {
        let (index, words) = page().await;
        assert!(!words.contains("index is away"));
        index == "down" && words.contains(sentence)
    })
    .await;
    site.fixture.index().set_down(false);
    until(async || {
        let (index, words) = page().await;
        index == "ok" && !words.contains(sentence)
    })
    .await;
}

#[tokio::test]
async fn f25_page_reports_an_index_that_is_behind_only_where_the_search_depends_on_it() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let mut new = note("giants");
    new["target"]["source"] = json!(site.url("/"));
    site.save(&token, &new).await;
    let sentence = "Search is catching up. Your notes are safe.";
    // The job of the save is overdue, so the index is behind.
    let overdue = "update leasehold.job set scheduled_at = scheduled_at - interval '10 minutes'";
    site.fixture.client.execute(overdue, &[]).await.unwrap();
    for (path, explained) in [("/?q=giants", true), ("/", false)] {
        until(async || {
            let got = site.get(path).header("accept", "text/html").send().await.unwrap();
            let index = got.headers()["x-index"].to_str().unwrap().to_owned();
            let page = got.text().await.unwrap();
            if index == "behind" {
                assert_eq!(page.contains(sentence), explained, "{path}");
            }
            index == "behind"
        })
        .await;
    }
}

#[tokio::test]
async fn h22_health_checks_are_not_rate_limited() {
    let limits = Limits { reads_per_second: 1, read_burst: 1, ..settings().limits };
    let site = Site::with(Settings { limits, ..settings() }).await;
    until(async || {
        let read = site.search(&[("url", PAGE)]).send().await.unwrap();
        read.status() == StatusCode::TOO_MANY_REQUESTS
    })
    .await;
    for _ in 0..20 {
        assert_eq!(site.get("/healthz").send().await.unwrap().status(), StatusCode::OK);
    }
}
