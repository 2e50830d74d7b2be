//! Pages without scripts: everything can be read, searched and filtered.

use reqwest::{Response, StatusCode};
use serde_json::json;

use super::{Site, note};

async fn page(site: &Site, path: &str, cookie: &str) -> String {
    let response =
        site.get(path).header("accept", "text/html").header("cookie", cookie).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.text().await.unwrap()
}

#[tokio::test]
async fn reader_page_shows_the_notes_with_author_quote_and_counts() {
    let site = Site::new().await;
    let token = site.token("sophiathefirst").await;
    let cookie = site.cookie(&token).await;
    let here = site.url("/");
    for (exact, text, start) in [
        ("closer than a lizard", "Lizards hide well", 900),
        ("Don Quixote added it up", "So he can do sums?", 100),
    ] {
        let mut new = note(text);
        new["target"]["source"] = json!(here);
        new["target"]["selector"][0]["exact"] = json!(exact);
        new["target"]["selector"][1] =
            json!({ "type": "TextPositionSelector", "start": start, "end": start + 5 });
        site.save(&token, &new).await;
    }
    site.save(
        &token,
        &json!({ "target": { "source": here }, "body": [{ "value": "I like this chapter" }] }),
    )
    .await;
    let words = page(&site, "/", &cookie).await;
    assert!(
        words.contains("Don Quixote added it up, found that it came to sixty-three reals"),
        "the text"
    );
    let (first, second) =
        (words.find("So he can do sums?").unwrap(), words.find("Lizards hide well").unwrap());
    assert!(first < second, "in the order of the text");
    assert!(words.contains("sophiathefirst") && words.contains("just now"));
    assert!(words.contains("Annotations <span class=\"count\">2</span>"), "{words}");
    assert!(words.contains("Page Notes <span class=\"count\">1</span>"));
    assert!(!words.contains("I like this chapter"), "that is the other tab");
    assert!(page(&site, "/?tab=notes", &cookie).await.contains("I like this chapter"));
    let found = page(&site, "/?q=lizards", &cookie).await;
    assert!(found.contains("Lizards hide well") && !found.contains("So he can do sums?"));
    assert!(page(&site, "/?user=unknown", &cookie).await.contains("No notes match"));
}

/// Sends a form of our own pages.
async fn form(site: &Site, path: &str, body: &str, cookie: &str) -> Response {
    site.post(path)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "text/html")
        .header("sec-fetch-site", "same-origin")
        .header("cookie", cookie.to_owned())
        .body(body.to_owned())
        .send()
        .await
        .unwrap()
}

/// Returns the cookie that a response gives to the browser.
fn given_cookie(response: &Response) -> String {
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn users_sign_up_log_in_and_out_with_forms() {
    let site = Site::new().await;
    let wrong = form(&site, "/account/signup", "name=No+Good", "").await;
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.text().await.unwrap().contains("A name has 2 to 30"));
    let made = form(&site, "/account/signup", "name=sophia&display_name=", "").await;
    let cookie = given_cookie(&made);
    let welcome = made.text().await.unwrap();
    let (_, shown) = welcome.split_once("readonly value=\"").unwrap();
    let token = shown.split('"').next().unwrap();
    assert!(!cookie.contains(token), "the browser has a session, not the token");
    assert!(page(&site, "/", &cookie).await.contains(">sophia</a>"));
    let account = page(&site, "/account", &cookie).await;
    assert!(!account.contains(token), "shown once");
    assert!(account.contains("Logging out ends the session of this browser"), "{account}");
    let group = form(&site, "/account/groups", "name=Reading", &cookie).await;
    assert_eq!(group.status(), StatusCode::SEE_OTHER);
    assert!(page(&site, "/account", &cookie).await.contains("Reading"));
    let out = form(&site, "/account/logout", "", &cookie).await;
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let back = form(&site, "/account/login", &format!("token={token}"), "").await;
    assert_eq!(back.status(), StatusCode::SEE_OTHER);
    assert!(page(&site, "/", &given_cookie(&back)).await.contains(">sophia</a>"));
    let not = form(&site, "/account/login", "token=0123456789abcdefghij", "").await;
    assert_eq!(not.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn log_out_ends_the_session_of_one_browser() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let (first, second) = (site.cookie(&token).await, site.cookie(&token).await);
    let is_logged_in = async |cookie: &str| page(&site, "/", cookie).await.contains(">sophia</a>");
    assert!(is_logged_in(&first).await && is_logged_in(&second).await);
    let out = form(&site, "/account/logout", "", &first).await;
    assert_eq!(out.status(), StatusCode::SEE_OTHER);
    assert!(!is_logged_in(&first).await, "a copy of the cookie is worthless");
    assert!(is_logged_in(&second).await, "another browser keeps its session");
    let profile = site.get("/api/profile").bearer_auth(&token).send().await.unwrap();
    assert_eq!(profile.status(), StatusCode::OK, "programs keep their token");
    // Neither credential works in the place of the other.
    assert!(!is_logged_in(&format!("notes={token}")).await);
    let session = second.strip_prefix("notes=").unwrap();
    let profile = site.get("/api/profile").bearer_auth(session).send().await.unwrap();
    assert_eq!(profile.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn replies_to_a_deleted_note_are_still_shown() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let cookie = site.cookie(&bela).await;
    let mut new = note("the beginning");
    new["target"]["source"] = json!(site.url("/"));
    let root = site.save(&alba, &new).await["key"].clone();
    let reply =
        |to: &serde_json::Value, text: &str| json!({ "replyTo": to, "body": [{ "value": text }] });
    let first = site.save(&bela, &reply(&root, "the reply")).await["key"].clone();
    site.save(&bela, &reply(&first, "what followed")).await;
    site.fixture.work_all().await;
    let sentence = "The note that these replies answer was deleted.";
    let before = page(&site, "/", &cookie).await;
    assert!(before.contains("the reply") && !before.contains(sentence));
    let other_tab = page(&site, "/?tab=notes", &cookie).await;
    assert!(!other_tab.contains("the reply"), "what is on the other tab is not deleted");
    let path = format!("/api/annotations/{}", root.as_str().unwrap());
    let gone = site.request(reqwest::Method::DELETE, &path).bearer_auth(&alba).send();
    assert_eq!(gone.await.unwrap().status(), StatusCode::NO_CONTENT);
    for viewer in [cookie.as_str(), ""] {
        let after = page(&site, "/", viewer).await;
        assert!(!after.contains("the beginning"));
        assert_eq!(after.matches(sentence).count(), 1, "one conversation");
        let (first, next) = (after.find("the reply"), after.find("what followed"));
        assert!(first.is_some() && first < next, "oldest first: {first:?}, {next:?}");
    }
    assert!(page(&site, "/?q=nothing", &cookie).await.contains("No notes match"));
    assert!(page(&site, "/?group=__world__", &cookie).await.contains(sentence));
    // Users can reply to them.
    site.save(&alba, &reply(&first, "late")).await;
}

/// Adds replies of a user to a note, `reply 1.` and so on, each newer than the one before.
async fn add_replies(site: &Site, root: &str, author: &str, from: i32, to: i32) {
    let sql = "insert into annotations.annotation \
                   (id, document_id, user_id, group_id, kind, parent_id, root_id, text, updated_at) \
               select substr(replace(gen_random_uuid()::text, '-', ''), 1, 22), a.document_id, \
                      u.id, a.group_id, 'reply', a.id, a.id, 'reply ' || n || '.', \
                      a.updated_at + n * interval '1 ms' \
               from annotations.annotation a, annotations.user_account u, \
                    generate_series($3::int, $4) n \
               where a.id = $1 and u.name = $2";
    site.fixture.client.execute(sql, &[&root, &author, &from, &to]).await.unwrap();
}

#[tokio::test]
async fn long_conversation_links_to_the_replies_that_it_leaves_out() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let cookie = site.cookie(&token).await;
    let mut new = note("the beginning");
    new["target"]["source"] = json!(site.url("/"));
    let root = site.save(&token, &new).await["key"].as_str().unwrap().to_owned();
    let add = async |from: i32, to: i32| add_replies(&site, &root, "alba", from, to).await;
    let sentence = "Only the newest replies are shown";
    add(1, 90).await;
    let words = page(&site, "/", &cookie).await;
    assert!(words.contains("reply 1.") && words.contains("reply 90."), "all of them");
    assert!(!words.contains(sentence) && !words.contains("All replies"));
    add(91, 120).await;
    let words = page(&site, "/", &cookie).await;
    assert!(!words.contains("reply 1.") && words.contains("reply 120."));
    assert!(words.contains(sentence));
    // The rest is a link away, and every reply is on one of the pages there.
    let mut path = format!("/note/{root}");
    assert!(words.contains(&format!("href=\"{path}\">All replies")), "{words}");
    let mut seen = Vec::new();
    loop {
        let words = page(&site, &path, &cookie).await;
        seen.extend((1..=120).filter(|n| words.contains(&format!(">reply {n}.<"))));
        let Some((_, rest)) = words.split_once("?cursor=") else { break };
        path = format!("/note/{root}?cursor={}", rest.split('"').next().unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=120).collect::<Vec<i32>>());
}

#[tokio::test]
async fn replies_of_a_deleted_account_do_not_slow_the_page() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let mut new = note("the beginning");
    new["target"]["source"] = json!(site.url("/"));
    let root = site.save(&alba, &new).await["key"].as_str().unwrap().to_owned();
    add_replies(&site, &root, "alba", 1, 1).await;
    add_replies(&site, &root, "bela", 2, 2500).await;
    site.fixture.work_all().await;
    let gone = site.request(reqwest::Method::DELETE, "/api/users/bela").bearer_auth(&bela).send();
    assert_eq!(gone.await.unwrap().status(), StatusCode::NO_CONTENT);
    // The index still has all of them, and Postgres shows none.
    let before = site.fixture.index().asked();
    let words = page(&site, "/", "").await;
    let asked = site.fixture.index().asked() - before;
    assert!(asked <= 8, "{asked} questions for one page");
    assert!(words.contains("the beginning") && !words.contains("reply 2500."));
    assert!(words.contains("reply 1.") || words.contains("Only the newest replies are shown"));
    // Once they are deleted, the older replies appear.
    site.fixture.work_all().await;
    assert!(page(&site, "/", "").await.contains("reply 1."));
}
