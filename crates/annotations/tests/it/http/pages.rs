//! Pages without scripts: everything can be read, searched and filtered.

use reqwest::StatusCode;
use serde_json::json;

use super::{Site, note};

async fn page(site: &Site, path: &str, cookie: &str) -> String {
    let response =
        site.get(path).header("accept", "text/html").header("cookie", cookie).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.text().await.unwrap()
}

#[tokio::test]
async fn the_text_has_its_notes_beside_it_with_author_quote_and_counts() {
    let site = Site::new().await;
    let token = site.token("sophiathefirst").await;
    let cookie = format!("notes={token}");
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
    assert!(page(&site, "/?user=nobody", &cookie).await.contains("Nothing fits"));
}

#[tokio::test]
async fn people_sign_up_log_in_and_out_with_forms() {
    let site = Site::new().await;
    let form = |path: &str, body: String, cookie: &str| {
        site.post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "text/html")
            .header("sec-fetch-site", "same-origin")
            .header("cookie", cookie.to_owned())
            .body(body)
            .send()
    };
    let wrong = form("/account/signup", "name=No+Good".to_owned(), "").await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.text().await.unwrap().contains("A name has 2 to 30"));
    let made = form("/account/signup", "name=sophia&display_name=".to_owned(), "").await.unwrap();
    let cookie = made.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let token = cookie.strip_prefix("notes=").unwrap().to_owned();
    assert!(made.text().await.unwrap().contains(&token), "shown once");
    assert!(page(&site, "/", &cookie).await.contains(">sophia</a>"));
    assert!(!page(&site, "/account", &cookie).await.contains(&token));
    let group = form("/account/groups", "name=Reading".to_owned(), &cookie).await.unwrap();
    assert_eq!(group.status(), StatusCode::SEE_OTHER);
    assert!(page(&site, "/account", &cookie).await.contains("Reading"));
    let out = form("/account/logout", String::new(), &cookie).await.unwrap();
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let back = form("/account/login", format!("token={token}"), "").await.unwrap();
    assert_eq!(back.status(), StatusCode::SEE_OTHER);
    let not = form("/account/login", "token=0123456789abcdefghij".to_owned(), "").await.unwrap();
    assert_eq!(not.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn replies_to_a_deleted_note_are_still_shown() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let cookie = format!("notes={bela}");
    let mut new = note("the beginning");
    new["target"]["source"] = json!(site.url("/"));
    let root = site.save(&alba, &new).await["key"].clone();
    let reply =
        |to: &serde_json::Value, text: &str| json!({ "replyTo": to, "body": [{ "value": text }] });
    let first = site.save(&bela, &reply(&root, "the reply")).await["key"].clone();
    site.save(&bela, &reply(&first, "what followed")).await;
    site.rig.work_all().await;
    let sentence = "The note that was answered here is deleted.";
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
    assert!(page(&site, "/?q=nothing", &cookie).await.contains("Nothing fits"));
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
    site.rig.client.execute(sql, &[&root, &author, &from, &to]).await.unwrap();
}

#[tokio::test]
async fn long_conversations_are_shown_and_what_is_left_out_is_said() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let cookie = format!("notes={token}");
    let mut new = note("the beginning");
    new["target"]["source"] = json!(site.url("/"));
    let root = site.save(&token, &new).await["key"].as_str().unwrap().to_owned();
    let add = async |from: i32, to: i32| add_replies(&site, &root, "alba", from, to).await;
    let sentence = "Only the newest replies are shown here";
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
async fn replies_of_somebody_who_left_do_not_keep_a_reader_waiting() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let mut new = note("the beginning");
    new["target"]["source"] = json!(site.url("/"));
    let root = site.save(&alba, &new).await["key"].as_str().unwrap().to_owned();
    add_replies(&site, &root, "alba", 1, 1).await;
    add_replies(&site, &root, "bela", 2, 2500).await;
    site.rig.work_all().await;
    let gone = site.request(reqwest::Method::DELETE, "/api/users/bela").bearer_auth(&bela).send();
    assert_eq!(gone.await.unwrap().status(), StatusCode::NO_CONTENT);
    // The index still has all of them, and Postgres shows none.
    let before = site.rig.index().asked();
    let words = page(&site, "/", "").await;
    let asked = site.rig.index().asked() - before;
    assert!(asked <= 8, "{asked} questions for one page");
    assert!(words.contains("the beginning") && !words.contains("reply 2500."));
    assert!(words.contains("reply 1.") || words.contains("Only the newest replies are shown here"));
    // Once they are deleted, the older replies appear.
    site.rig.work_all().await;
    assert!(page(&site, "/", "").await.contains("reply 1."));
}
