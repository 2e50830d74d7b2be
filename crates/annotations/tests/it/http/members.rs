//! Members and invitations over HTTP; changes of an account that are made together.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::Site;

async fn group(site: &Site, token: &str) -> String {
    let made = site.post("/api/groups").bearer_auth(token).json(&json!({ "name": "Reading" }));
    let made: Value = made.send().await.unwrap().json().await.unwrap();
    made["id"].as_str().unwrap().to_owned()
}

async fn groups(site: &Site, token: &str) -> usize {
    let groups = site.get("/api/groups").bearer_auth(token).send().await.unwrap();
    groups.json::<Value>().await.unwrap()["groups"].as_array().unwrap().len() - 1
}

#[tokio::test]
async fn f20_leaving_with_a_body_is_refused_and_names_the_right_request() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let group = group(&site, &alba).await;
    let members = format!("/api/groups/{group}/members");
    let invited = site.post(&members).bearer_auth(&alba).json(&json!({ "name": "bela" })).send();
    assert_eq!(invited.await.unwrap().status(), StatusCode::ACCEPTED);
    let joined = site.post(&members).bearer_auth(&bela).json(&json!({})).send();
    assert_eq!(joined.await.unwrap().status(), StatusCode::NO_CONTENT);

    let act = |method: Method, path: String, token: &str| {
        site.request(method, &path).bearer_auth(token).send()
    };
    let named = site.request(Method::DELETE, &members).bearer_auth(&alba);
    let refused = named.json(&json!({ "name": "bela" })).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let problem: Value = refused.json().await.unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("members/{name}"), "{problem}");
    assert_eq!(
        (groups(&site, &alba).await, groups(&site, &bela).await),
        (1, 1),
        "both are still members"
    );

    let leaves = act(Method::DELETE, members.clone(), &alba).await.unwrap();
    assert_eq!(leaves.status(), StatusCode::CONFLICT);
    let problem: Value = leaves.json().await.unwrap();
    assert_eq!(problem["code"], "owner_leaves");
    let removed = act(Method::DELETE, format!("{members}/bela"), &alba).await.unwrap();
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    assert_eq!((groups(&site, &alba).await, groups(&site, &bela).await), (1, 0));
    let again = act(Method::DELETE, format!("{members}/bela"), &alba).await.unwrap();
    assert_eq!(again.status(), StatusCode::NOT_FOUND);

    // After handing it over, the owner can leave.
    site.post(&members).bearer_auth(&alba).json(&json!({ "name": "bela" })).send().await.unwrap();
    site.post(&members).bearer_auth(&bela).json(&json!({})).send().await.unwrap();
    let owner = site.post(&format!("/api/groups/{group}/owner")).bearer_auth(&alba);
    let handed = owner.json(&json!({ "name": "bela" })).send().await.unwrap();
    assert_eq!(handed.status(), StatusCode::NO_CONTENT);
    let left = act(Method::DELETE, format!("{members}/alba"), &alba).await.unwrap();
    assert_eq!(left.status(), StatusCode::NO_CONTENT);
    assert_eq!((groups(&site, &alba).await, groups(&site, &bela).await), (0, 1));
}

#[tokio::test]
async fn f21_invitations_are_listed_accepted_declined_and_blocked() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let invite = async || {
        let group = group(&site, &alba).await;
        let path = format!("/api/groups/{group}/members");
        site.post(&path).bearer_auth(&alba).json(&json!({ "name": "bela" })).send().await.unwrap();
        group
    };
    let list = async || {
        let list = site.get("/api/invitations").bearer_auth(&bela).send().await.unwrap();
        list.json::<Value>().await.unwrap()["invitations"].as_array().unwrap().clone()
    };
    let (one, two) = (invite().await, invite().await);
    let open = list().await;
    assert_eq!((open.len(), &open[0]["group"]), (2, &json!(two)), "the newest first");
    assert_eq!((&open[0]["by"], &open[0]["groupName"]), (&json!("alba"), &json!("Reading")));
    let no = site.request(Method::DELETE, &format!("/api/invitations/{two}")).bearer_auth(&bela);
    assert_eq!(no.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let yes = site.post(&format!("/api/groups/{one}/members")).bearer_auth(&bela);
    assert_eq!(yes.json(&json!({})).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!((list().await.len(), groups(&site, &bela).await), (0, 1));

    let block = site.post("/api/blocks").bearer_auth(&bela).json(&json!({ "name": "alba" }));
    assert_eq!(block.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    invite().await;
    assert_eq!(list().await.len(), 0);
    let blocks = site.get("/api/blocks").bearer_auth(&bela).send().await.unwrap();
    assert_eq!(blocks.json::<Value>().await.unwrap(), json!({ "blocks": ["alba"] }));
    let free = site.request(Method::DELETE, "/api/blocks/alba").bearer_auth(&bela);
    assert_eq!(free.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    invite().await;
    assert_eq!(list().await.len(), 1);
    let anonymous = site.get("/api/invitations").send().await.unwrap();
    assert_eq!(anonymous.status(), StatusCode::UNAUTHORIZED);

    // The same in a browser, without scripts.
    let cookie = site.cookie(&bela).await;
    let page = site.get("/account").header("cookie", cookie.clone()).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("Invitations") && page.contains("Block alba"), "{page}");
    let form = site.post("/account/block").header("cookie", cookie.clone());
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    let form = form.header("sec-fetch-site", "same-origin").body("name=alba");
    assert_eq!(form.send().await.unwrap().status(), StatusCode::SEE_OTHER);
    let page = site.get("/account").header("cookie", cookie).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(!page.contains("Invitations") && page.contains("Blocked users"), "{page}");
}

#[tokio::test]
async fn f26_taken_name_changes_nothing_else() {
    let site = Site::new().await;
    let (alba, _) = (site.token("alba").await, site.token("bela").await);
    let change = |body: Value| {
        site.request(Method::PATCH, "/api/users/alba").bearer_auth(&alba).json(&body).send()
    };
    let taken = change(json!({ "name": "bela", "displayName": "Queen" })).await.unwrap();
    assert_eq!(taken.status(), StatusCode::CONFLICT);
    let profile = site.get("/api/profile").bearer_auth(&alba).send().await.unwrap();
    let profile: Value = profile.json().await.unwrap();
    assert_eq!(profile["user"], json!({ "name": "alba", "displayName": "" }));
    let both = change(json!({ "name": "albathegreat", "displayName": "Queen" })).await.unwrap();
    let both: Value = both.json().await.unwrap();
    assert_eq!(both, json!({ "name": "albathegreat", "displayName": "Queen" }));
    let work = "select count(*) from annotations.bulk where tag = 'rename_user'";
    assert_eq!(site.fixture.count(work).await, 1);
}
