//! `leasehold annotations`, `leasehold reindex`, and annotations in `leasehold serve`.

use std::process::Stdio;

use leasehold_testing::until;
use serde_json::{Value, json};

use super::fixture::{FREE_PORT, Fixture, LIMIT, ready, url_of};

#[tokio::test]
async fn users_and_groups_are_managed_by_commands() {
    let fixture = Fixture::new().await;
    let ran = fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(5);
    assert!(ran.stderr.contains("leasehold migrate up --service annotations"), "{}", ran.stderr);
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    fixture.run(&["migrate", "status", "--service", "annotations"]).await.expect(0);
    let sql = fixture.run(&["migrate", "sql", "--service", "annotations"]).await.expect(0);
    assert!(
        sql.stdout.contains("create trigger") || sql.stdout.contains("create or replace trigger")
    );
    let token = fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    assert_eq!(token.trim().len(), 44, "a token and nothing else: {token}");
    let more = fixture.run(&["annotations", "users", "token", "sophia", "--json"]).await.expect(0);
    assert!(serde_json::from_str::<Value>(&more.stdout).is_ok(), "{}", more.stdout);
    let only = ["annotations", "users", "token", "sophia", "--revoke-others"];
    let ran = fixture.run(&only).await.expect(0);
    assert_eq!(ran.stdout.trim().len(), 44, "{}", ran.stdout);
    assert!(ran.stderr.contains("2 earlier tokens of sophia are revoked"), "{}", ran.stderr);
    fixture.run(&["annotations", "users", "token", "unknown", "--revoke-others"]).await.expect(3);
    fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(5);
    fixture.run(&["annotations", "users", "add", "No Good"]).await.expect(2);
    fixture.run(&["annotations", "users", "rename", "sophia", "sophiathefirst"]).await.expect(0);
    fixture.run(&["annotations", "users", "rename", "sophia", "x1"]).await.expect(3);
    let add = ["annotations", "groups", "add", "Reading", "--owner", "sophiathefirst"];
    let one = fixture.run(&add).await.expect(0).stdout.trim().to_owned();
    let two = fixture.run(&add).await.expect(0).stdout.trim().to_owned();
    fixture.run(&["annotations", "groups", "join", &one, "sophiathefirst"]).await.expect(0);
    fixture.run(&["annotations", "users", "add", "sancho"]).await.expect(0);
    fixture.run(&["annotations", "groups", "hand-over", &one, "sancho"]).await.expect(3);
    fixture.run(&["annotations", "groups", "join", &one, "sancho"]).await.expect(0);
    let out = ["annotations", "groups", "remove-member", &one];
    let refused = fixture.run(&[&out[..], &["sophiathefirst"]].concat()).await.expect(5);
    refused.says("hand it over");
    fixture.run(&["annotations", "groups", "hand-over", &one, "sancho"]).await.expect(0);
    fixture.run(&["annotations", "groups", "hand-over", &one, "sophiathefirst"]).await.expect(0);
    fixture
        .run(&[&out[..], &["sancho"]].concat())
        .await
        .expect(0)
        .prints("sancho is removed from group");
    fixture.run(&[&out[..], &["sancho"]].concat()).await.expect(3);
    fixture.run(&["annotations", "groups", "move", &one, &two]).await.expect(0);
    fixture.run(&["annotations", "groups", "move", &one, &two]).await.expect(3);
    fixture.run(&["annotations", "users", "delete", "sophiathefirst"]).await.expect(4);
    fixture.run(&["annotations", "users", "delete", "sophiathefirst", "--yes"]).await.expect(0);
    fixture.run(&["annotations", "users", "delete", "sophiathefirst", "--yes"]).await.expect(3);
}

#[tokio::test]
async fn served_note_is_found_and_reindexed() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let token = fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    let folder = std::env::temp_dir().join(format!("lh-notes-{}", uuid::Uuid::new_v4().simple()));
    let index = ["--annotations-index", folder.to_str().unwrap()];
    let args = [&["serve", "--annotations-listen", FREE_PORT], &index[..]].concat();
    let mut child = fixture.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let said = ready(&mut child).await;
    assert!(!said.contains("pastes"), "{said}");

    let url = url_of("annotations", &said);
    let note =
        json!({ "target": { "source": "https://example.com/" }, "body": [{ "value": "hello" }] });
    let http = leasehold_testing::http::client();
    let saved =
        http.post(format!("{url}/api/annotations")).bearer_auth(token.trim()).json(&note).send();
    assert_eq!(saved.await.unwrap().status(), 201);
    until("another user finds the note", async || {
        let found = http.get(format!("{url}/api/search?q=hello")).send().await.unwrap();
        let found: Value = found.json().await.unwrap();
        found["rows"].as_array().is_some_and(|rows| rows.len() == 1)
    })
    .await;
    let counted = fixture.run(&["reindex", "--user", "sophia", "--dry-run"]).await.expect(0);
    assert!(counted.stdout.contains("1 note would be compared"), "{}", counted.stdout);
    let done = fixture.run(&["reindex", "--all", "--watch"]).await.expect(0);
    assert!(
        done.stdout.contains("is completed: 1 note compared with the index"),
        "{}",
        done.stdout
    );
    for what in [
        &["--group", "__world__"][..],
        &["--document", "https://example.com/"],
        &["--since", "2020-01-01T00:00:00Z", "--until", "2200-01-01T00:00:00Z"],
    ] {
        let args = [&["reindex"][..], what, &["--dry-run", "--json"]].concat();
        let counted = fixture.run(&args).await.expect(0);
        let counted: Value = serde_json::from_str(&counted.stdout).unwrap();
        assert_eq!(counted["reindex"]["total"], 1, "{what:?}");
    }
    let forced = fixture.run(&["reindex", "--all", "--force", "--priority", "7", "--json"]).await;
    let forced: Value = serde_json::from_str(&forced.expect(0).stdout).unwrap();
    let number = forced["reindex"]["id"].as_str().unwrap().to_owned();
    let seen = fixture.run(&["reindex", "--status", &number, "--watch"]).await.expect(0);
    assert!(seen.stdout.contains(&format!("re-index {number} is completed")), "{}", seen.stdout);
    let late = fixture.run(&["reindex", "--cancel", &number]).await.expect(0);
    late.prints("nothing was left to cancel")
        .prints("is completed: 1 note compared with the index");
    fixture.run(&["reindex", "--cancel", &number, "--force"]).await.expect(2);
    let unknown = "0123456789012345678901";
    let none = fixture.run(&["reindex", "--ids", unknown, "--dry-run"]).await.expect(0);
    assert!(none.stdout.contains("0 notes would be compared"), "{}", none.stdout);
    fixture.run(&["reindex"]).await.expect(2);
    fixture.run(&["reindex", "--all", "--user", "sophia"]).await.expect(2);
    fixture.run(&["reindex", "--status", "12345"]).await.expect(3).says("no such re-index");
    fixture.run(&["reindex", "--user", "unknown"]).await.expect(3).says("no such user");
    for bad in ["1", "1000000"] {
        let refused = fixture.run(&["reindex", "--all", "--priority", bad]).await.expect(2);
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
    let named = ["serve", "--annotations-listen", FREE_PORT, "--annotations-index"];
    let refused = fixture.run(&[&named[..], &[other.to_str().unwrap()]].concat()).await.expect(5);
    refused.says(folder.to_str().unwrap()).says("leasehold annotations index forget");
    fixture.run(&["annotations", "index", "forget"]).await.expect(4);
    let forgotten = fixture.run(&["annotations", "index", "forget", "--yes"]).await.expect(0);
    forgotten.prints(folder.to_str().unwrap());
    for dir in [folder, other] {
        let _ = std::fs::remove_dir_all(dir);
    }
}

#[tokio::test]
async fn f27_doctor_warns_of_an_index_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new().await;
    let folder = std::env::temp_dir().join(format!("lh-notes-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&folder).unwrap();
    for (mode, level) in [(0o700, "ok"), (0o750, "warn")] {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
        let args = ["doctor", "--json", "--no-self-test", "--annotations-index"];
        let ran = fixture.run(&[&args[..], &[folder.to_str().unwrap()]].concat()).await.json();
        let checks = ran["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["check"] == "search index").unwrap();
        assert_eq!(found["level"], level, "{found}");
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn reindex_without_a_worker_is_cancelled() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let begun = fixture.run(&["reindex", "--all", "--json"]).await.expect(0).json();
    let number = begun["reindex"]["id"].as_str().unwrap().to_owned();
    let cancelled = fixture.run(&["reindex", "--cancel", &number]).await.expect(0);
    cancelled.prints(&format!("re-index {number} is cancelled; 0 jobs were removed"));
}

#[tokio::test]
async fn reindex_count_ends_at_the_timeout() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    // The count cannot end while another session holds the table lock.
    fixture.sql("begin; lock table annotations.annotation").await;
    let counting = ["reindex", "--all", "--dry-run", "--timeout", "3s"];
    fixture.run(&counting).await.expect(7).says("--timeout");
    fixture.sql("rollback").await;
    fixture.run(&["reindex", "--all", "--dry-run"]).await.expect(0).prints("0 notes");
}
