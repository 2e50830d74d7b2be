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
async fn a_person_is_sent_to_the_paste_and_sees_its_delete_token_once() {
    let site = Site::new().await;
    let answer = submit(&site, &[("page", "1"), ("content", "a\r\nb\r\n"), ("lang", "")], "").await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    let path = header(answer.headers(), "location").to_owned();
    let code = path.strip_prefix('/').unwrap();
    let set = header(answer.headers(), "set-cookie");
    for part in ["; HttpOnly", "; SameSite=Strict", &format!("; Path=/{code};")] {
        assert!(set.contains(part), "{part} in {set}");
    }
    let made = cookie(&answer, "made").unwrap();
    let token = made.rsplit('.').next().unwrap().to_owned();

    // While the upload is in progress the token is shown and its cookie kept: the page reloads by
    // itself.
    let waiting = look(&site, &path, &made).await;
    assert_eq!(waiting.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(cookie(&waiting, "made").is_none());
    assert!(waiting.text().await.unwrap().contains(&token));
    site.rig.work().await;
    assert_eq!(site.rig.bytes(&code.parse().unwrap()).await, b"a\nb\n", "as it was typed");

    let shown = look(&site, &path, &made).await;
    assert_eq!(cookie(&shown, "made").as_deref(), Some("made="), "forgotten");
    assert_eq!(header(shown.headers(), "cache-control"), "no-store");
    assert!(shown.text().await.unwrap().contains(&token));
    for _ in 0..2 {
        let others = look(&site, &path, "").await;
        assert!(!others.text().await.unwrap().contains(&token), "nobody else sees it");
    }
}

#[tokio::test]
async fn pastes_that_a_browser_remembers_are_listed_and_deleted_there() {
    let site = Site::new().await;
    let empty = look(&site, "/mine", "").await;
    assert_eq!(header(empty.headers(), "cache-control"), "no-store");
    assert!(empty.text().await.unwrap().contains("Nothing here yet"));
    let fields = [("page", "1"), ("content", "mine"), ("remember", "1")];
    let answer = submit(&site, &fields, "").await;
    let owner = cookie(&answer, "owner").unwrap();
    let first = header(answer.headers(), "location").to_owned();
    let fields = [("page", "1"), ("content", "mine, too"), ("remember", "1")];
    let second = submit(&site, &fields, &owner).await;
    let second = header(second.headers(), "location").to_owned();
    let forgotten = submit(&site, &[("page", "1"), ("content", "nobody's")], "").await;
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
    let stranger = "owner=0123456789abcdef0123456789abcdef0123456789a";
    assert_eq!(delete(&first, stranger).await, StatusCode::FORBIDDEN);
    assert_eq!(delete(&first, &owner).await, StatusCode::OK);
    let mine = look(&site, "/mine", &owner).await.text().await.unwrap();
    assert!(!mine.contains(&site.url(&first)) && mine.contains(&site.url(&second)));
}

#[tokio::test]
async fn e33_cookie_of_an_unknown_owner_is_no_owner() {
    let site = Site::new().await;
    let stranger = "owner=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let saved = submit(&site, &[("page", "1"), ("content", "a")], stranger).await;
    assert_eq!(saved.status(), StatusCode::SEE_OTHER);
    let listed =
        submit(&site, &[("page", "1"), ("content", "b"), ("remember", "1")], stranger).await;
    assert_eq!(listed.status(), StatusCode::SEE_OTHER);
    let owner = cookie(&listed, "owner").unwrap();
    assert_ne!(owner, stranger, "a new owner takes its place");
    let mine = look(&site, "/mine", &owner).await;
    assert!(cookie(&mine, "owner").is_none());
    assert!(mine.text().await.unwrap().contains(header(listed.headers(), "location")));
    let mine = look(&site, "/mine", stranger).await;
    assert_eq!(cookie(&mine, "owner").as_deref(), Some("owner="), "the browser forgets it");
    assert!(mine.text().await.unwrap().contains("Nothing here yet"));
}

#[tokio::test]
async fn e34_paste_is_listed_only_when_that_is_ticked() {
    let site = Site::new().await;
    let ticked = submit(&site, &[("page", "1"), ("content", "a"), ("remember", "1")], "").await;
    let owner = cookie(&ticked, "owner").unwrap();
    let plain = submit(&site, &[("page", "1"), ("content", "b")], &owner).await;
    let mine = look(&site, "/mine", &owner).await.text().await.unwrap();
    assert!(mine.contains(&site.url(header(ticked.headers(), "location"))));
    assert!(!mine.contains(&site.url(header(plain.headers(), "location"))));
    let owned = "select count(*) from pastes.pastes where user_id is not null";
    assert_eq!(site.rig.count(owned).await, 1);
}

#[tokio::test]
async fn a_form_with_a_mistake_comes_back_as_it_was_typed() {
    let site = Site::new().await;
    let fields = [("page", "1"), ("content", "long text"), ("alias", "api"), ("expires", "1d")];
    let answer = submit(&site, &fields, "").await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(header(answer.headers(), "cache-control"), "no-store");
    let page = answer.text().await.unwrap();
    for part in ["long text", "value=\"api\"", "our own paths", "value=\"1d\" selected"] {
        assert!(page.contains(part), "{part}");
    }
    let empty = submit(&site, &[("page", "1"), ("content", "")], "").await;
    assert_eq!(empty.status(), StatusCode::BAD_REQUEST);
    assert!(empty.text().await.unwrap().contains("at least one byte"));
}

#[tokio::test]
async fn the_token_deletes_by_form() {
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
async fn h10_forms_that_another_site_sends_do_nothing() {
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
            let answer = site
                .post(&path)
                .header("accept", BROWSER)
                .header("content-type", "application/x-www-form-urlencoded")
                .header(name, value)
                .body(body)
                .send()
                .await
                .unwrap();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path} {name}");
        }
    }
    assert_eq!(
        site.rig.count("select count(*) from pastes.pastes where expires_at > now()").await,
        2
    );
    assert_eq!(site.rig.count("select count(*) from pastes.reports").await, 0);
}

#[tokio::test]
async fn nothing_changes_by_looking() {
    let site = Site::new().await;
    let code = site.ready("", "x").await;
    for path in ["burn", "delete", "report"] {
        for method in [Method::GET, Method::HEAD] {
            let answer = site.request(method, &format!("/{code}/{path}")).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
    }
}

#[tokio::test]
async fn a_report_reaches_the_operator() {
    let site = Site::new().await;
    let code = site.ready("", "bad things").await;
    let answer = site
        .post(&format!("/{code}/report"))
        .header("accept", BROWSER)
        .header("content-type", "application/x-www-form-urlencoded")
        .body("reason=spam&details=it+sells+things")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.text().await.unwrap().contains("Thank you"));
    let reports = site.rig.pastes.reports(None, 10).await.unwrap();
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
