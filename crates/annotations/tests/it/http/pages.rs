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
