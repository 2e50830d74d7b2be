use super::*;
use leasehold_testing::s3::Rule;

#[tokio::test]
async fn held_request_waits_for_the_test() {
    let (s3, store) = setup();
    let held = s3.add(Rule::on(Op::Put).key("slow").hold());
    let slow = {
        let store = store.clone();
        tokio::spawn(async move { put(&store, "slow", "x").await })
    };
    s3.wait_fired(held).await.unwrap();
    put(&store, "quick", "y").await.unwrap();
    assert_eq!(s3.keys(), ["quick"]);
    assert!(!slow.is_finished());
    s3.remove(held);
    slow.await.unwrap().unwrap();
    assert_eq!(s3.keys(), ["quick", "slow"]);
    assert_eq!(about(&s3, "slow"), [(Op::Put, Outcome::Done)]);
}

#[tokio::test]
async fn held_request_lands_after_its_client_disconnected() {
    let (s3, store) = setup();
    s3.put_object("k", b"x").unwrap();
    let held = s3.add(Rule::on(Op::DeleteMany).hold());
    let giving_up = {
        let store = store.clone();
        tokio::spawn(async move { store.delete(&"k".into()).await })
    };
    s3.wait_fired(held).await.unwrap();
    giving_up.abort();
    assert!(giving_up.await.is_err());
    // The server notices some time later that this client is gone. A request in between is executed at
    // once, and the held one still lands after it.
    put(&store, "k", "newer").await.unwrap();
    s3.remove(held);
    let entry = s3.wait_for(Op::DeleteMany).await.unwrap();
    assert!(entry.outcome.is_applied(), "{entry:?}");
    assert_eq!(s3.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn held_request_lands_after_its_connection_closed() {
    let (s3, store) = setup();
    let later = s3.add(Rule::on(Op::Put).land_later());
    assert!(put(&store, "k", "old").await.is_err());
    s3.wait_fired(later).await.unwrap();
    assert_eq!(s3.keys(), Vec::<String>::new());
    put(&store, "k", "new").await.unwrap();
    s3.log().iter().for_each(|entry| assert_eq!(entry.outcome, Outcome::Done));
    s3.remove(later);
    let lines = s3.wait_for_times(Op::Put, 2).await.unwrap();
    assert_eq!(lines[1].outcome, Outcome::Late);
    assert_eq!(s3.read_object("k").unwrap().unwrap(), "old");
}

#[tokio::test]
async fn response_can_be_held_after_the_work() {
    let (s3, store) = setup();
    let held = s3.add(Rule::on(Op::Put).hold_reply());
    let slow = tokio::spawn(async move { put(&store, "k", "x").await });
    s3.wait_fired(held).await.unwrap();
    assert_eq!(s3.keys(), ["k"]);
    assert!(!slow.is_finished());
    s3.remove(held);
    slow.await.unwrap().unwrap();
}

#[tokio::test]
async fn number_of_held_requests_is_bounded() {
    let (s3, store) = setup();
    let later = s3.add(Rule::on(Op::Put).land_later().always());
    for n in 0..256 {
        assert!(put(&store, &format!("k{n}"), "x").await.is_err());
    }
    assert!(put(&store, "one too many", "x").await.is_err());
    assert_eq!(about(&s3, "one too many"), [(Op::Put, Outcome::Refused(503))]);
    s3.remove(later);
    s3.wait_for_times(Op::Put, 257).await.unwrap();
    assert_eq!(s3.keys().len(), 256);
}
