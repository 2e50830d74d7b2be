//! A process that is killed between the put and recording it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testing::s3::{Op, Outcome, Rule};
use pastes::Pastes;

use super::{S3Fixture, store_of};
use crate::fixture::settings;

/// The child process of the tests: uploads until it is killed. Returns at once if it is not the child.
#[expect(clippy::exit, reason = "the process ends here")]
#[test]
fn process_uploader_main() {
    let Ok(url) = std::env::var("PASTES_TEST_UPLOADER_URL") else { return };
    let endpoint = std::env::var("PASTES_TEST_UPLOADER_S3").unwrap();
    // The test holds our stdin: when the test ends, this process exits.
    std::thread::spawn(|| {
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
        std::process::exit(9);
    });
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let engine = Leasehold::connect(&url).await.unwrap();
        let pastes = Pastes::start(engine.clone(), store_of(&endpoint), settings()).await.unwrap();
        pastes::worker(&pastes, engine.worker()).unwrap().run_until_idle().await.unwrap();
    });
}

fn uploader(fixture: &S3Fixture) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "s3::killed::process_uploader_main", "--nocapture"])
        .env("PASTES_TEST_UPLOADER_URL", fixture.database.direct_url())
        .env("PASTES_TEST_UPLOADER_S3", fixture.s3.endpoint())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns a paste whose uploader was killed after the put and before recording anything.
async fn killed_after_the_put(fixture: &S3Fixture) -> pastes::ShortCode {
    let code = fixture.paste("half done").await;
    let held = fixture.s3.add(Rule::on(Op::Put).hold_reply());
    let mut child = uploader(fixture);
    fixture.s3.wait_fired(held).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    fixture.s3.remove(held);
    assert_eq!(fixture.keys().len(), 1);
    assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
    let over = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second'";
    fixture.client.batch_execute(over).await.unwrap();
    code
}

/// Lets the leases of the killed process expire, then works until no job is left.
async fn recover(fixture: &S3Fixture) {
    fixture.work().await;
    fixture.later(Duration::from_secs(3600)).await;
    fixture.work_it_off().await;
}

#[tokio::test]
async fn e2_upload_after_a_kill_uses_the_same_key() {
    let fixture = S3Fixture::new().await;
    let code = killed_after_the_put(&fixture).await;
    let key = fixture.keys();
    recover(&fixture).await;
    assert_eq!(fixture.status(&code).await, "PROCESSED");
    assert_eq!(fixture.keys(), key, "the same content has the same key");
    let puts: Vec<Outcome> =
        fixture.s3.log().iter().filter(|e| e.op == Op::Put).map(|e| e.outcome).collect();
    assert_eq!(puts, [Outcome::Done, Outcome::Refused(412)]);
    assert_eq!(fixture.bytes(&code).await, b"half done");
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e2_object_of_a_killed_uploader_is_deleted_with_its_paste() {
    let fixture = S3Fixture::new().await;
    let code = killed_after_the_put(&fixture).await;
    fixture.expire(&code).await;
    fixture.sweep().await;
    recover(&fixture).await;
    assert_eq!(fixture.deletion_status(&code).await, "DELETED");
    assert_eq!(fixture.keys(), Vec::<String>::new(), "no orphan is left");
    fixture.assert_settled().await;
}
