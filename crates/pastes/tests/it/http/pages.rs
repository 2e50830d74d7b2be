//! Pages: what each reader sees, and what a page may cost.

use pastes::Settings;
use reqwest::StatusCode;

use super::{BROWSER, Site, header, long_limits, settings};

async fn page(site: &Site, path: &str, cookie: &str) -> reqwest::Response {
    let request = site.get(path).header("accept", BROWSER).header("cookie", cookie);
    request.send().await.unwrap()
}

#[tokio::test]
async fn e27_forged_cookie_gets_the_public_page() {
    let site = Site::new().await;
    let save = async |name: &str| {
        let request = site.post(&format!("/?alias={name}")).body("fn main() {}");
        header(request.send().await.unwrap().headers(), "x-delete-token").to_owned()
    };
    let (one, other) = (save("one").await, save("other").await);
    site.fixture.work().await;
    let usual = page(&site, "/one", "").await;
    let kept = header(usual.headers(), "cache-control").to_owned();
    let usual = usual.text().await.unwrap();
    for forged in ["x", "", &other, &format!("{one}0"), one.strip_suffix(|_: char| true).unwrap()] {
        let response = page(&site, "/one", &format!("made=one.{forged}")).await;
        assert!(!response.headers().contains_key("set-cookie"), "{forged}");
        assert_eq!(header(response.headers(), "cache-control"), kept, "{forged}");
        assert_eq!(response.text().await.unwrap(), usual, "{forged}");
    }
    let made = page(&site, "/one", &format!("made=one.{one}")).await;
    assert_eq!(header(made.headers(), "cache-control"), "no-store");
    assert!(made.text().await.unwrap().contains(&one), "its author sees the token");
}

#[tokio::test]
async fn e27_token_of_an_earlier_paste_is_not_shown_on_the_later_one() {
    let site = Site::new().await;
    let response = site.post("/?alias=again").body("one").send().await.unwrap();
    let token = header(response.headers(), "x-delete-token").to_owned();
    let cookie = format!("made=again.{token}");
    let waiting = page(&site, "/again", &cookie).await.text().await.unwrap();
    assert!(waiting.contains(&token));
    for query in ["?alias=again", "?alias=again&burn=1"] {
        site.fixture.expire(&"again".parse().unwrap()).await;
        site.make(query, "two").await;
        for _ in 0..2 {
            let later = page(&site, "/again", &cookie).await.text().await.unwrap();
            assert!(!later.contains(&token), "{query}");
            site.fixture.work().await;
        }
    }
}

#[tokio::test]
async fn e29_form_is_accepted_up_to_the_limit_of_the_service() {
    let max_size = 5 * 1024 * 1024;
    let site = Site::with(Settings { max_size, ..settings() }, long_limits()).await;
    for (size, status, accept) in [
        (3 * 1024 * 1024, StatusCode::CREATED, "*/*"),
        (max_size, StatusCode::CREATED, "*/*"),
        (max_size, StatusCode::SEE_OTHER, BROWSER),
        (max_size + 1, StatusCode::PAYLOAD_TOO_LARGE, "*/*"),
    ] {
        let mut body =
            b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
                .to_vec();
        body.resize(body.len() + size, b'x');
        body.extend_from_slice(b"\r\n--b--\r\n");
        let request = site.post("/").header("content-type", "multipart/form-data; boundary=b");
        let response = request.header("accept", accept).body(body).send().await.unwrap();
        assert_eq!(response.status(), status, "{size} bytes for {accept}");
    }
}
