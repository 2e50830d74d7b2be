//! What users do in a browser.

use reqwest::{Method, StatusCode};

use super::{BROWSER, Site, header, whole};

/// Submits the form of our create page, as a browser sends it.
async fn submit(site: &Site, fields: &[(&str, &str)], cookie: &str) -> reqwest::Response {
    let mut body = String::new();
    for (name, value) in fields {
        body +=
            &format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body +=
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"\"\r\n\r\n\r\n--b--\r\n";
    site.post("/")
        .header("content-type", "multipart/form-data; boundary=b")
        .header("accept", BROWSER)
        .header("sec-fetch-site", "same-origin")
        .header("cookie", cookie)
        .body(body)
        .send()
        .await
        .unwrap()
}

fn cookie(response: &reqwest::Response, name: &str) -> Option<String> {
    let set = response.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    set.filter_map(|set| set.strip_prefix(&format!("{name}=")))
        .map(|rest| format!("{name}={}", rest.split(';').next().unwrap()))
        .next()
}

async fn look(site: &Site, path: &str, cookie: &str) -> reqwest::Response {
    site.get(path).header("accept", BROWSER).header("cookie", cookie).send().await.unwrap()
}

#[tokio::test]
async fn browser_is_redirected_and_shows_the_delete_token_once() {
    let site = Site::new().await;
    let response =
        submit(&site, &[("page", "1"), ("content", "a\r\nb\r\n"), ("lang", "")], "").await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    let path = header(response.headers(), "location").to_owned();
    let code = path.strip_prefix('/').unwrap();
    let set = header(response.headers(), "set-cookie");
    for part in ["; HttpOnly", "; SameSite=Strict", &format!("; Path=/{code};")] {
        assert!(set.contains(part), "{part} in {set}");
    }
    let made = cookie(&response, "made").unwrap();
    let token = made.rsplit('.').next().unwrap().to_owned();

    // While the upload is in progress the token is shown and its cookie kept: the page reloads by
    // itself.
    let waiting = look(&site, &path, &made).await;
    assert_eq!(waiting.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(cookie(&waiting, "made").is_none());
    assert!(waiting.text().await.unwrap().contains(&token));
    site.fixture.work().await;
    assert_eq!(site.fixture.bytes(&code.parse().unwrap()).await, b"a\nb\n", "as it was typed");

    let shown = look(&site, &path, &made).await;
    assert_eq!(cookie(&shown, "made").as_deref(), Some("made="), "the cookie is removed");
    assert_eq!(header(shown.headers(), "cache-control"), "no-store");
    assert!(shown.text().await.unwrap().contains(&token));
    for _ in 0..2 {
        let others = look(&site, &path, "").await;
        assert!(!others.text().await.unwrap().contains(&token), "other readers do not see it");
    }
}

#[tokio::test]
async fn my_pastes_lists_and_deletes_by_cookie() {
    let site = Site::new().await;
    let empty = look(&site, "/mine", "").await;
    assert_eq!(header(empty.headers(), "cache-control"), "no-store");
    assert!(empty.text().await.unwrap().contains("No pastes yet"));
    let fields = [("page", "1"), ("content", "mine"), ("remember", "1")];
    let response = submit(&site, &fields, "").await;
    let owner = cookie(&response, "owner").unwrap();
    let first = header(response.headers(), "location").to_owned();
    let fields = [("page", "1"), ("content", "mine, too"), ("remember", "1")];
    let second = submit(&site, &fields, &owner).await;
    let second = header(second.headers(), "location").to_owned();
    let forgotten = submit(&site, &[("page", "1"), ("content", "not listed")], "").await;
    assert!(cookie(&forgotten, "owner").is_none());
    let mine = look(&site, "/mine", &owner).await.text().await.unwrap();
    for path in [&first, &second] {
        assert!(mine.contains(&site.url(path)), "{path} in {mine}");
    }
    assert!(!mine.contains(header(forgotten.headers(), "location")));
    let delete = async |path: &str, cookie: &str| {
        site.post(&format!("{path}/delete"))
            .header("accept", BROWSER)
            .header("cookie", cookie)
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(delete(&first, "").await, StatusCode::FORBIDDEN);
    let unknown = "owner=0123456789abcdef0123456789abcdef0123456789a";
    assert_eq!(delete(&first, unknown).await, StatusCode::FORBIDDEN);
    assert_eq!(delete(&first, &owner).await, StatusCode::OK);
    let mine = look(&site, "/mine", &owner).await.text().await.unwrap();
    assert!(!mine.contains(&site.url(&first)) && mine.contains(&site.url(&second)));
}

#[tokio::test]
async fn e33_cookie_of_an_unknown_owner_is_ignored() {
    let site = Site::new().await;
    let unknown = "owner=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let saved = submit(&site, &[("page", "1"), ("content", "a")], unknown).await;
    assert_eq!(saved.status(), StatusCode::SEE_OTHER);
    let listed =
        submit(&site, &[("page", "1"), ("content", "b"), ("remember", "1")], unknown).await;
    assert_eq!(listed.status(), StatusCode::SEE_OTHER);
    let owner = cookie(&listed, "owner").unwrap();
    assert_ne!(owner, unknown, "the browser gets a new owner");
    let mine = look(&site, "/mine", &owner).await;
    assert!(cookie(&mine, "owner").is_none());
    assert!(mine.text().await.unwrap().contains(header(listed.headers(), "location")));
    let mine = look(&site, "/mine", unknown).await;
    assert_eq!(cookie(&mine, "owner").as_deref(), Some("owner="), "the browser forgets it");
    assert!(mine.text().await.unwrap().contains("No pastes yet"));
}

#[tokio::test]
async fn e34_paste_is_listed_only_if_the_box_is_ticked() {
    let site = Site::new().await;
    let ticked = submit(&site, &[("page", "1"), ("content", "a"), ("remember", "1")], "").await;
    let owner = cookie(&ticked, "owner").unwrap();
    let plain = submit(&site, &[("page", "1"), ("content", "b")], &owner).await;
    let mine = look(&site, "/mine", &owner).await.text().await.unwrap();
    assert!(mine.contains(&site.url(header(ticked.headers(), "location"))));
    assert!(!mine.contains(&site.url(header(plain.headers(), "location"))));
    let owned = "select count(*) from pastes.pastes where user_id is not null";
    assert_eq!(site.fixture.count(owned).await, 1);
}

#[tokio::test]
async fn form_with_an_error_keeps_what_was_typed() {
    let site = Site::new().await;
    let fields = [("page", "1"), ("content", "long text"), ("alias", "api"), ("expires", "1d")];
    let response = submit(&site, &fields, "").await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(header(response.headers(), "cache-control"), "no-store");
    let page = response.text().await.unwrap();
    for part in ["long text", "value=\"api\"", "our own paths", "value=\"1d\" selected"] {
        assert!(page.contains(part), "{part}");
    }
    let empty = submit(&site, &[("page", "1"), ("content", "")], "").await;
    assert_eq!(empty.status(), StatusCode::BAD_REQUEST);
    assert!(empty.text().await.unwrap().contains("at least one byte"));
}

#[tokio::test]
async fn delete_form_accepts_the_token() {
    let site = Site::new().await;
    let made = site.post("/").body("x").send().await.unwrap();
    let token = header(made.headers(), "x-delete-token").to_owned();
    let code = site.code_of(&made.text().await.unwrap());
    let delete = async |token: &str| {
        site.post(&format!("/{code}/delete"))
            .header("accept", BROWSER)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("token={token}"))
            .send()
            .await
            .unwrap()
    };
    assert_eq!(delete("wrong").await.status(), StatusCode::FORBIDDEN);
    let done = delete(&token).await;
    assert_eq!(done.status(), StatusCode::OK);
    assert!(done.text().await.unwrap().contains("Deleted"));
    assert_eq!(site.get(&format!("/{code}")).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn h10_form_of_another_site_changes_nothing() {
    let site = Site::new().await;
    let burns = site.ready("?burn=1", "secret").await;
    let made = site.post("/").body("x").send().await.unwrap();
    let token = header(made.headers(), "x-delete-token").to_owned();
    let code = site.code_of(&made.text().await.unwrap());
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        for (path, body) in [
            ("/".to_owned(), "content=x&page=1".to_owned()),
            (format!("/{burns}/burn"), "as=page".to_owned()),
            (format!("/{code}/delete"), format!("token={token}")),
            (format!("/{code}/report"), "reason=spam".to_owned()),
        ] {
            let response = site
                .post(&path)
                .header("accept", BROWSER)
                .header("content-type", "application/x-www-form-urlencoded")
                .header(name, value)
                .body(body)
                .send()
                .await
                .unwrap();
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path} {name}");
        }
    }
    assert_eq!(
        site.fixture.count("select count(*) from pastes.pastes where expires_at > now()").await,
        2
    );
    assert_eq!(site.fixture.count("select count(*) from pastes.reports").await, 0);
}

#[tokio::test]
async fn get_and_head_change_nothing() {
    let site = Site::new().await;
    let code = site.ready("", "x").await;
    for path in ["burn", "delete", "report"] {
        for method in [Method::GET, Method::HEAD] {
            let response = site.request(method, &format!("/{code}/{path}")).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
    }
}

#[tokio::test]
async fn report_form_stores_a_report() {
    let site = Site::new().await;
    let code = site.ready("", "bad things").await;
    let response = site
        .post(&format!("/{code}/report"))
        .header("accept", BROWSER)
        .header("content-type", "application/x-www-form-urlencoded")
        .body("reason=spam&details=it+sells+things")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.text().await.unwrap().contains("Report sent"));
    let reports = site.fixture.pastes.reports(None, 10).await.unwrap();
    assert_eq!(reports[0].reason, "spam: it sells things");
    let nothing = site
        .post("/0123456789012345678901/report")
        .header("accept", BROWSER)
        .body("reason=spam")
        .send()
        .await
        .unwrap();
    let unknown =
        site.get("/0123456789012345678901").header("accept", BROWSER).send().await.unwrap();
    assert_eq!(whole(nothing).await, whole(unknown).await);
}
