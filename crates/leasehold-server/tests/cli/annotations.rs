//! `leasehold annotations`, `leasehold reindex`, and annotations in `leasehold serve`.

use std::process::Stdio;

use serde_json::{Value, json};

use super::support::{ANYWHERE, LIMIT, Place, ready, url_of};

#[tokio::test]
async fn people_and_groups_are_made_renamed_moved_and_deleted_in_the_terminal() {
    let place = Place::new().await;
    let ran = place.run(&["annotations", "users", "add", "sophia"]).await.expect(5);
    assert!(ran.stderr.contains("leasehold migrate up --service annotations"), "{}", ran.stderr);
    place.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    place.run(&["migrate", "status", "--service", "annotations"]).await.expect(0);
    let sql = place.run(&["migrate", "sql", "--service", "annotations"]).await.expect(0);
    assert!(
        sql.stdout.contains("create trigger") || sql.stdout.contains("create or replace trigger")
    );
    let token = place.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    assert_eq!(token.trim().len(), 44, "a token and nothing else: {token}");
    let more = place.run(&["annotations", "users", "token", "sophia", "--json"]).await.expect(0);
    assert!(serde_json::from_str::<Value>(&more.stdout).is_ok(), "{}", more.stdout);
    let only = ["annotations", "users", "token", "sophia", "--revoke-others"];
    let ran = place.run(&only).await.expect(0);
    assert_eq!(ran.stdout.trim().len(), 44, "{}", ran.stdout);
    assert!(ran.stderr.contains("the 2 that sophia had before are void"), "{}", ran.stderr);
    place.run(&["annotations", "users", "token", "nobody", "--revoke-others"]).await.expect(3);
    place.run(&["annotations", "users", "add", "sophia"]).await.expect(5);
    place.run(&["annotations", "users", "add", "No Good"]).await.expect(2);
    place.run(&["annotations", "users", "rename", "sophia", "sophiathefirst"]).await.expect(0);
    place.run(&["annotations", "users", "rename", "sophia", "x1"]).await.expect(3);
    let add = ["annotations", "groups", "add", "Reading", "--owner", "sophiathefirst"];
    let one = place.run(&add).await.expect(0).stdout.trim().to_owned();
    let two = place.run(&add).await.expect(0).stdout.trim().to_owned();
    place.run(&["annotations", "groups", "join", &one, "sophiathefirst"]).await.expect(0);
    place.run(&["annotations", "users", "add", "sancho"]).await.expect(0);
    place.run(&["annotations", "groups", "hand-over", &one, "sancho"]).await.expect(3);
    place.run(&["annotations", "groups", "join", &one, "sancho"]).await.expect(0);
    let out = ["annotations", "groups", "remove-member", &one];
    let refused = place.run(&[&out[..], &["sophiathefirst"]].concat()).await.expect(5);
    refused.says("hand it over");
    place.run(&["annotations", "groups", "hand-over", &one, "sancho"]).await.expect(0);
    place.run(&["annotations", "groups", "hand-over", &one, "sophiathefirst"]).await.expect(0);
    place.run(&[&out[..], &["sancho"]].concat()).await.expect(0).prints("sancho is not in");
    place.run(&[&out[..], &["sancho"]].concat()).await.expect(3);
    place.run(&["annotations", "groups", "move", &one, &two]).await.expect(0);
    place.run(&["annotations", "groups", "move", &one, &two]).await.expect(3);
    place.run(&["annotations", "users", "delete", "sophiathefirst"]).await.expect(4);
    place.run(&["annotations", "users", "delete", "sophiathefirst", "--yes"]).await.expect(0);
    place.run(&["annotations", "users", "delete", "sophiathefirst", "--yes"]).await.expect(3);
}

#[tokio::test]
async fn a_note_is_saved_searched_and_compared_again_through_serve() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let token = place.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    let folder = std::env::temp_dir().join(format!("lh-notes-{}", uuid::Uuid::new_v4().simple()));
    let index = ["--annotations-index", folder.to_str().unwrap()];
    let args = [&["serve", "--annotations-listen", ANYWHERE], &index[..]].concat();
    let mut child = place.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let said = ready(&mut child).await;
    assert!(!said.contains("pastes"), "{said}");

    let url = url_of("annotations", &said);
    let note =
        json!({ "target": { "source": "https://example.com/" }, "body": [{ "value": "hello" }] });
    let http = leasehold_testing::http::client();
    let saved =
        http.post(format!("{url}/api/annotations")).bearer_auth(token.trim()).json(&note).send();
    assert_eq!(saved.await.unwrap().status(), 201);
    let asking = async {
        loop {
            let found = http.get(format!("{url}/api/search?q=hello")).send().await.unwrap();
            let found: Value = found.json().await.unwrap();
            if found["rows"].as_array().is_some_and(|rows| rows.len() == 1) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, asking).await.expect("others find it");
    let counted = place.run(&["reindex", "--user", "sophia", "--dry-run"]).await.expect(0);
    assert!(counted.stdout.contains("1 notes would be compared"), "{}", counted.stdout);
    let done = place.run(&["reindex", "--all", "--watch"]).await.expect(0);
    assert!(done.stdout.contains("is done: 1 notes are in the index"), "{}", done.stdout);
    for what in [
        &["--group", "__world__"][..],
        &["--document", "https://example.com/"],
        &["--since", "2020-01-01T00:00:00Z", "--until", "2200-01-01T00:00:00Z"],
    ] {
        let args = [&["reindex"][..], what, &["--dry-run", "--json"]].concat();
        let counted = place.run(&args).await.expect(0);
        let counted: Value = serde_json::from_str(&counted.stdout).unwrap();
        assert_eq!(counted["reindex"]["total"], 1, "{what:?}");
    }
    let forced = place.run(&["reindex", "--all", "--force", "--priority", "7", "--json"]).await;
    let forced: Value = serde_json::from_str(&forced.expect(0).stdout).unwrap();
    let number = forced["reindex"]["id"].as_str().unwrap().to_owned();
    let seen = place.run(&["reindex", "--status", &number, "--watch"]).await.expect(0);
    assert!(seen.stdout.contains(&format!("re-index {number} is done")), "{}", seen.stdout);
    let late = place.run(&["reindex", "--cancel", &number]).await.expect(0);
    late.prints("there was nothing left to stop").prints("is done: 1 notes are in the index");
    place.run(&["reindex", "--cancel", &number, "--force"]).await.expect(2);
    let unknown = "0123456789012345678901";
    let none = place.run(&["reindex", "--ids", unknown, "--dry-run"]).await.expect(0);
    assert!(none.stdout.contains("0 notes would be compared"), "{}", none.stdout);
    place.run(&["reindex"]).await.expect(2);
    place.run(&["reindex", "--all", "--user", "sophia"]).await.expect(2);
    place.run(&["reindex", "--status", "12345"]).await.expect(3).says("no such re-index");
    place.run(&["reindex", "--user", "nobody"]).await.expect(3).says("no such person");
    for bad in ["1", "1000000"] {
        let refused = place.run(&["reindex", "--all", "--priority", bad]).await.expect(2);
        refused.says("2..=999999");
    }

    let pid = child.id().expect("it runs").to_string();
    assert!(
        std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success()
    );
    let ended = tokio::time::timeout(LIMIT, child.wait()).await.expect("an end in time").unwrap();
    assert_eq!(ended.code(), Some(0));

    // Another directory on the same database is refused, until an operator forgets the first one.
    let other = folder.with_extension("other");
    let named = ["serve", "--annotations-listen", ANYWHERE, "--annotations-index"];
    let refused = place.run(&[&named[..], &[other.to_str().unwrap()]].concat()).await.expect(5);
    refused.says(folder.to_str().unwrap()).says("leasehold annotations index forget");
    place.run(&["annotations", "index", "forget"]).await.expect(4);
    let forgotten = place.run(&["annotations", "index", "forget", "--yes"]).await.expect(0);
    forgotten.prints(folder.to_str().unwrap());
    for dir in [folder, other] {
        let _ = std::fs::remove_dir_all(dir);
    }
}

#[tokio::test]
async fn f27_doctor_says_when_others_can_read_the_index() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new().await;
    let folder = std::env::temp_dir().join(format!("lh-notes-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&folder).unwrap();
    for (mode, level) in [(0o700, "ok"), (0o750, "warn")] {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
        let args = ["doctor", "--json", "--no-self-test", "--annotations-index"];
        let ran = place.run(&[&args[..], &[folder.to_str().unwrap()]].concat()).await.json();
        let checks = ran["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["check"] == "search index").unwrap();
        assert_eq!(found["level"], level, "{found}");
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_reindex_that_nobody_works_on_is_stopped_and_a_count_has_the_patience_of_whoever_asks() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let begun = place.run(&["reindex", "--all", "--json"]).await.expect(0).json();
    let number = begun["reindex"]["id"].as_str().unwrap().to_owned();
    let stopped = place.run(&["reindex", "--cancel", &number]).await.expect(0);
    stopped.prints(&format!("re-index {number} is stopped; 0 jobs were removed"));
    // The count cannot end while another session holds the table lock.
    place.client.batch_execute("begin; lock table annotations.annotation").await.unwrap();
    let counting = ["reindex", "--all", "--dry-run", "--timeout", "3s"];
    place.run(&counting).await.expect(7).says("--timeout");
    place.client.batch_execute("rollback").await.unwrap();
    place.run(&["reindex", "--all", "--dry-run"]).await.expect(0).prints("0 notes");
}
