//! Notes over HTTP, in the W3C's shape.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Site, note, whole};
use crate::fixture::{PAGE, until};

#[tokio::test]
async fn note_is_created_read_changed_and_deleted_in_the_w3c_format() {
    let site = Site::new().await;
    let token = site.token("sophiathefirst").await;
    let mut new = note("So he can do sums?");
    new["body"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "type": "TextualBody", "value": "math", "purpose": "tagging" }));
    let made = site.save(&token, &new).await;
    assert_eq!(made["@context"], "http://www.w3.org/ns/anno.jsonld");
    assert_eq!(
        (&made["type"], &made["own"], made["version"].is_i64()),
        (&json!("Annotation"), &json!(true), true)
    );
    assert_eq!(made["creator"]["name"], "sophiathefirst");
    assert_eq!(made["target"]["selector"], new["target"]["selector"]);
    assert_eq!(made["body"][1]["value"], "math");
    let path = format!("/api/annotations/{}", made["key"].as_str().unwrap());
    assert_eq!(made["id"], json!(site.url(&path)));
    let read: Value = site.get(&path).send().await.unwrap().json().await.unwrap();
    assert_eq!(read["own"], json!(false), "an anonymous reader");

    let change = json!({ "body": [{ "type": "TextualBody", "value": "He can." }] });
    let response =
        site.request(Method::PATCH, &path).bearer_auth(&token).json(&change).send().await.unwrap();
    let changed: Value = response.json().await.unwrap();
    assert!(changed["version"].as_i64() > made["version"].as_i64(), "{changed}");
    assert_eq!(changed["body"][0]["value"], "He can.");
    assert_eq!(changed["body"].as_array().unwrap().len(), 1, "tags were left out");

    let reply = json!({ "replyTo": made["key"], "body": [{ "type": "TextualBody", "value": "Wrongly, in Spanish.", "purpose": "replying" }] });
    let reply = site.save(&token, &reply).await;
    assert_eq!(
        (&reply["motivation"], &reply["references"]),
        (&json!("replying"), &json!([made["key"]]))
    );

    let search = async || site.search(&[("url", PAGE)]).bearer_auth(&token).send().await.unwrap();
    until(async || search().await.headers()["x-index"] == "ok").await;
    let found: Value = search().await.json().await.unwrap();
    assert_eq!(found["rows"].as_array().unwrap().len(), 2);
    assert_eq!(found["counts"], json!({ "annotations": 1, "pageNotes": 0, "replies": 1 }));

    let gone = site.request(Method::DELETE, &path).bearer_auth(&token).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    assert_eq!(site.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn h13_repeated_request_with_its_key_returns_the_first_note() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let send = |text: &str| {
        site.post("/api/annotations")
            .bearer_auth(&token)
            .header("Idempotency-Key", "k")
            .json(&note(text))
            .send()
    };
    let first = send("x").await.unwrap();
    assert!(first.headers().get("idempotent-replayed").is_none());
    let first: Value = first.json().await.unwrap();
    let again = send("x").await.unwrap();
    assert_eq!(
        (again.status(), &again.headers()["idempotent-replayed"]),
        (StatusCode::CREATED, &"true".parse().unwrap())
    );
    assert_eq!(again.json::<Value>().await.unwrap()["key"], first["key"]);
    assert_eq!(send("y").await.unwrap().status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn h9_unknown_hidden_deleted_and_malformed_notes_get_one_response() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let group: Value = site
        .post("/api/groups")
        .bearer_auth(&alba)
        .json(&json!({ "name": "Reading" }))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let mut secret = note("secret");
    secret["group"] = group["id"].clone();
    let hidden = site.save(&alba, &secret).await["key"].as_str().unwrap().to_owned();
    let deleted = site.save(&alba, &note("x")).await["key"].as_str().unwrap().to_owned();
    site.request(Method::DELETE, &format!("/api/annotations/{deleted}"))
        .bearer_auth(&alba)
        .send()
        .await
        .unwrap();
    let unknown = "0".repeat(22);
    for method in [Method::GET, Method::PATCH, Method::DELETE] {
        let mut answers = Vec::new();
        for key in [hidden.as_str(), &deleted, &unknown, "x", "..%2F..", "%00", "'--"] {
            let path = format!("/api/annotations/{key}");
            let mut request = site.request(method.clone(), &path).bearer_auth(&bela);
            if method == Method::PATCH {
                request = request.json(&json!({}));
            }
            answers.push(whole(request.send().await.unwrap()).await);
        }
        assert_eq!(answers[0].0, StatusCode::NOT_FOUND);
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{method}: {answers:#?}");
    }
}

#[tokio::test]
async fn h14_reply_that_names_another_group_is_refused() {
    let site = Site::new().await;
    let alba = site.token("alba").await;
    let group = async |name: &str| {
        let made = site.post("/api/groups").bearer_auth(&alba).json(&json!({ "name": name }));
        made.send().await.unwrap().json::<Value>().await.unwrap()["id"].clone()
    };
    let (private, other) = (group("Private").await, group("Other").await);
    let public = site.save(&alba, &note("for all")).await;
    let mut new = note("for us");
    new["group"] = private.clone();
    let secret = site.save(&alba, &new).await;
    let reply = |to: &Value, group: &Value| {
        let body = [json!({ "value": "only for us" })];
        let reply = json!({ "replyTo": to["key"], "group": group, "body": body });
        site.post("/api/annotations").bearer_auth(&alba).json(&reply).send()
    };
    let world = json!("__world__");
    let (unknown, odd) = (json!("0".repeat(8)), json!("\0"));
    for (to, group) in
        [(&public, &private), (&secret, &world), (&secret, &other), (&public, &unknown)]
    {
        let refused = reply(to, group).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{group}");
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["code"], "reply_elsewhere");
    }
    assert_eq!(reply(&public, &odd).await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(site.fixture.count("select count(*) from annotations.annotation").await, 2);
    for (to, group) in [(&public, &world), (&secret, &private), (&secret, &Value::Null)] {
        let made = reply(to, group).await.unwrap();
        assert_eq!(made.status(), StatusCode::CREATED, "{group}");
        assert_eq!(made.json::<Value>().await.unwrap()["group"], to["group"]);
    }
    // A moved group matches by its former id and by the one that users see.
    let path = format!("/api/groups/{}/move", private.as_str().unwrap());
    site.post(&path).bearer_auth(&alba).json(&json!({ "to": other })).send().await.unwrap();
    assert_eq!(reply(&secret, &other).await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn users_manage_only_their_own_accounts_and_groups() {
    let site = Site::new().await;
    let (alba, bela) = (site.token("alba").await, site.token("bela").await);
    let profile: Value =
        site.get("/api/profile").bearer_auth(&alba).send().await.unwrap().json().await.unwrap();
    assert_eq!(
        (&profile["user"]["name"], &profile["groups"][0]["id"]),
        (&json!("alba"), &json!("__world__"))
    );
    let group: Value = site
        .post("/api/groups")
        .bearer_auth(&alba)
        .json(&json!({ "name": "Reading" }))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let members = format!("/api/groups/{}/members", group["id"].as_str().unwrap());
    let join = |token: &str, body: Value| site.post(&members).bearer_auth(token).json(&body).send();
    assert_eq!(
        join(&bela, json!({})).await.unwrap().status(),
        StatusCode::NOT_FOUND,
        "it is closed"
    );
    assert_eq!(
        join(&alba, json!({ "name": "bela" })).await.unwrap().status(),
        StatusCode::ACCEPTED
    );
    assert_eq!(join(&bela, json!({})).await.unwrap().status(), StatusCode::NO_CONTENT);
    let groups: Value =
        site.get("/api/groups").bearer_auth(&bela).send().await.unwrap().json().await.unwrap();
    assert_eq!(groups["groups"].as_array().unwrap().len(), 2);
    let other = site
        .request(Method::PATCH, "/api/users/alba")
        .bearer_auth(&bela)
        .json(&json!({ "name": "x1" }))
        .send()
        .await
        .unwrap();
    assert_eq!(other.status(), StatusCode::FORBIDDEN);
    let taken = site
        .request(Method::PATCH, "/api/users/bela")
        .bearer_auth(&bela)
        .json(&json!({ "name": "alba" }))
        .send()
        .await
        .unwrap();
    assert_eq!(taken.status(), StatusCode::CONFLICT);
    let renamed = site
        .request(Method::PATCH, "/api/users/bela")
        .bearer_auth(&bela)
        .json(&json!({ "name": "belathebrave" }))
        .send()
        .await
        .unwrap();
    assert_eq!(renamed.json::<Value>().await.unwrap()["name"], "belathebrave");
    let gone = site
        .request(Method::DELETE, "/api/users/belathebrave")
        .bearer_auth(&bela)
        .send()
        .await
        .unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    assert_eq!(
        site.get("/api/profile").bearer_auth(&bela).send().await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn only_operators_reindex() {
    const OPERATOR: &str = "operator-token-0123456789";
    let token = annotations::Token::parse(OPERATOR);
    let site =
        Site::with(annotations::Settings { operator_token: token, ..crate::fixture::settings() })
            .await;
    let alba = site.token("alba").await;
    site.save(&alba, &note("x")).await;
    let order = |token: &str, body: Value| {
        site.post("/api/v1/reindex").bearer_auth(token).json(&body).send()
    };
    assert_eq!(order(&alba, json!({ "all": true })).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(order(OPERATOR, json!({})).await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(
        order(OPERATOR, json!({ "all": true, "user": "alba" })).await.unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    let counted: Value = order(OPERATOR, json!({ "user": "alba", "dryRun": true }))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(counted["total"], 1);
    let begun = order(OPERATOR, json!({ "user": "alba" })).await.unwrap();
    assert_eq!(begun.status(), StatusCode::ACCEPTED);
    let id = begun.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
    site.fixture.work_all().await;
    let path = format!("/api/v1/reindex/{id}");
    let done: Value =
        site.get(&path).bearer_auth(OPERATOR).send().await.unwrap().json().await.unwrap();
    assert_eq!((&done["finished"], &done["waiting"]), (&json!(true), &json!(0)));
    let begun = order(OPERATOR, json!({ "all": true })).await.unwrap();
    let id = begun.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/reindex/{id}");
    let cancelled: Value = site
        .request(Method::DELETE, &path)
        .bearer_auth(OPERATOR)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(cancelled["cancelled"], true);
    let closed = Site::new().await;
    let hidden = closed
        .post("/api/v1/reindex")
        .bearer_auth(OPERATOR)
        .json(&json!({ "all": true }))
        .send()
        .await
        .unwrap();
    assert_eq!(
        hidden.status(),
        StatusCode::NOT_FOUND,
        "without a token in the settings it is not there"
    );
}
