use super::*;
use leasehold_testing::s3::Rule;
use object_store::Error;

#[tokio::test]
async fn rule_fails_the_given_number_of_requests() {
    let (s3, store) = setup();
    for status in [500, 503, 429, 403] {
        s3.clear_log();
        let rule = s3.add(Rule::on(Op::Put).key("blobs/").fail(status).skip(1).times(2));
        put(&store, "blobs/k", "x").await.unwrap();
        put(&store, "other", "x").await.unwrap();
        for _ in 0..2 {
            let refused = put(&store, "blobs/k", "y").await.unwrap_err();
            let denied = matches!(refused, Error::PermissionDenied { .. });
            assert_eq!(denied, status == 403, "{refused:?}");
        }
        get(&store, "blobs/k").await.unwrap();
        assert_eq!(s3.fired(rule), 2);
        assert_eq!(s3.read_object("blobs/k").unwrap().unwrap(), "x");
        put(&store, "blobs/k", "z").await.unwrap();
        let (done, refused) = ((Op::Put, Outcome::Done), (Op::Put, Outcome::Refused(status)));
        let read = (Op::Get, Outcome::Done);
        assert_eq!(about(&s3, "blobs/k"), [done, refused, refused, read, done]);
        s3.remove(rule);
    }
}

#[tokio::test]
async fn lost_response_leaves_the_object() {
    let (s3, store) = setup();
    let lost = s3.add(Rule::on(Op::Put).apply_then_drop());
    assert!(put(&store, "k", "x").await.is_err());
    s3.wait_fired(lost).await.unwrap();
    assert_eq!(s3.keys(), ["k"]);
    assert_eq!(about(&s3, "k"), [(Op::Put, Outcome::Lost)]);
    put(&store, "k", "x").await.unwrap();
}

#[tokio::test]
async fn dropped_request_changes_nothing() {
    let (s3, store) = setup();
    s3.put_object("k", b"x").unwrap();
    s3.add(Rule::on_everything().drop_before().times(2));
    assert!(store.delete(&"k".into()).await.is_err());
    assert!(get(&store, "k").await.is_err());
    assert_eq!(get(&store, "k").await.unwrap(), "x");
    // This client sends a single delete as a batch of one.
    assert_eq!(s3.log()[0].outcome, Outcome::Dropped);
    assert_eq!(s3.log()[1].outcome, Outcome::Dropped);
}

#[tokio::test]
async fn one_key_of_a_batch_can_be_refused() {
    let (s3, store) = setup();
    for key in ["a", "b", "c"] {
        s3.put_object(key, b"x").unwrap();
    }
    s3.add(Rule::on(Op::DeleteMany).key("b").refuse_keys());
    use futures_util::StreamExt;
    let paths = ["a", "b", "c"].map(|key| Ok(key.into()));
    let all = store.delete_stream(futures_util::stream::iter(paths).boxed());
    let answers: Vec<bool> = all.map(|answer| answer.is_ok()).collect().await;
    assert_eq!(answers, [true, false, true]);
    assert_eq!(s3.keys(), ["b"]);
    assert_eq!(about(&s3, "b"), [(Op::DeleteMany, Outcome::Refused(403))]);
    assert_eq!(about(&s3, "c"), [(Op::DeleteMany, Outcome::Done)]);
}

#[tokio::test]
async fn lists_omit_hidden_objects() {
    let (s3, store) = setup();
    for key in ["blobs/1", "blobs/2", "blobs/3"] {
        s3.put_object(key, b"x").unwrap();
    }
    let rule = s3.add(Rule::hide_from_lists("/2"));
    assert_eq!(suite::keys(&store, "blobs").await, ["blobs/1", "blobs/3"]);
    assert_eq!(suite::keys(&store, "blobs").await, ["blobs/1", "blobs/3"]);
    assert_eq!(get(&store, "blobs/2").await.unwrap(), "x");
    assert_eq!(s3.keys().len(), 3);
    s3.remove(rule);
    assert_eq!(suite::keys(&store, "blobs").await.len(), 3);
}

#[tokio::test]
async fn outage_cuts_open_and_refuses_new_connections() {
    let (s3, store) = setup();
    put(&store, "k", "x").await.unwrap();
    s3.go_down();
    assert!(get(&store, "k").await.is_err());
    assert!(get(&store, "k").await.is_err());
    assert!(s3.wait_turned_away(1).await);
    s3.come_back();
    assert_eq!(get(&store, "k").await.unwrap(), "x");
    assert_eq!(s3.count(Op::Get), 1);
}

#[tokio::test]
async fn first_matching_rule_fires() {
    let (s3, store) = setup();
    let first = s3.add(Rule::on(Op::Put).fail(500));
    let second = s3.add(Rule::on(Op::Put).fail(503));
    assert!(put(&store, "k", "x").await.is_err());
    assert_eq!((s3.fired(first), s3.fired(second)), (1, 0));
    assert!(put(&store, "k", "x").await.is_err());
    assert_eq!((s3.fired(first), s3.fired(second)), (1, 1));
    s3.add(Rule::on_everything().fail(500).always());
    assert!(put(&store, "k", "x").await.is_err());
    s3.heal();
    put(&store, "k", "x").await.unwrap();
}
