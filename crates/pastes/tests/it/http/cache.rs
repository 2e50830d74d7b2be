//! How long clients may cache a copy.

use reqwest::{Method, StatusCode};

use super::{BROWSER, Site, header};
use crate::fixture::until;

fn max_age(value: &str) -> u64 {
    value.strip_prefix("private, max-age=").unwrap().parse().unwrap()
}

#[tokio::test]
async fn e16_cache_control_ends_before_the_paste() {
    let site = Site::new().await;
    let (long, short) = (site.ready("", "long").await, site.ready("?expires=1h", "short").await);
    let sql = "update pastes.pastes set expires_at = statement_timestamp() + interval '30 seconds' \
               where short_code = $1";
    for prefix in ["/raw/", "/", "/api/v1/pastes/", "/download/", "/qr/"] {
        // Renew its lifetime, however slow the other requests were.
        assert_eq!(site.fixture.client.execute(sql, &[&short.as_str()]).await.unwrap(), 1);
        let kept = async |code: &pastes::ShortCode| {
            let request = site.get(&format!("{prefix}{code}")).header("accept", BROWSER);
            max_age(header(request.send().await.unwrap().headers(), "cache-control"))
        };
        assert_eq!(kept(&long).await, 60, "{prefix}");
        assert!(kept(&short).await < 30, "{prefix}");
    }
}

#[tokio::test]
async fn e15_paste_ends_by_the_clock_of_the_database() {
    let site = Site::new().await;
    let code = site.ready("?expires=1h", "x").await;
    let raw = async || site.get(&format!("/raw/{code}")).send().await.unwrap();
    assert_eq!(raw().await.status(), StatusCode::OK);
    // By every other clock it has an hour left; the database's clock decides.
    site.fixture.expire(&code).await;
    until(async || raw().await.status() == StatusCode::NOT_FOUND).await;
    let page = site.get(&format!("/{code}")).send().await.unwrap();
    assert_eq!(page.status(), StatusCode::NOT_FOUND, "the cached page is not shown");
    // The other way round: expired by this process's clock, live by the database's.
    let late = site.ready("?expires=1h", "y").await;
    let sql = "update pastes.pastes set created_at = created_at - interval '2 hours' where short_code = $1";
    site.fixture.client.execute(sql, &[&late.as_str()]).await.unwrap();
    let alive = site.get(&format!("/raw/{late}")).send().await.unwrap();
    assert_eq!(alive.status(), StatusCode::OK);
}

#[tokio::test]
async fn current_copy_is_not_sent_again() {
    let site = Site::new().await;
    let (code, other) = (site.ready("", "hello").await, site.ready("", "hello").await);
    for prefix in ["/raw/", "/download/"] {
        let path = format!("{prefix}{code}");
        let first = site.get(&path).send().await.unwrap();
        let tag = header(first.headers(), "etag").to_owned();
        let again = site.get(&path).header("if-none-match", &tag).send().await.unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(header(again.headers(), "etag"), tag);
        assert_eq!(again.bytes().await.unwrap().len(), 0);
        let changed = site.get(&path).header("if-none-match", "\"other\"").send().await.unwrap();
        assert_eq!(changed.status(), StatusCode::OK);
        let twin = site.get(&format!("{prefix}{other}")).send().await.unwrap();
        assert_ne!(
            header(twin.headers(), "etag"),
            tag,
            "tags do not reveal that bytes are the same"
        );
        let head = site.request(Method::HEAD, &path).send().await.unwrap();
        assert_eq!(header(head.headers(), "content-length"), "5");
        assert_eq!(header(head.headers(), "etag"), tag);
        assert_eq!(head.bytes().await.unwrap().len(), 0);
    }
}
