//! Error texts fit the caller.

use annotations::{Settings, Token};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{Site, note};
use crate::fixture::settings;

const OPERATOR: &str = "operator-token-0123456789";

/// Returns status, code and detail of a problem.
async fn problem(response: Response) -> (StatusCode, String, String) {
    let status = response.status();
    let body: Value = response.json().await.unwrap();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    (status, text("code"), text("detail"))
}

#[tokio::test]
async fn unknown_user_name_has_an_error_of_its_own() {
    let site = Site::new().await;
    let token = site.token("alba").await;
    let group = site.post("/api/groups").bearer_auth(&token).json(&json!({ "name": "Reading" }));
    let group: Value = group.send().await.unwrap().json().await.unwrap();
    let members = format!("/api/groups/{}/members", group["id"].as_str().unwrap());
    for name in ["bella", "", "\0"] {
        let letting_in = site.post(&members).bearer_auth(&token).json(&json!({ "name": name }));
        let (status, code, words) = problem(letting_in.send().await.unwrap()).await;
        assert_eq!((status, code.as_str()), (StatusCode::NOT_FOUND, "no_such_person"), "{name:?}");
        assert_eq!(words, "There is no such user.");
    }
}

#[tokio::test]
async fn group_limit_is_reported_to_the_user_who_joins() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let group = site.post("/api/groups").bearer_auth(&alba).json(&json!({ "name": "Reading" }));
    let group: Value = group.send().await.unwrap().json().await.unwrap();
    let many = "with made as (\
                    insert into annotations.user_group (id, name) \
                    select 'group' || lpad(n::text, 6, '0'), 'Group ' || n \
                    from generate_series(1, 1000) n returning id) \
                insert into annotations.membership (group_id, user_id) \
                select m.id, u.id from made m, annotations.user_account u where u.name = 'bela'";
    site.fixture.client.execute(many, &[]).await.unwrap();
    let members = format!("/api/groups/{}/members", group["id"].as_str().unwrap());
    let inviting = site.post(&members).bearer_auth(&alba).json(&json!({ "name": "bela" }));
    assert_eq!(inviting.send().await.unwrap().status(), StatusCode::ACCEPTED);
    let joining = site.post(&members).bearer_auth(&bela).json(&json!({}));
    let making = site.post("/api/groups").bearer_auth(&bela).json(&json!({ "name": "Mine" }));
    for asked in [joining, making] {
        let (status, code, words) = problem(asked.send().await.unwrap()).await;
        assert_eq!((status, code.as_str()), (StatusCode::CONFLICT, "too_many_groups"));
        assert!(words.starts_with("A user can be in 1000 groups at most"), "{words}");
    }
}

#[tokio::test]
async fn unknown_reindex_has_an_error_of_its_own() {
    let site = Site::with(Settings { operator_token: Token::parse(OPERATOR), ..settings() }).await;
    let alba = site.token("alba").await;
    site.save(&alba, &note("x")).await;
    for method in [Method::GET, Method::DELETE] {
        for number in ["999", "x"] {
            let asked = site.request(method.clone(), &format!("/api/v1/reindex/{number}"));
            let refused = problem(asked.bearer_auth(OPERATOR).send().await.unwrap()).await;
            assert_eq!((refused.0, refused.1.as_str()), (StatusCode::NOT_FOUND, "no_such_reindex"));
        }
    }
    let order = async |body: Value| {
        let asked = site.post("/api/v1/reindex").bearer_auth(OPERATOR).json(&body);
        problem(asked.send().await.unwrap()).await.1
    };
    assert_eq!(order(json!({ "user": "unknown" })).await, "no_such_person");
    assert_eq!(order(json!({ "document": "https://example.com/nowhere" })).await, "no_such_page");
    assert_eq!(order(json!({ "all": true, "priority": 1_000_000 })).await, "not_allowed");
    // Bulk operations other than a re-index cannot be stopped.
    let renamed = site.request(Method::PATCH, "/api/users/alba").bearer_auth(&alba);
    renamed.json(&json!({ "name": "albathegreat" })).send().await.unwrap();
    let work = site.fixture.count("select max(id) from annotations.bulk").await;
    let stopping = site.request(Method::DELETE, &format!("/api/v1/reindex/{work}"));
    let (status, ..) = problem(stopping.bearer_auth(OPERATOR).send().await.unwrap()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}
