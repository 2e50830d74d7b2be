//! Reading pastes, and pastes that cannot be read.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{BROWSER, Site, header, long_limits, settings, whole};

#[tokio::test]
async fn paste_is_served_byte_for_byte_in_every_format() {
    let site = Site::new().await;
    let code = site.ready("?lang=rust", "fn main() {}\n").await;
    let raw = site.get(&format!("/raw/{code}")).send().await.unwrap();
    assert_eq!(raw.status(), StatusCode::OK);
    assert_eq!(header(raw.headers(), "content-type"), "text/plain; charset=utf-8");
    assert_eq!(raw.bytes().await.unwrap(), "fn main() {}\n");
    let text = site.get(&format!("/{code}")).header("accept", "text/plain").send().await.unwrap();
    assert_eq!(text.bytes().await.unwrap(), "fn main() {}\n");
    let download = site.get(&format!("/download/{code}")).send().await.unwrap();
    let name = format!("attachment; filename=\"{code}.txt\"");
    assert_eq!(header(download.headers(), "content-disposition"), name);
    assert_eq!(header(download.headers(), "content-type"), "application/octet-stream");
    assert_eq!(download.bytes().await.unwrap(), "fn main() {}\n");
    let api = site.get(&format!("/api/v1/pastes/{code}")).send().await.unwrap();
    let api: Value = api.json().await.unwrap();
    assert_eq!((&api["content"], &api["encoding"]), (&"fn main() {}\n".into(), &"utf-8".into()));
    let page = site.get(&format!("/{code}")).header("accept", BROWSER).send().await.unwrap();
    assert_eq!(header(page.headers(), "content-type"), "text/html; charset=utf-8");
    assert!(page.text().await.unwrap().contains("main"));
    let qr = site.get(&format!("/qr/{code}")).send().await.unwrap();
    assert_eq!(header(qr.headers(), "content-type"), "image/svg+xml");
    assert!(qr.text().await.unwrap().contains("<svg"));
}

#[tokio::test]
async fn h9_unreadable_pastes_get_the_same_404() {
    let site = Site::new().await;
    let (expired, deleted, failed) =
        (site.ready("", "a").await, site.ready("", "b").await, site.make("", "c").await);
    site.fixture.expire(&expired).await;
    let sql = "update pastes.pastes set status = 'FAILED' where short_code = $1";
    site.fixture.client.execute(sql, &[&failed.as_str()]).await.unwrap();
    let sql =
        "select pastes.end_now(short_code, paste_id) from pastes.pastes where short_code = $1";
    site.fixture.client.query(sql, &[&deleted.as_str()]).await.unwrap();
    let never = "0123456789012345678901";
    let malformed = ["a.b", "%2e%2e%2fx", "%ff", "a%2Fb", &"x".repeat(33), "a'--", "%00"];
    for prefix in ["/", "/raw/", "/api/v1/pastes/", "/download/", "/qr/"] {
        for accept in ["*/*", BROWSER] {
            let look = async |code: &str| {
                let request = site.get(&format!("{prefix}{code}")).header("accept", accept);
                whole(request.send().await.unwrap()).await
            };
            let expected = look(never).await;
            assert_eq!(expected.0, StatusCode::NOT_FOUND);
            for code in [expired.as_str(), deleted.as_str(), failed.as_str()] {
                assert_eq!(look(code).await, expected, "{prefix}{code}");
            }
            for code in malformed {
                assert_eq!(look(code).await, expected, "{prefix}{code}");
            }
            let no_store = ("cache-control".to_owned(), "no-store".to_owned());
            assert!(expected.1.contains(&no_store), "{:?}", expected.1);
        }
    }
}

#[tokio::test]
async fn readers_get_503_with_retry_after_during_the_upload() {
    let site = Site::new().await;
    let code = site.make("", "hello").await;
    for path in [format!("/{code}"), format!("/raw/{code}"), format!("/api/v1/pastes/{code}")] {
        let response = site.get(&path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(header(response.headers(), "retry-after"), "30");
        assert_eq!(header(response.headers(), "cache-control"), "no-store");
    }
    let page = site.get(&format!("/{code}")).header("accept", BROWSER).send().await.unwrap();
    assert_eq!(page.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(page.headers(), "retry-after"), "30");
    assert!(page.text().await.unwrap().contains("http-equiv=\"refresh\""));
    site.fixture.work().await;
    assert_eq!(site.get(&format!("/raw/{code}")).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn burning_paste_is_read_once_and_only_by_post() {
    let site = Site::new().await;
    let code = site.ready("?burn=1", "secret").await;
    for (path, accept) in [
        (format!("/{code}"), BROWSER),
        (format!("/raw/{code}"), "*/*"),
        (format!("/api/v1/pastes/{code}"), "*/*"),
        (format!("/download/{code}"), "*/*"),
    ] {
        for method in [Method::HEAD, Method::GET] {
            let response =
                site.request(method, &path).header("accept", accept).send().await.unwrap();
            let page = accept == BROWSER;
            assert_eq!(response.status(), if page { 200 } else { 409 }, "{path}");
            assert_eq!(header(response.headers(), "cache-control"), "no-store");
            let text = response.text().await.unwrap();
            assert!(!text.contains("secret"), "{path}");
            assert!(page || text.is_empty() || text.contains("/burn"), "{path}: {text}");
        }
    }
    let burn = || site.post(&format!("/api/v1/pastes/{code}/burn")).send();
    let responses = futures_util::future::join_all((0..4).map(|_| burn())).await;
    let mut got = Vec::new();
    for response in responses {
        let response = response.unwrap();
        assert_eq!(header(response.headers(), "cache-control"), "no-store");
        match response.status() {
            StatusCode::OK => got.push(response.json::<Value>().await.unwrap()),
            status => assert_eq!(status, StatusCode::NOT_FOUND),
        }
    }
    assert_eq!(got.len(), 1, "one reader gets it");
    assert_eq!(got[0]["content"], "secret");
    assert_eq!(site.get(&format!("/{code}")).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn one_of_two_concurrent_readers_burns_the_paste() {
    let site = Site::new().await;
    let code = site.ready("?burn=1", "secret").await;
    let gate = site.fixture.database.connect_directly().await;
    gate.batch_execute("select pg_advisory_lock(1)").await.unwrap();
    let early = site.fixture.database.connect_directly().await;
    let asked = code.to_string();
    // Its statement begins first and reaches the paste last.
    let waiting = tokio::spawn(async move {
        let sql = "select pg_advisory_lock(1), pastes.burn(short_code, paste_id) \
                   from pastes.pastes where short_code = $1";
        early.query_one(sql, &[&asked]).await.unwrap().get::<_, bool>(1)
    });
    crate::fixture::until(async || {
        let sql = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                   and database = (select oid from pg_database where datname = current_database())";
        site.fixture.count(sql).await == 1
    })
    .await;
    let got = site.post(&format!("/{code}/burn")).send().await.unwrap();
    assert_eq!(got.status(), StatusCode::OK);
    gate.batch_execute("select pg_advisory_unlock(1)").await.unwrap();
    assert!(!waiting.await.unwrap(), "it was burnt before");
}

#[tokio::test]
async fn burn_returns_a_page_to_browsers_and_bytes_to_curl() {
    let site = Site::new().await;
    let (shown, saved, plain) = (
        site.ready("?burn=1", "shown <b>").await,
        site.ready("?burn=1", "saved").await,
        site.ready("?burn=1", "plain").await,
    );
    let press = |code: &pastes::ShortCode, how: &'static str| {
        site.post(&format!("/{code}/burn"))
            .header("accept", BROWSER)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(how)
            .send()
    };
    let page = press(&shown, "as=page").await.unwrap();
    assert_eq!(header(page.headers(), "cache-control"), "no-store");
    assert!(page.text().await.unwrap().contains("shown"));
    let file = press(&saved, "as=download").await.unwrap();
    assert!(header(file.headers(), "content-disposition").starts_with("attachment"));
    assert_eq!(file.text().await.unwrap(), "saved");
    let curl = site.post(&format!("/{plain}/burn")).send().await.unwrap();
    assert_eq!(header(curl.headers(), "content-type"), "text/plain; charset=utf-8");
    assert_eq!(curl.text().await.unwrap(), "plain");
    assert_eq!(press(&shown, "as=page").await.unwrap().status(), StatusCode::NOT_FOUND);
    let stays = site.ready("", "stays").await;
    let refused = press(&stays, "as=page").await.unwrap();
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(site.fixture.bytes(&stays).await, b"stays");
}

#[tokio::test]
async fn e23_deleting_one_copy_leaves_the_other() {
    let site = Site::new().await;
    let first = site.post("/").body("the same").send().await.unwrap();
    let token = header(first.headers(), "x-delete-token").to_owned();
    let one = site.code_of(&first.text().await.unwrap());
    site.fixture.work().await;
    let second = site.post("/").body("the same").send().await.unwrap();
    assert_eq!(second.status(), StatusCode::CREATED);
    let names = |response: &reqwest::Response| {
        let mut names: Vec<String> = response.headers().keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    let third = site.post("/").body("never seen").send().await.unwrap();
    assert_eq!(
        names(&second),
        names(&third),
        "the headers do not reveal that the bytes were stored before"
    );
    let (other, new) =
        (site.code_of(&second.text().await.unwrap()), site.code_of(&third.text().await.unwrap()));
    // Both wait for their own upload.
    for code in [&other, &new] {
        assert_eq!(site.get(&format!("/raw/{code}")).send().await.unwrap().status(), 503);
    }
    site.fixture.work().await;
    let delete = async |code: &pastes::ShortCode, token: &str| {
        let request = site.request(Method::DELETE, &format!("/{code}"));
        request.header("x-delete-token", token).send().await.unwrap().status()
    };
    assert_eq!(delete(&other, &token).await, StatusCode::FORBIDDEN, "a token is for one paste");
    assert_eq!(delete(&one, &token).await, StatusCode::NO_CONTENT);
    assert_eq!(delete(&one, &token).await, StatusCode::NO_CONTENT, "and again");
    site.fixture.sweep().await;
    assert_eq!(site.get(&format!("/raw/{one}")).send().await.unwrap().status(), 404);
    let left = site.get(&format!("/raw/{other}")).send().await.unwrap();
    assert_eq!(left.text().await.unwrap(), "the same");
}

#[tokio::test]
async fn h8_h9_wrong_token_and_unknown_code_get_the_same_response() {
    let site = Site::new().await;
    let code = site.ready("", "x").await;
    let token = "0123456789abcdef0123456789abcdef0123456789abcdef";
    let delete = async |code: &str| {
        let path = format!("/api/v1/pastes/{code}");
        let request = site.request(Method::DELETE, &path).bearer_auth(token);
        whole(request.send().await.unwrap()).await
    };
    let wrong = delete(code.as_str()).await;
    assert_eq!(wrong.0, StatusCode::FORBIDDEN);
    for other in ["0123456789012345678901", "a.b", "%2e%2e%2fx"] {
        assert_eq!(delete(other).await, wrong, "{other}");
    }
    let path = format!("/api/v1/pastes/{code}");
    let anonymous = site.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(anonymous.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(header(anonymous.headers(), "www-authenticate"), "Bearer");
    assert_eq!(site.get(&format!("/raw/{code}")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn wrong_method_is_a_405_that_lists_the_allowed_ones() {
    let site = Site::new().await;
    let response = site.request(Method::PATCH, "/api/v1/pastes").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let allowed = header(response.headers(), "allow");
    assert!(allowed.contains("POST") && allowed.contains("GET"), "{allowed}");
    assert_eq!(header(response.headers(), "content-type"), "application/problem+json");
}

#[tokio::test]
async fn health_assets_and_robots_are_served() {
    let site = Site::new().await;
    assert_eq!(site.get("/healthz").send().await.unwrap().text().await.unwrap(), "ok\n");
    let robots = site.get("/robots.txt").send().await.unwrap().text().await.unwrap();
    assert!(robots.contains("Disallow: /"));
    let page = site.get("/").header("accept", BROWSER).send().await.unwrap().text().await.unwrap();
    let mut found = 0;
    for part in page.split('"').filter(|part| part.starts_with("/assets/")) {
        let asset = site.get(part).send().await.unwrap();
        assert_eq!(asset.status(), StatusCode::OK, "{part}");
        assert!(header(asset.headers(), "cache-control").contains("immutable"));
        found += 1;
    }
    assert!(found >= 3);
    assert_eq!(site.get("/assets/paste.css").send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn h9_too_many_reads_or_creates_get_429() {
    let mut settings = settings();
    settings.limits = pastes::Limits {
        creates_per_second: 1,
        create_burst: 2,
        reads_per_second: 1,
        read_burst: 3,
        trusted_proxies: 1,
    };
    let site = Site::with(settings, long_limits()).await;
    let read = async |from: String| {
        let path = "/raw/0123456789012345678901";
        site.get(path).header("x-forwarded-for", from).send().await.unwrap()
    };
    for _ in 0..3 {
        assert_eq!(read("192.0.2.1".to_owned()).await.status(), StatusCode::NOT_FOUND);
    }
    // The limit allows one more read per second, so a few more may pass on a slow machine.
    let refused = async |from: &dyn Fn(u32) -> String| {
        for n in 0..100 {
            let response = read(from(n)).await;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                return response;
            }
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
        }
        panic!("no request was refused")
    };
    let waits = refused(&|_| "192.0.2.1".to_owned()).await;
    assert!(header(waits.headers(), "retry-after").parse::<u32>().unwrap() >= 1);
    // What a client writes itself is further left and is not trusted.
    refused(&|n| format!("203.0.113.{n}, 192.0.2.1")).await;
    let other = read("198.51.100.1".to_owned()).await;
    assert_eq!(other.status(), StatusCode::NOT_FOUND, "other addresses are served");
    let make = async || {
        let request = site.post("/").header("x-forwarded-for", "192.0.2.9").body("x");
        request.send().await.unwrap().status()
    };
    let mut made = vec![make().await, make().await];
    assert_eq!(made, [StatusCode::CREATED; 2]);
    while made.len() < 100 && !made.contains(&StatusCode::TOO_MANY_REQUESTS) {
        made.push(make().await);
    }
    assert_eq!(made.last(), Some(&StatusCode::TOO_MANY_REQUESTS));
}
