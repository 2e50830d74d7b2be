use leasehold_testing::TestEngine;

use super::{MakeThumbnail, make_thumbnail, upload};

#[tokio::test]
async fn upload_makes_one_thumbnail() {
    let t = TestEngine::new().await;
    upload(t.engine(), "cat.png").await.expect("uploaded");
    t.assert_enqueued::<MakeThumbnail>(|job| job.file == "cat.png").await;
    assert_eq!(t.drain(t.worker().handle(make_thumbnail)).await.completed, 1);
}

#[tokio::test]
async fn other_files_are_retried() {
    let t = TestEngine::new().await;
    let job = MakeThumbnail { file: "notes.txt".to_owned() };
    let why = t.perform(make_thumbnail, job).await.assert_retry();
    assert_eq!(why, "notes.txt is not a PNG file");
}
