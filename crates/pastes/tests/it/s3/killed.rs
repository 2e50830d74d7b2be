//! A process that is killed between the put and recording it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testing::s3::{Op, Outcome, Rule};
use pastes::Pastes;

use super::{S3Rig, store_of};
use crate::rig::settings;

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

fn uploader(rig: &S3Rig) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "s3::killed::process_uploader_main", "--nocapture"])
        .env("PASTES_TEST_UPLOADER_URL", rig.database.direct_url())
        .env("PASTES_TEST_UPLOADER_S3", rig.s3.endpoint())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns a paste whose uploader was killed after the put and before recording anything.
async fn killed_after_the_put(rig: &S3Rig) -> pastes::ShortCode {
    let code = rig.paste("half done").await;
    let held = rig.s3.add(Rule::on(Op::Put).hold_reply());
    let mut child = uploader(rig);
    rig.s3.wait_fired(held).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    rig.s3.remove(held);
    assert_eq!(rig.keys().len(), 1);
    assert_eq!(rig.status(&code).await, "IN_PROGRESS");
    let over = "update leasehold.lease set lease_expires_at = now() - interval '1 second'";
    rig.client.batch_execute(over).await.unwrap();
    code
}

/// Lets the leases of the killed process expire, then works until no job is left.
async fn recover(rig: &S3Rig) {
    rig.work().await;
    rig.later(Duration::from_secs(3600)).await;
    rig.work_it_off().await;
}

#[tokio::test]
async fn e2_an_uploader_killed_after_its_put_is_succeeded_by_one_with_the_same_key() {
    let rig = S3Rig::new().await;
    let code = killed_after_the_put(&rig).await;
    let key = rig.keys();
    recover(&rig).await;
    assert_eq!(rig.status(&code).await, "PROCESSED");
    assert_eq!(rig.keys(), key, "the same intent, the same key");
    let puts: Vec<Outcome> =
        rig.s3.log().iter().filter(|e| e.op == Op::Put).map(|e| e.outcome).collect();
    assert_eq!(puts, [Outcome::Done, Outcome::Refused(412)]);
    assert_eq!(rig.bytes(&code).await, b"half done");
    rig.assert_settled().await;
}

#[tokio::test]
async fn e2_the_object_of_a_killed_uploader_goes_with_its_paste() {
    let rig = S3Rig::new().await;
    let code = killed_after_the_put(&rig).await;
    rig.expire(&code).await;
    rig.sweep().await;
    recover(&rig).await;
    assert_eq!(rig.deletion_status(&code).await, "DELETED");
    assert_eq!(rig.keys(), Vec::<String>::new(), "no orphan");
    rig.assert_settled().await;
}
